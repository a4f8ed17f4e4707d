#pragma once

#include "check.h"

namespace scantape {

/// The checks of  y = f(x),  element by element, in any type: y may be x.
template <class Args>
Status check_elementwise_forward(const char* op, const Args& args) noexcept {
  Check check(op);
  check.takes_16_bits();
  check.input("x", args.x, {"...", Layout::rows});
  check.output("y", args.y, {"...", Layout::rows});
  check.may_be("y", "x");
  return check.finish();
}

/// The checks of  d_x = d_y * f'(x), in any type: d_x may be d_y.
template <class Args>
Status check_elementwise_backward(const char* op, const Args& args) noexcept {
  Check check(op);
  check.takes_16_bits();
  check.input("x", args.x, {"...", Layout::rows});
  check.input("d_y", args.d_y, {"...", Layout::rows});
  check.gradient("d_x", args.d_x, {"...", Layout::rows});
  check.may_be("d_x", "d_y");
  return check.finish();
}

}  // namespace scantape
