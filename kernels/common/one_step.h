#pragma once

#include "scantape/causal_conv1d_step.h"

namespace scantape {

/// [B, C] as one step of time, [B, 1, C]. Its rows may be strided.
inline ConstView as_one_step(const ConstView& view) noexcept {
  ConstView sequence = view;
  if (!view.present) return sequence;
  sequence.shape = Shape{view.shape[0], 1, view.shape[1]};
  sequence.strides = {view.strides[0], view.strides[0], view.strides[1]};
  return sequence;
}
inline View as_one_step(const View& view) noexcept {
  View sequence;
  static_cast<ConstView&>(sequence) = as_one_step(static_cast<const ConstView&>(view));
  return sequence;
}

/// A step of a convolution as the convolution of one step: the same code on every device, so the same bits.
inline CausalConv1dForward as_sequence(const CausalConv1dStepForward& args) noexcept {
  CausalConv1dForward sequence;
  sequence.x = as_one_step(args.x);
  sequence.weight = args.weight;
  sequence.bias = args.bias;
  sequence.initial_state = args.state;
  sequence.activation = args.activation;
  sequence.y = as_one_step(args.y);
  sequence.final_state = args.new_state;
  sequence.workspace = args.workspace;
  return sequence;
}
inline CausalConv1dBackward as_sequence(const CausalConv1dStepBackward& args) noexcept {
  CausalConv1dBackward sequence;
  static_cast<CausalConv1dForward&>(sequence) =
      as_sequence(static_cast<const CausalConv1dStepForward&>(args));
  sequence.d_y = as_one_step(args.d_y);
  sequence.d_final_state = args.d_new_state;
  sequence.d_x = {as_one_step(args.d_x.view), args.d_x.mode};
  sequence.d_weight = args.d_weight;
  sequence.d_bias = args.d_bias;
  sequence.d_initial_state = args.d_state;
  return sequence;
}

}  // namespace scantape
