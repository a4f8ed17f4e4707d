#pragma once

#include "scantape/norm.h"

namespace scantape {

/// Root mean square normalisation over the last axis:  y = r * rstd * weight + bias,  rstd = 1 / sqrt(mean(r^2) + eps),
/// r = x + residual in the same pass (residual optional).
///
/// Shapes   x, residual, y, r [..., E];  weight, bias [E];  statistics [..., 1] (saved for backward: the leading
///          dimensions of x). bias, residual and r are optional.
/// Dtypes   f32 or f64, all equal. eps is double and added in the precision of the statistics.
/// Units    statistics holds rstd of each row; the value normalised is r * rstd. A negative rstd marks a row whose
///          largest |r| is above 2^60 (f32; 2^500 in f64): it is that of r * 2^-100 (f64: 2^-600), taken without eps.
/// Accuracy squares neither overflow nor vanish anywhere in the type's range: f32 rows of 1e37, and rows of 1e-20 under
///          an eps as small, keep 1e-6. A row of zeros gives exactly bias.
/// Memory   see scantape/norm.h.
/// Async    enqueues on `stream`; does not synchronise or allocate; a row's bits depend on that row alone. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap, E = 0, eps not finite or not above 0, r or d_r or
///          d_residual without a residual, d_bias without a bias), cuda.
/// Source   Zhang, Sennrich 2019, arXiv:1910.07467; gradient derived in kernels/common/norm.cuh.
using RmsNormForward = NormForward;
using RmsNormBackward = NormBackward;

SCANTAPE_DECLARE_OP(rms_norm_forward, RmsNormForward);
SCANTAPE_DECLARE_OP(rms_norm_backward, RmsNormBackward);

}  // namespace scantape
