#include "scantape/causal_conv1d_step.h"

#include "common/one_step.h"

namespace scantape::reference {

Status causal_conv1d_step_forward(const CausalConv1dStepForward& args) noexcept {
  return reference::causal_conv1d_forward(as_sequence(args));
}

Status causal_conv1d_step_backward(const CausalConv1dStepBackward& args) noexcept {
  return reference::causal_conv1d_backward(as_sequence(args));
}

}  // namespace scantape::reference
