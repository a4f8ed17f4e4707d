#pragma once

#include "scantape/causal_conv1d_step.h"
#include "scantape/selective_scan.h"
#include "scantape/selective_scan_step.h"

namespace scantape {

/// [B, ...] as one step of time, [B, 1, ...]. Its rows may be strided.
template <class AnyView>
AnyView as_one_step(const AnyView& view) noexcept {
  AnyView sequence = view;
  if (!view.present) return sequence;
  sequence.shape = Shape{view.shape[0], 1};
  sequence.strides[1] = view.strides[0];
  for (int axis = 1; axis < view.rank(); ++axis) {
    sequence.shape.append(view.shape[axis]);
    sequence.strides[static_cast<std::size_t>(axis + 1)] = view.strides[static_cast<std::size_t>(axis)];
  }
  return sequence;
}
inline Gradient as_one_step(const Gradient& gradient) noexcept {
  return {as_one_step(gradient.view), gradient.mode};
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
  sequence.d_x = as_one_step(args.d_x);
  sequence.d_weight = args.d_weight;
  sequence.d_bias = args.d_bias;
  sequence.d_initial_state = args.d_state;
  return sequence;
}

/// A step of a selective scan as the scan of one step, likewise.
inline SelectiveScanForward as_sequence(const SelectiveScanStepForward& args) noexcept {
  SelectiveScanForward sequence;
  sequence.u = as_one_step(args.u);
  sequence.dt = as_one_step(args.dt);
  sequence.A = args.A;
  sequence.B = as_one_step(args.B);
  sequence.C = as_one_step(args.C);
  sequence.D = args.D;
  sequence.z = as_one_step(args.z);
  sequence.dt_bias = args.dt_bias;
  sequence.initial_state = args.state;
  sequence.dt_softplus = args.dt_softplus;
  sequence.out = as_one_step(args.out);
  sequence.final_state = args.next_state;
  sequence.workspace = args.workspace;
  return sequence;
}
inline SelectiveScanBackward as_sequence(const SelectiveScanStepBackward& args) noexcept {
  SelectiveScanBackward sequence;
  static_cast<SelectiveScanForward&>(sequence) =
      as_sequence(static_cast<const SelectiveScanStepForward&>(args));
  sequence.d_out = as_one_step(args.d_out);
  sequence.d_final_state = args.d_next_state;
  sequence.d_u = as_one_step(args.d_u);
  sequence.d_dt = as_one_step(args.d_dt);
  sequence.d_A = args.d_A;
  sequence.d_B = as_one_step(args.d_B);
  sequence.d_C = as_one_step(args.d_C);
  sequence.d_D = args.d_D;
  sequence.d_z = as_one_step(args.d_z);
  sequence.d_dt_bias = args.d_dt_bias;
  sequence.d_initial_state = args.d_state;
  return sequence;
}

}  // namespace scantape
