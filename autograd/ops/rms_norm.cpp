#include "scantape/rms_norm.h"

#include "norm.h"

namespace scantape::autograd {

namespace {

constexpr NormOp kRmsNorm{"rms_norm",        1,
                          rms_norm_forward,  rms_norm_forward_workspace,
                          rms_norm_backward, rms_norm_backward_workspace};

}  // namespace

Variable rms_norm(const Variable& x, const Variable& weight, const Variable& bias, double eps) {
  return record_norm(kRmsNorm, x, {}, weight, bias, eps).y;
}

Normed residual_rms_norm(const Variable& x, const Variable& residual, const Variable& weight,
                         const Variable& bias, double eps) {
  return record_norm(kRmsNorm, x, residual, weight, bias, eps);
}

}  // namespace scantape::autograd
