#pragma once

#include "scantape/op.h"

namespace scantape {

/// Layer normalisation of an affine map, fused:  p = x W^T + b,  y = (p - mean) * rstd * norm_weight + norm_bias.
/// p is never written to memory where the op runs on cuda.
///
/// Shapes   x [..., I], weight [E, I], bias [E] (optional), norm_weight [E], norm_bias [E] (optional), y [..., E],
///          statistics [..., 3] (saved for backward); the leading dimensions are equal and flattened to M rows, never
///          broadcast. M may be 0.
/// Dtypes   f32 or f64, all equal. eps is double and added in the precision of the statistics.
/// Units    statistics are those of p, as layer_norm's are of r.
/// Accuracy p sums over I in the data's precision, in one fixed order per (dtype, E, I) that does not depend on M or the
///          row; no TF32. The norm of p is layer_norm's. Relative RMS error at most 1e-5 (f32, I <= 131072), 1e-10
///          (f64), times mean/std of p where that is above 1.
/// Memory   rows of x and y may be strided; the rest is contiguous. y overlaps nothing else. No workspace forward.
/// Async    enqueues on `stream`, on cuda one kernel; does not synchronise or allocate; a row's bits depend on that row
///          alone. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap, E = 0, eps not finite or not above 0), unsupported
///          (E > 16384 on cuda), cuda.
/// Source   gradient derived in kernels/projection_layer_norm.cu.
/// Example
///   const Tensor x = Tensor::from({1, 2}, std::vector<double>{1, 2});
///   const Tensor weight = Tensor::from({3, 2}, std::vector<double>{1, 0, 1, 1, 0, 2});
///   const Tensor bias = Tensor::from({3}, std::vector<double>{0, 0, 1});
///   const Tensor norm_weight = Tensor::full({3}, 2, DType::f64), norm_bias = Tensor::full({3}, 10, DType::f64);
///   Tensor y = Tensor::empty({1, 3}, DType::f64), statistics = Tensor::empty({1, 3}, DType::f64);
///   ProjectionLayerNormForward forward;
///   forward.x = x;
///   forward.weight = weight;
///   forward.bias = bias;
///   forward.norm_weight = norm_weight;
///   forward.norm_bias = norm_bias;
///   forward.y = y.writable();
///   forward.statistics = statistics.writable();
///   require(projection_layer_norm_forward(forward));  // y is 7.5505, 10, 12.4495
///                                                     // statistics is 3, 0, 0.6124
struct ProjectionLayerNormForward {
  ConstView x, weight, bias, norm_weight, norm_bias;
  double eps = 1e-5;
  View y, statistics;
  Workspace workspace;
};

/// Gradient of projection_layer_norm, from x, the weights and the saved statistics: p is computed again, since y would
/// not give it back where norm_weight is 0. `y` is not read, `norm_bias` tells only by its presence whether d_norm_bias
/// may be asked for.
///
/// Shapes   d_y as y;  d_x as x, d_weight as weight, d_bias, d_norm_weight, d_norm_bias [E], each with its write mode.
/// Accuracy sums over the M rows in one fixed order; relative RMS error at most 1e-4 (f32), 1e-10 (f64).
/// Memory   CUDA: workspace for the cotangents of half of the rows of p (of 16384 rows at most) and for partial sums,
///          less than M E elements from 64 rows on; where d_weight is accumulated over more than one such part of the
///          rows, another E I. CPU: M E elements on the heap.
/// Errors   as forward, and out_of_memory on the CPU.
/// Example
///   const Tensor d_y = Tensor::from({1, 3}, std::vector<double>{1, 0, 0});
///   Tensor d_bias = Tensor::empty({3}, DType::f64), d_norm_weight = Tensor::empty({3}, DType::f64);
///   ProjectionLayerNormBackward backward;
///   static_cast<ProjectionLayerNormForward&>(backward) = forward;
///   backward.d_y = d_y;
///   backward.d_bias = {d_bias.writable(), WriteMode::overwrite};
///   backward.d_norm_weight = {d_norm_weight.writable(), WriteMode::overwrite};
///   require(projection_layer_norm_backward(backward));  // d_bias is 0.2041, -0.4082, 0.2041
///                                                       // d_norm_weight is -1.2247, 0, 0
struct ProjectionLayerNormBackward : ProjectionLayerNormForward {
  ConstView d_y;
  Gradient d_x, d_weight, d_bias, d_norm_weight, d_norm_bias;
};

SCANTAPE_DECLARE_OP(projection_layer_norm_forward, ProjectionLayerNormForward);
SCANTAPE_DECLARE_OP(projection_layer_norm_backward, ProjectionLayerNormBackward);

}  // namespace scantape
