#pragma once

#include "scantape/op.h"

namespace scantape {

/// Negative exponential, elementwise:  y = -exp(x): the decay rate A of a state whose parameter is A_log.
///
/// Shapes   x, y: any, equal.
/// Dtypes   f32, f64, bf16 or f16, equal. Those of 16 bits are computed in f32 and rounded once.
/// Accuracy 1e-6 relative in f32.
/// Memory   rows may be strided; y may be x itself, any other overlap is an error. No workspace.
/// Async    enqueues on `stream`; does not synchronise or allocate. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap), cuda.
/// Source   Gu, Dao 2023, arXiv:2312.00752, where A = -exp(A_log).
/// Example
///   const Tensor x = Tensor::from({2}, std::vector<double>{0, 1});
///   Tensor y = Tensor::empty({2}, DType::f64);
///   NegExpForward forward;
///   forward.x = x;
///   forward.y = y.writable();
///   require(neg_exp_forward(forward));  // y is -1, -2.7183
struct NegExpForward {
  ConstView x;
  View y;
  Workspace workspace;
};

/// d_x = -d_y exp(x). `y` is not read. d_x may be d_y itself.
/// Example
///   Tensor d_x = Tensor::empty({2}, DType::f64);
///   const Tensor d_y = Tensor::full({2}, 1, DType::f64);
///   NegExpBackward backward;
///   backward.x = x;
///   backward.d_y = d_y;
///   backward.d_x = {d_x.writable(), WriteMode::overwrite};
///   require(neg_exp_backward(backward));  // d_x is -1, -2.7183
struct NegExpBackward : NegExpForward {
  ConstView d_y;
  Gradient d_x;
};

SCANTAPE_DECLARE_OP(neg_exp_forward, NegExpForward);
SCANTAPE_DECLARE_OP(neg_exp_backward, NegExpBackward);

}  // namespace scantape
