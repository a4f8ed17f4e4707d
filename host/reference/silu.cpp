#include "scantape/silu.h"

#include "elementwise.h"
#include "in_f32.h"

namespace scantape::reference {

Status silu_forward(const SiluForward& args) noexcept {
  if (is_16_bit(args.x.dtype)) return in_f32("silu", args, silu_forward);
  elementwise_forward(args, [](auto x) { return silu(x); });
  return {};
}

Status silu_backward(const SiluBackward& args) noexcept {
  if (is_16_bit(args.x.dtype)) return in_f32("silu_backward", args, silu_backward);
  elementwise_backward(args, [](auto x) { return silu_derivative(x); });
  return {};
}

}  // namespace scantape::reference
