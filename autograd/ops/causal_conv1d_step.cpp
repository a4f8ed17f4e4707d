#include "scantape/causal_conv1d_step.h"

#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"

namespace scantape::autograd {

Convolved causal_conv1d_step(const Variable& x, const Variable& state, const Variable& weight,
                             const Variable& bias, Activation activation) {
  CausalConv1dStepForward forward;
  forward.x = x.value();
  forward.state = state.value();
  forward.weight = weight.value();
  forward.bias = bias.value();
  forward.activation = activation;
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device()), new_state;
  forward.y = y.writable();
  if (x.shape().rank() == 2 && weight.shape().rank() == 2 && weight.shape()[1] > 1) {
    // In memory of its own: backward wants the state from before.
    new_state = Tensor::empty({x.shape()[0], weight.shape()[1] - 1, x.shape()[1]}, x.dtype(), x.device());
    forward.new_state = new_state.writable();
  }
  call_op(x.device(), causal_conv1d_step_forward, causal_conv1d_step_forward_workspace, forward);

  auto outputs =
      record("causal_conv1d_step", {&x, &state, &weight, &bias}, {y, new_state},
             [x = Saved(x), state = Saved(state), weight = Saved(weight), bias = Saved(bias),
              activation](BackwardPass& pass) {
               CausalConv1dStepBackward backward;
               backward.x = x.read(pass.op(), "x");
               backward.state = state.read(pass.op(), "state");
               backward.weight = weight.read(pass.op(), "weight");
               backward.bias = bias.read(pass.op(), "bias");
               backward.activation = activation;
               backward.d_y = pass.cotangent(0);
               backward.d_new_state = pass.cotangent(1);
               backward.d_x = pass.gradient(0);
               backward.d_state = pass.gradient(1);
               backward.d_weight = pass.gradient(2);
               backward.d_bias = pass.gradient(3);
               pass.call(causal_conv1d_step_backward, causal_conv1d_step_backward_workspace, backward);
             });
  return {outputs[0], outputs[1]};
}

}  // namespace scantape::autograd
