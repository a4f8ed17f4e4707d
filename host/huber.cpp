#include "scantape/huber.h"

#include <cmath>

#include "loss.h"

namespace scantape {

namespace {

void check_k(Check& check, const HuberForward& args) noexcept {
  check.number("k", args.k, std::isfinite(args.k) && args.k > 0, "a finite number above 0");
}

Status check(const HuberForward& args) noexcept {
  Check check("huber");
  check_loss_forward(check, args);
  check_k(check, args);
  return check.finish();
}

Status check(const HuberBackward& args) noexcept {
  Check check("huber_backward");
  check_loss_backward(check, args);
  check_k(check, args);
  return check.finish();
}

}  // namespace

SCANTAPE_ROUTE_OP(huber_forward, HuberForward, prediction, reference::huber_forward);
SCANTAPE_ROUTE_OP(huber_backward, HuberBackward, prediction, reference::huber_backward);

}  // namespace scantape
