#pragma once

#include "scantape/op.h"

namespace scantape {

/// One step of selective_scan, as a model that generates takes it:  next_state = exp(dt A) state + dt u B,
/// y = sum over n of C next_state + D u,  out = y silu(z) or, without z, y;  dt = softplus(r) or, unless dt_softplus, r,
/// r = dt given + dt_bias.
///
/// Shapes   u, dt, z, out [B, E];  A [E, N];  B, C [B, G, N], E divisible by G, channel e reading group
///          floor(e / (E / G));  D, dt_bias [E];  state, next_state [B, E, N]. All sizes but B above 0. D, z and dt_bias
///          are optional. next_state may be the memory of state.
/// Dtypes   f32, f64, bf16 or f16, all equal; beside 16 bits A, D, dt_bias, the states and their gradients are f32, as is
///          all that is computed: out is rounded once.
/// Units    as selective_scan: dt in the time unit whose inverse is A's.
/// Accuracy as selective_scan, whose bits L steps have.
/// Memory   reads and writes the state once. u, dt, B, C, z, out and their gradients may have strided rows of the batch,
///          each row without gaps: columns of one wider tensor. The rest is contiguous. Outputs overlap nothing else. CPU:
///          scratch of one channel's state per thread. CUDA: no workspace.
/// Async    enqueues on `stream`; does not synchronise or allocate; a row of the batch has the bits that it has alone.
///          Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap, E not divisible by G), out_of_memory (cpu),
///          unsupported (N above 1,024 on cuda), cuda.
/// Source   Gu, Dao 2023, arXiv:2312.00752; gradient derived in kernels/selective_scan.cu.
/// Example
///   const Tensor u = Tensor::full({1, 1}, 1, DType::f64), dt = Tensor::full({1, 1}, 0.5, DType::f64);
///   const Tensor A = Tensor::full({1, 1}, -1, DType::f64), B = Tensor::full({1, 1, 1}, 2, DType::f64);
///   const Tensor state = Tensor::full({1, 1, 1}, 1, DType::f64);
///   Tensor out = Tensor::empty({1, 1}, DType::f64), next_state = Tensor::empty({1, 1, 1}, DType::f64);
///   SelectiveScanStepForward forward;
///   forward.u = u;
///   forward.dt = dt;
///   forward.A = A;
///   forward.B = forward.C = B;
///   forward.state = state;
///   forward.out = out.writable();
///   forward.next_state = next_state.writable();
///   require(selective_scan_step_forward(forward));  // next_state is 1.6065
///                                                   // out is 3.2131
struct SelectiveScanStepForward {
  ConstView u, dt, A, B, C, D, z, dt_bias, state;
  bool dt_softplus = false;
  View out, next_state;
  Workspace workspace;
};

/// Gradient of selective_scan_step, from its inputs: state must still be what it was. `out` and `next_state` are not read.
/// With dy = d_out silu(z) or, without z, d_out, and a = exp(dt A),
///   G = d_next_state + dy C;  d_state = a G;  w = G a state;
///   d_u = dt sum over n of G B + D dy;  d_A = sum over B of dt w;
///   d_B = sum over the channels of a group of dt u G;  d_C = sum over the same of dy next_state;
///   d_D = sum over B of dy u;  d_z = d_out y silu'(z);
///   d_dt = (u sum over n of G B + sum over n of A w) d dt/d r;  d_dt_bias = sum over B of d_dt.
///
/// Shapes   d_out as out, d_next_state as next_state: each may be absent (zero). Gradients as their arguments.
/// Memory   CPU: up to eight f64 copies of d_B and of d_C. CUDA: workspace by selective_scan_step_backward_workspace.
/// Example
///   const Tensor d_out = Tensor::full({1, 1}, 1, DType::f64);
///   Tensor d_state = Tensor::empty({1, 1, 1}, DType::f64), d_dt = Tensor::empty({1, 1}, DType::f64);
///   SelectiveScanStepBackward backward;
///   static_cast<SelectiveScanStepForward&>(backward) = forward;
///   backward.d_out = d_out;
///   backward.d_state = {d_state.writable(), WriteMode::overwrite};
///   backward.d_dt = {d_dt.writable(), WriteMode::overwrite};
///   require(selective_scan_step_backward(backward));  // d_state is 1.2131
///                                                     // d_dt is 2.7869
struct SelectiveScanStepBackward : SelectiveScanStepForward {
  ConstView d_out, d_next_state;
  Gradient d_u, d_dt, d_A, d_B, d_C, d_D, d_z, d_dt_bias, d_state;
};

SCANTAPE_DECLARE_OP(selective_scan_step_forward, SelectiveScanStepForward);
SCANTAPE_DECLARE_OP(selective_scan_step_backward, SelectiveScanStepBackward);

}  // namespace scantape
