#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/vec.cuh"

// Shapes of grids. They follow from the tensor's shape alone, never from the device: partial sums keep their
// order.

namespace scantape::cuda {

inline constexpr int kBlockThreads = 256;
// Far more threads than any GPU runs at once, and few enough that tests reach the loops beyond them.
inline constexpr std::int64_t kMostBlocksX = 4096, kMostBlocksY = 1024;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// The least power of two that is at least `wanted`, at most `most` (itself a power of two).
constexpr int power_of_two(std::int64_t wanted, int most) {
  int result = 1;
  while (result < wanted && result < most) result *= 2;
  return result;
}

struct Grid {
  dim3 grid, block;
};

/// Rows and columns of an elementwise op.
struct Extent {
  std::int64_t rows = 0, columns = 0;

  bool one_row() const { return rows == 1; }
};

/// Blocks of kBlockThreads that cover an extent, a pack per thread along x and a row per thread along y.
template <class T>
Grid element_grid(Extent extent) {
  const std::int64_t packs = ceil_div(extent.columns, kPack<T>);
  const int x = power_of_two(packs, kBlockThreads);
  const int y = kBlockThreads / x;
  const std::int64_t grid_x = ceil_div(packs, x), grid_y = ceil_div(extent.rows, y);
  return {dim3(static_cast<unsigned>(grid_x < kMostBlocksX ? grid_x : kMostBlocksX),
               static_cast<unsigned>(grid_y < kMostBlocksY ? grid_y : kMostBlocksY)),
          dim3(static_cast<unsigned>(x), static_cast<unsigned>(y))};
}

/// Calls body(row, column, remaining) for every pack of an extent, under an element_grid.
template <class T, class Body>
__device__ void for_each_pack(Extent extent, Body body) {
  const std::int64_t x = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t y = static_cast<std::int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
  const std::int64_t step_x = static_cast<std::int64_t>(gridDim.x) * blockDim.x * kPack<T>;
  const std::int64_t step_y = static_cast<std::int64_t>(gridDim.y) * blockDim.y;
  for (std::int64_t row = y; row < extent.rows; row += step_y) {
    for (std::int64_t column = x * kPack<T>; column < extent.columns; column += step_x) {
      body(row, column, extent.columns - column);
    }
  }
}

/// The extent of elementwise tensors: their rows, or one long row where all of them are contiguous.
template <class... Views>
Extent element_extent(const ConstView& first, const Views&... others) {
  const std::int64_t elements = first.elements();
  if (elements == 0) return {};
  const auto is_flat = [](const ConstView& view) { return !view.present || is_contiguous(view); };
  if ((is_flat(first) && ... && is_flat(others))) return {1, elements};
  const std::int64_t columns = first.rank() == 0 ? 1 : first.shape.back();
  return {elements / columns, columns};
}

}  // namespace scantape::cuda
