#include "scantape/selective_scan_step.h"

#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"

namespace scantape::autograd {

SelectiveScanOutputs selective_scan_step(const SelectiveScanInputs& in, bool dt_softplus) {
  SelectiveScanStepForward forward;
  forward.u = in.u.value();
  forward.dt = in.dt.value();
  forward.A = in.A.value();
  forward.B = in.B.value();
  forward.C = in.C.value();
  forward.D = in.D.value();
  forward.z = in.z.value();
  forward.dt_bias = in.dt_bias.value();
  forward.state = in.initial_state.value();
  forward.dt_softplus = dt_softplus;
  Tensor out = Tensor::empty(in.u.shape(), in.u.dtype(), in.u.device());
  Tensor next_state = Tensor::empty(in.initial_state.shape(), at_least_f32(in.u.dtype()), in.u.device());
  forward.out = out.writable();
  forward.next_state = next_state.writable();
  call_op(in.u.device(), selective_scan_step_forward, selective_scan_step_forward_workspace, forward);

  auto outputs = record(
      "selective_scan_step",
      {&in.u, &in.dt, &in.A, &in.B, &in.C, &in.D, &in.z, &in.dt_bias, &in.initial_state}, {out, next_state},
      [u = Saved(in.u), dt = Saved(in.dt), A = Saved(in.A), B = Saved(in.B), C = Saved(in.C), D = Saved(in.D),
       z = Saved(in.z), dt_bias = Saved(in.dt_bias), state = Saved(in.initial_state),
       dt_softplus](BackwardPass& pass) {
        SelectiveScanStepBackward backward;
        backward.u = u.read(pass.op(), "u");
        backward.dt = dt.read(pass.op(), "dt");
        backward.A = A.read(pass.op(), "A");
        backward.B = B.read(pass.op(), "B");
        backward.C = C.read(pass.op(), "C");
        backward.D = D.read(pass.op(), "D");
        backward.z = z.read(pass.op(), "z");
        backward.dt_bias = dt_bias.read(pass.op(), "dt_bias");
        backward.state = state.read(pass.op(), "state");
        backward.dt_softplus = dt_softplus;
        backward.d_out = pass.cotangent(0);
        backward.d_next_state = pass.cotangent(1);
        Gradient* const gradients[] = {&backward.d_u, &backward.d_dt,      &backward.d_A,
                                       &backward.d_B, &backward.d_C,       &backward.d_D,
                                       &backward.d_z, &backward.d_dt_bias, &backward.d_state};
        for (int i = 0; i < 9; ++i) *gradients[i] = pass.gradient(i);
        pass.call(selective_scan_step_backward, selective_scan_step_backward_workspace, backward);
      });
  return {outputs[0], outputs[1]};
}

}  // namespace scantape::autograd
