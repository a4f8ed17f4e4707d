#pragma once

#include "scantape/discretize.h"
#include "scantape/op.h"
#include "scantape/scan.h"

namespace scantape {

/// Discretisation and scan of a diagonal state space model, fused:  h_t = a(dt_t, A) h_{t-1} + s(dt_t, A) u_t,  t = 1..L,
/// with the A_bar = a and B_bar = s B of a method of discretize. u is what comes in, B x from a projection; a, s and s u
/// are never in memory where the op runs on cuda.
///
/// Shapes   A [N];  dt [N] (constant) or [B, L, N] (varying);  u, h [B, L, N];  h0, final_state [B, N];  start [B, L].
///          h0 (absent: zeros), start and final_state are optional. L >= 1. h0 is the state before the first step,
///          final_state the one after the last: h_L (reversed: h_1).
/// Starts   as in scan: where start_t is not 0 a new sequence begins, h_t = s_t u_t. a_t is selected away there, not
///          multiplied by zero; dt_t counts, as s_t is made of it.
/// Dtypes   f32 or f64, all equal.
/// Units    dt in the time unit whose inverse is A's; dt = 0 leaves the state as it is.
/// Accuracy discretize's formulas; each decay in two numbers, formed from a - 1 where that is small, so that f32 keeps 1e-5
///          also where a state remembers as many steps as there are: dt A = -1e-4 over L = 16,384. dt A from -5000 to 0.
///          What is left is the rounding of the state itself, once a step: to the same side where it moves evenly.
///          CUDA: by scan's order, parts of time side by side beyond 4,096 steps.
/// Memory   [B, L, N] tensors may have strided rows; the rest is contiguous. Outputs overlap nothing. CUDA: workspace
///          by discretized_scan_forward_workspace: none up to L = 4,096, then a few numbers per part of time.
/// Async    enqueues on `stream`, on cuda one kernel up to L = 4,096, then three; does not synchronise or allocate; a
///          sequence's bits depend on that sequence alone. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap, L = 0, unknown method or direction), out_of_memory
///          (cpu), cuda.
/// Source   gradient derived in kernels/discretized_scan.cu; Smith, Warrington, Linderman 2023, arXiv:2208.04933.
/// Example
///   const Tensor dt = Tensor::full({1}, 0.1, DType::f64), A = Tensor::full({1}, -1, DType::f64);
///   const Tensor u = Tensor::full({1, 3, 1}, 1, DType::f64);
///   Tensor h = Tensor::empty({1, 3, 1}, DType::f64);
///   DiscretizedScanForward forward;
///   forward.dt = dt;
///   forward.A = A;
///   forward.u = u;
///   forward.h = h.writable();
///   require(discretized_scan_forward(forward));  // h is 0.0952, 0.1813, 0.2592
struct DiscretizedScanForward {
  ConstView dt, A, u, h0, start;
  DiscretizeMethod method = DiscretizeMethod::zoh;
  ScanDirection direction = ScanDirection::forward;
  View h, final_state;
  Workspace workspace;
};

/// Gradient of discretized_scan, from dt, A, u, h0, start and the saved h; a and s are formed again, `final_state` is not
/// read. With [c] = 1 where c holds and nothing at all where it does not,
///   g_t = d_h_t + [start_{t+1} = 0] a_{t+1} g_{t+1},  g_L = d_h_L + d_final_state;
///   g_a_t = [start_t = 0] g_t h_{t-1};  g_s_t = g_t u_t;  d_u_t = s_t g_t;  d_h0 = [start_1 = 0] a_1 g_1;
///   d_dt_t = g_a_t da/ddt + g_s_t ds/ddt;  d_A = sum of g_a_t da/dA + g_s_t ds/dA.
/// d_A is summed over B and L, and so is d_dt where dt is constant. Reversed: the same with t + 1 and t - 1, 1 and L
/// exchanged.
///
/// Shapes   d_h as h, d_final_state as final_state: each may be absent (zero);  d_dt, d_A, d_u, d_h0 as dt, A, u, h0. d_h0
///          may be asked for when h0 is absent: it is then the gradient at zero.
/// Memory   CUDA: workspace for partial sums of d_A and a constant d_dt, by discretized_scan_backward_workspace: [2, B, N]
///          up to L = 4,096, then as many and a few numbers more per part of time.
/// Async    as forward; on cuda one kernel more for each of d_A and a constant d_dt.
/// Example
///   const Tensor d_h = Tensor::full({1, 3, 1}, 1, DType::f64);
///   Tensor d_dt = Tensor::empty({1}, DType::f64), d_u = Tensor::empty({1, 3, 1}, DType::f64);
///   DiscretizedScanBackward backward;
///   static_cast<DiscretizedScanForward&>(backward) = forward;
///   backward.d_h = d_h;
///   backward.d_dt = {d_dt.writable(), WriteMode::overwrite};
///   backward.d_u = {d_u.writable(), WriteMode::overwrite};
///   require(discretized_scan_backward(backward));  // d_dt is 4.7647
///                                                  // d_u is 0.2592, 0.1813, 0.0952
struct DiscretizedScanBackward : DiscretizedScanForward {
  ConstView d_h, d_final_state;
  Gradient d_dt, d_A, d_u, d_h0;
};

SCANTAPE_DECLARE_OP(discretized_scan_forward, DiscretizedScanForward);
SCANTAPE_DECLARE_OP(discretized_scan_backward, DiscretizedScanBackward);

}  // namespace scantape
