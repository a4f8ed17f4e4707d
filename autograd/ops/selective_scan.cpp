#include "scantape/selective_scan.h"

#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"

namespace scantape::autograd {

namespace {

/// Tensors for what comes out. A wrong rank is left to the op's own check, which words it.
struct Outputs {
  Tensor out, final_state, states;

  explicit Outputs(const SelectiveScanInputs& in) {
    const Shape &u = in.u.shape(), &A = in.A.shape();
    out = Tensor::empty(u, in.u.dtype(), in.u.device());
    if (u.rank() != 3 || A.rank() != 2 || u[1] == 0) return;
    const DType wide = at_least_f32(in.u.dtype());
    final_state = Tensor::empty({u[0], u[2], A[1]}, wide, in.u.device());
    if (!in.recorded()) return;
    const std::int64_t kept = (u[1] - 1) / selective_scan_interval(u[1]);
    states = Tensor::empty({u[0], kept, u[2], A[1]}, wide, in.u.device());
  }
};

}  // namespace

bool SelectiveScanInputs::recorded() const noexcept {
  for (const Variable* variable : {&u, &dt, &A, &B, &C, &D, &z, &dt_bias, &initial_state})
    if (variable->recorded()) return true;
  return false;
}

SelectiveScanOutputs selective_scan(const SelectiveScanInputs& in, const SelectiveScanOptions& options) {
  SelectiveScanForward forward;
  forward.u = in.u.value();
  forward.dt = in.dt.value();
  forward.A = in.A.value();
  forward.B = in.B.value();
  forward.C = in.C.value();
  forward.D = in.D.value();
  forward.z = in.z.value();
  forward.dt_bias = in.dt_bias.value();
  forward.initial_state = in.initial_state.value();
  forward.start = options.start;
  forward.dt_softplus = options.dt_softplus;
  Outputs made(in);
  forward.out = made.out.writable();
  if (made.final_state.present()) forward.final_state = made.final_state.writable();
  if (made.states.present()) forward.states = made.states.writable();
  call_op(in.u.device(), selective_scan_forward, selective_scan_forward_workspace, forward);

  auto outputs = record(
      "selective_scan", {&in.u, &in.dt, &in.A, &in.B, &in.C, &in.D, &in.z, &in.dt_bias, &in.initial_state},
      {made.out, made.final_state},
      [u = Saved(in.u), dt = Saved(in.dt), A = Saved(in.A), B = Saved(in.B), C = Saved(in.C), D = Saved(in.D),
       z = Saved(in.z), dt_bias = Saved(in.dt_bias), initial_state = Saved(in.initial_state),
       states = Saved(made.states), start = Saved(options.start), options](BackwardPass& pass) {
        SelectiveScanBackward backward;
        backward.u = u.read(pass.op(), "u");
        backward.dt = dt.read(pass.op(), "dt");
        backward.A = A.read(pass.op(), "A");
        backward.B = B.read(pass.op(), "B");
        backward.C = C.read(pass.op(), "C");
        backward.D = D.read(pass.op(), "D");
        backward.z = z.read(pass.op(), "z");
        backward.dt_bias = dt_bias.read(pass.op(), "dt_bias");
        backward.initial_state = initial_state.read(pass.op(), "initial_state");
        backward.start = start.read(pass.op(), "start");
        backward.dt_softplus = options.dt_softplus;
        static_cast<ConstView&>(backward.states) = states.read(pass.op(), "states");
        backward.d_out = pass.cotangent(0);
        backward.d_final_state = pass.cotangent(1);
        Gradient* const gradients[] = {&backward.d_u, &backward.d_dt,      &backward.d_A,
                                       &backward.d_B, &backward.d_C,       &backward.d_D,
                                       &backward.d_z, &backward.d_dt_bias, &backward.d_initial_state};
        for (int i = 0; i < 9; ++i) *gradients[i] = pass.gradient(i);
        pass.call(selective_scan_backward, selective_scan_backward_workspace, backward);
      });
  return {outputs[0], outputs[1]};
}

}  // namespace scantape::autograd
