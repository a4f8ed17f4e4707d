#pragma once

#include "scantape/op.h"

namespace scantape {

/// Arguments of layer_norm and rms_norm, whose headers say what is computed and what `statistics` holds. Both
/// normalise  r = x + residual  over the last axis (r = x without a residual), and r may be had as well: adding and
/// normalising is one pass.
///
/// Shapes   x, residual, y, r [..., E];  weight, bias [E];  statistics [..., 3] or [..., 1]. Optional: bias, residual,
///          and r, which may be given where residual is.
/// Dtypes   f32, f64, bf16 or f16, all equal, but statistics, d_weight and d_bias f32 beside 16 bits. eps is double and
///          added in the precision of the statistics. r is rounded to its dtype before the statistics are taken: they are
///          those of the r that is given out.
/// Example
///   #include <scantape/layer_norm.h>
///   const Tensor x = Tensor::from({1, 4}, std::vector<double>{1, 2, 3, 4});
///   const Tensor residual = Tensor::from({1, 4}, std::vector<double>{3, 2, 1, 4});
///   const Tensor weight = Tensor::full({4}, 1, DType::f64);
///   Tensor y = Tensor::empty({1, 4}, DType::f64), r = Tensor::empty({1, 4}, DType::f64);
///   Tensor statistics = Tensor::empty({1, 3}, DType::f64);
///   NormForward forward;
///   forward.x = x;
///   forward.residual = residual;
///   forward.weight = weight;
///   forward.y = y.writable();
///   forward.r = r.writable();
///   forward.statistics = statistics.writable();
///   require(layer_norm_forward(forward));  // r is 4, 4, 4, 8
///                                          // y is -0.5773, -0.5773, -0.5773, 1.7320
struct NormForward {
  ConstView x, residual, weight, bias;
  double eps = 1e-5;
  View y, r, statistics;
  Workspace workspace;
};

/// Gradient of either norm, from the saved statistics and r (from x where there is no residual). Not read: `y`, `bias`,
/// `residual` and, beside a residual, `x`; bias and residual tell only by their presence whether d_bias and d_residual
/// may be asked for.
///   d_x = d_residual = (cotangent of r by way of y) + d_r;  each has its own write mode.
///
/// Shapes   d_y as y, d_r as r (beside a residual only): each may be absent, which means zero;  d_x, d_residual as x;
///          d_weight, d_bias [E].
/// Example
///   const Tensor d_y = Tensor::from({1, 4}, std::vector<double>{1, 0, 0, 0});
///   const Tensor d_r = Tensor::from({1, 4}, std::vector<double>{0, 0, 0, 1});
///   Tensor d_x = Tensor::empty({1, 4}, DType::f64), d_residual = Tensor::full({1, 4}, 100, DType::f64);
///   NormBackward backward;
///   static_cast<NormForward&>(backward) = forward;
///   backward.d_y = d_y;
///   backward.d_r = d_r;
///   backward.d_x = {d_x.writable(), WriteMode::overwrite};
///   backward.d_residual = {d_residual.writable(), WriteMode::accumulate};
///   require(layer_norm_backward(backward));  // d_x is 0.3849, -0.1925, -0.1925, 1.0000
///                                            // d_residual is 100.3849, 99.8075, 99.8075, 101.0000
struct NormBackward : NormForward {
  ConstView d_y, d_r;
  Gradient d_x, d_residual, d_weight, d_bias;
};

}  // namespace scantape
