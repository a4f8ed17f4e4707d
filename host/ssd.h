#pragma once

#include <string>

#include "route.h"
#include "scantape/ssd.h"

namespace scantape {

/// What the checks of ssd, selective_scan and their steps share.

/// Heads (or channels: `wanted` words it) are dealt out to groups evenly. `group_axis` of B counts groups; both sizes are
/// above 0 by now.
inline void check_groups(
    Check& check, const ConstView& B, int group_axis, std::int64_t heads,
    const char* wanted =
        "B has groups that the heads of x cannot be dealt out to evenly, wants H divisible by G") noexcept {
  const std::int64_t groups = B.rank() > group_axis ? B.shape[group_axis] : 0;
  check.require(groups <= 0 || heads % groups == 0, wanted);
}

/// NaN fits nowhere.
inline void check_limits(Check& check, double dt_min, double dt_max) noexcept {
  check.number("dt_min", dt_min, dt_min >= 0, "a number of at least 0");
  check.number("dt_max", dt_max, dt_max >= dt_min, "a number of at least dt_min");
}

/// The shape of d_D: that of D; without a D, where it is not to be, its own.
template <class Args>
const char* shape_of_d_D(const Args& args) noexcept {
  return (args.D.present ? args.D.rank() : args.d_D.view.rank()) == 2 ? "H P" : "H";
}

/// There is no gradient of what is not given.
template <class Args>
void check_given(Check& check, const Args& args) noexcept {
  check.require(args.D.present || !args.d_D.wanted(), "d_D is wanted, but there is no D");
  check.require(args.z.present || !args.d_z.wanted(), "d_z is wanted, but there is no z");
  check.require(args.dt_bias.present || !args.d_dt_bias.wanted(),
                "d_dt_bias is wanted, but there is no dt_bias");
}

/// What is right but more than the kernels take.
inline Status check_ssd_size(const char* op, const ConstView& x, const ConstView& B) noexcept {
  const std::int64_t width = x.shape.back(), states = B.shape.back();
  if (x.device.is_cpu() || (width <= kMostSsdStatesOnCuda && states <= kMostSsdStatesOnCuda)) return {};
  try {
    return Status::fail(Code::unsupported, std::string(op) + ": x has heads of " + std::to_string(width) +
                                               " and B has " + std::to_string(states) +
                                               " states, on cuda both are at most " +
                                               std::to_string(kMostSsdStatesOnCuda));
  } catch (...) {
    return Status::fail(Code::unsupported, "");
  }
}

}  // namespace scantape
