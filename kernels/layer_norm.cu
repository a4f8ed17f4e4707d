// Layer normalisation over the last axis of rows of E elements.
//
//   mean = sum(x) / E;  c = sum(x - mean) / E;  d = (x - mean) - c;  var = sum(d^2) / E
//   rstd = 1 / sqrt(var + eps);  xh = d rstd;  y = xh weight + bias
//
// Two passes are not enough in low precision: where the mean is large against the spread, its own rounding
// error is the same for every element and grows into var and xh. c measures that error, and taking it off
// costs one more sum.
//
// Squares of x above 2^60 (f32; 2^500 in f64) may overflow. Such a row is scaled by a power of two first, and
// eps, which would vanish beside its variance, is left out; where all its elements are equal, rstd is 1 /
// sqrt(eps) in the scaled unit. rstd is saved with a minus sign to tell the backward. Squares are divided by
// E one by one for the same reason.
//
// Gradient. With g = d_y weight and the row means  c1 = mean(g), c2 = mean(g xh):  xh has mean 0 and mean
// square var / (var + eps), and d xh_i / d x_j = rstd ([i = j] - 1/E - xh_i xh_j / E), so
//
//   d_x = rstd (g - c1 - xh c2),   d_weight = sum over rows of d_y xh,   d_bias = sum over rows of d_y
//
// (for a scaled row rstd times the scale). Forward saves mean, c and rstd, three numbers a row; xh is formed
// again from x, because from y it could not be had where weight is 0.
//
// Variants, chosen by E alone, so that a row's bits never depend on its batch:
//   warp_row   a warp per row, the row in registers (forward E <= 1024, backward E <= 512). The backward
//              gathers d_weight and d_bias in registers too, over its block's rows: one pass over x and d_y.
//   block_row  a block per row, the row read again for each sum (it stays in cache). d_weight and d_bias
//              come from a kernel over tiles of columns, before d_x is written: d_x may be d_y itself.
//
// Sums over rows: partial sums per block in the workspace, joined in order by a second launch.
//
// Bytes: forward reads x, writes y: 2 n elements. Backward reads x and d_y, writes d_x: 3 n (block_row: 5 n).

#include "scantape/layer_norm.h"

#include <limits>

#include "common/dispatch.cuh"
#include "common/math.cuh"
#include "common/reduce.cuh"

namespace scantape::cuda {
namespace {

constexpr int kWarps = kBlockThreads / 32;
constexpr std::int64_t kMostForwardWarpColumns = 1024, kMostBackwardWarpColumns = 512;
constexpr std::int64_t kMostPartialBlocks = 512;

template <class T>
struct HugeRow;
template <>
struct HugeRow<float> {
  static constexpr float kThreshold = 0x1p60f, kScale = 0x1p-100f, kUnscale = 0x1p100f;
};
template <>
struct HugeRow<double> {
  static constexpr double kThreshold = 0x1p500, kScale = 0x1p-600, kUnscale = 0x1p600;
};

template <class T>
__device__ bool is_huge(T x) {
  return abs_of(x) > HugeRow<T>::kThreshold;
}

/// What forward saves for a row.
template <class T>
struct RowStatistics {
  T mean, correction, rstd;  // rstd is negative where the row is scaled

