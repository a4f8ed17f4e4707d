#pragma once

#include <limits>

#include "scantape/op.h"

namespace scantape {

/// One step of ssd, as a model that generates takes it:  next_state = exp(dt A) state + dt x B^T,
/// y = next_state C + D x,  out = y silu(z) or, without z, y;  dt = min(max(u, dt_min), dt_max), u = softplus(r) or, unless
/// dt_softplus, r, r = dt given + dt_bias.
///
/// Shapes   x, z, out [B, H, P];  dt [B, H];  B, C [B, G, N], H divisible by G, head h reading group floor(h / (H / G));
///          A, dt_bias [H];  D [H] or [H, P];  state, next_state [B, H, P, N]. All sizes but B above 0. D, z and dt_bias
///          are optional. next_state may be the memory of state.
/// Dtypes   f32, f64, bf16 or f16, all equal; beside 16 bits A, D, dt_bias, the states and their gradients are f32, as is
///          all that is computed: out is rounded once.
/// Units    as ssd: dt in the time unit whose inverse is A's, 0 <= dt_min <= dt_max.
/// Accuracy as ssd. On the CPU L steps have the bits of ssd in the sequential form, between two roundings of 16 bits too.
/// Memory   reads and writes the state once. x, dt, B, C, z, out and their gradients may have strided rows of the batch,
///          each row without gaps: columns of one wider tensor. The rest is contiguous. Outputs overlap nothing else. CPU:
///          scratch of one head's state per thread. CUDA: workspace by ssd_step_forward_workspace.
/// Async    enqueues on `stream`; does not synchronise or allocate; a row of the batch has the bits that it has alone.
///          Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap, H not divisible by G, limits of dt), out_of_memory
///          (cpu), unsupported (P or N above 1,024 on cuda), cuda.
/// Source   Dao, Gu 2024, arXiv:2405.21060; gradient derived in kernels/ssd_step.cu.
/// Example
///   const Tensor x = Tensor::full({1, 1, 1}, 1, DType::f64), dt = Tensor::full({1, 1}, 0.5, DType::f64);
///   const Tensor A = Tensor::full({1}, -1, DType::f64), B = Tensor::full({1, 1, 1}, 2, DType::f64);
///   const Tensor state = Tensor::full({1, 1, 1, 1}, 1, DType::f64);
///   Tensor out = Tensor::empty({1, 1, 1}, DType::f64), next_state = Tensor::empty({1, 1, 1, 1}, DType::f64);
///   SsdStepForward forward;
///   forward.x = x;
///   forward.dt = dt;
///   forward.A = A;
///   forward.B = forward.C = B;
///   forward.state = state;
///   forward.out = out.writable();
///   forward.next_state = next_state.writable();
///   require(ssd_step_forward(forward));  // next_state is 1.6065
///                                        // out is 3.2131
struct SsdStepForward {
  ConstView x, dt, A, B, C, D, z, dt_bias, state;
  bool dt_softplus = false;
  double dt_min = 0, dt_max = std::numeric_limits<double>::infinity();
  View out, next_state;
  Workspace workspace;
};

/// Gradient of ssd_step, from its inputs: state must still be what it was. `out` and `next_state` are not read. With
/// dy = d_out silu(z) or, without z, d_out, and l = dt A,
///   G = d_next_state + dy C^T;  d_state = exp(l) G;  g_l = <G, exp(l) state>;
///   d_x = dt G B + D dy;  d_B = sum over the heads of a group and p of dt x G;  d_C = sum over the same of dy next_state;
///   d_A = sum over B of dt g_l;  d_D = sum of dy x;  d_z = d_out y silu'(z);  g_dt = x . (G B) + A g_l;
///   d_dt = [dt_min <= u <= dt_max] g_dt du/dr, nothing where dt is clamped;  d_dt_bias = sum over B of d_dt.
///
/// Shapes   d_out as out, d_next_state as next_state: each may be absent (zero). Gradients as their arguments.
/// Memory   CPU: scratch of one head's state per thread. CUDA: workspace by ssd_step_backward_workspace.
/// Example
///   const Tensor d_out = Tensor::full({1, 1, 1}, 1, DType::f64);
///   Tensor d_state = Tensor::empty({1, 1, 1, 1}, DType::f64), d_dt = Tensor::empty({1, 1}, DType::f64);
///   SsdStepBackward backward;
///   static_cast<SsdStepForward&>(backward) = forward;
///   backward.d_out = d_out;
///   backward.d_state = {d_state.writable(), WriteMode::overwrite};
///   backward.d_dt = {d_dt.writable(), WriteMode::overwrite};
///   require(ssd_step_backward(backward));  // d_state is 1.2131
///                                          // d_dt is 2.7869
struct SsdStepBackward : SsdStepForward {
  ConstView d_out, d_next_state;
  Gradient d_x, d_dt, d_A, d_B, d_C, d_D, d_z, d_dt_bias, d_state;
};

SCANTAPE_DECLARE_OP(ssd_step_forward, SsdStepForward);
SCANTAPE_DECLARE_OP(ssd_step_backward, SsdStepBackward);

}  // namespace scantape
