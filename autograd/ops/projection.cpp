#include "scantape/projection.h"

#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"

namespace scantape::autograd {

Variable projection(const Variable& x, const Variable& weight, const Variable& bias) {
  ProjectionForward forward;
  forward.x = x.value();
  forward.weight = weight.value();
  forward.bias = bias.value();
  // A wrong rank is left to the op's own check, which words it.
  Shape shape = x.shape();
  if (shape.rank() > 0 && weight.shape().rank() > 0) shape[shape.rank() - 1] = weight.shape()[0];
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  forward.y = y.writable();
  call_op(x.device(), projection_forward, projection_forward_workspace, forward);

  // The bias' values are not needed again, nor are those of y.
  return record("projection", {&x, &weight, &bias}, {y},
                [x = Saved(x), weight = Saved(weight), bias = bias.value()](BackwardPass& pass) {
                  ProjectionBackward backward;
                  backward.x = x.read(pass.op(), "x");
                  backward.weight = weight.read(pass.op(), "weight");
                  backward.bias = bias;
                  backward.d_y = pass.cotangent(0);
                  backward.d_x = pass.gradient(0);
                  backward.d_weight = pass.gradient(1);
                  backward.d_bias = pass.gradient(2);
                  pass.call(projection_backward, projection_backward_workspace, backward);
                })[0];
}

}  // namespace scantape::autograd
