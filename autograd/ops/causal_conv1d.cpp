#include "scantape/causal_conv1d.h"

#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"

namespace scantape::autograd {

Convolved causal_conv1d(const Variable& x, const Variable& weight, const Variable& bias,
                        const Variable& initial_state, const CausalConv1dOptions& options) {
  CausalConv1dForward forward;
  forward.x = x.value();
  forward.weight = weight.value();
  forward.bias = bias.value();
  forward.initial_state = initial_state.value();
  forward.start = options.start;
  forward.activation = options.activation;
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device()), final_state;
  forward.y = y.writable();
  if (x.shape().rank() == 3 && weight.shape().rank() == 2 && weight.shape()[1] > 1) {
    // A wrong rank is left to the op's own check, which words it; one tap carries nothing.
    final_state = Tensor::empty({x.shape()[0], weight.shape()[1] - 1, x.shape()[2]}, x.dtype(), x.device());
    forward.final_state = final_state.writable();
  }
  call_op(x.device(), causal_conv1d_forward, causal_conv1d_forward_workspace, forward);

  // What stands before the activation is formed again.
  auto outputs =
      record("causal_conv1d", {&x, &weight, &bias, &initial_state}, {y, final_state},
             [x = Saved(x), weight = Saved(weight), bias = Saved(bias), state = Saved(initial_state),
              start = Saved(options.start), activation = options.activation](BackwardPass& pass) {
               CausalConv1dBackward backward;
               backward.x = x.read(pass.op(), "x");
               backward.weight = weight.read(pass.op(), "weight");
               backward.bias = bias.read(pass.op(), "bias");
               backward.initial_state = state.read(pass.op(), "initial_state");
               backward.start = start.read(pass.op(), "start");
               backward.activation = activation;
               backward.d_y = pass.cotangent(0);
               backward.d_final_state = pass.cotangent(1);
               backward.d_x = pass.gradient(0);
               backward.d_weight = pass.gradient(1);
               backward.d_bias = pass.gradient(2);
               backward.d_initial_state = pass.gradient(3);
               pass.call(causal_conv1d_backward, causal_conv1d_backward_workspace, backward);
             });
  return {outputs[0], outputs[1]};
}

}  // namespace scantape::autograd
