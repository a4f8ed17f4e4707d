#include "scantape/layer_norm.h"

#include "norm.h"

namespace scantape::autograd {

namespace {

constexpr NormOp kLayerNorm{"layer_norm",        3,
                            layer_norm_forward,  layer_norm_forward_workspace,
                            layer_norm_backward, layer_norm_backward_workspace};

}  // namespace

Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, double eps) {
  return record_norm(kLayerNorm, x, {}, weight, bias, eps).y;
}

Normed residual_layer_norm(const Variable& x, const Variable& residual, const Variable& weight,
                           const Variable& bias, double eps) {
  return record_norm(kLayerNorm, x, residual, weight, bias, eps);
}

}  // namespace scantape::autograd
