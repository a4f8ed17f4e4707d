#pragma once

#include "ssd_problem.cuh"

// Tiles: products of matrices of which a block makes one tile, and the table of decays inside a chunk.
//
// A block of 256 threads has a tile of 64 x 64 (f64: 32 x 32); a thread owns neighbouring rows of it, and columns 16
// apart. Factors come through shared memory, 32 steps of the sum at a time. Sums run from the first to the last step in
// every element.
//
// T_ij = exp(sum of the log decays of steps j+1..i), 0 where j > i. The sum is never a difference of running totals:
// with dt A = -5000 in some step of the chunk what all others need would be lost. It is put together of additions only,
// of numbers of one sign (runs of 16 steps, counted from the chunk's begin):
//   in one run         step by step
//   in one tile        what is left of j's run + the runs between + i's run so far
//   in two tiles       what is left of j's tile + the tiles between + i's tile so far

namespace scantape::cuda::ssd {

template <class T>
inline constexpr int kTile = sizeof(T) == 4 ? 64 : 32;
inline constexpr int kSide = 16;  // threads along a side
template <class T>
inline constexpr int kOwn = kTile<T> / kSide;  // elements a thread owns along a side
inline constexpr int kPanel = 32;              // steps of a sum staged at a time
inline constexpr int kRun = 16;                // steps whose log decays are summed one by one
static_assert(kSide * kSide == kBlockThreads);

__device__ inline int tile_y() {
  return static_cast<int>(threadIdx.x) / kSide;
}
__device__ inline int tile_x() {
  return static_cast<int>(threadIdx.x) % kSide;
}
template <class T>
__device__ int own_row(int r) {
  return tile_y() * kOwn<T> + r;
}
__device__ inline int own_column(int c) {
  return tile_x() + c * kSide;
}

/// A thread's elements of a tile.
template <class T>
struct Fragment {
  T at[kOwn<T>][kOwn<T>];
};

/// Part of a factor, by step of the sum; the odd row length keeps the banks apart.
template <class T>
struct Panel {
  T at[kPanel][kTile<T> + 1];
};
template <class T>
struct Square {
  T at[kTile<T>][kTile<T> + 1];
};

/// panel[k][i] = load(k, i), zeros beyond `count` and `width`. Neighbouring threads take neighbours along k where k is
/// what is contiguous in memory, else along i.
template <bool kAlongK, class T, class Load>
__device__ void stage(Panel<T>& panel, int count, int width, Load load) {
#pragma unroll 2
  for (int s = static_cast<int>(threadIdx.x); s < kPanel * kTile<T>; s += kBlockThreads) {
    const int k = kAlongK ? s % kPanel : s / kTile<T>, i = kAlongK ? s / kPanel : s % kTile<T>;
    panel.at[k][i] = k < count && i < width ? load(k, i) : T(0);
  }
}

/// sum += left right, over `length`: left(k, row), right(k, column). All threads must call it; it begins with a barrier.
template <bool kLeftAlongK, bool kRightAlongK, class T, class Left, class Right>
__device__ void add_product(Panel<T>& left_panel, Panel<T>& right_panel, int length, int rows, int columns,
                            Left left, Right right, Fragment<T>& sum) {
  for (int first = 0; first < length; first += kPanel) {
    const int count = length - first < kPanel ? length - first : kPanel;
    __syncthreads();
    stage<kLeftAlongK>(left_panel, count, rows, [&](int k, int i) { return left(first + k, i); });
    stage<kRightAlongK>(right_panel, count, columns, [&](int k, int i) { return right(first + k, i); });
    __syncthreads();
    for (int k = 0; k < count; ++k) {
      T a[kOwn<T>], b[kOwn<T>];
#pragma unroll
      for (int r = 0; r < kOwn<T>; ++r) a[r] = left_panel.at[k][own_row<T>(r)];
#pragma unroll
      for (int c = 0; c < kOwn<T>; ++c) b[c] = right_panel.at[k][own_column(c)];
#pragma unroll
      for (int r = 0; r < kOwn<T>; ++r) {
#pragma unroll
        for (int c = 0; c < kOwn<T>; ++c) sum.at[r][c] = fma_of(a[r], b[c], sum.at[r][c]);
      }
    }
  }
}

/// sum += weights values, over the steps of a tile: weights[k][row], values(k, column). On the diagonal a row has only
/// the steps up to its own (kLower) or from its own on: the others are left out, whatever their values are.
template <bool kLower, class T, class Values>
__device__ void add_weighted(const Square<T>& weights, Panel<T>& panel, bool diagonal, int steps, int columns,
                             Values values, Fragment<T>& sum) {
  for (int first = 0; first < steps; first += kPanel) {
    const int count = steps - first < kPanel ? steps - first : kPanel;
    __syncthreads();
    stage<false>(panel, count, columns, [&](int k, int i) { return values(first + k, i); });
    __syncthreads();
    for (int k = 0; k < count; ++k) {
      T b[kOwn<T>];
#pragma unroll
      for (int c = 0; c < kOwn<T>; ++c) b[c] = panel.at[k][own_column(c)];
#pragma unroll
      for (int r = 0; r < kOwn<T>; ++r) {
        const int row = own_row<T>(r);
        if (diagonal && (kLower ? first + k > row : first + k < row)) continue;
        const T a = weights.at[first + k][row];
#pragma unroll
        for (int c = 0; c < kOwn<T>; ++c) sum.at[r][c] = fma_of(a, b[c], sum.at[r][c]);
      }
    }
  }
}

/// The sums of a value over each row of a tile, in all threads of the row.
template <class T>
__device__ T row_sum(T value) {
#pragma unroll
  for (int distance = kSide / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(kAllLanes, value, distance);
  return value;
}

/// Steps of one tile of a chunk. Beyond the chunk's end dt and l are 0.
template <class T>
struct StepTile {
  T dt[kTile<T>], log[kTile<T>];
  T run_so_far[kTile<T>], run_left[kTile<T>];    // sums of log: of the run up to and with this step; after it
  T tile_so_far[kTile<T>], tile_left[kTile<T>];  // the same of the tile

  __device__ T total() const { return tile_so_far[kTile<T> - 1]; }
};

/// Steps [begin, begin + count) of a sequence. All threads must call it; it begins and ends with a barrier.
template <class S>
__device__ void load_steps(StepTile<Compute<S>>& tile, const Problem<S>& problem, std::int64_t item,
                           std::int64_t begin, int count, std::int64_t h) {
  using T = Compute<S>;
  const int i = static_cast<int>(threadIdx.x);
  const bool own = i < kTile<T>;
  __syncthreads();
  if (own) {
    const T dt = i < count ? problem.step_size(item, begin + i, h) : T(0);
    tile.dt[i] = dt;
    tile.log[i] = i < count ? dt * problem.A[h] : T(0);
  }
  __syncthreads();
  const int run = i / kRun * kRun;
  if (own) {
    T so_far = T(0), left = T(0);
    for (int k = run; k <= i; ++k) so_far += tile.log[k];
    for (int k = run + kRun - 1; k > i; --k) left += tile.log[k];
    tile.run_so_far[i] = so_far;
    tile.run_left[i] = left;
  }
  __syncthreads();
  if (own) {
    T so_far = tile.run_so_far[i], left = tile.run_left[i];
    for (int k = run - 1; k >= 0; k -= kRun) so_far += tile.run_so_far[k];
    for (int k = run + 2 * kRun - 1; k < kTile<T>; k += kRun) left += tile.run_so_far[k];
    tile.tile_so_far[i] = so_far;
    tile.tile_left[i] = left;
  }
  __syncthreads();
}

/// T_ij for j <= i of one tile (diagonal), or of a later and an earlier one and the total of the tiles between.
template <class T>
__device__ T decay(const StepTile<T>& later, const StepTile<T>& earlier, bool diagonal, T between, int i,
                   int j) {
  T sum;
  if (!diagonal) {
    sum = earlier.tile_left[j] + between + later.tile_so_far[i];
  } else if (i / kRun == j / kRun) {
    sum = T(0);
    for (int k = j + 1; k <= i; ++k) sum += later.log[k];
  } else {
    sum = later.run_left[j];
    for (int k = (j / kRun + 2) * kRun - 1; k < i / kRun * kRun; k += kRun) sum += later.run_so_far[k];
    sum += later.run_so_far[i];
  }
  return exp_of(sum);
}

/// Steps of a chunk that a tile has.
template <class T>
__device__ int steps_of_tile(const Chunk& chunk, std::int64_t tile) {
  const std::int64_t left = chunk.steps - tile * kTile<T>;
  return left < kTile<T> ? static_cast<int>(left) : kTile<T>;
}
template <class T>
__device__ std::int64_t tiles_of(const Chunk& chunk) {
  return ceil_div(chunk.steps, kTile<T>);
}
/// Elements of [0, size) that the tile from `first` on has.
template <class T>
__device__ int part_of(int size, int first) {
  return size - first < kTile<T> ? size - first : kTile<T>;
}

}  // namespace scantape::cuda::ssd
