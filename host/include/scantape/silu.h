#pragma once

#include "scantape/op.h"

namespace scantape {

/// SiLU, elementwise:  y = x * sigmoid(x).
///
/// Shapes   x, y: any, equal.
/// Dtypes   f32, f64, bf16 or f16, equal. Those of 16 bits are computed in f32 and rounded once.
/// Accuracy 1e-6 relative in f32 for every x; never NaN for finite x.
/// Memory   rows may be strided; y may be x itself, any other overlap is an error. No workspace.
/// Async    enqueues on `stream`; does not synchronise or allocate. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap), cuda.
/// Source   Elfwing, Uchibe, Doya 2017, arXiv:1702.03118.
/// Example
///   const Tensor x = Tensor::from({3}, std::vector<double>{-1, 0, 2});
///   Tensor y = Tensor::empty({3}, DType::f64);
///   SiluForward forward;
///   forward.x = x;
///   forward.y = y.writable();
///   require(silu_forward(forward));  // y is -0.2689, 0, 1.7616
struct SiluForward {
  ConstView x;
  View y;
  Workspace workspace;
};

/// d_x = d_y * s (1 + x (1 - s)), s = sigmoid(x). `y` is not read. d_x may be d_y itself.
/// Example
///   Tensor d_x = Tensor::empty({3}, DType::f64);
///   const Tensor d_y = Tensor::full({3}, 1, DType::f64);
///   SiluBackward backward;
///   backward.x = x;
///   backward.d_y = d_y;
///   backward.d_x = {d_x.writable(), WriteMode::overwrite};
///   require(silu_backward(backward));  // d_x is 0.0723, 0.5, 1.0908
struct SiluBackward : SiluForward {
  ConstView d_y;
  Gradient d_x;
};

SCANTAPE_DECLARE_OP(silu_forward, SiluForward);
SCANTAPE_DECLARE_OP(silu_backward, SiluBackward);

}  // namespace scantape
