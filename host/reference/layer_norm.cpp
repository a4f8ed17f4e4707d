#include "scantape/layer_norm.h"

#include "in_f32.h"
#include "norm.h"

namespace scantape::reference {

Status layer_norm_forward(const LayerNormForward& args) noexcept {
  if (is_16_bit(args.weight.dtype)) return in_f32("layer_norm", args, layer_norm_forward);
  return run_norm_forward<Norm::layer>(args);
}

Status layer_norm_backward(const LayerNormBackward& args) noexcept {
  if (is_16_bit(args.weight.dtype)) return in_f32("layer_norm_backward", args, layer_norm_backward);
  return run_norm_backward<Norm::layer>("layer_norm_backward", args);
}

}  // namespace scantape::reference
