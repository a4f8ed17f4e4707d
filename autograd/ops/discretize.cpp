#include "scantape/discretize.h"

#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"

namespace scantape::autograd {

Discretized discretize(const Variable& dt, const Variable& A, const Variable& B, DiscretizeMethod method,
                       bool with_F) {
  DiscretizeForward forward;
  forward.dt = dt.value();
  forward.A = A.value();
  forward.B = B.value();
  forward.method = method;
  const bool per_head = form_of(forward) == DiscretizeForm::per_head;
  const auto empty = [&](bool wanted, const Shape& shape, View& view) {
    if (!wanted) return Tensor();
    Tensor tensor = Tensor::empty(shape, A.dtype(), A.device());
    view = tensor.writable();
    return tensor;
  };
  // Those that the form has; the op refuses a B where there is none, and wants one where there is.
  const Shape as_A_bar = per_head ? dt.shape() : A.shape();
  const std::vector<Tensor> outputs = {
      empty(true, as_A_bar, forward.A_bar), empty(!per_head && B.present(), B.shape(), forward.B_bar),
      empty(with_F, as_A_bar, forward.F), empty(per_head, as_A_bar, forward.s)};
  call_op(A.device(), discretize_forward, discretize_forward_workspace, forward);

  const auto recorded = record("discretize", {&dt, &A, &B}, outputs,
                               [dt = Saved(dt), A = Saved(A), B = Saved(B), method](BackwardPass& pass) {
                                 DiscretizeBackward backward;
                                 backward.dt = dt.read(pass.op(), "dt");
                                 backward.A = A.read(pass.op(), "A");
                                 backward.B = B.read(pass.op(), "B");
                                 backward.method = method;
                                 backward.d_A_bar = pass.cotangent(0);
                                 backward.d_B_bar = pass.cotangent(1);
                                 backward.d_F = pass.cotangent(2);
                                 backward.d_s = pass.cotangent(3);
                                 backward.d_dt = pass.gradient(0);
                                 backward.d_A = pass.gradient(1);
                                 backward.d_B = pass.gradient(2);
                                 pass.call(discretize_backward, discretize_backward_workspace, backward);
                               });
  return {recorded[0], recorded[1], recorded[2], recorded[3]};
}

}  // namespace scantape::autograd
