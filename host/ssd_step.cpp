#include "scantape/ssd_step.h"

#include "ssd.h"

namespace scantape {

namespace {

void check_inputs(Check& check, const SsdStepForward& args) noexcept {
  check.takes_16_bits();
  check.input("x", args.x, {"B H P", Layout::pair_rows});
  for (const char letter : {'H', 'P'}) check.not_empty(letter);
  check.input("dt", args.dt, {"B H", Layout::rows});
  check.input("A", args.A, wide("H"));
  check.input("B", args.B, {"B G N", Layout::pair_rows});
  for (const char letter : {'G', 'N'}) check.not_empty(letter);
  check.input("C", args.C, {"B G N", Layout::pair_rows});
  check_groups(check, args.B, 1, args.x.shape[1]);
  check.optional_input("D", args.D, wide("H|H P"));
  check.optional_input("z", args.z, {"B H P", Layout::pair_rows});
  check.optional_input("dt_bias", args.dt_bias, wide("H"));
  check.input("state", args.state, wide("B H P N"));
  check_limits(check, args.dt_min, args.dt_max);
}

Status check(const SsdStepForward& args) noexcept {
  Check check("ssd_step");
  check_inputs(check, args);
  check.output("out", args.out, {"B H P", Layout::pair_rows});
  check.output("next_state", args.next_state, wide("B H P N"));
  check.may_be("next_state", "state");
  SCANTAPE_TRY(check.finish());
  return check_ssd_size("ssd_step", args.x, args.B);
}

Status check(const SsdStepBackward& args) noexcept {
  Check check("ssd_step_backward");
  check_inputs(check, args);
  check.optional_input("d_out", args.d_out, {"B H P", Layout::pair_rows});
  check.optional_input("d_next_state", args.d_next_state, wide("B H P N"));
  check.gradient("d_x", args.d_x, {"B H P", Layout::pair_rows});
  check.gradient("d_dt", args.d_dt, {"B H", Layout::rows});
  check.gradient("d_A", args.d_A, wide("H"));
  check.gradient("d_B", args.d_B, {"B G N", Layout::pair_rows});
  check.gradient("d_C", args.d_C, {"B G N", Layout::pair_rows});
  check.gradient("d_D", args.d_D, wide(shape_of_d_D(args)));
  check.gradient("d_z", args.d_z, {"B H P", Layout::pair_rows});
  check.gradient("d_dt_bias", args.d_dt_bias, wide("H"));
  check.gradient("d_state", args.d_state, wide("B H P N"));
  check_given(check, args);
  SCANTAPE_TRY(check.finish());
  return check_ssd_size("ssd_step_backward", args.x, args.B);
}

}  // namespace

SCANTAPE_ROUTE_OP(ssd_step_forward, SsdStepForward, x, reference::ssd_step_forward);
SCANTAPE_ROUTE_OP(ssd_step_backward, SsdStepBackward, x, reference::ssd_step_backward);

}  // namespace scantape
