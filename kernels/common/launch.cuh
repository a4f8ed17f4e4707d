/// The only way kernels are launched: checks what a launch may ask for, launches, and turns what CUDA says
/// into a Status. Launches are asynchronous; a fault inside a kernel on a GPU shows at the next
/// synchronisation (the emulator names it at once).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <utility>

#include "scantape/counters.h"
#include "scantape/status.h"
#include "scantape/view.h"

namespace scantape::cuda {

inline constexpr int kWarpSize = 32;
inline constexpr std::int64_t kMaxBlockThreads = 1024;
inline constexpr std::int64_t kMaxGridX = 2147483647;
inline constexpr std::int64_t kMaxGridYZ = 65535;
inline constexpr std::size_t kSharedWithoutOptIn = 48 * 1024;

/// Enough blocks for `items` at `per_block` each, `max_blocks` at most: the kernel's loop over the grid does
/// the rest. No items, no blocks.
inline dim3 grid_for(std::int64_t items, int per_block, std::int64_t max_blocks) noexcept {
  if (items <= 0 || per_block <= 0 || max_blocks <= 0) return dim3(0, 1, 1);
  const std::int64_t wanted = (items - 1) / per_block + 1;
  const std::int64_t limit = max_blocks < kMaxGridX ? max_blocks : kMaxGridX;
  return dim3(static_cast<unsigned int>(wanted < limit ? wanted : limit), 1, 1);
}

namespace detail {

inline Status launch_error(const char* name, const char* step, cudaError_t error) noexcept {
  char text[2048];
  std::snprintf(text, sizeof(text), "kernel %s: %s: %s: %s", name, step, cudaGetErrorName(error),
                cudaGetErrorString(error));
  return Status::fail(Code::cuda, text);
}

inline Status check_block_and_grid(const char* name, dim3 grid, dim3 block) noexcept {
  char text[512];
  const std::int64_t sides[3] = {block.x, block.y, block.z};
  bool fits = block.z <= 64;
  std::int64_t threads = 1;
  for (const std::int64_t side : sides) {
    fits = fits && side > 0 && side <= kMaxBlockThreads;
    if (fits) threads *= side;
  }
  if (!fits || threads > kMaxBlockThreads) {
    std::snprintf(text, sizeof(text),
                  "kernel %s: block is (%u, %u, %u), wants 1 to 1024 threads, z at most 64", name, block.x,
                  block.y, block.z);
    return Status::fail(Code::cuda, text);
  }
  if (grid.x > kMaxGridX || grid.y > kMaxGridYZ || grid.z > kMaxGridYZ) {
    std::snprintf(text, sizeof(text),
                  "kernel %s: grid is (%u, %u, %u), wants at most (2147483647, 65535, 65535)", name, grid.x,
                  grid.y, grid.z);
    return Status::fail(Code::cuda, text);
  }
  return {};
}

}  // namespace detail

/// Launches `kernel` on `stream`. A grid without blocks is success without a launch. `name` stands in
/// messages.
template <class... P, class... A>
Status launch(const char* name, void (*kernel)(P...), dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
              Stream stream, A&&... arguments) {
  SCANTAPE_TRY(detail::check_block_and_grid(name, grid, block));
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return {};
  if (dynamic_shared_bytes > kSharedWithoutOptIn) {
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(dynamic_shared_bytes));
    if (error != cudaSuccess) {
      (void)cudaGetLastError();  // reported here, not again by whoever asks next
      return detail::launch_error(name, "opting in to more than 48 KiB of shared memory", error);
    }
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = dynamic_shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream.handle);
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, std::forward<A>(arguments)...);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    return detail::launch_error(name, "launch", error);
  }
  ++scantape::detail::mutable_counters().kernel_launches;
  if (const auto listener = scantape::detail::launch_listener())
    listener(name, reinterpret_cast<const void*>(kernel));
  return {};
}

}  // namespace scantape::cuda