  __device__ T scale() const { return rstd < T(0) ? HugeRow<T>::kScale : T(1); }
  __device__ T normalised(T x) const { return ((x * scale() - mean) - correction) * abs_of(rstd); }
  /// d_x from the cotangent of xh less its means. scale is applied last: rstd * scale alone may be denormal.
  __device__ T d_x(T centred) const { return abs_of(rstd) * centred * scale(); }
};

template <class T>
__device__ T signed_rstd(T variance, T eps, bool huge) {
  if (!huge) return T(1) / sqrt_of(variance + eps);
  if (variance != T(0)) return -(T(1) / sqrt_of(variance));
  const T flat = HugeRow<T>::kUnscale / sqrt_of(eps);
  return flat < std::numeric_limits<T>::max() ? -flat : -std::numeric_limits<T>::max();
}

template <class T>
__device__ void save(Target<T> statistics, std::int64_t row, RowStatistics<T> s) {
  statistics.put(row, 0, s.mean);
  statistics.put(row, 1, s.correction);
  statistics.put(row, 2, s.rstd);
}

template <class T>
__device__ RowStatistics<T> saved(Source<T> statistics, std::int64_t row) {
  return {statistics.at(row, 0), statistics.at(row, 1), statistics.at(row, 2)};
}

/// Packs of a lane where a warp holds kColumns columns.
template <class T, int kColumns>
inline constexpr int kLanePacks = kColumns / (32 * kPack<T>);

/// Pack p of this lane begins here.
template <class T>
__device__ std::int64_t lane_column(int pack) {
  return static_cast<std::int64_t>(pack * 32 + static_cast<int>(threadIdx.x)) * kPack<T>;
}

template <class T, int kColumns>
__global__ void __launch_bounds__(kBlockThreads)
    layer_norm_fwd_warp_row_kernel(Extent extent, Source<T> x, Source<T> weight, Source<T> bias, T eps,
                                   Target<T> y, Target<T> statistics) {
  constexpr int kPacks = kLanePacks<T, kColumns>;
  const std::int64_t columns = extent.columns;
  const T count = static_cast<T>(columns), share = T(1) / count;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kWarps;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.y; row < extent.rows;
       row += step) {
    Pack<T> r[kPacks];
    bool huge = false;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      r[p] = x.load(row, lane_column<T>(p), columns - lane_column<T>(p));
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) huge = huge || is_huge(r[p][i]);
    }
    huge = __any_sync(kAllLanes, huge) != 0;
    const T scale = huge ? HugeRow<T>::kScale : T(1);

    T sum = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) sum += r[p][i] *= scale;
    }
    RowStatistics<T> s;
    s.mean = warp_sum(sum) / count;

    sum = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) {
        r[p][i] -= s.mean;
        if (lane_column<T>(p) + i < columns) sum += r[p][i];
      }
    }
    s.correction = warp_sum(sum) / count;

    sum = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) {
        r[p][i] -= s.correction;
        if (lane_column<T>(p) + i < columns) sum += r[p][i] * share * r[p][i];
      }
    }
    s.rstd = signed_rstd(warp_sum(sum), eps, huge);

#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const std::int64_t column = lane_column<T>(p);
      if (column >= columns) continue;
      const Pack<T> w = weight.load(0, column, columns - column), b = bias.load(0, column, columns - column);
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) r[p][i] = r[p][i] * abs_of(s.rstd) * w[i] + b[i];
      y.store(row, column, columns - column, r[p]);
    }
    if (threadIdx.x == 0) save(statistics, row, s);
  }
}

/// The sum of term(x) over the row, in every thread of the block; term is not called beyond the row.
template <class T, class Term>
__device__ T row_sum(Source<T> x, std::int64_t row, std::int64_t columns, BlockSum<T, kBlockThreads>& cells,
                     Term term) {
  T sum = 0;
  for (std::int64_t column = threadIdx.x * kPack<T>; column < columns; column += kBlockThreads * kPack<T>) {
    const Pack<T> r = x.load(row, column, columns - column);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      if (column + i < columns) sum += term(r[i]);
    }
  }
  return block_sum(sum, cells);
}

