#include "scantape/silu.h"

#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"

namespace scantape::autograd {

Variable silu(const Variable& x) {
  SiluForward forward;
  forward.x = x.value();
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  forward.y = y.writable();
  call_op(x.device(), silu_forward, silu_forward_workspace, forward);

  return record("silu", {&x}, {y}, [x = Saved(x)](BackwardPass& pass) {
    SiluBackward backward;
    backward.x = x.read(pass.op(), "x");
    backward.d_y = pass.cotangent(0);
    backward.d_x = pass.gradient(0);
    pass.call(silu_backward, silu_backward_workspace, backward);
  })[0];
}

}  // namespace scantape::autograd
