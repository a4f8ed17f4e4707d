#pragma once

#include "scantape/op.h"

namespace scantape {

/// Root mean square normalisation by groups of channels, with a gate:  y = rms(x silu(z)) * weight, or, where the norm
/// comes before the gate,  y = rms(x) * weight * silu(z).  rms(u) = u / sqrt(mean(u^2) + eps), the mean over each of G groups
/// of S / G neighbouring channels; without z the gate is 1.
///
/// Shapes   x, z, y [..., S];  weight [S];  statistics [..., G] (saved for backward), G = groups, which divides S. z is
///          optional. A gated norm that takes its mean over all channels, as Hugging Face's Mamba-2 does whatever its
///          n_groups is, is groups = 1.
/// Dtypes   f32, f64, bf16 or f16, all equal; beside 16 bits statistics and d_weight are f32, as is all that is computed:
///          x silu(z) is not rounded to 16 bits. eps is double and added in the precision of the statistics.
/// Units    statistics holds rstd = 1 / sqrt(mean + eps) of each group, of what is normalised. A negative one marks a group
///          whose largest element is above 2^60 (f32; 2^500 in f64): it is that of the group times 2^-100 (f64: 2^-600),
///          taken without eps.
/// Accuracy as rms_norm: squares neither overflow nor vanish. x silu(z) itself must lie in the range of the type that is
///          computed in. A group of zeros gives exactly 0.
/// Memory   rows of x, z, y may be strided; y may be x or z itself, any other overlap is an error. No workspace forward.
/// Async    enqueues on `stream`; does not synchronise or allocate; a row's bits depend on that row alone. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap, S = 0, groups below 1 or no divisor of S, eps not
///          finite or not above 0, d_z without a z), cuda.
/// Source   Zhang, Sennrich 2019, arXiv:1910.07467; Dao, Gu 2024, arXiv:2405.21060 (the gated one); gradient derived in
///          kernels/gated_rms_norm.cu.
/// Example
///   const Tensor x = Tensor::from({1, 4}, std::vector<double>{3, 4, 1, 1});
///   const Tensor weight = Tensor::from({4}, std::vector<double>{1, 1, 1, 2});
///   Tensor y = Tensor::empty({1, 4}, DType::f64), statistics = Tensor::empty({1, 2}, DType::f64);
///   GatedRmsNormForward forward;
///   forward.x = x;
///   forward.weight = weight;
///   forward.groups = 2;
///   forward.y = y.writable();
///   forward.statistics = statistics.writable();
///   require(gated_rms_norm_forward(forward));  // y is 0.8485, 1.1314, 1.0000, 2.0000
///                                              // statistics is 0.2828, 1.0000
struct GatedRmsNormForward {
  ConstView x, z, weight;
  std::int64_t groups = 1;
  bool norm_before_gate = false;
  double eps = 1e-5;
  View y, statistics;
  Workspace workspace;
};

/// Gradient of gated_rms_norm, from x, z, weight and the saved statistics; `y` and eps are not read. With s = silu(z),
/// u = x s (norm before the gate: u = x) and xh = u rstd, a mean taken over the element's group,
///   g = d_y (norm before the gate: g = d_y s);  d_u = rstd (weight g - xh mean(weight g xh));  d_weight = sum_rows g xh;
///   gate first:             d_x = d_u s,  d_z = d_u x silu'(z);
///   norm before the gate:   d_x = d_u,    d_z = d_y xh weight silu'(z).
///
/// Shapes   d_y as y;  d_x, d_z as x;  d_weight [S]. d_z only where there is a z.
/// Memory   d_x or d_z may be d_y itself. CUDA: workspace for partial sums of d_weight, summed in a second pass, in order.
/// Example
///   const Tensor d_y = Tensor::from({1, 4}, std::vector<double>{1, 0, 0, 1});
///   Tensor d_x = Tensor::empty({1, 4}, DType::f64), d_weight = Tensor::empty({4}, DType::f64);
///   GatedRmsNormBackward backward;
///   static_cast<GatedRmsNormForward&>(backward) = forward;
///   backward.d_y = d_y;
///   backward.d_x = {d_x.writable(), WriteMode::overwrite};
///   backward.d_weight = {d_weight.writable(), WriteMode::overwrite};
///   require(gated_rms_norm_backward(backward));  // d_x is 0.1810, -0.1358, -1.0000, 1.0000
///                                                // d_weight is 0.8485, 0, 0, 1.0000
struct GatedRmsNormBackward : GatedRmsNormForward {
  ConstView d_y;
  Gradient d_x, d_z, d_weight;
};

SCANTAPE_DECLARE_OP(gated_rms_norm_forward, GatedRmsNormForward);
SCANTAPE_DECLARE_OP(gated_rms_norm_backward, GatedRmsNormBackward);

}  // namespace scantape
