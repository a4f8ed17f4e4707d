#pragma once

#include "scantape/op.h"

namespace scantape {

/// First-order linear recurrence over time, by parallel prefix scan:  h_t = a_t h_{t-1} + b_t,  t = 1..L.
///
/// Shapes   b, h [B, L, C];  a [C] (constant) or [B, L, C] (varying);  h0, final_state [B, C], both optional
///          (h0 absent: zeros).  L >= 1. final_state is h_L.
/// Dtypes   f32 or f64, all equal.
/// Accuracy the monoid (a2, b2) o (a1, b1) = (a2 a1, a2 b1 + b2); never a division by a. CPU: step by step, each
///          rounded once. CUDA: chunks of time per thread, joined by a scan over chunks, products of decays kept in
///          twice the precision. Such a product may overflow where the step by step form does not.
/// Memory   [B, L, C] tensors may have strided rows; the rest is contiguous. Outputs overlap nothing.
/// Async    enqueues on `stream`; does not synchronise or allocate; a sequence's bits depend on that sequence alone.
///          Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap, L = 0), cuda.
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
  ConstView a, b, h0;
  View h, final_state;
  Workspace workspace;
};

/// Gradient of scan, from a, h0 and the saved h; `b` and `final_state` are not read.
///   g_t = d_h_t + a_{t+1} g_{t+1},  g_L = d_h_L + d_final_state;
///   d_b_t = g_t;  d_a_t = g_t h_{t-1} (summed over B and L where a is constant);  d_h0 = a_1 g_1.
///
/// Shapes   d_h as h, d_final_state as final_state: each may be absent (zero);  d_a, d_b, d_h0 as a, b, h0. d_h0 may be
///          asked for when h0 is absent: it is then the gradient at zero.
/// Memory   CUDA: workspace for the partial sums of a constant d_a, [B, C], by scan_backward_workspace.
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
