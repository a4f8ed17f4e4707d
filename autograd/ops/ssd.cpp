#include "scantape/ssd.h"

#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"

namespace scantape::autograd {

namespace {

/// Tensors for what comes out. A wrong rank is left to the op's own check, which words it.
struct Outputs {
  Tensor out, final_state, states;

  Outputs(const SsdInputs& in, const SsdOptions& options) {
    const Shape &x = in.x.shape(), &B = in.B.shape();
    out = Tensor::empty(x, in.x.dtype(), in.x.device());
    if (x.rank() != 4 || B.rank() != 4 || x[1] == 0 || options.chunk_length < 0) return;
    const DType wide = at_least_f32(in.x.dtype());
    const std::int64_t kept = (x[1] - 1) / ssd_interval(x[1], options.chunk_length);
    final_state = Tensor::empty({x[0], x[2], x[3], B[3]}, wide, in.x.device());
    if (in.recorded()) states = Tensor::empty({x[0], kept, x[2], x[3], B[3]}, wide, in.x.device());
  }
};

}  // namespace

bool SsdInputs::recorded() const noexcept {
  for (const Variable* variable : {&x, &dt, &A, &B, &C, &D, &z, &dt_bias, &initial_state})
    if (variable->recorded()) return true;
  return false;
}

SsdOutputs ssd(const SsdInputs& in, const SsdOptions& options) {
  SsdForward forward;
  forward.x = in.x.value();
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
  forward.dt_min = options.dt_min;
  forward.dt_max = options.dt_max;
  forward.chunk_length = options.chunk_length;
  Outputs made(in, options);
  forward.out = made.out.writable();
  if (made.final_state.present()) forward.final_state = made.final_state.writable();
  if (made.states.present()) forward.states = made.states.writable();
  call_op(in.x.device(), ssd_forward, ssd_forward_workspace, forward);

  auto outputs = record(
      "ssd", {&in.x, &in.dt, &in.A, &in.B, &in.C, &in.D, &in.z, &in.dt_bias, &in.initial_state},
      {made.out, made.final_state},
      [x = Saved(in.x), dt = Saved(in.dt), A = Saved(in.A), B = Saved(in.B), C = Saved(in.C), D = Saved(in.D),
       z = Saved(in.z), dt_bias = Saved(in.dt_bias), initial_state = Saved(in.initial_state),
       states = Saved(made.states), start = Saved(options.start), options](BackwardPass& pass) {
        SsdBackward backward;
        backward.x = x.read(pass.op(), "x");
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
        backward.dt_min = options.dt_min;
        backward.dt_max = options.dt_max;
        backward.chunk_length = options.chunk_length;
        static_cast<ConstView&>(backward.states) = states.read(pass.op(), "states");
        backward.d_out = pass.cotangent(0);
        backward.d_final_state = pass.cotangent(1);
        Gradient* const gradients[] = {&backward.d_x, &backward.d_dt,      &backward.d_A,
                                       &backward.d_B, &backward.d_C,       &backward.d_D,
                                       &backward.d_z, &backward.d_dt_bias, &backward.d_initial_state};
        for (int i = 0; i < 9; ++i) *gradients[i] = pass.gradient(i);
        pass.call(ssd_backward, ssd_backward_workspace, backward);
      });
  return {outputs[0], outputs[1]};
}

}  // namespace scantape::autograd
