#include "scantape/mse.h"

#include "loss.h"

namespace scantape {

namespace {

Status check(const MseForward& args) noexcept {
  Check check("mse");
  check_loss_forward(check, args);
  return check.finish();
}

Status check(const MseBackward& args) noexcept {
  Check check("mse_backward");
  check_loss_backward(check, args);
  return check.finish();
}

}  // namespace

SCANTAPE_ROUTE_OP(mse_forward, MseForward, prediction, reference::mse_forward);
SCANTAPE_ROUTE_OP(mse_backward, MseBackward, prediction, reference::mse_backward);

}  // namespace scantape
