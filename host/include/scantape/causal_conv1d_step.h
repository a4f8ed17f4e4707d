#pragma once

#include "scantape/causal_conv1d.h"

namespace scantape {

/// One step of a causal depthwise convolution:  y = act(bias + sum_{k=0..K-2} weight_k state_k + weight_{K-1} x).
/// The step of decoding: causal_conv1d over a single step, bit for bit, forward and backward.
///
/// Shapes   x, y [B, C];  weight [C, K], 1 <= K <= 16;  bias [C];  state, new_state [B, K-1, C]: the last K - 1 inputs,
///          oldest first, before and after this step. Optional: bias (absent: zeros), state (absent: zeros), new_state.
///          With K = 1 there is nothing to carry: a state is then left out or has no rows.
/// Dtypes   f32, f64, bf16 or f16, all equal, as for causal_conv1d.
/// Accuracy as causal_conv1d.
/// Memory   rows of x and y may be strided; the rest is contiguous. new_state may be state itself, which then moves on by
///          one step in place (backward wants the state from before); any other overlap is an error. No workspace forward.
/// Async    enqueues on `stream`; does not synchronise or allocate; an item's bits depend on that item alone. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap, K = 0 or above 16, unknown activation), cuda.
/// Example
///   const Tensor x = Tensor::full({1, 1}, 3, DType::f64);
///   const Tensor weight = Tensor::from({1, 3}, std::vector<double>{100, 10, 1});
///   Tensor state = Tensor::from({1, 2, 1}, std::vector<double>{1, 2}), y = Tensor::empty({1, 1}, DType::f64);
///   CausalConv1dStepForward forward;
///   forward.x = x;
///   forward.weight = weight;
///   forward.state = state;
///   forward.activation = Activation::none;
///   forward.y = y.writable();
///   forward.new_state = state.writable();
///   require(causal_conv1d_step_forward(forward));  // y is 123
///                                                  // state is 2, 3
struct CausalConv1dStepForward {
  ConstView x, state, weight, bias;
  Activation activation = Activation::silu;
  View y, new_state;
  Workspace workspace;
};

/// Gradient of causal_conv1d_step, from x, state, weight and bias; `y` and `new_state` are not read. With
/// g = d_y act'(p), p what stands before the activation,
///   d_x = weight_{K-1} g + d_new_state_{K-2};  d_state_k = weight_k g + d_new_state_{k-1} (the first: weight_0 g);
///   d_weight_k = sum_B g state_k (the last: sum_B g x);  d_bias = sum_B g.
///
/// Shapes   d_y as y, d_new_state as new_state: each may be absent (zero);  d_x, d_state as x, state;  d_weight [C, K];
///          d_bias [C]. d_state may be asked for when state is absent. d_bias only where there is a bias.
/// Memory   CUDA: workspace for partial sums of d_weight and d_bias, summed in a second pass, in order.
/// Example
///   const Tensor before = Tensor::from({1, 2, 1}, std::vector<double>{1, 2}), d_y = Tensor::full({1, 1}, 1, DType::f64);
///   Tensor d_state = Tensor::empty({1, 2, 1}, DType::f64), d_weight = Tensor::empty({1, 3}, DType::f64);
///   CausalConv1dStepBackward backward;
///   static_cast<CausalConv1dStepForward&>(backward) = forward;
///   backward.state = before;  // forward has moved the other one on
///   backward.d_y = d_y;
///   backward.d_state = {d_state.writable(), WriteMode::overwrite};
///   backward.d_weight = {d_weight.writable(), WriteMode::overwrite};
///   require(causal_conv1d_step_backward(backward));  // d_state is 100, 10
///                                                    // d_weight is 1, 2, 3
struct CausalConv1dStepBackward : CausalConv1dStepForward {
  ConstView d_y, d_new_state;
  Gradient d_x, d_state, d_weight, d_bias;
};

SCANTAPE_DECLARE_OP(causal_conv1d_step_forward, CausalConv1dStepForward);
SCANTAPE_DECLARE_OP(causal_conv1d_step_backward, CausalConv1dStepBackward);

}  // namespace scantape
