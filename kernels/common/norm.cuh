// The kernels of layer_norm and rms_norm, and what other kernels that normalise rows take from them.
//
//   r = x + residual (x where there is none), rounded to its type before anything else is made of it
//   layer:  mean = sum(r) / E;  c = sum(r - mean) / E;  d = (r - mean) - c
//   rms:    d = r
//   rstd = 1 / sqrt(sum(d^2) / E + eps);  xh = d rstd;  y = xh weight + bias
//
// x, residual, weight, bias, y, r and their cotangents are stored in one type T; statistics and the gradients of weight
// and bias are of the type that T is computed in, as is all that is not stored.
//
// Two passes are not enough in low precision: where the mean is large against the spread, its own rounding
// error is the same for every element and grows into the variance and xh. c measures that error, and taking
// it off costs one more sum.
//
// Rows near the ends of the type's range are treated as common/norm_range.h says. A huge row is scaled by a
// power of two, and eps, which would vanish beside its variance, is left out; where all its elements are
// equal, rstd is 1 / sqrt(eps) in the scaled unit. rstd is saved with a minus sign to tell the backward.
// Squares are divided by E one by one for the same reason.
//
// Gradient. With g = d_y weight and the row means  c1 = mean(g) (layer only), c2 = mean(g xh):  d xh_i / d r_j
// = rstd ([i = j] - 1/E - xh_i xh_j / E), the term 1/E for layer alone, and r is an output of its own, so
//
//   d_x = d_residual = rstd (g - c1 - xh c2) + d_r
//   d_weight = sum over rows of d_y xh,   d_bias = sum over rows of d_y
//
// (for a scaled row rstd times the scale). Forward saves mean, c and rstd (rms: rstd); xh is formed again from
// r, because from y it could not be had where weight is 0.
//
// Variants, chosen by E alone, so that a row's bits never depend on its batch:
//   warp_row   a warp per row, the row in registers (forward E <= 1024, backward E <= 512). The backward
//              gathers d_weight and d_bias in registers too, over its block's rows: one pass over r and d_y.
//   block_row  a block per row, the row read again for each sum (it stays in cache). d_weight and d_bias
//              come from a kernel over tiles of columns, before d_x is written: d_x may be d_y itself.
//
// Sums over rows: partial sums per block in the workspace, joined in order by a second launch.
//
// Bytes: forward reads x, writes y: 2 n elements; with a residual it also reads that and writes r: 4 n, where
// adding first and normalising then would move 5 n. Backward reads r and d_y (and d_r), writes d_x (and
// d_residual): 3 to 5 n, block_row 2 n more.

#pragma once

#include <limits>

#include "common/dispatch.cuh"
#include "common/math.cuh"
#include "common/norm_range.h"
#include "common/reduce.cuh"
#include "scantape/norm.h"

namespace scantape::cuda {

inline constexpr int kWarps = kBlockThreads / 32;

// ---- one row

/// eps in the data's type, never 0, as it stands beside a variance and beside a lifted one.
template <class T>
struct Eps {
  T plain, lifted;
  bool lifts;  // tiny rows are lifted
};

template <class T>
Eps<T> eps_of(double eps) noexcept {
  const double lift = NormRange<T>::kLift, least = std::numeric_limits<T>::min();
  const bool lifts = eps < NormRange<T>::kTinyEps;
  const double lifted = lifts ? eps * lift * lift : 1;
  return {static_cast<T>(eps > least ? eps : least), static_cast<T>(lifted > least ? lifted : least), lifts};
}

/// What forward saves for a row.
template <class T, Norm kNorm>
struct RowStatistics {
  T mean, correction, rstd;  // rstd is negative where the row is scaled; the others are 0 for rms

  __device__ T scale() const { return rstd < T(0) ? NormRange<T>::kShrink : T(1); }
  __device__ T centred(T r, T scale) const {
    return kNorm == Norm::layer ? (r * scale - mean) - correction : r * scale;
  }
  __device__ T normalised(T r) const { return centred(r, scale()) * abs_of(rstd); }
  /// The cotangent of r by way of xh. scale is applied last: rstd * scale alone may be denormal.
  __device__ T d_r(T g, T xh, T c1, T c2) const {
    return abs_of(rstd) * ((kNorm == Norm::layer ? g - c1 : g) - xh * c2) * scale();
  }

