#include "scantape/softplus.h"

#include "elementwise.h"
#include "route.h"

namespace scantape {

namespace {

Status check(const SoftplusForward& args) noexcept {
  return check_elementwise_forward("softplus", args);
}

Status check(const SoftplusBackward& args) noexcept {
  return check_elementwise_backward("softplus_backward", args);
}

}  // namespace

SCANTAPE_ROUTE_OP(softplus_forward, SoftplusForward, x, reference::softplus_forward);
SCANTAPE_ROUTE_OP(softplus_backward, SoftplusBackward, x, reference::softplus_backward);

}  // namespace scantape
