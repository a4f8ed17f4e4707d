#pragma once

#include "scantape/op.h"
#include "scantape/state_output.h"  // Activation

namespace scantape {

/// Most taps K that causal_conv1d takes.
inline constexpr int kMostConvTaps = 16;

/// Causal depthwise convolution over time:  y_t = act(bias + sum_{k=0..K-1} weight_k X_{t-K+1+k}),  t = 1..L.
/// Each channel has its own K taps, the last of which meets x_t itself. X is x with the K - 1 inputs before it in front:
/// X_t = x_t for t >= 1, and X_0, X_{-1}, ... are the last, the last but one, ... row of initial_state.
///
/// Shapes   x, y [B, L, C];  weight [C, K], 1 <= K <= 16;  bias [C];  initial_state, final_state [B, K-1, C];
///          start [B, L]. L >= 1. Optional: bias (absent: zeros), initial_state (absent: zeros), start, final_state. With
///          K = 1 there is nothing to carry: a state is then left out or has no rows.
///          final_state is the last K - 1 rows of X, oldest first: the initial_state of the steps that follow.
/// Starts   Where start_t is not 0 a new sequence begins: whatever lies before t counts as zeros from there on, in
///          final_state too. It is selected away, not multiplied by zero, so that NaN and infinity end with their sequence.
/// Dtypes   f32, f64, bf16 or f16, all equal, states and their gradients too, which are inputs; beside 16 bits d_weight
///          and d_bias are f32, as is all that is computed: y is rounded once.
/// Accuracy at most 17 terms, added from the newest input to the oldest, with the accuracy of the type that is computed in.
/// Memory   rows of x and y may be strided (channels of a wider projection); the rest is contiguous. Outputs overlap
///          nothing. No workspace forward.
/// Async    enqueues on `stream`; does not synchronise or allocate; a sequence's bits depend on that sequence alone, and
///          not on where time is cut: carrying final_state on gives the bits of the whole, y, final_state and, in f32
///          and f64, d_x and d_initial_state. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap, L = 0, K = 0 or above 16, unknown activation), cuda.
/// Source   Gu, Dao 2023, arXiv:2312.00752 (the convolution of a Mamba block); gradient derived in kernels/causal_conv1d.cu.
/// Example
///   const Tensor x = Tensor::from({1, 3, 1}, std::vector<double>{1, 2, 3});
///   const Tensor weight = Tensor::from({1, 2}, std::vector<double>{10, 1});
///   const Tensor state = Tensor::full({1, 1, 1}, 5, DType::f64);
///   Tensor y = Tensor::empty({1, 3, 1}, DType::f64), final_state = Tensor::empty({1, 1, 1}, DType::f64);
///   CausalConv1dForward forward;
///   forward.x = x;
///   forward.weight = weight;
///   forward.initial_state = state;
///   forward.activation = Activation::none;
///   forward.y = y.writable();
///   forward.final_state = final_state.writable();
///   require(causal_conv1d_forward(forward));  // y is 51, 12, 23
///                                             // final_state is 3
struct CausalConv1dForward {
  ConstView x, weight, bias, initial_state, start;
  Activation activation = Activation::silu;
  View y, final_state;
  Workspace workspace;
};

/// Gradient of causal_conv1d, from x, weight, bias, initial_state and start, of which what stands before the activation
/// is formed again; `y` and `final_state` are not read. With p_t that sum, g_t = d_y_t act'(p_t), and d_X taken only over
/// steps of X_t's own sequence,
///   d_X_t = sum_{k=0..K-1} weight_k g_{t+K-1-k} + d_final_state's row of X_t, where there is one;
///   d_x and d_initial_state are the parts of d_X;
///   d_weight_k = sum over B and t of g_t X_{t-K+1+k};  d_bias = sum over B and t of g_t.
///
/// Shapes   d_y as y, d_final_state as final_state: each may be absent (zero);  d_x, d_initial_state as x, initial_state;
///          d_weight [C, K];  d_bias [C]. d_initial_state may be asked for when initial_state is absent: it is then the
///          gradient at zero. d_bias only where there is a bias.
/// Memory   CUDA: workspace for partial sums of d_weight and d_bias, summed in a second pass, in order.
/// Example
///   const Tensor d_y = Tensor::from({1, 3, 1}, std::vector<double>{0, 0, 1});
///   const Tensor d_final_state = Tensor::full({1, 1, 1}, 100, DType::f64);
///   Tensor d_x = Tensor::empty({1, 3, 1}, DType::f64), d_weight = Tensor::empty({1, 2}, DType::f64);
///   CausalConv1dBackward backward;
///   static_cast<CausalConv1dForward&>(backward) = forward;
///   backward.d_y = d_y;
///   backward.d_final_state = d_final_state;
///   backward.d_x = {d_x.writable(), WriteMode::overwrite};
///   backward.d_weight = {d_weight.writable(), WriteMode::overwrite};
///   require(causal_conv1d_backward(backward));  // d_x is 0, 10, 101
///                                               // d_weight is 2, 3
struct CausalConv1dBackward : CausalConv1dForward {
  ConstView d_y, d_final_state;
  Gradient d_x, d_weight, d_bias, d_initial_state;
};

SCANTAPE_DECLARE_OP(causal_conv1d_forward, CausalConv1dForward);
SCANTAPE_DECLARE_OP(causal_conv1d_backward, CausalConv1dBackward);

}  // namespace scantape