  __device__ void save(Target<T> statistics, std::int64_t row) const {
    if constexpr (kNorm == Norm::layer) {
      statistics.put(row, 0, mean);
      statistics.put(row, 1, correction);
    }
    statistics.put(row, kNormStatistics<kNorm> - 1, rstd);
  }
  __device__ static RowStatistics saved(Source<T> statistics, std::int64_t row) {
    RowStatistics s{};
    if constexpr (kNorm == Norm::layer) {
      s.mean = statistics.at(row, 0);
      s.correction = statistics.at(row, 1);
    }
    s.rstd = statistics.at(row, kNormStatistics<kNorm> - 1);
    return s;
  }
};

/// The threads that share a row. All of them must call sum and any.
template <class T>
struct WarpGroup {
  __device__ T sum(T value) const { return warp_sum(value); }
  __device__ bool any(bool value) const { return __any_sync(kAllLanes, value) != 0; }
  __device__ bool leads() const { return threadIdx.x == 0; }  // blocks are 32 wide
};
template <class T>
struct BlockGroup {
  BlockSum<T, kBlockThreads>& cells;

  __device__ T sum(T value) const { return block_sum(value, cells); }
  __device__ bool any(bool value) const { return __syncthreads_or(value) != 0; }
  __device__ bool leads() const { return threadIdx.x == 0; }
};

template <class T>
__device__ T huge_rstd(T variance, T eps) {
  if (variance != T(0)) return -(T(1) / sqrt_of(variance));
  const T flat = NormRange<T>::kUnshrink / sqrt_of(eps);
  return flat < std::numeric_limits<T>::max() ? -flat : -std::numeric_limits<T>::max();
}

/// Calls use(r) for the elements of a row that are this thread's. row.each_pack(use) calls use(column, r) for its
/// packs, which may end beyond the row.
template <class T, class Row, class Use>
__device__ void for_each_element(const Row& row, std::int64_t columns, Use use) {
  row.each_pack([&](std::int64_t column, const Pack<T>& r) {
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      if (column + i < columns) use(r[i]);
    }
  });
}

/// Statistics of a row of `columns` elements, stored in S.
template <class S, Norm kNorm, class Row, class Group>
__device__ RowStatistics<Compute<S>, kNorm> row_statistics(const Row& row, std::int64_t columns,
                                                           Eps<Compute<S>> eps, const Group& group) {
  using T = Compute<S>;
  using Range = NormRange<T>;
  const T count = static_cast<T>(columns), share = T(1) / count;
  T largest = 0, total = 0;
  for_each_element<S>(row, columns, [&](T r) {
    largest = abs_of(r) > largest ? abs_of(r) : largest;
    total += kNorm == Norm::layer ? r : r * share * r;
  });
  const bool huge = group.any(largest > Range::kHuge);
  const bool tiny = eps.lifts && !group.any(!(largest < Range::kTiny));
  const T scale = huge ? Range::kShrink : T(1), lift = tiny ? Range::kLift : T(1);

  RowStatistics<T, kNorm> s{};
  if constexpr (kNorm == Norm::layer) {
    if (huge) {
      total = 0;
      for_each_element<S>(row, columns, [&](T r) { total += r * scale; });
    }
    s.mean = group.sum(total) / count;
    total = 0;
    for_each_element<S>(row, columns, [&](T r) { total += r * scale - s.mean; });
    s.correction = group.sum(total) / count;
  }
  if (kNorm == Norm::layer || huge || tiny) {
    total = 0;
    for_each_element<S>(row, columns, [&](T r) {
      const T d = s.centred(r, scale) * lift;
      total += d * share * d;
    });
  }
  const T variance = group.sum(total);
  s.rstd = huge ? huge_rstd(variance, eps.plain) : lift / sqrt_of(variance + (tiny ? eps.lifted : eps.plain));
  return s;
}

