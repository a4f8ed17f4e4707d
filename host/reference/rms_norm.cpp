#include "scantape/rms_norm.h"

#include "in_f32.h"
#include "norm.h"

namespace scantape::reference {

Status rms_norm_forward(const RmsNormForward& args) noexcept {
  if (is_16_bit(args.weight.dtype)) return in_f32("rms_norm", args, rms_norm_forward);
  return run_norm_forward<Norm::rms>(args);
}

Status rms_norm_backward(const RmsNormBackward& args) noexcept {
  if (is_16_bit(args.weight.dtype)) return in_f32("rms_norm_backward", args, rms_norm_backward);
  return run_norm_backward<Norm::rms>("rms_norm_backward", args);
}

}  // namespace scantape::reference
