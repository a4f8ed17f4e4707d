#pragma once

#include "scantape/op.h"

namespace scantape {

/// Mean squared error:  loss = sum over the elements counted of (prediction - target)^2 / n.
/// Counted are the elements whose mask is not 0 (all where there is no mask); n is their number. n = 0 gives 0.
///
/// Shapes   prediction, target: any, equal, never broadcast;  mask as prediction (optional);  loss [] (one element).
/// Dtypes   prediction, target, mask: f32 or f64, equal;  loss: f64.
/// Accuracy summed in f64 in one fixed order. Elements not counted are selected away: NaN there is harmless.
/// Memory   contiguous. CUDA: workspace for partial sums.
/// Async    enqueues on `stream`; does not synchronise or allocate. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap), cuda.
/// Example
///   const Tensor prediction = Tensor::from({3}, std::vector<double>{1, 2, 99}), target = Tensor::zeros({3}, DType::f64);
///   const Tensor mask = Tensor::from({3}, std::vector<double>{1, 1, 0});
///   Tensor loss = Tensor::empty({}, DType::f64);
///   MseForward forward;
///   forward.prediction = prediction;
///   forward.target = target;
///   forward.mask = mask;
///   forward.loss = loss.writable();
///   require(mse_forward(forward));  // loss is 2.5
struct MseForward {
  ConstView prediction, target, mask;
  View loss;
  Workspace workspace;
};

/// d_prediction = 2 (prediction - target) / n * d_loss where counted, else 0. `loss` is not read. The target has no gradient.
///
/// Shapes   d_loss [] (f64);  d_prediction as prediction.
/// Example
///   const Tensor d_loss = Tensor::full({}, 1, DType::f64);
///   Tensor d_prediction = Tensor::empty({3}, DType::f64);
///   MseBackward backward;
///   static_cast<MseForward&>(backward) = forward;
///   backward.d_loss = d_loss;
///   backward.d_prediction = {d_prediction.writable(), WriteMode::overwrite};
///   require(mse_backward(backward));  // d_prediction is 1, 2, 0
struct MseBackward : MseForward {
  ConstView d_loss;
  Gradient d_prediction;
};

SCANTAPE_DECLARE_OP(mse_forward, MseForward);
SCANTAPE_DECLARE_OP(mse_backward, MseBackward);

}  // namespace scantape