/// What a norm does to rows of r: y = xh weight + bias. Absent: bias may be, and r is not written where it is
/// not wanted.
template <class T>
struct NormTargets {
  Source<T> weight, bias;
  Target<T> y, r;
  Target<Compute<T>> statistics;
};

/// Normalises one row. Each pack is read before it is written, by one thread: y and r may lie over what the
/// row is made of.
template <class T, Norm kNorm, class Row, class Group>
__device__ void normalise_row(const Row& row, std::int64_t index, std::int64_t columns, Eps<Compute<T>> eps,
                              const NormTargets<T>& to, const Group& group) {
  const RowStatistics<Compute<T>, kNorm> s = row_statistics<T, kNorm>(row, columns, eps, group);
  row.each_pack([&](std::int64_t column, Pack<T> r) {
    const std::int64_t remaining = columns - column;
    if (to.r.wanted()) to.r.store(index, column, remaining, r);
    const Pack<T> w = to.weight.load(0, column, remaining), b = to.bias.load_or_zero(0, column, remaining);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) r[i] = s.normalised(r[i]) * w[i] + b[i];
    to.y.store(index, column, remaining, r);
  });
  if (group.leads()) s.save(to.statistics, index);
}

/// x + residual, by packs, as it is stored.
template <class T>
struct SummedSource {
  Source<T> x, residual;

  __device__ Pack<T> load(std::int64_t row, std::int64_t column, std::int64_t remaining) const {
    Pack<T> r = x.load(row, column, remaining);
    if (residual.present()) {
      const Pack<T> more = residual.load(row, column, remaining);
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) r[i] = loaded(stored<T>(r[i] + more[i]));
    }
    return r;
  }
};

/// Columns of the narrowest rows that a warp holds: a pack a lane, or 128.
template <class T>
inline constexpr int kFewColumns = kPack<T> > 4 ? 32 * kPack<T> : 128;

/// Packs of a lane where a warp holds kColumns columns.
template <class T, int kColumns>
inline constexpr int kLanePacks = kColumns / (32 * kPack<T>);

/// Pack p of this lane begins here.
template <class T>
__device__ std::int64_t lane_column(int pack) {
  return static_cast<std::int64_t>(pack * 32 + static_cast<int>(threadIdx.x)) * kPack<T>;
}

/// A row in the registers of a warp.
template <class T, int kColumns>
struct HeldRow {
  Pack<T> packs[kLanePacks<T, kColumns>];
  std::int64_t columns;

  template <class Use>
  __device__ void each_pack(Use use) const {
#pragma unroll
    for (int p = 0; p < kLanePacks<T, kColumns>; ++p) {
      if (lane_column<T>(p) < columns) use(lane_column<T>(p), packs[p]);
    }
  }
};

/// A row that its threads, `self` of `threads`, read again each time: from memory (SummedSource) or from
/// wherever else `source.load(row, column, remaining)` takes it.
template <class T, class From>
struct ReadRow {
  const From& source;
  std::int64_t row, columns;
  int self, threads;

  template <class Use>
  __device__ void each_pack(Use use) const {
    for (std::int64_t column = self * kPack<T>; column < columns; column += threads * kPack<T>)
      use(column, source.load(row, column, columns - column));
  }
};

// ---- forward

/// Blocks on a processor at a time where a warp holds rows of so many bytes: 128 registers a thread, or all 255.
/// Said nothing, the compiler aims at more blocks and spills.
constexpr int blocks_at_a_time(std::size_t held_bytes) {
  return held_bytes <= 4096 ? 2 : 1;
}

template <class T, Norm kNorm, int kColumns>
static __global__ void __launch_bounds__(kBlockThreads, blocks_at_a_time(kColumns * sizeof(Compute<T>)))
    norm_fwd_warp_row_kernel(Extent extent, SummedSource<T> from, Eps<Compute<T>> eps, NormTargets<T> to) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kWarps;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.y; row < extent.rows;
       row += step) {
    HeldRow<T, kColumns> held;
    held.columns = extent.columns;
#pragma unroll
    for (int p = 0; p < kLanePacks<T, kColumns>; ++p)
      held.packs[p] = from.load(row, lane_column<T>(p), extent.columns - lane_column<T>(p));
    normalise_row<T, kNorm>(held, row, extent.columns, eps, to, WarpGroup<Compute<T>>{});
  }
}

