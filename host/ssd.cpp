#include "scantape/ssd.h"

#include <cstdio>

#include "cpu/ssd.h"
#include "ssd.h"

namespace scantape {

std::int64_t ssd_interval(std::int64_t length, std::int64_t chunk_length) noexcept {
  if (chunk_length > 0) return chunk_length;
  std::int64_t root = 1;
  while (root * root < length) ++root;
  return root;
}

namespace {

/// The shape of states, whose second size follows from L.
struct StatesShape {
  char text[48];

  explicit StatesShape(const SsdForward& args) noexcept {
    const std::int64_t length = args.x.rank() == 4 ? args.x.shape[1] : 1;
    const bool fits = length > 0 && args.chunk_length >= 0;  // else refused before this is read
    const std::int64_t interval = fits ? ssd_interval(length, args.chunk_length) : 1;
    std::snprintf(text, sizeof text, "B %lld H P N",
                  static_cast<long long>(fits ? (length - 1) / interval : 0));
  }
};

void check_inputs(Check& check, const SsdForward& args) noexcept {
  check.takes_16_bits();
  check.input("x", args.x, {"B L H P", Layout::pair_rows});
  for (const char letter : {'L', 'H', 'P'}) check.not_empty(letter);
  check.input("dt", args.dt, {"B L H", Layout::rows});
  check.input("A", args.A, wide("H"));
  check.input("B", args.B, {"B L G N", Layout::pair_rows});
  for (const char letter : {'G', 'N'}) check.not_empty(letter);
  check.input("C", args.C, {"B L G N", Layout::pair_rows});
  check_groups(check, args.B, 2, args.x.shape[2]);
  check.optional_input("D", args.D, wide("H|H P"));
  check.optional_input("z", args.z, {"B L H P", Layout::pair_rows});
  check.optional_input("dt_bias", args.dt_bias, wide("H"));
  check.optional_input("initial_state", args.initial_state, wide("B H P N"));
  check.optional_input("start", args.start, "B L");
  check_limits(check, args.dt_min, args.dt_max);
  check.number("chunk_length", static_cast<double>(args.chunk_length),
               args.chunk_length >= 0 && args.chunk_length <= kMostSsdChunkLength,
               "0 for the sequential form, or a number up to 1024");
}

Status check(const SsdForward& args) noexcept {
  Check check("ssd");
  const StatesShape states(args);
  check_inputs(check, args);
  check.output("out", args.out, {"B L H P", Layout::pair_rows});
  check.optional_output("final_state", args.final_state, wide("B H P N"));
  check.optional_output("states", args.states, wide(states.text));
  SCANTAPE_TRY(check.finish());
  return check_ssd_size("ssd", args.x, args.B);
}

Status check(const SsdBackward& args) noexcept {
  Check check("ssd_backward");
  const StatesShape states(args);
  check_inputs(check, args);
  check.input("states", args.states, wide(states.text));
  check.optional_input("d_out", args.d_out, {"B L H P", Layout::pair_rows});
  check.optional_input("d_final_state", args.d_final_state, wide("B H P N"));
  check.gradient("d_x", args.d_x, {"B L H P", Layout::pair_rows});
  check.gradient("d_dt", args.d_dt, {"B L H", Layout::rows});
  check.gradient("d_A", args.d_A, wide("H"));
  check.gradient("d_B", args.d_B, {"B L G N", Layout::pair_rows});
  check.gradient("d_C", args.d_C, {"B L G N", Layout::pair_rows});
  check.gradient("d_D", args.d_D, wide(shape_of_d_D(args)));
  check.gradient("d_z", args.d_z, {"B L H P", Layout::pair_rows});
  check.gradient("d_dt_bias", args.d_dt_bias, wide("H"));
  check.gradient("d_initial_state", args.d_initial_state, wide("B H P N"));
  check_given(check, args);
  SCANTAPE_TRY(check.finish());
  return check_ssd_size("ssd_backward", args.x, args.B);
}

}  // namespace

SCANTAPE_ROUTE_OP(ssd_forward, SsdForward, x, cpu::ssd_forward);
SCANTAPE_ROUTE_OP(ssd_backward, SsdBackward, x, cpu::ssd_backward);

}  // namespace scantape
