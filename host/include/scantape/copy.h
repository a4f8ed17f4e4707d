#pragma once

#include "scantape/op.h"

namespace scantape {

/// Copy, elementwise:  y = x. What it is for is rows of another stride, and gradients that are added to a part of a tensor.
///
/// Shapes   x, y: any, equal.
/// Dtypes   f32, f64, bf16 or f16, equal.
/// Accuracy bit for bit; adding rounds once.
/// Memory   rows may be strided; y may be x itself, any other overlap is an error. No workspace.
/// Async    enqueues on `stream`; does not synchronise or allocate. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap), cuda.
/// Source   the identity.
/// Example
///   const Tensor x = Tensor::from({2, 3}, std::vector<double>{1, 2, 3, 4, 5, 6});
///   Tensor y = Tensor::empty({2, 2}, DType::f64);
///   const Tensor last = x.slice(1, 1, 3);
///   CopyForward forward;
///   forward.x = last;
///   forward.y = y.writable();
///   require(copy_forward(forward));  // y is 2, 3, 5, 6
struct CopyForward {
  ConstView x;
  View y;
  Workspace workspace;
};

/// d_x = d_y. Of `x` only the shape is looked at, `y` is not read. d_x may be d_y itself.
/// Example
///   Tensor d_x = Tensor::full({2, 3}, 1, DType::f64);
///   Tensor d_last = d_x.slice(1, 1, 3);
///   CopyBackward backward;
///   backward.x = last;
///   backward.d_y = y;
///   backward.d_x = {d_last.writable(), WriteMode::accumulate};
///   require(copy_backward(backward));  // d_x is 1, 3, 4, 1, 6, 7
struct CopyBackward : CopyForward {
  ConstView d_y;
  Gradient d_x;
};

SCANTAPE_DECLARE_OP(copy_forward, CopyForward);
SCANTAPE_DECLARE_OP(copy_backward, CopyBackward);

}  // namespace scantape