template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    layer_norm_fwd_block_row_kernel(Extent extent, Source<T> x, Source<T> weight, Source<T> bias, T eps,
                                    Target<T> y, Target<T> statistics) {
  auto& cells = shared_storage<BlockSum<T, kBlockThreads>>();
  const std::int64_t columns = extent.columns;
  const T count = static_cast<T>(columns), share = T(1) / count;
  for (std::int64_t row = blockIdx.x; row < extent.rows; row += gridDim.x) {
    T found = 0;  // 1 where this thread saw a huge value
    const T plain_sum = row_sum(x, row, columns, cells, [&](T r) {
      if (is_huge(r)) found = T(1);
      return r;
    });
    const bool huge = block_sum(found, cells) != T(0);
    const T scale = huge ? HugeRow<T>::kScale : T(1);
    RowStatistics<T> s;
    s.mean = (huge ? row_sum(x, row, columns, cells, [&](T r) { return r * scale; }) : plain_sum) / count;
    s.correction = row_sum(x, row, columns, cells, [&](T r) { return r * scale - s.mean; }) / count;
    const T variance = row_sum(x, row, columns, cells, [&](T r) {
      const T d = (r * scale - s.mean) - s.correction;
      return d * share * d;
    });
    s.rstd = signed_rstd(variance, eps, huge);
    for (std::int64_t column = threadIdx.x * kPack<T>; column < columns; column += kBlockThreads * kPack<T>) {
      Pack<T> r = x.load(row, column, columns - column);
      const Pack<T> w = weight.load(0, column, columns - column), b = bias.load(0, column, columns - column);
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i)
        r[i] = ((r[i] * scale - s.mean) - s.correction) * abs_of(s.rstd) * w[i] + b[i];
      y.store(row, column, columns - column, r);
    }
    if (threadIdx.x == 0) save(statistics, row, s);
  }
}

/// Rows blockIdx.x * rows_per_block on, a warp per row; the block's sums for d_weight and d_bias go to its
/// row of the partials, either of which may be null.
template <class T, int kColumns>
__global__ void __launch_bounds__(kBlockThreads)
    layer_norm_bwd_warp_row_kernel(Extent extent, std::int64_t rows_per_block, Source<T> x, Source<T> weight,
                                   Source<T> statistics, Source<T> d_y, Target<T> d_x, T* weight_partial,
                                   T* bias_partial) {
  constexpr int kPacks = kLanePacks<T, kColumns>;
  struct Storage {
    T cell[kWarps][kColumns];
  };
  auto& storage = shared_storage<Storage>();
  const std::int64_t columns = extent.columns;
  const T count = static_cast<T>(columns);
  const std::int64_t begin = blockIdx.x * rows_per_block;
  const std::int64_t end = begin + rows_per_block < extent.rows ? begin + rows_per_block : extent.rows;
  Pack<T> weight_sum[kPacks] = {}, bias_sum[kPacks] = {};

  for (std::int64_t row = begin + threadIdx.y; row < end; row += kWarps) {
    const RowStatistics<T> s = saved(statistics, row);
    Pack<T> xh[kPacks], g[kPacks];
    T c1 = 0, c2 = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const std::int64_t column = lane_column<T>(p);
      xh[p] = x.load(row, column, columns - column);
      g[p] = d_y.load(row, column, columns - column);
      const Pack<T> w = weight.load(0, column, columns - column);
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) {
        if (column + i < columns) {
          xh[p][i] = s.normalised(xh[p][i]);
          weight_sum[p][i] += g[p][i] * xh[p][i];
          bias_sum[p][i] += g[p][i];
          g[p][i] *= w[i];
          c1 += g[p][i];
          c2 += g[p][i] * xh[p][i];
        }
      }
    }
    if (!d_x.wanted()) continue;  // the same for all lanes
    c1 = warp_sum(c1) / count;
    c2 = warp_sum(c2) / count;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const std::int64_t column = lane_column<T>(p);
      if (column >= columns) continue;
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) g[p][i] = s.d_x(g[p][i] - c1 - xh[p][i] * c2);
      d_x.store(row, column, columns - column, g[p]);
    }
  }

  const auto join_warps = [&](const Pack<T>* sums, T* partial) {
    if (partial == nullptr) return;  // the same for all threads
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) storage.cell[threadIdx.y][lane_column<T>(p) + i] = sums[p][i];
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

