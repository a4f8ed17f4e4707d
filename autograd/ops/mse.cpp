#include "scantape/mse.h"

#include "loss.h"

namespace scantape::autograd {

Variable mse(const Variable& prediction, const Variable& target, const Variable& mask) {
  return record_loss("mse", mse_forward, mse_forward_workspace, mse_backward, mse_backward_workspace,
                     prediction, target, mask, [](MseForward&) {});
}

}  // namespace scantape::autograd
