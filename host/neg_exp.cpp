#include "scantape/neg_exp.h"

#include "elementwise.h"
#include "route.h"

namespace scantape {

namespace {

Status check(const NegExpForward& args) noexcept {
  return check_elementwise_forward("neg_exp", args);
}

Status check(const NegExpBackward& args) noexcept {
  return check_elementwise_backward("neg_exp_backward", args);
}

}  // namespace

SCANTAPE_ROUTE_OP(neg_exp_forward, NegExpForward, x, reference::neg_exp_forward);
SCANTAPE_ROUTE_OP(neg_exp_backward, NegExpBackward, x, reference::neg_exp_backward);

}  // namespace scantape
