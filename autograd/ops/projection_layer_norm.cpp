#include "scantape/projection_layer_norm.h"

#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"

namespace scantape::autograd {

Variable projection_layer_norm(const Variable& x, const Variable& weight, const Variable& bias,
                               const Variable& norm_weight, const Variable& norm_bias, double eps) {
  ProjectionLayerNormForward forward;
  forward.x = x.value();
  forward.weight = weight.value();
  forward.bias = bias.value();
  forward.norm_weight = norm_weight.value();
  forward.norm_bias = norm_bias.value();
  forward.eps = eps;
  // A wrong rank is left to the op's own check, which words it.
  Shape shape = x.shape(), rows = x.shape();
  if (shape.rank() > 0 && weight.shape().rank() > 0) {
    shape[shape.rank() - 1] = weight.shape()[0];
    rows[rows.rank() - 1] = 3;
  }
  Tensor y = Tensor::empty(shape, x.dtype(), x.device()),
         statistics = Tensor::empty(rows, x.dtype(), x.device());
  forward.y = y.writable();
  forward.statistics = statistics.writable();
  call_op(x.device(), projection_layer_norm_forward, projection_layer_norm_forward_workspace, forward);

  // What the projection gave is computed again; bias is needed for that, norm_bias and y are not.
  return record("projection_layer_norm", {&x, &weight, &bias, &norm_weight, &norm_bias}, {y},
                [x = Saved(x), weight = Saved(weight), bias = Saved(bias), norm_weight = Saved(norm_weight),
                 statistics = Saved(statistics), norm_bias = norm_bias.value(), eps](BackwardPass& pass) {
                  ProjectionLayerNormBackward backward;
                  backward.x = x.read(pass.op(), "x");
                  backward.weight = weight.read(pass.op(), "weight");
                  backward.bias = bias.read(pass.op(), "bias");
                  backward.norm_weight = norm_weight.read(pass.op(), "norm_weight");
                  backward.norm_bias = norm_bias;
                  backward.eps = eps;
                  static_cast<ConstView&>(backward.statistics) = statistics.read(pass.op(), "statistics");
                  backward.d_y = pass.cotangent(0);
                  backward.d_x = pass.gradient(0);
                  backward.d_weight = pass.gradient(1);
                  backward.d_bias = pass.gradient(2);
                  backward.d_norm_weight = pass.gradient(3);
                  backward.d_norm_bias = pass.gradient(4);
                  pass.call(projection_layer_norm_backward, projection_layer_norm_backward_workspace,
                            backward);
                })[0];
}

}  // namespace scantape::autograd
