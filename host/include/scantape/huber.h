#pragma once

#include "scantape/op.h"

namespace scantape {

/// Huber loss:  loss = sum over the elements counted of rho(prediction - target) / n.
///   rho(d) = d^2 / 2 where |d| <= k, else k (|d| - k / 2).
/// Counted are the elements whose mask is not 0 (all where there is no mask); n is their number. n = 0 gives 0.
///
/// Shapes   prediction, target: any, equal, never broadcast;  mask as prediction (optional);  loss [] (one element).
/// Dtypes   prediction, target, mask: f32 or f64, equal;  loss: f64.
/// Units    k in those of prediction and target, finite and above 0.
/// Accuracy summed in f64 in one fixed order. Elements not counted are selected away: NaN there is harmless.
/// Memory   contiguous. CUDA: workspace for partial sums.
/// Async    enqueues on `stream`; does not synchronise or allocate. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap, k), cuda.
/// Source   Huber 1964, "Robust estimation of a location parameter".
/// Example
///   const Tensor prediction = Tensor::from({3}, std::vector<double>{1, 2, 99}), target = Tensor::zeros({3}, DType::f64);
///   const Tensor mask = Tensor::from({3}, std::vector<double>{1, 1, 0});
///   Tensor loss = Tensor::empty({}, DType::f64);
///   HuberForward forward;
///   forward.prediction = prediction;
///   forward.target = target;
///   forward.mask = mask;
///   forward.k = 1;
///   forward.loss = loss.writable();
///   require(huber_forward(forward));  // loss is 1
struct HuberForward {
  ConstView prediction, target, mask;
  double k = 1;
  View loss;
  Workspace workspace;
};

/// d_prediction = clamp(prediction - target, -k, k) / n * d_loss where counted, else 0. `loss` is not read. The target
/// has no gradient.
///
/// Shapes   d_loss [] (f64);  d_prediction as prediction.
/// Example
///   const Tensor d_loss = Tensor::full({}, 1, DType::f64);
///   Tensor d_prediction = Tensor::empty({3}, DType::f64);
///   HuberBackward backward;
///   static_cast<HuberForward&>(backward) = forward;
///   backward.d_loss = d_loss;
///   backward.d_prediction = {d_prediction.writable(), WriteMode::overwrite};
///   require(huber_backward(backward));  // d_prediction is 0.5, 0.5, 0
struct HuberBackward : HuberForward {
  ConstView d_loss;
  Gradient d_prediction;
};

SCANTAPE_DECLARE_OP(huber_forward, HuberForward);
SCANTAPE_DECLARE_OP(huber_backward, HuberBackward);

}  // namespace scantape
