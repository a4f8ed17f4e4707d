// Cross entropy of logits against indices. With m = max_v x_v and s = log(sum_v exp(x_v - m)),
//
//   loss = sum over the rows counted of (m - x_t) + s, over n        t the row's target, n how many rows count
//   d_x_v = (softmax(x)_v - [v = t]) d_loss / n,   softmax(x)_v = exp((x_v - m) - s)
//
// One pass over a row finds both m and the sum: a larger logit rescales what was summed before (Milakov, Gimelshein
// 2018, arXiv:1805.02867). The sum leaves the term of the largest logit out, which is exactly 1: s = log1p(rest) keeps
// the digits of a row that is all but certain, and so does softmax - 1 = expm1((x_t - m) - s) at the target. m and s are
// saved apart: m + s, rounded, would lose s where logits are large.
//
// A row that is not counted is not read, and a target outside the logits reads nothing: the loss becomes NaN, and the
// row of d_x.
//
// Variants of forward, chosen by V alone: warp_row (V <= 1024), a warp per row; block_row, a block per row. Threads take
// their packs one after the other and are joined in a fixed tree. The loss, in f64, comes from a second kernel over rows
// and the joining one of all losses (common/loss.cuh). Backward is elementwise; n is counted again, from the targets,
// because a caller may run it without the forward.
//
// Bytes: forward reads n V; backward reads n V and writes n V. d_x may be x.

#include "scantape/cross_entropy.h"

#include <limits>

#include "common/loss.cuh"
#include "common/math.cuh"

namespace scantape::cuda {
namespace {

constexpr std::int64_t kWidestWarpRow = 1024;
constexpr int kWarpsOfBlock = kBlockThreads / kWarpSize;

template <class T>
__device__ T infinity() {
  return std::numeric_limits<T>::infinity();
}

/// Of some logits: the largest, and the sum of exp(x - largest) over all others. Of none: -infinity and -1, one term less
/// than nothing.
template <class T>
struct LogSum {
  T largest, rest;

  __device__ static LogSum none() { return {-infinity<T>(), T(-1)}; }

  __device__ void add(T x) {
    if (x == -infinity<T>()) return;  // its term is 0, also where nothing larger was seen
    const T d = x - largest;
    const T e = exp_of(-abs_of(d));
    if (d > T(0)) {
      rest = (rest + T(1)) * e;
      largest = x;
    } else {
      rest += e;
    }
  }

  __device__ void add(const LogSum& other) {
    if (other.rest == T(-1)) return;
    const T d = other.largest - largest;
    const T e = exp_of(-abs_of(d));
    if (d > T(0)) {
      rest = other.rest + (rest + T(1)) * e;
      largest = other.largest;
    } else {
      rest += (other.rest + T(1)) * e;
    }
  }
};

/// Joins the lanes; lane 0 has the result.
template <class T>
__device__ LogSum<T> warp_join(LogSum<T> sum) {
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    const LogSum<T> other{__shfl_down_sync(kAllLanes, sum.largest, distance),
                          __shfl_down_sync(kAllLanes, sum.rest, distance)};
    sum.add(other);
  }
  return sum;
}

template <class T>
struct LogitRows {
  Source<T> logits;
  std::int64_t count, columns;
  const std::int32_t* target;
  std::int32_t ignored;

  __device__ bool counts(std::int64_t row) const { return target[row] != ignored; }
  __device__ bool is_inside(std::int64_t index) const { return index >= 0 && index < columns; }

  /// What thread `self` of `threads` finds in a row.
  __device__ LogSum<Compute<T>> log_sum(std::int64_t row, int self, int threads) const {
    LogSum<Compute<T>> sum = LogSum<Compute<T>>::none();
    for (std::int64_t column = self * kPack<T>; column < columns; column += threads * kPack<T>) {
      const Pack<T> x = logits.load(row, column, columns - column);
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) {
        if (column + i < columns) sum.add(x[i]);
      }
    }
    return sum;
  }
};

template <class T>
__device__ void save(Target<T> statistics, std::int64_t row, const LogSum<T>& sum, bool counts) {
  statistics.put(row, 0, counts ? sum.largest : T(0));
  statistics.put(row, 1, counts ? log1p_of(sum.rest) : T(0));
}

