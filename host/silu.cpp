#include "scantape/silu.h"

#include "route.h"

namespace scantape {

namespace {

Status check(const SiluForward& args) noexcept {
  Check check("silu");
  check.input("x", args.x, {"...", Layout::rows});
  check.output("y", args.y, {"...", Layout::rows});
  check.may_be("y", "x");
  return check.finish();
}

Status check(const SiluBackward& args) noexcept {
  Check check("silu_backward");
  check.input("x", args.x, {"...", Layout::rows});
  check.input("d_y", args.d_y, {"...", Layout::rows});
  check.gradient("d_x", args.d_x, {"...", Layout::rows});
  check.may_be("d_x", "d_y");
  return check.finish();
}

}  // namespace

SCANTAPE_ROUTE_OP(silu_forward, SiluForward, x, reference::silu_forward);
SCANTAPE_ROUTE_OP(silu_backward, SiluBackward, x, reference::silu_backward);

}  // namespace scantape
