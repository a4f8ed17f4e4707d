#pragma once

#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"

/// What the losses share: a prediction with a gradient, a target and a mask without, a scalar in f64.
namespace scantape::autograd {

/// Runs and records a loss. `set` puts the loss's number into its argument struct.
template <class Forward, class Backward, class Set>
Variable record_loss(const char* op, Status (*forward_op)(const Forward&, Stream) noexcept,
                     std::int64_t (*forward_workspace)(const Forward&) noexcept,
                     Status (*backward_op)(const Backward&, Stream) noexcept,
                     std::int64_t (*backward_workspace)(const Backward&) noexcept, const Variable& prediction,
                     const Variable& target, const Variable& mask, const Set& set) {
  if (target.recorded() || mask.recorded())
    throw Error(Code::invalid_argument,
                std::string(op) + ": target and mask have no gradient, they must be constants");
  Forward forward;
  forward.prediction = prediction.value();
  forward.target = target.value();
  forward.mask = mask.value();
  set(forward);
  Tensor loss = Tensor::empty({}, DType::f64, prediction.device());
  forward.loss = loss.writable();
  call_op(prediction.device(), forward_op, forward_workspace, forward);

  return record(op, {&prediction}, {loss},
                [prediction = Saved(prediction), target = Saved(target), mask = Saved(mask), set, backward_op,
                 backward_workspace](BackwardPass& pass) {
                  Backward backward;
                  backward.prediction = prediction.read(pass.op(), "prediction");
                  backward.target = target.read(pass.op(), "target");
                  backward.mask = mask.read(pass.op(), "mask");
                  set(backward);
                  backward.d_loss = pass.cotangent(0);
                  backward.d_prediction = pass.gradient(0);
                  pass.call(backward_op, backward_workspace, backward);
                })[0];
}

}  // namespace scantape::autograd
