#include "scantape/softplus.h"

#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"

namespace scantape::autograd {

Variable softplus(const Variable& x) {
  SoftplusForward forward;
  forward.x = x.value();
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  forward.y = y.writable();
  call_op(x.device(), softplus_forward, softplus_forward_workspace, forward);

  return record("softplus", {&x}, {y}, [x = Saved(x)](BackwardPass& pass) {
    SoftplusBackward backward;
    backward.x = x.read(pass.op(), "x");
    backward.d_y = pass.cotangent(0);
    backward.d_x = pass.gradient(0);
    pass.call(softplus_backward, softplus_backward_workspace, backward);
  })[0];
}

}  // namespace scantape::autograd
