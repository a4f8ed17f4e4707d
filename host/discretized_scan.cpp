#include "scantape/discretized_scan.h"

#include "route.h"

namespace scantape {

namespace {

void check_inputs(Check& check, const DiscretizedScanForward& args) noexcept {
  check.input("u", args.u, {"B L N", Layout::rows});
  check.not_empty('L');
  check.input("dt", args.dt, {"N|B L N", Layout::rows});
  check.input("A", args.A, "N");
  check.optional_input("h0", args.h0, "B N");
  check.optional_input("start", args.start, "B L");
  check.number("method", static_cast<double>(args.method), args.method <= DiscretizeMethod::euler,
               "zoh, exp_euler, bilinear or euler");
  check.number("direction", static_cast<double>(args.direction), args.direction <= ScanDirection::reversed,
               "forward or reversed");
}

Status check(const DiscretizedScanForward& args) noexcept {
  Check check("discretized_scan");
  check_inputs(check, args);
  check.output("h", args.h, {"B L N", Layout::rows});
  check.optional_output("final_state", args.final_state, "B N");
  return check.finish();
}

Status check(const DiscretizedScanBackward& args) noexcept {
  Check check("discretized_scan_backward");
  check_inputs(check, args);
  check.input("h", args.h, {"B L N", Layout::rows});
  check.optional_input("d_h", args.d_h, {"B L N", Layout::rows});
  check.optional_input("d_final_state", args.d_final_state, "B N");
  check.gradient("d_dt", args.d_dt, {args.dt.rank() == 1 ? "N" : "B L N", Layout::rows});
  check.gradient("d_A", args.d_A, "N");
  check.gradient("d_u", args.d_u, {"B L N", Layout::rows});
  check.gradient("d_h0", args.d_h0, "B N");
  return check.finish();
}

}  // namespace

SCANTAPE_ROUTE_OP(discretized_scan_forward, DiscretizedScanForward, u, reference::discretized_scan_forward);
SCANTAPE_ROUTE_OP(discretized_scan_backward, DiscretizedScanBackward, u,
                  reference::discretized_scan_backward);

}  // namespace scantape
