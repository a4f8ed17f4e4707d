#pragma once

#include "scantape/op.h"

namespace scantape {

/// What a state space layer does to its output before it adds the residual.
enum class Activation : std::uint8_t { silu, none };

const char* name(Activation activation) noexcept;  // "silu"

/// Output of a state space layer:  out = residual + act(z + D * u),  in one pass.
/// z is the state mapped to the layer's width (h C^T), D * u the skip from the layer's input.
///
/// Shapes   z, u, residual, out [..., E];  D [E].
/// Dtypes   f32 or f64, all equal.
/// Accuracy a few ulp of the largest term; d_D sums over the rows in one fixed order.
/// Memory   rows may be strided; out may be z or residual itself, any other overlap is an error. No workspace forward.
/// Async    enqueues on `stream`; does not synchronise or allocate. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap), cuda.
/// Source   gradient derived in kernels/state_output.cu.
/// Example
///   const Tensor z = Tensor::from({1, 2}, std::vector<double>{1, 2}), u = Tensor::full({1, 2}, 1, DType::f64);
///   const Tensor D = Tensor::from({2}, std::vector<double>{0, -2}), residual = Tensor::full({1, 2}, 10, DType::f64);
///   Tensor out = Tensor::empty({1, 2}, DType::f64);
///   StateOutputForward forward;
///   forward.z = z;
///   forward.u = u;
///   forward.D = D;
///   forward.residual = residual;
///   forward.out = out.writable();
///   require(state_output_forward(forward));  // out is 10.7311, 10
struct StateOutputForward {
  ConstView z, u, D, residual;
  Activation activation = Activation::silu;
  View out;
  Workspace workspace;
};

/// Gradient of state_output, from z, u and D; `residual` and `out` are not read.
///   g = d_out * act'(z + D u);  d_z = g;  d_u = g D;  d_D = sum_rows g u;  d_residual = d_out.
///
/// Shapes   d_out as out;  d_z, d_u, d_residual as z;  d_D [E].
/// Memory   CUDA: workspace for partial sums of d_D.
/// Example
///   const Tensor d_out = Tensor::full({1, 2}, 1, DType::f64);
///   Tensor d_u = Tensor::empty({1, 2}, DType::f64), d_D = Tensor::empty({2}, DType::f64);
///   StateOutputBackward backward;
///   static_cast<StateOutputForward&>(backward) = forward;
///   backward.d_out = d_out;
///   backward.d_u = {d_u.writable(), WriteMode::overwrite};
///   backward.d_D = {d_D.writable(), WriteMode::overwrite};
///   require(state_output_backward(backward));  // d_u is 0, -1
///                                              // d_D is 0.9277, 0.5
struct StateOutputBackward : StateOutputForward {
  ConstView d_out;
  Gradient d_z, d_u, d_D, d_residual;
};

SCANTAPE_DECLARE_OP(state_output_forward, StateOutputForward);
SCANTAPE_DECLARE_OP(state_output_backward, StateOutputBackward);

}  // namespace scantape
