#pragma once

#include "scantape/norm.h"

namespace scantape {

/// Layer normalisation over the last axis:  y = (r - mean) * rstd * weight + bias,  rstd = 1 / sqrt(var + eps),
/// r = x + residual in the same pass (residual optional).
///
/// Shapes   x, residual, y, r [..., E];  weight, bias [E];  statistics [..., 3] (saved for backward: the leading
///          dimensions of x). bias, residual and r are optional.
/// Dtypes   f32 or f64, all equal. eps is double and added in the precision of the statistics.
/// Units    var is the biased variance (divisor E). statistics holds mean, correction, rstd of each row; the value
///          normalised is ((r - mean) - correction) * rstd. A negative rstd marks a row whose largest |r| is above
///          2^60 (f32; 2^500 in f64): its statistics are those of r * 2^-100 (f64: 2^-600), taken without eps.
/// Accuracy corrected two-pass: a row of equal values gives exactly bias; mean/std up to 1e5 keeps 1e-6 in f32; so do
///          rows of 1e-20 under an eps as small.
/// Memory   see scantape/norm.h.
/// Async    enqueues on `stream`; does not synchronise or allocate; a row's bits depend on that row alone. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap, E = 0, eps not finite or not above 0, r or d_r or
///          d_residual without a residual, d_bias without a bias), cuda.
/// Source   Ba, Kiros, Hinton 2016, arXiv:1607.06450; the correction term: Chan, Golub, LeVeque 1983.
using LayerNormForward = NormForward;
using LayerNormBackward = NormBackward;

SCANTAPE_DECLARE_OP(layer_norm_forward, LayerNormForward);
SCANTAPE_DECLARE_OP(layer_norm_backward, LayerNormBackward);

}  // namespace scantape
