#include "scantape/silu.h"

#include "elementwise.h"

namespace scantape::reference {

Status silu_forward(const SiluForward& args) noexcept {
  elementwise_forward(args, [](auto x) { return silu(x); });
  return {};
}

Status silu_backward(const SiluBackward& args) noexcept {
  elementwise_backward(args, [](auto x) { return silu_derivative(x); });
  return {};
}

}  // namespace scantape::reference
