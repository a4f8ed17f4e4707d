#pragma once

#include "scantape/op.h"

namespace scantape {

/// Arguments of layer_norm and rms_norm, whose headers say what is computed and what `statistics` holds. Both
/// normalise  r = x + residual  over the last axis (r = x without a residual), and r may be had as well: adding and
/// normalising is one pass.
///
/// Shapes   x, residual, y, r [..., E];  weight, bias [E];  statistics [..., 3] or [..., 1]. Optional: bias, residual,
///          and r, which may be given where residual is.
/// Dtypes   f32 or f64, all equal. eps is double and added in the precision of the statistics. r is rounded to its
///          dtype before the statistics are taken: they are those of the r that is given out.
/// Memory   rows of x, residual, y, r may be strided; y and r may each be x or residual (not both the same), any other
///          overlap is an error. No workspace forward.
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
/// Memory   d_x may be d_y itself, d_residual may be d_r. CUDA: workspace for per-block partial sums of d_weight and
///          d_bias, summed in a second pass, in order.
struct NormBackward : NormForward {
  ConstView d_y, d_r;
  Gradient d_x, d_residual, d_weight, d_bias;
};

}  // namespace scantape
