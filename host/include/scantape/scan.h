#pragma once

#include "scantape/op.h"

namespace scantape {

/// Which way a scan runs through time.
enum class ScanDirection : std::uint8_t { forward, reversed };

const char* name(ScanDirection direction) noexcept;  // "forward"

/// First-order linear recurrence over time, by parallel prefix scan:  h_t = a_t h_{t-1} + b_t,  t = 1..L.
/// Reversed:  h_t = a_t h_{t+1} + b_t,  t = L..1: the forward scan of time-flipped tensors.
///
/// Shapes   a says which form it is:
///            constant  a [C],           b, h [B, L, C];
///            dense     a [C, C],        b, h [B, L, C], a h_{t-1} being a product of matrix and vector; on cuda C <= 64;
///            varying   a [B, L, C],     b, h [B, L, C];
///            per head  a [B, L, H],     b, h [B, L, H, P] or [B, L, H, P, N]: what follows H shares one decay.
///          h0, final_state: as b without L. start [B, L]. h0 (absent: zeros), start and final_state are optional. L >= 1.
///          h0 is the state before the first step, final_state the one after the last: h_L (reversed: h_1).
/// Starts   Where start_t is not 0 a new sequence begins: h_t = b_t. a_t is ignored there, and so is the state
///          before: selected away, not multiplied by zero, so that NaN and infinity end with their sequence. Packed
///          sequences are one row of b. Reversed, a flag at t cuts between t + 1 and t.
/// minus_one  Then a holds a_t - 1 (dense: a - I), as discretize's F does: decays near 1 keep the digits that a itself,
///          rounded, has lost. Gradients are the same: d_a is with respect to what is given.
/// Dtypes   f32, f64, bf16 or f16, all equal; beside 16 bits a, h0, final_state and their gradients are f32, as is all that
///          is carried: each h_t is rounded once, where it is written.
/// Accuracy the monoid (a2, b2) o (a1, b1) = (a2 a1, a2 b1 + b2); never a division by a. CPU: step by step, each
///          rounded once. CUDA: chunks of time per thread, joined by a scan over chunks, products of decays kept in
///          twice the precision; beyond 4,096 steps parts of time run side by side. Dense: step by step, beyond
///          512 steps in parts of 128 side by side, joined by the 128th power of a. Such products may overflow where the
///          step by step form does not.
/// Memory   [B, L, ...] tensors may have strided rows; the rest is contiguous. Outputs overlap nothing. CUDA: workspace
///          by scan_forward_workspace: none up to L = 4,096 (dense: 512), then a few numbers per channel and part.
/// Async    enqueues on `stream`; does not synchronise or allocate; a sequence's bits depend on that sequence alone.
///          Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap, L = 0, unknown direction), unsupported (dense on
///          cuda with more states), cuda.
/// Source   Blelloch 1990, "Prefix sums and their applications"; Martin, Cundy 2018, arXiv:1709.04057.
/// Example
///   const Tensor a = Tensor::full({1}, 0.5, DType::f64);
///   const Tensor b = Tensor::full({1, 3, 1}, 1, DType::f64);
///   Tensor h = Tensor::empty({1, 3, 1}, DType::f64), final_state = Tensor::empty({1, 1}, DType::f64);
///   ScanForward forward;
///   forward.a = a;
///   forward.b = b;
///   forward.h = h.writable();
///   forward.final_state = final_state.writable();
///   require(scan_forward(forward));  // h is 1, 1.5, 1.75
///                                    // final_state is 1.75
struct ScanForward {
  ConstView a, b, h0, start;
  ScanDirection direction = ScanDirection::forward;
  bool minus_one = false;
  View h, final_state;
  Workspace workspace;
};

/// Gradient of scan, from a, h0, start and the saved h; `b` and `final_state` are not read. With [c] = 1 where c holds
/// and nothing at all where it does not,
///   g_t = d_h_t + [start_{t+1} = 0] a_{t+1} g_{t+1},  g_L = d_h_L + d_final_state;
///   d_b_t = g_t;  d_a_t = [start_t = 0] g_t h_{t-1};  d_h0 = [start_1 = 0] a_1 g_1.
/// A constant a sums d_a over B and L, one per head over what follows H. Reversed: the same with t + 1 and t - 1, 1 and L
/// exchanged. Dense: a^T in place of a before g, and d_a = sum over B and t with start_t = 0 of g_t h_{t-1}^T.
///
/// Shapes   d_h as h, d_final_state as final_state: each may be absent (zero);  d_a, d_b, d_h0 as a, b, h0. d_h0 may be
///          asked for when h0 is absent: it is then the gradient at zero.
/// Memory   CUDA: workspace for partial sums of d_a, by scan_backward_workspace: [B, C] where a is constant, [B, L, H]
///          times the blocks of a head per head, [B, parts of time, C, C] dense; and in parts of time as forward.
/// Example
///   const Tensor d_final_state = Tensor::full({1, 1}, 1, DType::f64);
///   Tensor d_a = Tensor::empty({1}, DType::f64), d_b = Tensor::empty({1, 3, 1}, DType::f64);
///   ScanBackward backward;
///   static_cast<ScanForward&>(backward) = forward;
///   backward.d_final_state = d_final_state;
///   backward.d_a = {d_a.writable(), WriteMode::overwrite};
///   backward.d_b = {d_b.writable(), WriteMode::overwrite};
///   require(scan_backward(backward));  // d_a is 2
///                                      // d_b is 0.25, 0.5, 1
struct ScanBackward : ScanForward {
  ConstView d_h, d_final_state;
  Gradient d_a, d_b, d_h0;
};

SCANTAPE_DECLARE_OP(scan_forward, ScanForward);
SCANTAPE_DECLARE_OP(scan_backward, ScanBackward);

}  // namespace scantape
