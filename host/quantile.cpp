#include "scantape/quantile.h"

#include "loss.h"

namespace scantape {

namespace {

void check_q(Check& check, const QuantileForward& args) noexcept {
  check.number("q", args.q, args.q > 0 && args.q < 1, "above 0 and below 1");
}

Status check(const QuantileForward& args) noexcept {
  Check check("quantile");
  check_loss_forward(check, args);
  check_q(check, args);
  return check.finish();
}

Status check(const QuantileBackward& args) noexcept {
  Check check("quantile_backward");
  check_loss_backward(check, args);
  check_q(check, args);
  return check.finish();
}

}  // namespace

SCANTAPE_ROUTE_OP(quantile_forward, QuantileForward, prediction, reference::quantile_forward);
SCANTAPE_ROUTE_OP(quantile_backward, QuantileBackward, prediction, reference::quantile_backward);

}  // namespace scantape
