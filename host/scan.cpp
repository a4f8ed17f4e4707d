#include "scantape/scan.h"

#include "route.h"

namespace scantape {

namespace {

Status check(const ScanForward& args) noexcept {
  Check check("scan");
  check.input("b", args.b, {"B L C", Layout::rows});
  check.not_empty('L');
  check.input("a", args.a, {"C|B L C", Layout::rows});
  check.optional_input("h0", args.h0, "B C");
  check.output("h", args.h, {"B L C", Layout::rows});
  check.optional_output("final_state", args.final_state, "B C");
  return check.finish();
}

Status check(const ScanBackward& args) noexcept {
  Check check("scan_backward");
  check.input("h", args.h, {"B L C", Layout::rows});
  check.not_empty('L');
  check.input("a", args.a, {"C|B L C", Layout::rows});
  check.optional_input("h0", args.h0, "B C");
  check.optional_input("d_h", args.d_h, {"B L C", Layout::rows});
  check.optional_input("d_final_state", args.d_final_state, "B C");
  check.gradient("d_a", args.d_a, {args.a.rank() == 1 ? "C" : "B L C", Layout::rows});
  check.gradient("d_b", args.d_b, {"B L C", Layout::rows});
  check.gradient("d_h0", args.d_h0, "B C");
  return check.finish();
}

}  // namespace

SCANTAPE_ROUTE_OP(scan_forward, ScanForward, b, reference::scan_forward);
SCANTAPE_ROUTE_OP(scan_backward, ScanBackward, h, reference::scan_backward);

}  // namespace scantape
