#include "scantape/cross_entropy.h"

#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"

namespace scantape::autograd {

Variable cross_entropy(const Variable& logits, const Tensor& target, std::int32_t ignore_index) {
  CrossEntropyForward forward;
  forward.logits = logits.value();
  forward.target = target;
  forward.ignore_index = ignore_index;
  Shape rows = target.shape();
  rows.append(2);
  Tensor loss = Tensor::empty({}, DType::f64, logits.device());
  Tensor statistics = Tensor::empty(rows, at_least_f32(logits.dtype()), logits.device());
  forward.loss = loss.writable();
  forward.statistics = statistics.writable();
  call_op(logits.device(), cross_entropy_forward, cross_entropy_forward_workspace, forward);

  return record("cross_entropy", {&logits}, {loss},
                [logits = Saved(logits), target = Saved(target), statistics = Saved(statistics),
                 ignore_index](BackwardPass& pass) {
                  CrossEntropyBackward backward;
                  backward.logits = logits.read(pass.op(), "logits");
                  backward.target = target.read(pass.op(), "target");
                  backward.ignore_index = ignore_index;
                  static_cast<ConstView&>(backward.statistics) = statistics.read(pass.op(), "statistics");
                  backward.d_loss = pass.cotangent(0);
                  backward.d_logits = pass.gradient(0);
                  pass.call(cross_entropy_backward, cross_entropy_backward_workspace, backward);
                })[0];
}

}  // namespace scantape::autograd
