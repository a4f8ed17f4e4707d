#include "scantape/mse.h"

#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"

namespace scantape::autograd {

Variable mse(const Variable& prediction, const Variable& target, const Variable& mask) {
  if (target.recorded() || mask.recorded())
    throw Error(Code::invalid_argument, "mse: target and mask have no gradient, they must be constants");
  MseForward forward;
  forward.prediction = prediction.value();
  forward.target = target.value();
  forward.mask = mask.value();
  Tensor loss = Tensor::empty({}, DType::f64, prediction.device());
  forward.loss = loss.writable();
  call_op(prediction.device(), mse_forward, mse_forward_workspace, forward);

  return record(
      "mse", {&prediction}, {loss},
      [prediction = Saved(prediction), target = Saved(target), mask = Saved(mask)](BackwardPass& pass) {
        MseBackward backward;
        backward.prediction = prediction.read(pass.op(), "prediction");
        backward.target = target.read(pass.op(), "target");
        backward.mask = mask.read(pass.op(), "mask");
        backward.d_loss = pass.cotangent(0);
        backward.d_prediction = pass.gradient(0);
        pass.call(mse_backward, mse_backward_workspace, backward);
      })[0];
}

}  // namespace scantape::autograd