template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    cross_entropy_fwd_warp_row_kernel(LogitRows<T> rows, Target<Compute<T>> statistics) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kWarpsOfBlock;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarpsOfBlock + threadIdx.y;
       row < rows.count; row += step) {
    const bool counts = rows.counts(row);  // the same for all lanes
    LogSum<Compute<T>> sum = LogSum<Compute<T>>::none();
    if (counts) sum = warp_join(rows.log_sum(row, static_cast<int>(threadIdx.x), kWarpSize));
    if (threadIdx.x == 0) save(statistics, row, sum, counts);
  }
}

template <class T>
struct WarpCells {
  LogSum<T> warp[kWarpsOfBlock];
};

template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    cross_entropy_fwd_block_row_kernel(LogitRows<T> rows, Target<Compute<T>> statistics) {
  auto& cells = shared_storage<WarpCells<Compute<T>>>();
  for (std::int64_t row = blockIdx.x; row < rows.count; row += gridDim.x) {
    const bool counts = rows.counts(row);  // the same for all threads
    LogSum<Compute<T>> sum = LogSum<Compute<T>>::none();
    if (counts) {
      sum = warp_join(rows.log_sum(row, static_cast<int>(threadIdx.x), kBlockThreads));
      if (threadIdx.x % kWarpSize == 0) cells.warp[threadIdx.x / kWarpSize] = sum;
      __syncthreads();
      if (threadIdx.x == 0) {
        for (int warp = 1; warp < kWarpsOfBlock; ++warp) {
          const LogSum<Compute<T>> other = cells.warp[warp];
          sum.add(other);
        }
      }
      __syncthreads();
    }
    if (threadIdx.x == 0) save(statistics, row, sum, counts);
  }
}

template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    cross_entropy_fwd_loss_kernel(LogitRows<T> rows, Source<Compute<T>> statistics, LossPartials partials) {
  auto& cells = shared_storage<BlockSum<double, kBlockThreads>>();
  double sum = 0, count = 0;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kBlockThreads;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
       row < rows.count; row += step) {
    if (!rows.counts(row)) continue;
    const std::int64_t target = rows.target[row];
    count += 1;
    sum += rows.is_inside(target) ? (static_cast<double>(statistics.at(row, 0)) -
                                     static_cast<double>(rows.logits.at(row, target))) +
                                        static_cast<double>(statistics.at(row, 1))
                                  : std::numeric_limits<double>::quiet_NaN();
  }
  sum = block_sum(sum, cells);
  count = block_sum(count, cells);
  if (threadIdx.x == 0) {
    partials.sums[blockIdx.x] = sum;
    partials.counts[blockIdx.x] = count;
  }
}

__global__ void __launch_bounds__(kBlockThreads)
    cross_entropy_bwd_count_kernel(std::int64_t rows, const std::int32_t* target, std::int32_t ignored,
                                   LossPartials partials) {
  auto& cells = shared_storage<BlockSum<double, kBlockThreads>>();
  double count = 0;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kBlockThreads;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x; row < rows;
       row += step)
    count += target[row] != ignored ? 1 : 0;
  count = block_sum(count, cells);
  if (threadIdx.x == 0) partials.counts[blockIdx.x] = count;
}

/// Each pack is read before it is written, by one thread: d_logits may be the logits.
template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    cross_entropy_bwd_elementwise_kernel(LogitRows<T> rows, Source<Compute<T>> statistics,
                                         const double* counted, const double* d_loss, Target<T> d_logits) {
  using C = Compute<T>;
  const double n = *counted;
  const C factor = n > 0 ? static_cast<C>(*d_loss / n) : C(0);
  for_each_pack<T>(Extent{rows.count, rows.columns},
                   [&](std::int64_t row, std::int64_t column, std::int64_t remaining) {
                     Pack<T> x = {};
                     if (rows.counts(row)) {
                       const std::int64_t target = rows.target[row];
                       const C largest = statistics.at(row, 0), log_sum = statistics.at(row, 1);
                       const C share = rows.is_inside(target) ? factor : std::numeric_limits<C>::quiet_NaN();
                       x = rows.logits.load(row, column, remaining);
#pragma unroll
                       for (int i = 0; i < kPack<T>; ++i) {
                         const C z = (x[i] - largest) - log_sum;
                         x[i] = (column + i == target ? expm1_of(z) : exp_of(z)) * share;
                       }
                     }
                     d_logits.store(row, column, remaining, x);
                   });
}

