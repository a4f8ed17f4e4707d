#pragma once

#include "scantape/op.h"

namespace scantape {

enum class Activation : std::uint8_t { silu, none };

const char* name(Activation activation) noexcept;  // "silu"

/// Output of a state space layer:  out = residual + act(z + D * u),  in one pass.
/// z is the state mapped to the layer's width (h C^T), D * u the skip from the layer's input.
///
/// Shapes   z, u, residual, out [..., E];  D [E].
/// Dtypes   f32 or f64, all equal.
/// Memory   rows may be strided; out may be z or residual itself, any other overlap is an error. No workspace forward.
/// Async    enqueues on `stream`; does not synchronise or allocate. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap), cuda.
/// Source   gradient derived in kernels/state_output.cu.
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
struct StateOutputBackward : StateOutputForward {
  ConstView d_out;
  Gradient d_z, d_u, d_D, d_residual;
};

SCANTAPE_DECLARE_OP(state_output_forward, StateOutputForward);
SCANTAPE_DECLARE_OP(state_output_backward, StateOutputBackward);

}  // namespace scantape
