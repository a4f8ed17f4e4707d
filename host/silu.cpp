#include "scantape/silu.h"

#include "elementwise.h"
#include "route.h"

namespace scantape {

namespace {

Status check(const SiluForward& args) noexcept {
  return check_elementwise_forward("silu", args);
}

Status check(const SiluBackward& args) noexcept {
  return check_elementwise_backward("silu_backward", args);
}

}  // namespace

SCANTAPE_ROUTE_OP(silu_forward, SiluForward, x, reference::silu_forward);
SCANTAPE_ROUTE_OP(silu_backward, SiluBackward, x, reference::silu_backward);

}  // namespace scantape