template <class T>
LogitRows<T> rows_of(const CrossEntropyForward& args) {
  return {source<T>(args.logits), args.target.elements(), args.logits.shape.back(),
          args.target.as<std::int32_t>(), args.ignore_index};
}

int partial_blocks(const CrossEntropyForward& args) noexcept {
  const std::int64_t wanted = ceil_div(args.target.elements(), 4 * kBlockThreads);
  return static_cast<int>(wanted < 1 ? 1 : wanted < kMostLossPartials ? wanted : kMostLossPartials);
}

std::int64_t partial_bytes(const CrossEntropyForward& args) noexcept {
  return (2 * partial_blocks(args) + 1) * static_cast<std::int64_t>(sizeof(double));
}

template <class T>
Status forward_of(const CrossEntropyForward& args, Stream stream) {
  const LogitRows<T> rows = rows_of<T>(args);
  const Target<Compute<T>> statistics = target<Compute<T>>(args.statistics);
  if (rows.columns <= kWidestWarpRow) {
    SCANTAPE_TRY(launch("cross_entropy_fwd_warp_row_kernel", cross_entropy_fwd_warp_row_kernel<T>,
                        grid_for(rows.count, kWarpsOfBlock, kMostBlocksX), dim3(kWarpSize, kWarpsOfBlock), 0,
                        stream, rows, statistics));
  } else {
    SCANTAPE_TRY(launch("cross_entropy_fwd_block_row_kernel", cross_entropy_fwd_block_row_kernel<T>,
                        grid_for(rows.count, 1, kMostBlocksX), dim3(kBlockThreads), 0, stream, rows,
                        statistics));
  }
  const int blocks = partial_blocks(args);
  const LossPartials partials = loss_partials(args.workspace, blocks);
  SCANTAPE_TRY(launch("cross_entropy_fwd_loss_kernel", cross_entropy_fwd_loss_kernel<T>,
                      dim3(static_cast<unsigned>(blocks)), dim3(kBlockThreads), 0, stream, rows,
                      source<Compute<T>>(args.statistics), partials));
  return launch("loss_fwd_join_kernel", loss_fwd_join_kernel<double>, dim3(1), dim3(kBlockThreads), 0, stream,
                blocks, partials.sums, partials.counts, args.loss.as<double>());
}

template <class T>
Status backward_of(const CrossEntropyBackward& args, Stream stream) {
  const LogitRows<T> rows = rows_of<T>(args);
  if (rows.count == 0) return Status();
  const int blocks = partial_blocks(args);
  const LossPartials partials = loss_partials(args.workspace, blocks);
  SCANTAPE_TRY(launch("cross_entropy_bwd_count_kernel", cross_entropy_bwd_count_kernel,
                      dim3(static_cast<unsigned>(blocks)), dim3(kBlockThreads), 0, stream, rows.count,
                      rows.target, rows.ignored, partials));
  SCANTAPE_TRY(launch("loss_bwd_join_count_kernel", loss_bwd_join_count_kernel<double>, dim3(1),
                      dim3(kBlockThreads), 0, stream, blocks, partials.counts, partials.counted));
  const Grid grid = element_grid<T>(Extent{rows.count, rows.columns});
  return launch("cross_entropy_bwd_elementwise_kernel", cross_entropy_bwd_elementwise_kernel<T>, grid.grid,
                grid.block, 0, stream, rows, source<Compute<T>>(args.statistics), partials.counted,
                args.d_loss.as<double>(), target<T>(args.d_logits));
}

constexpr const char* kMissing = "cross_entropy: no CUDA kernel for this dtype";

}  // namespace

Status cross_entropy_forward(const CrossEntropyForward& args, Stream stream) noexcept {
  return dispatch_storage(args.logits.dtype, kMissing,
                          [&](auto zero) { return forward_of<decltype(zero)>(args, stream); });
}

Status cross_entropy_backward(const CrossEntropyBackward& args, Stream stream) noexcept {
  if (!args.d_logits.wanted()) return Status();
  return dispatch_storage(args.logits.dtype, kMissing,
                          [&](auto zero) { return backward_of<decltype(zero)>(args, stream); });
}

std::int64_t cross_entropy_forward_workspace(const CrossEntropyForward& args) noexcept {
  return partial_bytes(args);
}

std::int64_t cross_entropy_backward_workspace(const CrossEntropyBackward& args) noexcept {
  return args.d_logits.wanted() ? partial_bytes(args) : 0;
}

}  // namespace scantape::cuda
