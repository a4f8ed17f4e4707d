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
struct MseForward {
  ConstView prediction, target, mask;
  View loss;
  Workspace workspace;
};

/// d_prediction = 2 (prediction - target) / n * d_loss where counted, else 0. `loss` is not read. The target has no gradient.
///
/// Shapes   d_loss [] (f64);  d_prediction as prediction.
struct MseBackward : MseForward {
  ConstView d_loss;
  Gradient d_prediction;
};

SCANTAPE_DECLARE_OP(mse_forward, MseForward);
SCANTAPE_DECLARE_OP(mse_backward, MseBackward);

}  // namespace scantape
