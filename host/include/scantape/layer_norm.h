#pragma once

#include "scantape/op.h"

namespace scantape {

/// Layer normalisation over the last axis:  y = (x - mean) * rstd * weight + bias,  rstd = 1 / sqrt(var + eps).
///
/// Shapes   x, y [..., E];  weight, bias [E];  statistics [..., 3] (saved for backward: the leading dimensions of x).
/// Dtypes   f32 or f64, all equal. eps is double and added in the precision of the statistics.
/// Units    var is the biased variance (divisor E). statistics holds mean, correction, rstd of each row; the value
///          normalised is ((x - mean) - correction) * rstd. A negative rstd marks a row whose largest |x| is above
///          2^60 (f32; 2^500 in f64): its statistics are those of x * 2^-100 (f64: 2^-600), taken without eps.
/// Accuracy corrected two-pass: a row of equal values gives exactly bias; mean/std up to 1e5 keeps 1e-6 in f32.
/// Memory   rows of x, y may be strided; y may be x itself, any other overlap is an error. No workspace forward.
/// Async    enqueues on `stream`; does not synchronise or allocate; a row's bits depend on that row alone. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap, E = 0, eps not finite or not above 0), cuda.
/// Source   Ba, Kiros, Hinton 2016, arXiv:1607.06450; the correction term: Chan, Golub, LeVeque 1983.
struct LayerNormForward {
  ConstView x, weight, bias;
  double eps = 1e-5;
  View y, statistics;
  Workspace workspace;
};

/// Gradient of layer_norm, from x and the saved statistics; `y` and `bias` are not read.
///
/// Shapes   d_y as y;  d_x as x, d_weight and d_bias [E], each with its write mode. d_x may be d_y itself.
/// Memory   CUDA: workspace for per-block partial sums of d_weight and d_bias, summed in a second pass, in order.
struct LayerNormBackward : LayerNormForward {
  ConstView d_y;
  Gradient d_x, d_weight, d_bias;
};

SCANTAPE_DECLARE_OP(layer_norm_forward, LayerNormForward);
SCANTAPE_DECLARE_OP(layer_norm_backward, LayerNormBackward);

}  // namespace scantape
