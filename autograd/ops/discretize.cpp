#include "scantape/discretize.h"

#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"

namespace scantape::autograd {

Discretized discretize(const Variable& dt, const Variable& A, const Variable& B, DiscretizeMethod method) {
  DiscretizeForward forward;
  forward.dt = dt.value();
  forward.A = A.value();
  forward.B = B.value();
  forward.method = method;
  Tensor A_bar = Tensor::empty(A.shape(), A.dtype(), A.device());
  Tensor B_bar = Tensor::empty(B.shape(), A.dtype(), A.device());
  forward.A_bar = A_bar.writable();
  forward.B_bar = B_bar.writable();
  call_op(A.device(), discretize_forward, discretize_forward_workspace, forward);

  auto outputs = record("discretize", {&dt, &A, &B}, {A_bar, B_bar},
                        [dt = Saved(dt), A = Saved(A), B = Saved(B), method](BackwardPass& pass) {
                          DiscretizeBackward backward;
                          backward.dt = dt.read(pass.op(), "dt");
                          backward.A = A.read(pass.op(), "A");
                          backward.B = B.read(pass.op(), "B");
                          backward.method = method;
                          backward.d_A_bar = pass.cotangent(0);
                          backward.d_B_bar = pass.cotangent(1);
                          backward.d_dt = pass.gradient(0);
                          backward.d_A = pass.gradient(1);
                          backward.d_B = pass.gradient(2);
                          pass.call(discretize_backward, discretize_backward_workspace, backward);
                        });
  return {outputs[0], outputs[1]};
}

}  // namespace scantape::autograd
