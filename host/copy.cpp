#include "scantape/copy.h"

#include "elementwise.h"
#include "route.h"

namespace scantape {

namespace {

Status check(const CopyForward& args) noexcept {
  return check_elementwise_forward("copy", args);
}

Status check(const CopyBackward& args) noexcept {
  return check_elementwise_backward("copy_backward", args);
}

}  // namespace

SCANTAPE_ROUTE_OP(copy_forward, CopyForward, x, reference::copy_forward);
SCANTAPE_ROUTE_OP(copy_backward, CopyBackward, x, reference::copy_backward);

}  // namespace scantape
