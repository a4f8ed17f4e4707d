#pragma once

#include "common/math.cuh"
#include "common/reduce.cuh"

// Algebra of n x n matrices, n <= 64, by one block of 256 threads. Matrices lie in device memory, row after
// row, and stay in the caches of the one multiprocessor that works on them. A product stages its factors in
// shared memory, panel by panel, and leaves its result in registers: a thread owns rows y + 16 r and columns
// x + 16 c, in every matrix the same ones, so what is done element by element needs no barrier.
//
// Sums over k run from 0 to n - 1 in every element: bits do not depend on anything else.

namespace scantape::cuda::dense {

inline constexpr int kMost = 64;             // n
inline constexpr int kSide = 16;             // threads along a side
inline constexpr int kTile = kMost / kSide;  // elements a thread owns along a side
inline constexpr int kPanel = 32;            // steps of k staged at a time
static_assert(kSide * kSide == kBlockThreads);

/// A thread's elements of one matrix.
template <class T>
struct Tile {
  T at[kTile][kTile];
};

/// Calls body(r, c, i, j) for each element (i, j) that this thread owns as [r][c] of its tile.
template <class Body>
__device__ void for_each_owned(int n, Body body) {
  const int y = static_cast<int>(threadIdx.x) / kSide, x = static_cast<int>(threadIdx.x) % kSide;
#pragma unroll
  for (int r = 0; r < kTile; ++r) {
#pragma unroll
    for (int c = 0; c < kTile; ++c) {
      const int i = y + r * kSide, j = x + c * kSide;
      if (i < n && j < n) body(r, c, i, j);
    }
  }
}

/// A factor of a product: a matrix as it lies there, or its transpose.
template <class T>
struct Factor {
  const T* data;
  bool transposed;
};

template <class T>
__device__ Factor<T> plain(const T* data) {
  return {data, false};
}
template <class T>
__device__ Factor<T> transposed(const T* data) {
  return {data, true};
}

/// Panels of both factors by k; the odd row length keeps the banks apart.
template <class T>
struct Panels {
  T left[kPanel][kMost + 1], right[kPanel][kMost + 1];
};

/// panel[k][i] = element (i, begin + k) of the factor, or of its transpose where `across`; rows of zeros up to the next
/// multiple of 16.
template <class T>
__device__ void stage(T (&panel)[kPanel][kMost + 1], Factor<T> factor, bool across, int begin, int n) {
  const int rows = (n + kSide - 1) / kSide * kSide;
  // Neighbouring threads read neighbouring addresses: along k where k is the column in memory, else along i.
  const bool along_k = factor.transposed == across;
  for (int s = static_cast<int>(threadIdx.x); s < rows * kPanel; s += kBlockThreads) {
    const int k = along_k ? s % kPanel : s / rows, i = along_k ? s / kPanel : s % rows;
    if (begin + k >= n) continue;
    const int at = along_k ? i * n + begin + k : (begin + k) * n + i;
    panel[k][i] = i < n ? factor.data[at] : T(0);
  }
}

/// sum += left right. All threads must call it; it begins with a barrier, so factors may have been written just before,
/// and they may be overwritten element by element right after.
template <class T>
__device__ void add_product(Tile<T>& sum, Factor<T> left, Factor<T> right, int n, Panels<T>& panels) {
  const int y = static_cast<int>(threadIdx.x) / kSide, x = static_cast<int>(threadIdx.x) % kSide;
  const int tiles = (n + kSide - 1) / kSide;
  for (int begin = 0; begin < n; begin += kPanel) {
    __syncthreads();
    stage(panels.left, left, false, begin, n);
    stage(panels.right, right, true, begin, n);
    __syncthreads();
    const int end = n - begin < kPanel ? n - begin : kPanel;
    for (int k = 0; k < end; ++k) {
      T a[kTile], b[kTile];
#pragma unroll
      for (int r = 0; r < kTile; ++r) {
        a[r] = r < tiles ? panels.left[k][y + r * kSide] : T(0);
        b[r] = r < tiles ? panels.right[k][x + r * kSide] : T(0);
      }
#pragma unroll
      for (int r = 0; r < kTile; ++r) {
#pragma unroll
        for (int c = 0; c < kTile; ++c) {
          if (r < tiles && c < tiles) sum.at[r][c] = fma_of(a[r], b[c], sum.at[r][c]);
        }
      }
    }
  }
}

template <class T>
__device__ Tile<T> product(Factor<T> left, Factor<T> right, int n, Panels<T>& panels) {
  Tile<T> sum = {};
  add_product(sum, left, right, n, panels);
  return sum;
}

/// The sum over all elements of value(i, j), in every thread. All threads must call it.
template <class T, class Value>
__device__ T sum_owned(int n, BlockSum<T, kBlockThreads>& cells, Value value) {
  T sum = 0;
  for_each_owned(n, [&](int, int, int i, int j) { sum += value(i, j); });
  return block_sum(sum, cells);
}

/// The larger one of the largest sums of |elements| along a row and along a column, in every thread. All threads must
/// call it. NaN need not be seen.
template <class T>
__device__ T norm_bound(const T* A, int n, T (&cells)[kMost]) {
  __syncthreads();
  const int self = static_cast<int>(threadIdx.x);
  if (self < n) {
    T row = 0, column = 0;
    for (int k = 0; k < n; ++k) {
      row += abs_of(A[self * n + k]);
      column += abs_of(A[k * n + self]);
    }
    cells[self] = row > column ? row : column;
  }
  __syncthreads();
  T largest = 0;
  for (int k = 0; k < n; ++k) largest = cells[k] > largest ? cells[k] : largest;
  return largest;
}

/// A matrix that is being factored in place, and what the steps pass on.
template <class T>
struct Lu {
  T lu[kMost][kMost + 1];
  T row[2][kMost];  // of the inverse, by turns
  int order[kMost];
  int pivot;
};

/// The row from k on with the largest |element| in column k, the first of equals. The first warp alone calls it.
template <class T>
__device__ int pivot_row(int k, int n, const Lu<T>& cells) {
  T largest = T(-1);
  int at = k;
  for (int i = k + static_cast<int>(threadIdx.x); i < n; i += kWarpSize) {
    const T value = abs_of(cells.lu[i][k]);
    if (value > largest) {
      largest = value;
      at = i;
    }
  }
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    const T other = __shfl_xor_sync(kAllLanes, largest, distance);
    const int other_at = __shfl_xor_sync(kAllLanes, at, distance);
    if (other > largest || (other == largest && other_at < at)) {
      largest = other;
      at = other_at;
    }
  }
  return at;
}

