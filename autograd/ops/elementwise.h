#pragma once

#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"

namespace scantape::autograd {

/// Records  y = f(x),  an op whose arguments are x and y, then x, d_y and d_x.
template <class Forward, class Backward>
Variable elementwise(const char* op, const Variable& x, Status (*forward)(const Forward&, Stream) noexcept,
                     std::int64_t (*forward_workspace)(const Forward&) noexcept,
                     Status (*backward)(const Backward&, Stream) noexcept,
                     std::int64_t (*backward_workspace)(const Backward&) noexcept) {
  Forward args;
  args.x = x.value();
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  args.y = y.writable();
  call_op(x.device(), forward, forward_workspace, args);

  return record(op, {&x}, {y}, [x = Saved(x), backward, backward_workspace](BackwardPass& pass) {
    Backward args;
    args.x = x.read(pass.op(), "x");
    args.d_y = pass.cotangent(0);
    args.d_x = pass.gradient(0);
    pass.call(backward, backward_workspace, args);
  })[0];
}

}  // namespace scantape::autograd
