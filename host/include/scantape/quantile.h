#pragma once

#include "scantape/op.h"

namespace scantape {

/// Quantile (pinball) loss:  loss = sum over the elements counted of rho(prediction - target) / n.
///   rho(d) = -q d where d < 0, else (1 - q) d.
/// What minimises it is the q-quantile of the target: too low a prediction costs q a unit, too high a one 1 - q.
/// Counted are the elements whose mask is not 0 (all where there is no mask); n is their number. n = 0 gives 0.
///
/// Shapes   prediction, target: any, equal, never broadcast;  mask as prediction (optional);  loss [] (one element).
/// Dtypes   prediction, target, mask: f32 or f64, equal;  loss: f64.
/// Units    q is a probability, above 0 and below 1.
/// Accuracy summed in f64 in one fixed order. Elements not counted are selected away: NaN there is harmless.
/// Memory   contiguous. CUDA: workspace for partial sums.
/// Async    enqueues on `stream`; does not synchronise or allocate. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap, q), cuda.
/// Source   Koenker, Bassett 1978, "Regression quantiles".
/// Example
///   const Tensor prediction = Tensor::from({3}, std::vector<double>{1, -2, 99}), target = Tensor::zeros({3}, DType::f64);
///   const Tensor mask = Tensor::from({3}, std::vector<double>{1, 1, 0});
///   Tensor loss = Tensor::empty({}, DType::f64);
///   QuantileForward forward;
///   forward.prediction = prediction;
///   forward.target = target;
///   forward.mask = mask;
///   forward.q = 0.9;
///   forward.loss = loss.writable();
///   require(quantile_forward(forward));  // loss is 0.95
struct QuantileForward {
  ConstView prediction, target, mask;
  double q = 0.5;
  View loss;
  Workspace workspace;
};

/// With d = prediction - target: d_prediction = (-q where d < 0, 1 - q where d > 0, 0 where d = 0) / n * d_loss where
/// counted, else 0. `loss` is not read. The target has no gradient.
///
/// Shapes   d_loss [] (f64);  d_prediction as prediction.
/// Example
///   const Tensor d_loss = Tensor::full({}, 1, DType::f64);
///   Tensor d_prediction = Tensor::empty({3}, DType::f64);
///   QuantileBackward backward;
///   static_cast<QuantileForward&>(backward) = forward;
///   backward.d_loss = d_loss;
///   backward.d_prediction = {d_prediction.writable(), WriteMode::overwrite};
///   require(quantile_backward(backward));  // d_prediction is 0.05, -0.45, 0
struct QuantileBackward : QuantileForward {
  ConstView d_loss;
  Gradient d_prediction;
};

SCANTAPE_DECLARE_OP(quantile_forward, QuantileForward);
SCANTAPE_DECLARE_OP(quantile_backward, QuantileBackward);

}  // namespace scantape
