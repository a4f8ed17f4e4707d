#include "scantape/rms_norm.h"

#include "norm.h"

namespace scantape::reference {

Status rms_norm_forward(const RmsNormForward& args) noexcept {
  return run_norm_forward<Norm::rms>(args);
}

Status rms_norm_backward(const RmsNormBackward& args) noexcept {
  return run_norm_backward<Norm::rms>("rms_norm_backward", args);
}

}  // namespace scantape::reference
