#pragma once

#include "scantape/selective_scan.h"
#include "ssd.h"

namespace scantape {

/// What the checks of selective_scan and selective_scan_step share.

inline void check_channel_groups(Check& check, const ConstView& B, const ConstView& u) noexcept {
  const int last = u.rank() - 1;
  if (last < 0) return;  // refused already
  check_groups(check, B, B.rank() - 2, u.shape[last],
               "B has groups that the channels of u cannot be dealt out to evenly, wants E divisible by G");
}

/// What is right but more than the kernels take.
inline Status check_selective_scan_size(const char* op, const ConstView& B) noexcept {
  const std::int64_t states = B.shape.back();
  if (B.device.is_cpu() || states <= kMostSelectiveScanStatesOnCuda) return {};
  try {
    return Status::fail(Code::unsupported, std::string(op) + ": B has " + std::to_string(states) +
                                               " states, on cuda at most " +
                                               std::to_string(kMostSelectiveScanStatesOnCuda));
  } catch (...) {
    return Status::fail(Code::unsupported, "");
  }
}

}  // namespace scantape
