#pragma once

#include "common/grid.cuh"
#include "common/launch.cuh"
#include "common/shared.cuh"
#include "common/store.cuh"

// Sums in one fixed order. What is summed over rows goes through a workspace: each block leaves one row of
// partial sums, and a second launch adds these in order. No atomics, so the same input gives the same bits.

namespace scantape::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;

/// The sum over the 32 lanes, in every lane. All lanes must call it.
template <class T>
__device__ T warp_sum(T value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(kAllLanes, value, distance);
  return value;
}

template <class T, int kThreads>
struct BlockSum {
  static_assert(kThreads % 32 == 0);
  T warp[kThreads / 32];
};

/// The sum over a one-dimensional block, in every thread. All threads must call it; `cells` may be used again
/// at once.
template <class T, int kThreads>
__device__ T block_sum(T value, BlockSum<T, kThreads>& cells) {
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) cells.warp[threadIdx.x / 32] = value;
  __syncthreads();
  T sum = cells.warp[0];
#pragma unroll
  for (int warp = 1; warp < kThreads / 32; ++warp) sum += cells.warp[warp];
  __syncthreads();
  return sum;
}

/// The sum of partial[0..count) in a fixed order, in every thread of a one-dimensional block. All threads
/// must call it.
template <class T>
__device__ T joined_sum(const T* partial, int count, BlockSum<T, kBlockThreads>& cells) {
  T sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kBlockThreads) sum += partial[i];
  return block_sum(sum, cells);
}

inline constexpr std::int64_t kMostTiles = 256;  // blocks along the columns

/// How rows are shared out when columns are summed: `chunks` blocks along y of `rows` rows each, `grid.block`
/// a pack of columns per thread along x and a row per thread along y.
struct ColumnPlan {
  std::int64_t chunks = 1, rows = 0;
  Grid grid;
};

template <class T>
ColumnPlan column_plan(Extent extent) {
  const std::int64_t packs = ceil_div(extent.columns, kPack<T>);
  const int x = power_of_two(packs, 32), y = kBlockThreads / x;
  ColumnPlan plan;
  plan.chunks = ceil_div(extent.rows, 8 * y);
  if (plan.chunks < 1) plan.chunks = 1;  // no rows: one chunk of zero
  if (plan.chunks > 256) plan.chunks = 256;
  plan.rows = ceil_div(extent.rows, plan.chunks);
  const std::int64_t tiles = ceil_div(packs, x);
  plan.grid = {dim3(static_cast<unsigned>(tiles < kMostTiles ? tiles : kMostTiles),
                    static_cast<unsigned>(plan.chunks)),
               dim3(static_cast<unsigned>(x), static_cast<unsigned>(y))};
  return plan;
}

template <class T>
struct ColumnCells {
  Pack<T> cell[kBlockThreads];
};

/// Runs one block of a ColumnPlan of tensors of T: calls body(row, column, remaining, sum) for its packs and writes the
/// block's sums to row blockIdx.y of `partial` [chunks, columns] (nowhere where partial is null). All threads
/// must call it.
template <class T, class Body>
__device__ void sum_columns(Extent extent, std::int64_t rows_per_chunk, Compute<T>* partial,
                            ColumnCells<T>& cells, Body body) {
  const std::int64_t begin = blockIdx.y * rows_per_chunk;
  const std::int64_t end = begin + rows_per_chunk < extent.rows ? begin + rows_per_chunk : extent.rows;
  const std::int64_t width = static_cast<std::int64_t>(blockDim.x) * kPack<T>;
  const int self = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  for (std::int64_t tile = blockIdx.x * width; tile < extent.columns; tile += gridDim.x * width) {
    const std::int64_t column = tile + threadIdx.x * kPack<T>;
    Pack<T> sum = {};
    if (column < extent.columns) {
      for (std::int64_t row = begin + threadIdx.y; row < end; row += blockDim.y) {
        body(row, column, extent.columns - column, sum);
      }
    }
    if (partial == nullptr) continue;  // the same for all threads
    cells.cell[self] = sum;
    __syncthreads();
    for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
      if (threadIdx.y < half) {
        const Pack<T> other = cells.cell[self + half * blockDim.x];
#pragma unroll
        for (int i = 0; i < kPack<T>; ++i) sum[i] += other[i];
        cells.cell[self] = sum;
      }
      __syncthreads();
    }
    if (threadIdx.y == 0) {
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) {
        if (column + i < extent.columns) partial[blockIdx.y * extent.columns + column + i] = sum[i];
      }
    }
    __syncthreads();
  }
}

inline constexpr int kJoinColumns = 32, kJoinRows = 8;

/// Second pass: out[column] = sum over the rows of `partial` [rows, columns], in order.
template <class T>
static __global__ void __launch_bounds__(kJoinColumns* kJoinRows)
    column_sum_join_kernel(const T* partial, std::int64_t rows, std::int64_t columns, Target<T> out) {
  struct Storage {
    T cell[kJoinRows][kJoinColumns];
  };
  auto& storage = shared_storage<Storage>();
  for (std::int64_t tile = static_cast<std::int64_t>(blockIdx.x) * kJoinColumns; tile < columns;
       tile += static_cast<std::int64_t>(gridDim.x) * kJoinColumns) {
    const std::int64_t column = tile + threadIdx.x;
    T sum = 0;
    if (column < columns) {
      for (std::int64_t row = threadIdx.y; row < rows; row += kJoinRows)
        sum += partial[row * columns + column];
    }
    storage.cell[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && column < columns) {
      for (int row = 1; row < kJoinRows; ++row) sum += storage.cell[row][threadIdx.x];
      out.put(0, column, sum);
    }
    __syncthreads();
  }
}

/// Launches the second pass where `out` is wanted. Static: a compiler may put the kernel into the section group of
/// the one function that takes it, of which the linker keeps one copy.
template <class T>
static Status join_column_sums(const char* name, const T* partial, std::int64_t rows, std::int64_t columns,
                               Target<T> out, Stream stream) {
  if (!out.wanted() || columns == 0) return Status();
  const std::int64_t tiles = ceil_div(columns, kJoinColumns);
  return launch(name, column_sum_join_kernel<T>,
                dim3(static_cast<unsigned>(tiles < kMostTiles ? tiles : kMostTiles)),
                dim3(kJoinColumns, kJoinRows), 0, stream, partial, rows, columns, out);
}

}  // namespace scantape::cuda
