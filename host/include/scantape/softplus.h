#pragma once

#include "scantape/op.h"

namespace scantape {

/// softplus, elementwise:  y = x > 20 ? x : log1p(exp(x)).
///
/// Shapes   x, y: any, equal.
/// Dtypes   f32, f64, bf16 or f16, equal. Those of 16 bits are computed in f32 and rounded once.
/// Accuracy 3e-7 relative in f32 over -87..88; exactly 0 below about -103 (f32), -745 (f64).
/// Memory   rows may be strided; y may be x itself, any other overlap is an error. No workspace.
/// Async    enqueues on `stream`; does not synchronise or allocate. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap), cuda.
/// Source   the threshold is PyTorch's and Mamba's; 20 itself takes the logarithm.
/// Example
///   const Tensor x = Tensor::from({3}, std::vector<double>{-1, 0, 30});
///   Tensor y = Tensor::empty({3}, DType::f64);
///   SoftplusForward forward;
///   forward.x = x;
///   forward.y = y.writable();
///   require(softplus_forward(forward));  // y is 0.3133, 0.6931, 30
struct SoftplusForward {
  ConstView x;
  View y;
  Workspace workspace;
};

/// d_x = d_y * (x > 20 ? 1 : sigmoid(x)). `y` is not read. d_x may be d_y itself.
/// Example
///   Tensor d_x = Tensor::empty({3}, DType::f64);
///   const Tensor d_y = Tensor::full({3}, 1, DType::f64);
///   SoftplusBackward backward;
///   backward.x = x;
///   backward.d_y = d_y;
///   backward.d_x = {d_x.writable(), WriteMode::overwrite};
///   require(softplus_backward(backward));  // d_x is 0.2689, 0.5, 1
struct SoftplusBackward : SoftplusForward {
  ConstView d_y;
  Gradient d_x;
};

SCANTAPE_DECLARE_OP(softplus_forward, SoftplusForward);
SCANTAPE_DECLARE_OP(softplus_backward, SoftplusBackward);

}  // namespace scantape
