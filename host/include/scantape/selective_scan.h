#pragma once

#include "scantape/op.h"

namespace scantape {

/// The most states that selective_scan takes on cuda.
inline constexpr std::int64_t kMostSelectiveScanStatesOnCuda = 1024;

/// Steps from one state that selective_scan keeps for backward to the next: the least number whose square is at least L.
/// Example
///   const double interval = static_cast<double>(selective_scan_interval(100));  // interval is 10
std::int64_t selective_scan_interval(std::int64_t length) noexcept;

/// Selective scan, the recurrence of Mamba-1 (S6): each channel carries N states, each with a decay of its own,
///   h_t = exp(dt_t A) h_{t-1} + dt_t u_t B_t,   y_t = sum over n of C_t h_t + D u_t,   out_t = y_t silu(z_t),
/// t = 1..L; without z, out_t = y_t; dt_t = softplus(r_t) or, unless dt_softplus, r_t, with r_t = dt[t] + dt_bias.
///
/// Shapes   u, dt, z, out [B, L, E];  A [E, N];  B, C [B, L, G, N], E divisible by G, channel e reading group
///          floor(e / (E / G));  D, dt_bias [E];  start [B, L];  initial_state, final_state [B, E, N];  states
///          [B, K, E, N], K = ceil(L / selective_scan_interval(L)) - 1. All sizes but B above 0. D, z, dt_bias, start,
///          initial_state (absent: zeros), final_state and states are optional; backward wants states.
///          softplus(r) = r above 20.
/// Starts   Where start_t is not 0 a new sequence begins: h_t = dt_t u_t B_t. What was before is selected away, not
///          multiplied by zero, so that NaN and infinity end with their sequence. Packed sequences are one row, and have
///          the bits that they have apart.
/// States   states[k - 1] is the state after k selective_scan_interval(L) steps.
/// Dtypes   f32, f64, bf16 or f16, all equal; beside 16 bits A, D, dt_bias, all states and their gradients are f32, as is
///          all that is computed and carried: out is rounded once.
/// Units    dt in the time unit whose inverse is A's; dt = 0 leaves the state as it is.
/// Accuracy a step moves the state by expm1(dt A) where that is near 0, so that f32 keeps 1e-5 also where a state
///          remembers thousands of steps. A future step changes no bit of an earlier one.
/// Memory   u, dt, B, C, z, out and their gradients may have strided rows of time, each row without gaps: columns of one
///          wider tensor. The rest is contiguous. Outputs overlap nothing. Nothing has B L E N elements. CPU: scratch of a
///          state per thread. CUDA: no workspace.
/// Async    enqueues on `stream`; does not synchronise or allocate; a sequence's bits depend on that sequence alone.
///          Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap, E not divisible by G), out_of_memory (cpu),
///          unsupported (N above 1,024 on cuda), cuda.
/// Source   Gu, Dao 2023, arXiv:2312.00752; gradient derived in kernels/selective_scan.cu.
/// Example
///   const Tensor u = Tensor::full({1, 3, 1}, 1, DType::f64), dt = Tensor::full({1, 3, 1}, 0.5, DType::f64);
///   const Tensor A = Tensor::full({1, 1}, -1, DType::f64), B = Tensor::full({1, 3, 1, 1}, 2, DType::f64);
///   Tensor out = Tensor::empty({1, 3, 1}, DType::f64), states = Tensor::empty({1, 1, 1, 1}, DType::f64);
///   SelectiveScanForward forward;
///   forward.u = u;
///   forward.dt = dt;
///   forward.A = A;
///   forward.B = forward.C = B;
///   forward.out = out.writable();
///   forward.states = states.writable();
///   require(selective_scan_forward(forward));  // out is 2, 3.2131, 3.9488
///                                              // states is 1.6065
struct SelectiveScanForward {
  ConstView u, dt, A, B, C, D, z, dt_bias, initial_state, start;
  bool dt_softplus = false;
  View out, final_state, states;
  Workspace workspace;
};

/// Gradient of selective_scan, from its inputs and the kept states; what is between two of these is computed again, and so
/// is y where there is a z. `out` and `final_state` are not read. With [c] = 1 where c holds and nothing at all where it
/// does not, a_t = exp(dt_t A), dy_t = d_out_t silu(z_t) or, without z, d_out_t,
///   G_t = dy_t C_t + [start_{t+1} = 0] a_{t+1} G_{t+1},  G_L = dy_L C_L + d_final_state;
///   w_t = G_t [start_t = 0] a_t h_{t-1};  d_initial_state = [start_1 = 0] a_1 G_1;
///   d_u_t = dt_t sum over n of G_t B_t + D dy_t;  d_A = sum over B and L of dt_t w_t;
///   d_B_t = sum over the channels of a group of dt_t u_t G_t;  d_C_t = sum over the same of dy_t h_t;
///   d_D = sum over B and L of dy_t u_t;  d_z_t = d_out_t y_t silu'(z_t);
///   d_dt_t = (u_t sum over n of G_t B_t + sum over n of A w_t) d dt_t/d r_t;  d_dt_bias = sum over B and L of d_dt_t.
///
/// Shapes   d_out as out, d_final_state as final_state: each may be absent (zero). Gradients as their arguments; there are
///          those of states and of optional arguments that are given, but d_initial_state may be asked for when
///          initial_state is absent: it is then the gradient at zero.
/// Memory   CPU: up to eight f64 copies of d_B and of d_C, the steps of one interval per thread. CUDA: workspace by
///          selective_scan_backward_workspace: the states of one interval, and parts of d_B and d_C, of each at most eight
///          or as many as are as large as u together.
/// Example
///   const Tensor d_out = Tensor::full({1, 3, 1}, 1, DType::f64);
///   Tensor d_u = Tensor::empty({1, 3, 1}, DType::f64), d_A = Tensor::empty({1, 1}, DType::f64);
///   SelectiveScanBackward backward;
///   static_cast<SelectiveScanForward&>(backward) = forward;
///   backward.d_out = d_out;
///   backward.d_u = {d_u.writable(), WriteMode::overwrite};
///   backward.d_A = {d_A.writable(), WriteMode::overwrite};
///   require(selective_scan_backward(backward));  // d_u is 3.9488, 3.2131, 2
///                                                // d_A is 1.9488
struct SelectiveScanBackward : SelectiveScanForward {
  ConstView d_out, d_final_state;
  Gradient d_u, d_dt, d_A, d_B, d_C, d_D, d_z, d_dt_bias, d_initial_state;
};

SCANTAPE_DECLARE_OP(selective_scan_forward, SelectiveScanForward);
SCANTAPE_DECLARE_OP(selective_scan_backward, SelectiveScanBackward);

}  // namespace scantape
