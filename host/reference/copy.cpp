#include "scantape/copy.h"

#include "elementwise.h"
#include "in_f32.h"

namespace scantape::reference {

Status copy_forward(const CopyForward& args) noexcept {
  if (is_16_bit(args.x.dtype)) return in_f32("copy", args, copy_forward);
  elementwise_forward(args, [](auto x) { return x; });
  return {};
}

Status copy_backward(const CopyBackward& args) noexcept {
  if (is_16_bit(args.x.dtype)) return in_f32("copy_backward", args, copy_backward);
  elementwise_backward(args, [](auto x) { return decltype(x)(1); });
  return {};
}

}  // namespace scantape::reference
