#include "scantape/softplus.h"

#include "elementwise.h"
#include "in_f32.h"

namespace scantape::reference {

namespace {

// PyTorch's threshold: 20 itself takes the logarithm.
template <class T>
T softplus(T x) noexcept {
  return x > 20 ? x : std::log1p(std::exp(x));
}

template <class T>
T softplus_derivative(T x) noexcept {
  return x > 20 ? T(1) : sigmoid(x);
}

}  // namespace

Status softplus_forward(const SoftplusForward& args) noexcept {
  if (is_16_bit(args.x.dtype)) return in_f32("softplus", args, softplus_forward);
  elementwise_forward(args, [](auto x) { return softplus(x); });
  return {};
}

Status softplus_backward(const SoftplusBackward& args) noexcept {
  if (is_16_bit(args.x.dtype)) return in_f32("softplus_backward", args, softplus_backward);
  elementwise_backward(args, [](auto x) { return softplus_derivative(x); });
  return {};
}

}  // namespace scantape::reference
