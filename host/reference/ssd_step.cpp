#include "scantape/ssd_step.h"

#include "common/one_step.h"
#include "scantape/ssd.h"

namespace scantape::reference {

namespace {

void set_inputs(const SsdStepForward& step, SsdForward* args) noexcept {
  args->x = as_one_step(step.x);
  args->dt = as_one_step(step.dt);
  args->A = step.A;
  args->B = as_one_step(step.B);
  args->C = as_one_step(step.C);
  args->D = step.D;
  args->z = as_one_step(step.z);
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
  args.out = as_one_step(step.out);
  args.final_state = step.next_state;
  return reference::ssd_forward(args);
}

Status ssd_step_backward(const SsdStepBackward& step) noexcept {
  SsdBackward args;
  set_inputs(step, &args);
  args.d_out = as_one_step(step.d_out);
  args.d_final_state = step.d_next_state;
  args.d_x = as_one_step(step.d_x);
  args.d_dt = as_one_step(step.d_dt);
  args.d_A = step.d_A;
  args.d_B = as_one_step(step.d_B);
  args.d_C = as_one_step(step.d_C);
  args.d_D = step.d_D;
  args.d_z = as_one_step(step.d_z);
  args.d_dt_bias = step.d_dt_bias;
  args.d_initial_state = step.d_state;
  return reference::ssd_backward(args);
}

}  // namespace scantape::reference