template <class T, Norm kNorm>
static __global__ void __launch_bounds__(kBlockThreads)
    norm_fwd_block_row_kernel(Extent extent, SummedSource<T> from, Eps<Compute<T>> eps, NormTargets<T> to) {
  const BlockGroup<Compute<T>> group{shared_storage<BlockSum<Compute<T>, kBlockThreads>>()};
  for (std::int64_t row = blockIdx.x; row < extent.rows; row += gridDim.x) {
    const ReadRow<T, SummedSource<T>> read{from, row, extent.columns, static_cast<int>(threadIdx.x),
                                           kBlockThreads};
    normalise_row<T, kNorm>(read, row, extent.columns, eps, to, group);
  }
}

// ---- backward

/// What backward reads of a norm; d_y and d_r may be absent, which means zero.
template <class T>
struct NormCotangents {
  Source<T> r, weight;
  Source<Compute<T>> statistics;
  Source<T> d_y, d_r;
};

/// The two targets of d_r, each in its own mode.
template <class T>
struct RowGradients {
  Target<T> x, residual;

  __host__ __device__ bool wanted() const { return x.wanted() || residual.wanted(); }
  __device__ void store(std::int64_t row, std::int64_t column, std::int64_t remaining, Pack<T> d) const {
    if (x.wanted()) x.store(row, column, remaining, d);
    if (residual.wanted()) residual.store(row, column, remaining, d);
  }
};

/// Rows blockIdx.x * rows_per_block on, a warp per row; the block's sums for d_weight and d_bias go to its
/// row of the partials, either of which may be null.
template <class S, Norm kNorm, int kColumns>
static __global__ void __launch_bounds__(kBlockThreads, blocks_at_a_time(2 * kColumns * sizeof(Compute<S>)))
    norm_bwd_warp_row_kernel(Extent extent, std::int64_t rows_per_block, NormCotangents<S> from,
                             RowGradients<S> to, Compute<S>* weight_partial, Compute<S>* bias_partial) {
  using T = Compute<S>;
  constexpr int kPacks = kLanePacks<S, kColumns>;
  struct Storage {
    T cell[kWarps][kColumns];
  };
  auto& storage = shared_storage<Storage>();
  const std::int64_t columns = extent.columns;
  const T count = static_cast<T>(columns);
  const std::int64_t begin = blockIdx.x * rows_per_block;
  const std::int64_t end = begin + rows_per_block < extent.rows ? begin + rows_per_block : extent.rows;
  Pack<S> weight_sum[kPacks] = {}, bias_sum[kPacks] = {};

  for (std::int64_t row = begin + threadIdx.y; row < end; row += kWarps) {
    RowStatistics<T, kNorm> s{};
    Pack<S> xh[kPacks] = {}, g[kPacks] = {};
    T c1 = 0, c2 = 0;
    if (from.d_y.present()) {  // the same for all threads
      s = RowStatistics<T, kNorm>::saved(from.statistics, row);
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        const std::int64_t column = lane_column<S>(p);
        xh[p] = from.r.load(row, column, columns - column);
        g[p] = from.d_y.load(row, column, columns - column);
        const Pack<S> w = from.weight.load(0, column, columns - column);
#pragma unroll
        for (int i = 0; i < kPack<S>; ++i) {
          if (column + i < columns) {
            xh[p][i] = s.normalised(xh[p][i]);
            weight_sum[p][i] += g[p][i] * xh[p][i];
            bias_sum[p][i] += g[p][i];
            g[p][i] *= w[i];
            if (kNorm == Norm::layer) c1 += g[p][i];
            c2 += g[p][i] * xh[p][i];
          }
        }
      }
    }
    if (!to.wanted()) continue;  // the same for all lanes
    if (kNorm == Norm::layer) c1 = warp_sum(c1) / count;
    c2 = warp_sum(c2) / count;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const std::int64_t column = lane_column<S>(p);
      if (column >= columns) continue;
      Pack<S> d = from.d_r.load_or_zero(row, column, columns - column);
#pragma unroll
      for (int i = 0; i < kPack<S>; ++i) d[i] = s.d_r(g[p][i], xh[p][i], c1, c2) + d[i];
      to.store(row, column, columns - column, d);
    }
  }

  const auto join_warps = [&](const Pack<S>* sums, T* partial) {
    if (partial == nullptr) return;  // the same for all threads
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
#pragma unroll
      for (int i = 0; i < kPack<S>; ++i) storage.cell[threadIdx.y][lane_column<S>(p) + i] = sums[p][i];
    }
    __syncthreads();
    for (std::int64_t column = threadIdx.y * 32 + threadIdx.x; column < columns; column += kBlockThreads) {
      T sum = storage.cell[0][column];
#pragma unroll
      for (int warp = 1; warp < kWarps; ++warp) sum += storage.cell[warp][column];
      partial[blockIdx.x * columns + column] = sum;
    }
    __syncthreads();
  };
  join_warps(weight_sum, weight_partial);
  join_warps(bias_sum, bias_partial);
}