template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    layer_norm_bwd_block_row_kernel(Extent extent, Source<T> x, Source<T> weight, Source<T> statistics,
                                    Source<T> d_y, Target<T> d_x) {
  auto& cells = shared_storage<BlockSum<T, kBlockThreads>>();
  const std::int64_t columns = extent.columns;
  const T count = static_cast<T>(columns);
  for (std::int64_t row = blockIdx.x; row < extent.rows; row += gridDim.x) {
    const RowStatistics<T> s = saved(statistics, row);
    T c1 = 0, c2 = 0;
    for (std::int64_t column = threadIdx.x * kPack<T>; column < columns; column += kBlockThreads * kPack<T>) {
      const Pack<T> r = x.load(row, column, columns - column), g = d_y.load(row, column, columns - column);
      const Pack<T> w = weight.load(0, column, columns - column);
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) {
        if (column + i < columns) {
          c1 += g[i] * w[i];
          c2 += g[i] * w[i] * s.normalised(r[i]);
        }
      }
    }
    c1 = block_sum(c1, cells) / count;
    c2 = block_sum(c2, cells) / count;
    for (std::int64_t column = threadIdx.x * kPack<T>; column < columns; column += kBlockThreads * kPack<T>) {
      const Pack<T> r = x.load(row, column, columns - column), w = weight.load(0, column, columns - column);
      Pack<T> g = d_y.load(row, column, columns - column);
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) g[i] = s.d_x(g[i] * w[i] - c1 - s.normalised(r[i]) * c2);
      d_x.store(row, column, columns - column, g);
    }
  }
}

/// Partial sums of d_weight (where kWeight) or d_bias over a tile of columns and a chunk of rows.
template <class T, bool kWeight>
__global__ void __launch_bounds__(kBlockThreads)
    layer_norm_bwd_columns_kernel(Extent extent, std::int64_t rows_per_chunk, Source<T> x,
                                  Source<T> statistics, Source<T> d_y, T* partial) {
  auto& cells = shared_storage<ColumnCells<T>>();
  sum_columns(extent, rows_per_chunk, partial, cells,
              [&](std::int64_t row, std::int64_t column, std::int64_t remaining, Pack<T>& sum) {
                const Pack<T> g = d_y.load(row, column, remaining);
                Pack<T> r = {};
                RowStatistics<T> s = {};
                if constexpr (kWeight) {
                  r = x.load(row, column, remaining);
                  s = saved(statistics, row);
                }
#pragma unroll
                for (int i = 0; i < kPack<T>; ++i) sum[i] += kWeight ? g[i] * s.normalised(r[i]) : g[i];
              });
}

Extent row_extent(const ConstView& x) noexcept {
  Rows rows;
  return as_rows(x, &rows) ? Extent{rows.count, rows.length} : Extent{};
}

/// How the backward shares out rows, for either variant.
template <class T>
struct BackwardPlan {
  bool warp_row = false;
  std::int64_t partial_rows = 1, rows_per_block = 0;
  ColumnPlan columns;

