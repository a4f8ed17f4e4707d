#include "scantape/neg_exp.h"

#include <cmath>

#include "elementwise.h"
#include "in_f32.h"

namespace scantape::reference {

Status neg_exp_forward(const NegExpForward& args) noexcept {
  if (is_16_bit(args.x.dtype)) return in_f32("neg_exp", args, neg_exp_forward);
  elementwise_forward(args, [](auto x) { return -std::exp(x); });
  return {};
}

Status neg_exp_backward(const NegExpBackward& args) noexcept {
  if (is_16_bit(args.x.dtype)) return in_f32("neg_exp_backward", args, neg_exp_backward);
  elementwise_backward(args, [](auto x) { return -std::exp(x); });
  return {};
}

}  // namespace scantape::reference
