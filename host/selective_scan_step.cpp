#include "scantape/selective_scan_step.h"

#include "selective_scan.h"

namespace scantape {

namespace {

void check_inputs(Check& check, const SelectiveScanStepForward& args) noexcept {
  check.takes_16_bits();
  check.input("u", args.u, {"B E", Layout::rows});
  check.not_empty('E');
  check.input("dt", args.dt, {"B E", Layout::rows});
  check.input("A", args.A, wide("E N"));
  check.not_empty('N');
  check.input("B", args.B, {"B G N", Layout::pair_rows});
  check.not_empty('G');
  check.input("C", args.C, {"B G N", Layout::pair_rows});
  check_channel_groups(check, args.B, args.u);
  check.optional_input("D", args.D, wide("E"));
  check.optional_input("z", args.z, {"B E", Layout::rows});
  check.optional_input("dt_bias", args.dt_bias, wide("E"));
  check.input("state", args.state, wide("B E N"));
}

Status check(const SelectiveScanStepForward& args) noexcept {
  Check check("selective_scan_step");
  check_inputs(check, args);
  check.output("out", args.out, {"B E", Layout::rows});
  check.output("next_state", args.next_state, wide("B E N"));
  check.may_be("next_state", "state");
  SCANTAPE_TRY(check.finish());
  return check_selective_scan_size("selective_scan_step", args.B);
}

Status check(const SelectiveScanStepBackward& args) noexcept {
  Check check("selective_scan_step_backward");
  check_inputs(check, args);
  check.optional_input("d_out", args.d_out, {"B E", Layout::rows});
  check.optional_input("d_next_state", args.d_next_state, wide("B E N"));
  check.gradient("d_u", args.d_u, {"B E", Layout::rows});
  check.gradient("d_dt", args.d_dt, {"B E", Layout::rows});
  check.gradient("d_A", args.d_A, wide("E N"));
  check.gradient("d_B", args.d_B, {"B G N", Layout::pair_rows});
  check.gradient("d_C", args.d_C, {"B G N", Layout::pair_rows});
  check.gradient("d_D", args.d_D, wide("E"));
  check.gradient("d_z", args.d_z, {"B E", Layout::rows});
  check.gradient("d_dt_bias", args.d_dt_bias, wide("E"));
  check.gradient("d_state", args.d_state, wide("B E N"));
  check_given(check, args);
  SCANTAPE_TRY(check.finish());
  return check_selective_scan_size("selective_scan_step_backward", args.B);
}

}  // namespace

SCANTAPE_ROUTE_OP(selective_scan_step_forward, SelectiveScanStepForward, u,
                  reference::selective_scan_step_forward);
SCANTAPE_ROUTE_OP(selective_scan_step_backward, SelectiveScanStepBackward, u,
                  reference::selective_scan_step_backward);

}  // namespace scantape
