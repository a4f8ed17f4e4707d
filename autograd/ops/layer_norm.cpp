#include "scantape/layer_norm.h"

#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"

namespace scantape::autograd {

Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, double eps) {
  LayerNormForward forward;
  forward.x = x.value();
  forward.weight = weight.value();
  forward.bias = bias.value();
  forward.eps = eps;
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  Shape rows = x.shape();
  if (rows.rank() > 0) rows[rows.rank() - 1] = 3;
  Tensor statistics = Tensor::empty(rows, x.dtype(), x.device());
  forward.y = y.writable();
  forward.statistics = statistics.writable();
  call_op(x.device(), layer_norm_forward, layer_norm_forward_workspace, forward);

  return record("layer_norm", {&x, &weight, &bias}, {y},
                [x = Saved(x), weight = Saved(weight), statistics = Saved(statistics), bias = bias.value(),
                 eps](BackwardPass& pass) {
                  LayerNormBackward backward;
                  backward.x = x.read(pass.op(), "x");
                  backward.weight = weight.read(pass.op(), "weight");
                  backward.bias = bias;
                  backward.eps = eps;
                  // The op only reads its statistics in backward, through a member that forward writes.
                  static_cast<ConstView&>(backward.statistics) = statistics.read(pass.op(), "statistics");
                  backward.d_y = pass.cotangent(0);
                  backward.d_x = pass.gradient(0);
                  backward.d_weight = pass.gradient(1);
                  backward.d_bias = pass.gradient(2);
                  pass.call(layer_norm_backward, layer_norm_backward_workspace, backward);
                })[0];
}

}  // namespace scantape::autograd