/// d_r of one row from its elements and its cotangent, each read twice: a row in memory by a block, or one in
/// shared memory by a warp. emit(column, remaining, d) takes the packs.
template <class S, Norm kNorm, class Row, class Group, class Emit>
__device__ void differentiate_row(const Row& row, std::int64_t index, std::int64_t columns,
                                  const RowStatistics<Compute<S>, kNorm>& s, Source<S> weight, Source<S> d_y,
                                  const Group& group, Emit emit) {
  using T = Compute<S>;
  const T count = static_cast<T>(columns);
  T c1 = 0, c2 = 0;
  row.each_pack([&](std::int64_t column, const Pack<S>& r) {
    const Pack<S> g = d_y.load(index, column, columns - column);
    const Pack<S> w = weight.load(0, column, columns - column);
#pragma unroll
    for (int i = 0; i < kPack<S>; ++i) {
      if (column + i < columns) {
        if (kNorm == Norm::layer) c1 += g[i] * w[i];
        c2 += g[i] * w[i] * s.normalised(r[i]);
      }
    }
  });
  if (kNorm == Norm::layer) c1 = group.sum(c1) / count;
  c2 = group.sum(c2) / count;
  row.each_pack([&](std::int64_t column, const Pack<S>& r) {
    const Pack<S> w = weight.load(0, column, columns - column);
    Pack<S> g = d_y.load(index, column, columns - column);
#pragma unroll
    for (int i = 0; i < kPack<S>; ++i) g[i] = s.d_r(g[i] * w[i], s.normalised(r[i]), c1, c2);
    emit(column, columns - column, g);
  });
}

template <class T, Norm kNorm>
static __global__ void __launch_bounds__(kBlockThreads)
    norm_bwd_block_row_kernel(Extent extent, NormCotangents<T> from, RowGradients<T> to) {
  const BlockGroup<Compute<T>> group{shared_storage<BlockSum<Compute<T>, kBlockThreads>>()};
  for (std::int64_t row = blockIdx.x; row < extent.rows; row += gridDim.x) {
    const ReadRow<T, Source<T>> read{from.r, row, extent.columns, static_cast<int>(threadIdx.x),
                                     kBlockThreads};
    if (!from.d_y.present()) {  // the same for all threads
      read.each_pack([&](std::int64_t column, const Pack<T>&) {
        to.store(row, column, extent.columns - column,
                 from.d_r.load_or_zero(row, column, extent.columns - column));
      });
      continue;
    }
    differentiate_row(read, row, extent.columns,
                      RowStatistics<Compute<T>, kNorm>::saved(from.statistics, row), from.weight, from.d_y,
                      group, [&](std::int64_t column, std::int64_t remaining, Pack<T> d) {
                        const Pack<T> more = from.d_r.load_or_zero(row, column, remaining);
#pragma unroll
                        for (int i = 0; i < kPack<T>; ++i) d[i] = d[i] + more[i];
                        to.store(row, column, remaining, d);
                      });
  }
}

