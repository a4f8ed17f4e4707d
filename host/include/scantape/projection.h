#pragma once

#include "scantape/op.h"

namespace scantape {

/// Affine map of the last axis:  y = x W^T + b.
///
/// Shapes   x [..., I], weight [O, I], bias [O] (optional), y [..., O]; the leading dimensions of x and y are equal and
///          flattened to M rows, never broadcast. M may be 0.
/// Dtypes   f32 or f64, all equal.
/// Accuracy sums over I in the data's precision, in one fixed order per (dtype, O, I) that does not depend on M, the
///          row or the number of threads; no TF32. Relative RMS error at most 1e-5 (f32), 1e-10 (f64).
/// Memory   rows of x and y may be strided; weight contiguous. y overlaps nothing else. CUDA: no workspace forward.
/// Async    enqueues on `stream`; does not synchronise or allocate. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap), cuda (launch or product failed).
/// Source   the gradient is  d_x = d_y W, d_W = d_y^T x, d_b = sum_rows d_y.
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
struct ProjectionBackward : ProjectionForward {
  ConstView d_y;
  Gradient d_x, d_weight, d_bias;
};

SCANTAPE_DECLARE_OP(projection_forward, ProjectionForward);
SCANTAPE_DECLARE_OP(projection_backward, ProjectionBackward);

}  // namespace scantape