/// cells.lu <- L U of its rows in the order cells.order, partial pivoting. All threads must call it, after each has
/// written its elements.
template <class T>
__device__ void factor(int n, Lu<T>& cells) {
  const int self = static_cast<int>(threadIdx.x);
  if (self < n) cells.order[self] = self;
  __syncthreads();
  for (int k = 0; k < n; ++k) {
    if (self < kWarpSize) {
      const int pivot = pivot_row(k, n, cells);
      if (self == 0) cells.pivot = pivot;
    }
    __syncthreads();
    const int pivot = cells.pivot;
    if (pivot != k && self < n) {
      const T value = cells.lu[k][self];
      cells.lu[k][self] = cells.lu[pivot][self];
      cells.lu[pivot][self] = value;
    }
    if (pivot != k && self == 0) {
      const int from = cells.order[k];
      cells.order[k] = cells.order[pivot];
      cells.order[pivot] = from;
    }
    __syncthreads();
    if (self > k && self < n) cells.lu[self][k] /= cells.lu[k][k];
    __syncthreads();
    for_each_owned(n, [&](int, int, int i, int j) {
      if (i > k && j > k) cells.lu[i][j] = fma_of(-cells.lu[i][k], cells.lu[k][j], cells.lu[i][j]);
    });
    __syncthreads();
  }
}

/// The inverse of what is in cells.lu, which is overwritten. All threads must call it, after each has written its
/// elements. A singular matrix gives infinities or NaN.
template <class T>
__device__ Tile<T> inverse(int n, Lu<T>& cells) {
  factor(n, cells);
  Tile<T> x = {};
  for_each_owned(n, [&](int r, int c, int i, int j) { x.at[r][c] = cells.order[i] == j ? T(1) : T(0); });
  // Row k is done when its turn comes; all others take their share of it. Two row buffers, so that one barrier a step
  // is enough.
  for (int k = 0; k < n; ++k) {
    for_each_owned(n, [&](int r, int c, int i, int j) {
      if (i == k) cells.row[k & 1][j] = x.at[r][c];
    });
    __syncthreads();
    for_each_owned(n, [&](int r, int c, int i, int j) {
      if (i > k) x.at[r][c] = fma_of(-cells.lu[i][k], cells.row[k & 1][j], x.at[r][c]);
    });
  }
  __syncthreads();
  for (int k = n - 1; k >= 0; --k) {
    for_each_owned(n, [&](int r, int c, int i, int j) {
      if (i != k) return;
      x.at[r][c] /= cells.lu[k][k];
      cells.row[k & 1][j] = x.at[r][c];
    });
    __syncthreads();
    for_each_owned(n, [&](int r, int c, int i, int j) {
      if (i < k) x.at[r][c] = fma_of(-cells.lu[i][k], cells.row[k & 1][j], x.at[r][c]);
    });
  }
  __syncthreads();
  return x;
}

}  // namespace scantape::cuda::dense
