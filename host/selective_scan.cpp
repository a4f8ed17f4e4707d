#include "selective_scan.h"

#include <cstdio>

#include "scantape/ssd.h"

namespace scantape {

std::int64_t selective_scan_interval(std::int64_t length) noexcept {
  return ssd_interval(length, 0);
}

namespace {

/// The shape of states, whose second size follows from L.
struct StatesShape {
  char text[40];

  explicit StatesShape(const ConstView& u) noexcept {
    const std::int64_t length = u.rank() == 3 ? u.shape[1] : 1;  // else refused before this is read
    const std::int64_t kept = length > 0 ? (length - 1) / selective_scan_interval(length) : 0;
    std::snprintf(text, sizeof text, "B %lld E N", static_cast<long long>(kept));
  }
};

void check_inputs(Check& check, const SelectiveScanForward& args) noexcept {
  check.takes_16_bits();
  check.input("u", args.u, {"B L E", Layout::rows});
  for (const char letter : {'L', 'E'}) check.not_empty(letter);
  check.input("dt", args.dt, {"B L E", Layout::rows});
  check.input("A", args.A, wide("E N"));
  check.not_empty('N');
  check.input("B", args.B, {"B L G N", Layout::pair_rows});
  check.not_empty('G');
  check.input("C", args.C, {"B L G N", Layout::pair_rows});
  check_channel_groups(check, args.B, args.u);
  check.optional_input("D", args.D, wide("E"));
  check.optional_input("z", args.z, {"B L E", Layout::rows});
  check.optional_input("dt_bias", args.dt_bias, wide("E"));
  check.optional_input("initial_state", args.initial_state, wide("B E N"));
  check.optional_input("start", args.start, "B L");
}

Status check(const SelectiveScanForward& args) noexcept {
  Check check("selective_scan");
  const StatesShape states(args.u);
  check_inputs(check, args);
  check.output("out", args.out, {"B L E", Layout::rows});
  check.optional_output("final_state", args.final_state, wide("B E N"));
  check.optional_output("states", args.states, wide(states.text));
  SCANTAPE_TRY(check.finish());
  return check_selective_scan_size("selective_scan", args.B);
}

Status check(const SelectiveScanBackward& args) noexcept {
  Check check("selective_scan_backward");
  const StatesShape states(args.u);
  check_inputs(check, args);
  check.input("states", args.states, wide(states.text));
  check.optional_input("d_out", args.d_out, {"B L E", Layout::rows});
  check.optional_input("d_final_state", args.d_final_state, wide("B E N"));
  check.gradient("d_u", args.d_u, {"B L E", Layout::rows});
  check.gradient("d_dt", args.d_dt, {"B L E", Layout::rows});
  check.gradient("d_A", args.d_A, wide("E N"));
  check.gradient("d_B", args.d_B, {"B L G N", Layout::pair_rows});
  check.gradient("d_C", args.d_C, {"B L G N", Layout::pair_rows});
  check.gradient("d_D", args.d_D, wide("E"));
  check.gradient("d_z", args.d_z, {"B L E", Layout::rows});
  check.gradient("d_dt_bias", args.d_dt_bias, wide("E"));
  check.gradient("d_initial_state", args.d_initial_state, wide("B E N"));
  check_given(check, args);
  SCANTAPE_TRY(check.finish());
  return check_selective_scan_size("selective_scan_backward", args.B);
}

}  // namespace

SCANTAPE_ROUTE_OP(selective_scan_forward, SelectiveScanForward, u, reference::selective_scan_forward);
SCANTAPE_ROUTE_OP(selective_scan_backward, SelectiveScanBackward, u, reference::selective_scan_backward);

}  // namespace scantape
