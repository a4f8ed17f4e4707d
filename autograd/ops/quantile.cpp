#include "scantape/quantile.h"

#include "loss.h"

namespace scantape::autograd {

Variable quantile(const Variable& prediction, const Variable& target, double q, const Variable& mask) {
  return record_loss("quantile", quantile_forward, quantile_forward_workspace, quantile_backward,
                     quantile_backward_workspace, prediction, target, mask,
                     [q](QuantileForward& args) { args.q = q; });
}

}  // namespace scantape::autograd