/// Partial sums of d_weight (where kWeight) or d_bias over a tile of columns and a chunk of rows.
template <class T, Norm kNorm, bool kWeight>
static __global__ void __launch_bounds__(kBlockThreads)
    norm_bwd_columns_kernel(Extent extent, std::int64_t rows_per_chunk, NormCotangents<T> from,
                            Compute<T>* partial) {
  auto& cells = shared_storage<ColumnCells<T>>();
  sum_columns(extent, rows_per_chunk, partial, cells,
              [&](std::int64_t row, std::int64_t column, std::int64_t remaining, Pack<T>& sum) {
                if (!from.d_y.present()) return;
                const Pack<T> g = from.d_y.load(row, column, remaining);
                Pack<T> r = {};
                RowStatistics<Compute<T>, kNorm> s = {};
                if constexpr (kWeight) {
                  r = from.r.load(row, column, remaining);
                  s = RowStatistics<Compute<T>, kNorm>::saved(from.statistics, row);
                }
#pragma unroll
                for (int i = 0; i < kPack<T>; ++i) sum[i] += kWeight ? g[i] * s.normalised(r[i]) : g[i];
              });
}

// ---- launchers

inline constexpr std::int64_t kMostForwardWarpColumns = 1024, kMostBackwardWarpColumns = 512;
inline constexpr std::int64_t kMostPartialBlocks = 512;

inline Extent norm_extent(const ConstView& rows_of) noexcept {
  Rows rows;
  return as_rows(rows_of, &rows) ? Extent{rows.count, rows.length} : Extent{};
}

/// What backward takes as r.
inline const ConstView& normalised_rows(const NormBackward& args) noexcept {
  return args.residual.present ? static_cast<const ConstView&>(args.r) : args.x;
}

/// How the backward shares out rows, for either variant.
template <class T>
struct NormBackwardPlan {
  bool warp_row = false;
  std::int64_t partial_rows = 1, rows_per_block = 0;
  ColumnPlan columns;

  explicit NormBackwardPlan(Extent extent) : warp_row(extent.columns <= kMostBackwardWarpColumns) {
    if (warp_row) {
      partial_rows = ceil_div(extent.rows, 2 * kWarps);
      if (partial_rows < 1) partial_rows = 1;
      if (partial_rows > kMostPartialBlocks) partial_rows = kMostPartialBlocks;
      rows_per_block = ceil_div(extent.rows, partial_rows);
    } else {
      columns = column_plan<T>(extent);
      partial_rows = columns.chunks;
    }
  }
};

template <class T, Norm kNorm>
Status norm_forward(const NormForward& args, Stream stream) {
  const Extent extent = norm_extent(args.x);
  const SummedSource<T> from{source<T>(args.x), source<T>(args.residual)};
  const NormTargets<T> to{source<T>(args.weight), source<T>(args.bias), target<T>(args.y), target<T>(args.r),
                          target<Compute<T>>(args.statistics)};
  const Eps<Compute<T>> eps = eps_of<Compute<T>>(args.eps);
  const auto warp_row = [&](auto kernel) {
    return launch("norm_fwd_warp_row_kernel", kernel, grid_for(extent.rows, kWarps, kMostBlocksX),
                  dim3(32, kWarps), 0, stream, extent, from, eps, to);
  };
  if (extent.columns <= kFewColumns<T>) return warp_row(norm_fwd_warp_row_kernel<T, kNorm, kFewColumns<T>>);
  if (extent.columns <= 512) return warp_row(norm_fwd_warp_row_kernel<T, kNorm, 512>);
  if (extent.columns <= kMostForwardWarpColumns) return warp_row(norm_fwd_warp_row_kernel<T, kNorm, 1024>);
  return launch("norm_fwd_block_row_kernel", norm_fwd_block_row_kernel<T, kNorm>,
                grid_for(extent.rows, 1, kMostBlocksX), dim3(kBlockThreads), 0, stream, extent, from, eps,
                to);
}

