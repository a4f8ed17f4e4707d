#pragma once

#include "scantape/op.h"

namespace scantape {

/// Affine map of the last axis:  y = x W^T + b.
///
/// Shapes   x [..., I], weight [O, I], bias [O] (optional), y [..., O]; the leading dimensions of x and y are equal and
///          flattened to M rows, never broadcast. M may be 0.
/// Dtypes   f32, f64, bf16 or f16, all equal. Those of 16 bits are summed in f32, y and d_x rounded once; their d_weight
///          and d_bias are f32.
/// Accuracy sums over I in the data's precision, in one fixed order per (dtype, O, I) that does not depend on M, the
///          row or the number of threads; no TF32. Relative RMS error at most 1e-5 (f32), 1e-10 (f64).
/// Memory   rows of x and y may be strided; weight contiguous. y overlaps nothing else. CUDA: no workspace forward.
/// Async    enqueues on `stream`; does not synchronise or allocate. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap), cuda (launch or product failed).
/// Source   the gradient is  d_x = d_y W, d_W = d_y^T x, d_b = sum_rows d_y.
/// Example
///   const Tensor x = Tensor::from({1, 2}, std::vector<double>{1, 2});
///   const Tensor weight = Tensor::from({2, 2}, std::vector<double>{1, 0, 1, 1});
///   const Tensor bias = Tensor::from({2}, std::vector<double>{10, 20});
///   Tensor y = Tensor::empty({1, 2}, DType::f64);
///   ProjectionForward forward;
///   forward.x = x;
///   forward.weight = weight;
///   forward.bias = bias;
///   forward.y = y.writable();
///   require(projection_forward(forward));  // y is 11, 23
struct ProjectionForward {
  ConstView x, weight, bias;
  View y;
  Workspace workspace;
};

/// Gradient of projection. `y` and `bias` are not read (bias tells only by its presence whether d_bias may be asked).
///
/// Shapes   d_y as y;  d_x as x, d_weight as weight, d_bias as bias, each with its write mode.
/// Accuracy d_weight and d_bias sum over the M rows in one fixed order; relative RMS error at most 1e-4 (f32), 1e-10 (f64).
/// Memory   CUDA: workspace for the partial sums of d_bias, by projection_backward_workspace.
/// Example
///   const Tensor d_y = Tensor::from({1, 2}, std::vector<double>{1, 3});
///   Tensor d_x = Tensor::empty({1, 2}, DType::f64), d_weight = Tensor::full({2, 2}, 100, DType::f64);
///   ProjectionBackward backward;
///   backward.x = x;
///   backward.weight = weight;
///   backward.d_y = d_y;
///   backward.d_x = {d_x.writable(), WriteMode::overwrite};
///   backward.d_weight = {d_weight.writable(), WriteMode::accumulate};
///   require(projection_backward(backward));  // d_x is 4, 3
///                                            // d_weight is 101, 102, 103, 106
struct ProjectionBackward : ProjectionForward {
  ConstView d_y;
  Gradient d_x, d_weight, d_bias;
};

SCANTAPE_DECLARE_OP(projection_forward, ProjectionForward);
SCANTAPE_DECLARE_OP(projection_backward, ProjectionBackward);

}  // namespace scantape
