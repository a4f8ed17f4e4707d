#include "scantape/state_output.h"

#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"

namespace scantape::autograd {

Variable state_output(const Variable& z, const Variable& u, const Variable& D, const Variable& residual,
                      Activation activation) {
  StateOutputForward forward;
  forward.z = z.value();
  forward.u = u.value();
  forward.D = D.value();
  forward.residual = residual.value();
  forward.activation = activation;
  Tensor out = Tensor::empty(z.shape(), z.dtype(), z.device());
  forward.out = out.writable();
  call_op(z.device(), state_output_forward, state_output_forward_workspace, forward);

  return record("state_output", {&z, &u, &D, &residual}, {out},
                [z = Saved(z), u = Saved(u), D = Saved(D), activation](BackwardPass& pass) {
                  StateOutputBackward backward;
                  backward.z = z.read(pass.op(), "z");
                  backward.u = u.read(pass.op(), "u");
                  backward.D = D.read(pass.op(), "D");
                  backward.activation = activation;
                  backward.d_out = pass.cotangent(0);
                  backward.d_z = pass.gradient(0);
                  backward.d_u = pass.gradient(1);
                  backward.d_D = pass.gradient(2);
                  backward.d_residual = pass.gradient(3);
                  pass.call(state_output_backward, state_output_backward_workspace, backward);
                })[0];
}

}  // namespace scantape::autograd
