#include "scantape/gated_rms_norm.h"

#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"

namespace scantape::autograd {

Variable gated_rms_norm(const Variable& x, const Variable& z, const Variable& weight,
                        const GatedRmsNormOptions& options) {
  GatedRmsNormForward forward;
  forward.x = x.value();
  forward.z = z.value();
  forward.weight = weight.value();
  forward.groups = options.groups;
  forward.norm_before_gate = options.norm_before_gate;
  forward.eps = options.eps;
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  Shape rows = x.shape();
  // Another number is left to the op's own check, which words it.
  if (rows.rank() > 0 && options.groups > 0 && rows.back() % options.groups == 0)
    rows[rows.rank() - 1] = options.groups;
  Tensor statistics = Tensor::empty(rows, x.dtype(), x.device());
  forward.y = y.writable();
  forward.statistics = statistics.writable();
  call_op(x.device(), gated_rms_norm_forward, gated_rms_norm_forward_workspace, forward);

  return record("gated_rms_norm", {&x, &z, &weight}, {y},
                [x = Saved(x), z = Saved(z), weight = Saved(weight), statistics = Saved(statistics),
                 options](BackwardPass& pass) {
                  GatedRmsNormBackward backward;
                  backward.x = x.read(pass.op(), "x");
                  backward.z = z.read(pass.op(), "z");
                  backward.weight = weight.read(pass.op(), "weight");
                  backward.groups = options.groups;
                  backward.norm_before_gate = options.norm_before_gate;
                  backward.eps = options.eps;
                  static_cast<ConstView&>(backward.statistics) = statistics.read(pass.op(), "statistics");
                  backward.d_y = pass.cotangent(0);
                  backward.d_x = pass.gradient(0);
                  backward.d_z = pass.gradient(1);
                  backward.d_weight = pass.gradient(2);
                  pass.call(gated_rms_norm_backward, gated_rms_norm_backward_workspace, backward);
                })[0];
}

}  // namespace scantape::autograd
