#pragma once

#include <limits>

#include "scantape/op.h"

namespace scantape {

/// The longest chunk of ssd: tables of chunk_length squared numbers are made of it.
inline constexpr std::int64_t kMostSsdChunkLength = 1024;
/// The most states, and the widest heads, that ssd takes on cuda.
inline constexpr std::int64_t kMostSsdStatesOnCuda = 1024;

/// Steps from one state that ssd keeps for backward to the next: chunk_length or, where that is 0 (the sequential form),
/// the least number whose square is at least L.
/// Example
///   const double chunked = static_cast<double>(ssd_interval(100, 64));    // chunked is 64
///   const double sequential = static_cast<double>(ssd_interval(100, 0));  // sequential is 10
std::int64_t ssd_interval(std::int64_t length, std::int64_t chunk_length) noexcept;

/// Selective state space, the recurrence of Mamba-2: each head carries a state h [P, N] and decays it as a whole,
///   h_t = exp(dt_t A) h_{t-1} + dt_t x_t B_t^T,   y_t = h_t C_t + D x_t,   out_t = y_t silu(z_t) or, without z, y_t,
/// t = 1..L, where dt_t = min(max(u_t, dt_min), dt_max), u_t = softplus(r_t) or, unless dt_softplus, r_t,
/// r_t = dt[t] + dt_bias.
///
/// Shapes   x, z, out [B, L, H, P];  dt [B, L, H];  B, C [B, L, G, N], H divisible by G, head h reading group
///          floor(h / (H / G));  A, dt_bias [H];  D [H] or [H, P];  start [B, L];  initial_state, final_state
///          [B, H, P, N];  states [B, K, H, P, N], K = ceil(L / ssd_interval) - 1. All sizes but B above 0.
///          D, z, dt_bias, start, initial_state (absent: zeros), final_state and states are optional; backward wants states.
///          softplus(r) = r above 20.
/// Starts   Where start_t is not 0 a new sequence begins: h_t = dt_t x_t B_t^T. What was before is selected away, not
///          multiplied by zero, so that NaN and infinity end with their sequence. Packed sequences are one row.
/// Forms    chunk_length = 0: the sequential form, step by step. Else the chunked form: chunks of chunk_length steps, the
///          last of a sequence shorter, that begin with each row of the batch and anew at every start; inside of a chunk all
///          steps are matrix products, and only states go from chunk to chunk. In either form packed sequences have the
///          bits that they have apart. Counters say which form ran.
/// States   Beginnings of chunks lie at t = 0 (from 0), at every start and chunk_length after a beginning. states[k - 1]
///          is the state before the chunk that begins, without a start, at some t with floor(t / ssd_interval) = k; there is
///          at most one such chunk, and zeros stand where there is none. In the sequential form the same with
///          ssd_interval for chunk_length, which decides about nothing but what is kept.
/// Dtypes   f32, f64, bf16 or f16, all equal; beside 16 bits A, D, dt_bias, all states and their gradients are f32, as is
///          all that is computed and carried: out is rounded once.
/// Units    dt in the time unit whose inverse is A's. 0 <= dt_min <= dt_max; dt = 0 leaves the state as it is.
/// Accuracy a step moves the state by expm1(dt A) where that is near 0, so that f32 keeps 1e-5 also where a state
///          remembers thousands of steps. Sums of dt A are added up, never taken as differences of running totals:
///          dt A = -5000 beside -1e-4 costs neither its digits. A future step changes no bit of an earlier one.
/// Memory   dt, x, B, C, z, out and their gradients may have strided rows of time, each row without gaps: columns of one
///          wider tensor. The rest is contiguous. Outputs overlap nothing. Nothing has B L H P N elements. CPU: scratch as
///          large as states, and a few tables of a chunk per thread. CUDA: workspace by ssd_forward_workspace.
/// Async    enqueues on `stream`; does not synchronise or allocate; a sequence's bits depend on that sequence alone.
///          Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap, H not divisible by G, chunk_length below 0 or above
///          1,024, limits of dt), out_of_memory (cpu), unsupported (P or N above 1,024 on cuda), cuda.
/// Source   Dao, Gu 2024, arXiv:2405.21060; gradient derived in kernels/ssd.cu.
/// Example
///   const Tensor x = Tensor::full({1, 3, 1, 1}, 1, DType::f64), dt = Tensor::full({1, 3, 1}, 0.5, DType::f64);
///   const Tensor A = Tensor::full({1}, -1, DType::f64), B = Tensor::full({1, 3, 1, 1}, 2, DType::f64);
///   Tensor out = Tensor::empty({1, 3, 1, 1}, DType::f64), states = Tensor::empty({1, 1, 1, 1, 1}, DType::f64);
///   SsdForward forward;
///   forward.x = x;
///   forward.dt = dt;
///   forward.A = A;
///   forward.B = forward.C = B;
///   forward.chunk_length = 2;
///   forward.out = out.writable();
///   forward.states = states.writable();
///   require(ssd_forward(forward));  // out is 2, 3.2131, 3.9488
///                                   // states is 1.6065
struct SsdForward {
  ConstView x, dt, A, B, C, D, z, dt_bias, initial_state, start;
  bool dt_softplus = false;
  double dt_min = 0, dt_max = std::numeric_limits<double>::infinity();
  std::int64_t chunk_length = 0;
  View out, final_state, states;
  Workspace workspace;
};

/// Gradient of ssd, from its inputs and the kept states; what is between two of these is computed again, and so is y where
/// there is a z. `out` and `final_state` are not read. With [c] = 1 where c holds and nothing at all where it does not,
/// l_t = dt_t A and dy_t = d_out_t silu(z_t) or, without z, d_out_t,
///   G_t = dy_t C_t^T + [start_{t+1} = 0] exp(l_{t+1}) G_{t+1},  G_L = dy_L C_L^T + d_final_state;
///   g_l_t = <G_t, [start_t = 0] exp(l_t) h_{t-1}>;  d_initial_state = [start_1 = 0] exp(l_1) G_1;
///   d_x_t = dt_t G_t B_t + D dy_t;  d_B_t = sum over the heads of a group and p of dt_t x_t G_t;
///   d_C_t = sum over the same of dy_t h_t;  d_A = sum over B and L of dt_t g_l_t;  d_D = sum of dy_t x_t;
///   d_z_t = d_out_t y_t silu'(z_t);  g_dt_t = x_t . (G_t B_t) + A g_l_t;
///   d_dt_t = [dt_min <= u_t <= dt_max] g_dt_t du_t/dr_t, nothing where dt is clamped;  d_dt_bias = sum of d_dt_t.
///
/// Shapes   d_out as out, d_final_state as final_state: each may be absent (zero). Gradients as their arguments; there are
///          those of A and states that are given, but d_initial_state may be asked for when initial_state is absent: it is
///          then the gradient at zero.
/// Memory   CPU: scratch as large as states, and two numbers for each dt. CUDA: workspace by ssd_backward_workspace.
/// Example
///   const Tensor d_out = Tensor::full({1, 3, 1, 1}, 1, DType::f64);
///   Tensor d_x = Tensor::empty({1, 3, 1, 1}, DType::f64), d_A = Tensor::empty({1}, DType::f64);
///   SsdBackward backward;
///   static_cast<SsdForward&>(backward) = forward;
///   backward.d_out = d_out;
///   backward.d_x = {d_x.writable(), WriteMode::overwrite};
///   backward.d_A = {d_A.writable(), WriteMode::overwrite};
///   require(ssd_backward(backward));  // d_x is 3.9488, 3.2131, 2
///                                     // d_A is 1.9488
struct SsdBackward : SsdForward {
  ConstView d_out, d_final_state;
  Gradient d_x, d_dt, d_A, d_B, d_C, d_D, d_z, d_dt_bias, d_initial_state;
};

SCANTAPE_DECLARE_OP(ssd_forward, SsdForward);
SCANTAPE_DECLARE_OP(ssd_backward, SsdBackward);

}  // namespace scantape
