#include "scantape/layer_norm.h"

#include "norm.h"

namespace scantape::reference {

Status layer_norm_forward(const LayerNormForward& args) noexcept {
  return run_norm_forward<Norm::layer>(args);
}

Status layer_norm_backward(const LayerNormBackward& args) noexcept {
  return run_norm_backward<Norm::layer>("layer_norm_backward", args);
}

}  // namespace scantape::reference