template <class T, Norm kNorm>
Status norm_backward(const NormBackward& args, Stream stream) {
  const Extent extent = norm_extent(normalised_rows(args));
  const NormBackwardPlan<T> plan(extent);
  const NormCotangents<T> from{source<T>(normalised_rows(args)), source<T>(args.weight),
                               source<Compute<T>>(args.statistics), source<T>(args.d_y), source<T>(args.d_r)};
  const RowGradients<T> to{target<T>(args.d_x), target<T>(args.d_residual)};
  const Target<Compute<T>> d_weight = target<Compute<T>>(args.d_weight),
                           d_bias = target<Compute<T>>(args.d_bias);
  Compute<T>* const workspace = static_cast<Compute<T>*>(args.workspace.data);
  Compute<T>* const weight_partial = d_weight.wanted() ? workspace : nullptr;
  Compute<T>* const bias_partial = d_bias.wanted() ? workspace + plan.partial_rows * extent.columns : nullptr;

  if (plan.warp_row) {
    const auto warp_row = [&](auto kernel) {
      return launch("norm_bwd_warp_row_kernel", kernel, dim3(static_cast<unsigned>(plan.partial_rows)),
                    dim3(32, kWarps), 0, stream, extent, plan.rows_per_block, from, to, weight_partial,
                    bias_partial);
    };
    SCANTAPE_TRY(extent.columns <= kFewColumns<T>
                     ? warp_row(norm_bwd_warp_row_kernel<T, kNorm, kFewColumns<T>>)
                     : warp_row(norm_bwd_warp_row_kernel<T, kNorm, 512>));
  } else {
    const auto columns = [&](auto kernel, Compute<T>* partial) {
      if (partial == nullptr) return Status();
      return launch("norm_bwd_columns_kernel", kernel, plan.columns.grid.grid, plan.columns.grid.block, 0,
                    stream, extent, plan.columns.rows, from, partial);
    };
    SCANTAPE_TRY(columns(norm_bwd_columns_kernel<T, kNorm, true>, weight_partial));
    SCANTAPE_TRY(columns(norm_bwd_columns_kernel<T, kNorm, false>, bias_partial));
    if (to.wanted()) {
      SCANTAPE_TRY(launch("norm_bwd_block_row_kernel", norm_bwd_block_row_kernel<T, kNorm>,
                          grid_for(extent.rows, 1, kMostBlocksX), dim3(kBlockThreads), 0, stream, extent,
                          from, to));
    }
  }
  SCANTAPE_TRY(join_column_sums("norm_bwd_join_weight", weight_partial, plan.partial_rows, extent.columns,
                                d_weight, stream));
  return join_column_sums("norm_bwd_join_bias", bias_partial, plan.partial_rows, extent.columns, d_bias,
                          stream);
}

inline constexpr const char* kMissingNorm = "norm: no CUDA kernel for this dtype";

template <Norm kNorm>
Status launch_norm_forward(const NormForward& args, Stream stream) noexcept {
  return dispatch_storage(args.x.dtype, kMissingNorm,
                          [&](auto zero) { return norm_forward<decltype(zero), kNorm>(args, stream); });
}

template <Norm kNorm>
Status launch_norm_backward(const NormBackward& args, Stream stream) noexcept {
  if (!args.d_x.wanted() && !args.d_residual.wanted() && !args.d_weight.wanted() && !args.d_bias.wanted())
    return Status();
  return dispatch_storage(args.weight.dtype, kMissingNorm,
                          [&](auto zero) { return norm_backward<decltype(zero), kNorm>(args, stream); });
}

inline std::int64_t norm_backward_workspace(const NormBackward& args) noexcept {
  if (!args.d_weight.wanted() && !args.d_bias.wanted()) return 0;
  const Extent extent = norm_extent(normalised_rows(args));
  std::int64_t bytes = 0;
  const Status status = dispatch_storage(args.weight.dtype, kMissingNorm, [&](auto zero) {
    using T = decltype(zero);
    bytes = 2 * NormBackwardPlan<T>(extent).partial_rows * extent.columns *
            static_cast<std::int64_t>(sizeof(Compute<T>));
    return Status();
  });
  return status.ok() ? bytes : 0;
}

}  // namespace scantape::cuda
