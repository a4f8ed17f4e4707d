#include "scantape/ssd_step.h"

#include "scantape/ssd.h"

namespace scantape::reference {

namespace {

/// [B, ...] as [B, 1, ...]: one step of time.
template <class AnyView>
AnyView one_step(const AnyView& view) noexcept {
  AnyView result = view;
  if (!view.present) return result;
  result.shape = Shape{view.shape[0], 1};
  for (int axis = 1; axis < view.rank(); ++axis) {
    result.shape.append(view.shape[axis]);
    result.strides[static_cast<std::size_t>(axis + 1)] = view.strides[static_cast<std::size_t>(axis)];
  }
  result.strides[1] = view.strides[0];
  return result;
}

Gradient one_step(const Gradient& gradient) noexcept {
  return {one_step(gradient.view), gradient.mode};
}

void set_inputs(const SsdStepForward& step, SsdForward* args) noexcept {
  args->x = one_step(step.x);
  args->dt = one_step(step.dt);
  args->A = step.A;
  args->B = one_step(step.B);
  args->C = one_step(step.C);
  args->D = step.D;
  args->z = one_step(step.z);
  args->dt_bias = step.dt_bias;
  args->initial_state = step.state;
  args->dt_softplus = step.dt_softplus;
  args->dt_min = step.dt_min;
  args->dt_max = step.dt_max;
}

}  // namespace

Status ssd_step_forward(const SsdStepForward& step) noexcept {
  SsdForward args;
  set_inputs(step, &args);
  args.out = one_step(step.out);
  args.final_state = step.next_state;
  return reference::ssd_forward(args);
}

Status ssd_step_backward(const SsdStepBackward& step) noexcept {
  SsdBackward args;
  set_inputs(step, &args);
  args.d_out = one_step(step.d_out);
  args.d_final_state = step.d_next_state;
  args.d_x = one_step(step.d_x);
  args.d_dt = one_step(step.d_dt);
  args.d_A = step.d_A;
  args.d_B = one_step(step.d_B);
  args.d_C = one_step(step.d_C);
  args.d_D = step.d_D;
  args.d_z = one_step(step.d_z);
  args.d_dt_bias = step.d_dt_bias;
  args.d_initial_state = step.d_state;
  return reference::ssd_backward(args);
}

}  // namespace scantape::reference
