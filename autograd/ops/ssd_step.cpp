#include "scantape/ssd_step.h"

#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"

namespace scantape::autograd {

SsdOutputs ssd_step(const SsdInputs& in, const SsdStepOptions& options) {
  SsdStepForward forward;
  forward.x = in.x.value();
  forward.dt = in.dt.value();
  forward.A = in.A.value();
  forward.B = in.B.value();
  forward.C = in.C.value();
  forward.D = in.D.value();
  forward.z = in.z.value();
  forward.dt_bias = in.dt_bias.value();
  forward.state = in.initial_state.value();
  forward.dt_softplus = options.dt_softplus;
  forward.dt_min = options.dt_min;
  forward.dt_max = options.dt_max;
  Tensor out = Tensor::empty(in.x.shape(), in.x.dtype(), in.x.device());
  Tensor next_state = Tensor::empty(in.initial_state.shape(), at_least_f32(in.x.dtype()), in.x.device());
  forward.out = out.writable();
  forward.next_state = next_state.writable();
  call_op(in.x.device(), ssd_step_forward, ssd_step_forward_workspace, forward);

  auto outputs =
      record("ssd_step", {&in.x, &in.dt, &in.A, &in.B, &in.C, &in.D, &in.z, &in.dt_bias, &in.initial_state},
             {out, next_state},
             [x = Saved(in.x), dt = Saved(in.dt), A = Saved(in.A), B = Saved(in.B), C = Saved(in.C),
              D = Saved(in.D), z = Saved(in.z), dt_bias = Saved(in.dt_bias), state = Saved(in.initial_state),
              options](BackwardPass& pass) {
               SsdStepBackward backward;
               backward.x = x.read(pass.op(), "x");
               backward.dt = dt.read(pass.op(), "dt");
               backward.A = A.read(pass.op(), "A");
               backward.B = B.read(pass.op(), "B");
               backward.C = C.read(pass.op(), "C");
               backward.D = D.read(pass.op(), "D");
               backward.z = z.read(pass.op(), "z");
               backward.dt_bias = dt_bias.read(pass.op(), "dt_bias");
               backward.state = state.read(pass.op(), "state");
               backward.dt_softplus = options.dt_softplus;
               backward.dt_min = options.dt_min;
               backward.dt_max = options.dt_max;
               backward.d_out = pass.cotangent(0);
               backward.d_next_state = pass.cotangent(1);
               Gradient* const gradients[] = {&backward.d_x, &backward.d_dt,      &backward.d_A,
                                              &backward.d_B, &backward.d_C,       &backward.d_D,
                                              &backward.d_z, &backward.d_dt_bias, &backward.d_state};
               for (int i = 0; i < 9; ++i) *gradients[i] = pass.gradient(i);
               pass.call(ssd_step_backward, ssd_step_backward_workspace, backward);
             });
  return {outputs[0], outputs[1]};
}

}  // namespace scantape::autograd
