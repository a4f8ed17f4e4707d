#pragma once

#include <cuda_runtime.h>
#include <cstddef>
#include <cstdint>

namespace scantape::emulator {

/// Dynamic shared memory beyond 48 KiB is for kernels that asked for it before their launch.
std::size_t opted_in_shared(const void* kernel);
void opt_in_shared(const void* kernel, std::size_t bytes);

/// Runs a launch to its end.
cudaError_t run_launch(const cudaLaunchConfig_t& config, const emulator_detail::KernelCall& call);

}  // namespace scantape::emulator
