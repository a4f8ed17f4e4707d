#pragma once

#include "scantape/op.h"

namespace scantape {

/// SiLU, elementwise:  y = x * sigmoid(x).
///
/// Shapes   x, y: any, equal.
/// Dtypes   f32 or f64, equal.
/// Accuracy 1e-6 relative in f32 for every x; never NaN for finite x.
/// Memory   rows may be strided; y may be x itself, any other overlap is an error. No workspace.
/// Async    enqueues on `stream`; does not synchronise or allocate. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap), cuda.
/// Source   Elfwing, Uchibe, Doya 2017, arXiv:1702.03118.
struct SiluForward {
  ConstView x;
  View y;
  Workspace workspace;
};

/// d_x = d_y * s (1 + x (1 - s)), s = sigmoid(x). `y` is not read. d_x may be d_y itself.
struct SiluBackward : SiluForward {
  ConstView d_y;
  Gradient d_x;
};

SCANTAPE_DECLARE_OP(silu_forward, SiluForward);
SCANTAPE_DECLARE_OP(silu_backward, SiluBackward);

}  // namespace scantape