  explicit BackwardPlan(Extent extent) : warp_row(extent.columns <= kMostBackwardWarpColumns) {
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

template <class T>
Status forward(const LayerNormForward& args, Stream stream) {
  const Extent extent = row_extent(args.x);
  const Source<T> x = source<T>(args.x), weight = source<T>(args.weight), bias = source<T>(args.bias);
  const Target<T> y = target<T>(args.y), statistics = target<T>(args.statistics);
  const T eps = static_cast<T>(args.eps);
  const auto warp_row = [&](auto kernel) {
    return launch("layer_norm_fwd_warp_row_kernel", kernel, grid_for(extent.rows, kWarps, kMostBlocksX),
                  dim3(32, kWarps), 0, stream, extent, x, weight, bias, eps, y, statistics);
  };
  if (extent.columns <= 128) return warp_row(layer_norm_fwd_warp_row_kernel<T, 128>);
  if (extent.columns <= 512) return warp_row(layer_norm_fwd_warp_row_kernel<T, 512>);
  if (extent.columns <= kMostForwardWarpColumns) return warp_row(layer_norm_fwd_warp_row_kernel<T, 1024>);
  return launch("layer_norm_fwd_block_row_kernel", layer_norm_fwd_block_row_kernel<T>,
                grid_for(extent.rows, 1, kMostBlocksX), dim3(kBlockThreads), 0, stream, extent, x, weight,
                bias, eps, y, statistics);
}

template <class T>
Status backward(const LayerNormBackward& args, Stream stream) {
  const Extent extent = row_extent(args.x);
  const BackwardPlan<T> plan(extent);
  const Source<T> x = source<T>(args.x), weight = source<T>(args.weight), d_y = source<T>(args.d_y);
  const Source<T> statistics = source<T>(args.statistics);
  const Target<T> d_x = target<T>(args.d_x), d_weight = target<T>(args.d_weight),
                  d_bias = target<T>(args.d_bias);
  T* const workspace = static_cast<T*>(args.workspace.data);
  T* const weight_partial = d_weight.wanted() ? workspace : nullptr;
  T* const bias_partial = d_bias.wanted() ? workspace + plan.partial_rows * extent.columns : nullptr;

  if (plan.warp_row) {
    const auto warp_row = [&](auto kernel) {
      return launch("layer_norm_bwd_warp_row_kernel", kernel, dim3(static_cast<unsigned>(plan.partial_rows)),
                    dim3(32, kWarps), 0, stream, extent, plan.rows_per_block, x, weight, statistics, d_y, d_x,
                    weight_partial, bias_partial);
    };
    SCANTAPE_TRY(extent.columns <= 128 ? warp_row(layer_norm_bwd_warp_row_kernel<T, 128>)
                                       : warp_row(layer_norm_bwd_warp_row_kernel<T, 512>));
  } else {
    const auto columns = [&](auto kernel, T* partial) {
      if (partial == nullptr) return Status();
      return launch("layer_norm_bwd_columns_kernel", kernel, plan.columns.grid.grid, plan.columns.grid.block,
                    0, stream, extent, plan.columns.rows, x, statistics, d_y, partial);
    };
    SCANTAPE_TRY(columns(layer_norm_bwd_columns_kernel<T, true>, weight_partial));
    SCANTAPE_TRY(columns(layer_norm_bwd_columns_kernel<T, false>, bias_partial));
    if (d_x.wanted()) {
      SCANTAPE_TRY(launch("layer_norm_bwd_block_row_kernel", layer_norm_bwd_block_row_kernel<T>,
                          grid_for(extent.rows, 1, kMostBlocksX), dim3(kBlockThreads), 0, stream, extent, x,
                          weight, statistics, d_y, d_x));
    }
  }
  SCANTAPE_TRY(join_column_sums("layer_norm_bwd_join_weight", weight_partial, plan.partial_rows,
                                extent.columns, d_weight, stream));
  return join_column_sums("layer_norm_bwd_join_bias", bias_partial, plan.partial_rows, extent.columns, d_bias,
                          stream);
}

constexpr const char* kMissing = "layer_norm: no CUDA kernel for this dtype";

}  // namespace

Status layer_norm_forward(const LayerNormForward& args, Stream stream) noexcept {
  return dispatch_dtype(args.x.dtype, kMissing,
                        [&](auto zero) { return forward<decltype(zero)>(args, stream); });
}

Status layer_norm_backward(const LayerNormBackward& args, Stream stream) noexcept {
  if (!args.d_x.wanted() && !args.d_weight.wanted() && !args.d_bias.wanted()) return Status();
  return dispatch_dtype(args.x.dtype, kMissing,
                        [&](auto zero) { return backward<decltype(zero)>(args, stream); });
}

std::int64_t layer_norm_forward_workspace(const LayerNormForward&) noexcept {
  return 0;
}

std::int64_t layer_norm_backward_workspace(const LayerNormBackward& args) noexcept {
  if (!args.d_weight.wanted() && !args.d_bias.wanted()) return 0;
  const Extent extent = row_extent(args.x);
  const std::int64_t partial_rows = args.x.dtype == DType::f32 ? BackwardPlan<float>(extent).partial_rows
                                                               : BackwardPlan<double>(extent).partial_rows;
  return 2 * partial_rows * extent.columns * size_of(args.x.dtype);
}

}  // namespace scantape::cuda
