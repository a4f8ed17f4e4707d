#pragma once

#include <cstdint>

namespace scantape {

/// What this thread has had done since it started: kernels launched (matrix products of the vendor's library count as
/// one each) and ops that ran on the CPU. Differences of two readings prove where work ran.
struct Counters {
  std::int64_t kernel_launches = 0;
  std::int64_t cpu_ops = 0;
};

Counters counters() noexcept;

namespace detail {
Counters& mutable_counters() noexcept;
}

}  // namespace scantape
