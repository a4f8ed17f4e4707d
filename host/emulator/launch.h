#pragma once

#include <cuda_runtime.h>
#include <cstddef>
#include <cstdint>

#include "scantape_emulator.h"

namespace scantape::emulator {

/// Dynamic shared memory beyond 48 KiB is for kernels that asked for it before their launch.
std::size_t opted_in_shared(const void* kernel);
void opt_in_shared(const void* kernel, std::size_t bytes);

/// The most threads that a block of this kernel may have: what its __launch_bounds__ say, or all of a device.
int launch_bound(const void* kernel);

/// This host thread begins something new: last_fault() is empty until that fails.
void clear_fault() noexcept;

/// Stacks of more workers would need more mappings than Linux gives a process.
inline constexpr int kMaxWorkers = 8;

void add_to_totals(int launches, const Statistics& before, const Statistics& after);

}  // namespace scantape::emulator
