#pragma once

#include "scantape/norm.h"

namespace scantape {

/// Root mean square normalisation over the last axis:  y = r * rstd * weight + bias,  rstd = 1 / sqrt(mean(r^2) + eps),
/// r = x + residual in the same pass (residual optional).
///
/// Shapes   x, residual, y, r [..., E];  weight, bias [E];  statistics [..., 1] (saved for backward: the leading
///          dimensions of x). bias, residual and r are optional.
/// Dtypes   f32, f64, bf16 or f16, all equal; beside 16 bits statistics, d_weight and d_bias are f32, as is all that is
///          computed. eps is double and added in the precision of the statistics.
/// Units    statistics holds rstd of each row; the value normalised is r * rstd. A negative rstd marks a row whose
///          largest |r| is above 2^60 (f32; 2^500 in f64): it is that of r * 2^-100 (f64: 2^-600), taken without eps.
/// Accuracy squares neither overflow nor vanish anywhere in the type's range: f32 rows of 1e37, and rows of 1e-20 under
///          an eps as small, keep 1e-6. A row of zeros gives exactly bias.
/// Memory   rows of x, residual, y, r may be strided; y and r may each be x or residual (not both the same), any other
///          overlap is an error. No workspace forward.
/// Async    enqueues on `stream`; does not synchronise or allocate; a row's bits depend on that row alone. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap, E = 0, eps not finite or not above 0, r or d_r or
///          d_residual without a residual, d_bias without a bias), cuda.
/// Source   Zhang, Sennrich 2019, arXiv:1910.07467; gradient derived in kernels/common/norm.cuh.
/// Example
///   const Tensor x = Tensor::from({1, 4}, std::vector<double>{1, 2, 3, 4});
///   const Tensor weight = Tensor::full({4}, 2, DType::f64);
///   Tensor y = Tensor::empty({1, 4}, DType::f64), statistics = Tensor::empty({1, 1}, DType::f64);
///   RmsNormForward forward;
///   forward.x = x;
///   forward.weight = weight;
///   forward.y = y.writable();
///   forward.statistics = statistics.writable();
///   require(rms_norm_forward(forward));  // y is 0.7303, 1.4606, 2.1909, 2.9212
///                                        // statistics is 0.3651
using RmsNormForward = NormForward;

/// Gradient of rms_norm, from r (from x without a residual) and the saved statistics; see NormBackward for what is not read.
///   g = d_y weight:  d_x = d_residual = rstd (g - xh mean(g xh)) + d_r,  each with its own write mode;
///   d_weight = sum_rows d_y xh;  d_bias = sum_rows d_y;  xh is the value normalised.
///
/// Shapes   d_y as y, d_r as r: each may be absent, which means zero;  d_x, d_residual as x;  d_weight, d_bias [E].
/// Memory   d_x may be d_y itself, d_residual may be d_r. CUDA: workspace for per-block partial sums of d_weight and
///          d_bias, summed in a second pass, in order.
/// Example
///   const Tensor d_y = Tensor::from({1, 4}, std::vector<double>{1, 0, 0, 0});
///   Tensor d_x = Tensor::empty({1, 4}, DType::f64), d_weight = Tensor::empty({4}, DType::f64);
///   RmsNormBackward backward;
///   static_cast<RmsNormForward&>(backward) = forward;
///   backward.d_y = d_y;
///   backward.d_x = {d_x.writable(), WriteMode::overwrite};
///   backward.d_weight = {d_weight.writable(), WriteMode::overwrite};
///   require(rms_norm_backward(backward));  // d_x is 0.7060, -0.0487, -0.0730, -0.0974
///                                          // d_weight is 0.3651, 0, 0, 0
using RmsNormBackward = NormBackward;

SCANTAPE_DECLARE_OP(rms_norm_forward, RmsNormForward);
SCANTAPE_DECLARE_OP(rms_norm_backward, RmsNormBackward);

}  // namespace scantape
