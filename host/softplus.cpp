#include "scantape/softplus.h"

#include "route.h"

namespace scantape {

namespace {

Status check(const SoftplusForward& args) noexcept {
  Check check("softplus");
  check.input("x", args.x, {"...", Layout::rows});
  check.output("y", args.y, {"...", Layout::rows});
  check.may_be("y", "x");
  return check.finish();
}

Status check(const SoftplusBackward& args) noexcept {
  Check check("softplus_backward");
  check.input("x", args.x, {"...", Layout::rows});
  check.input("d_y", args.d_y, {"...", Layout::rows});
  check.gradient("d_x", args.d_x, {"...", Layout::rows});
  check.may_be("d_x", "d_y");
  return check.finish();
}

}  // namespace

SCANTAPE_ROUTE_OP(softplus_forward, SoftplusForward, x, reference::softplus_forward);
SCANTAPE_ROUTE_OP(softplus_backward, SoftplusBackward, x, reference::softplus_backward);

}  // namespace scantape
