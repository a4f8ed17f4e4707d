#pragma once

#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"
#include "scantape/norm.h"

/// Both norms, with and without a residual.
namespace scantape::autograd {

struct NormOp {
  const char* name;
  std::int64_t statistics;  // numbers saved for a row
  Status (*forward)(const NormForward&, Stream) noexcept;
  std::int64_t (*forward_workspace)(const NormForward&) noexcept;
  Status (*backward)(const NormBackward&, Stream) noexcept;
  std::int64_t (*backward_workspace)(const NormBackward&) noexcept;
};

inline Normed record_norm(const NormOp& op, const Variable& x, const Variable& residual,
                          const Variable& weight, const Variable& bias, double eps) {
  NormForward forward;
  forward.x = x.value();
  forward.residual = residual.value();
  forward.weight = weight.value();
  forward.bias = bias.value();
  forward.eps = eps;
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device()), r;
  if (residual.present()) r = Tensor::empty(x.shape(), x.dtype(), x.device());
  Shape rows = x.shape();
  if (rows.rank() > 0) rows[rows.rank() - 1] = op.statistics;
  Tensor statistics = Tensor::empty(rows, x.dtype(), x.device());
  forward.y = y.writable();
  if (r.present()) forward.r = r.writable();
  forward.statistics = statistics.writable();
  call_op(x.device(), op.forward, op.forward_workspace, forward);

  // Beside a residual r is what is needed again, and x is not. The values of residual and bias never are.
  const Tensor normalised = r.present() ? r : x.value();
  const auto outputs =
      record(op.name, {&x, &residual, &weight, &bias}, {y, r},
             [op, normalised = Saved(normalised), weight = Saved(weight), statistics = Saved(statistics),
              residual = residual.value(), bias = bias.value(), eps](BackwardPass& pass) {
               NormBackward backward;
               backward.residual = residual;
               backward.bias = bias;
               // The op only reads r and its statistics in backward, through members that forward writes.
               (residual.present() ? static_cast<ConstView&>(backward.r) : backward.x) =
                   normalised.read(pass.op(), residual.present() ? "r" : "x");
               backward.weight = weight.read(pass.op(), "weight");
               backward.eps = eps;
               static_cast<ConstView&>(backward.statistics) = statistics.read(pass.op(), "statistics");
               backward.d_y = pass.cotangent(0);
               backward.d_r = pass.cotangent(1);
               backward.d_x = pass.gradient(0);
               backward.d_residual = pass.gradient(1);
               backward.d_weight = pass.gradient(2);
               backward.d_bias = pass.gradient(3);
               pass.call(op.backward, op.backward_workspace, backward);
             });
  return {outputs[0], outputs[1]};
}

}  // namespace scantape::autograd
