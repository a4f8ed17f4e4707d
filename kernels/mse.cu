// Mean squared error over the elements whose mask is not 0, n of them:
//
//   loss = sum (p - t)^2 / n       d_p = 2 (p - t) / n * d_loss where counted, 0 elsewhere       (n = 0: 0)
//
// An element that is not counted is selected away, never multiplied by 0: a NaN in its target stays there.
// Differences, squares and the sum of the loss are f64, so that the order of the partial sums is the only
// thing that could move its last bits, and that order is fixed. n depends on the mask alone: the backward
// counts again rather than have forward save it, because a caller may run it without the forward.
//
// The gradient is formed in the data's dtype, with the factor 2 d_loss / n rounded to it once.
//
// Bytes: forward reads p, t (and mask); backward reads them and writes d_p: 3 n elements, 5 n with a mask.

#include "scantape/mse.h"

#include "common/dispatch.cuh"
#include "common/reduce.cuh"

namespace scantape::cuda {
namespace {

/// Partial sums and counts of the blocks, and the joined count, in the workspace.
struct Partials {
  double* sums = nullptr;
  double* counts = nullptr;
  double* counted = nullptr;
};

constexpr std::int64_t kMostPartials = 512;

template <class T>
__device__ bool is_counted(const Pack<T>& mask, int i, bool has_mask, std::int64_t remaining) {
  return i < remaining && (!has_mask || mask[i] != T(0));
}

template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    mse_fwd_partial_kernel(Extent extent, Source<T> prediction, Source<T> truth, Source<T> mask,
                           Partials partials) {
  auto& cells = shared_storage<BlockSum<double, kBlockThreads>>();
  double sum = 0, count = 0;
  for_each_pack<T>(extent, [&](std::int64_t row, std::int64_t column, std::int64_t remaining) {
    const Pack<T> p = prediction.load(row, column, remaining), t = truth.load(row, column, remaining);
    Pack<T> m = {};
    if (mask.present()) m = mask.load(row, column, remaining);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      if (is_counted(m, i, mask.present(), remaining)) {
        const double d = static_cast<double>(p[i]) - static_cast<double>(t[i]);
        sum += d * d;
        count += 1;
      }
    }
  });
  sum = block_sum(sum, cells);
  count = block_sum(count, cells);
  if (threadIdx.x == 0) {
    partials.sums[blockIdx.x] = sum;
    partials.counts[blockIdx.x] = count;
  }
}

__global__ void __launch_bounds__(kBlockThreads)
    mse_fwd_join_kernel(int blocks, Partials partials, double* loss) {
  auto& cells = shared_storage<BlockSum<double, kBlockThreads>>();
  const double sum = joined_sum(partials.sums, blocks, cells),
               count = joined_sum(partials.counts, blocks, cells);
  if (threadIdx.x == 0) *loss = count > 0 ? sum / count : 0;
}

template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    mse_bwd_count_kernel(Extent extent, Source<T> mask, Partials partials) {
  auto& cells = shared_storage<BlockSum<double, kBlockThreads>>();
  double count = 0;
  for_each_pack<T>(extent, [&](std::int64_t row, std::int64_t column, std::int64_t remaining) {
    const Pack<T> m = mask.load(row, column, remaining);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) count += is_counted(m, i, true, remaining) ? 1 : 0;
  });
  count = block_sum(count, cells);
  if (threadIdx.x == 0) partials.counts[blockIdx.x] = count;
}

__global__ void __launch_bounds__(kBlockThreads) mse_bwd_join_count_kernel(int blocks, Partials partials) {
  auto& cells = shared_storage<BlockSum<double, kBlockThreads>>();
  const double count = joined_sum(partials.counts, blocks, cells);
  if (threadIdx.x == 0) *partials.counted = count;
}

/// `counted` is null where there is no mask: then every element counts.
template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    mse_bwd_elementwise_kernel(Extent extent, Source<T> prediction, Source<T> truth, Source<T> mask,
                               const double* counted, const double* d_loss, Target<T> d_prediction) {
  const double n = counted == nullptr ? static_cast<double>(extent.columns) : *counted;
  const T factor = n > 0 ? static_cast<T>(2 * *d_loss / n) : T(0);
  for_each_pack<T>(extent, [&](std::int64_t row, std::int64_t column, std::int64_t remaining) {
    const Pack<T> t = truth.load(row, column, remaining);
    Pack<T> g = prediction.load(row, column, remaining), m = {};
    if (mask.present()) m = mask.load(row, column, remaining);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      g[i] = is_counted(m, i, mask.present(), remaining) ? (g[i] - t[i]) * factor : T(0);
    }
    d_prediction.store(row, column, remaining, g);
  });
}

/// All tensors of this op are contiguous: one row.
Extent extent_of(const ConstView& view) noexcept {
  return {1, view.elements()};
}

int partial_blocks(const ConstView& prediction) noexcept {
  const std::int64_t wanted = ceil_div(prediction.elements(), 8 * kBlockThreads);
  return static_cast<int>(wanted < 1 ? 1 : wanted < kMostPartials ? wanted : kMostPartials);
}

Partials partials_in(const Workspace& workspace, int blocks) noexcept {
  double* const data = static_cast<double*>(workspace.data);
  return {data, data + blocks, data + 2 * blocks};
}

std::int64_t workspace_bytes(const MseForward& args) noexcept {
  return (2 * partial_blocks(args.prediction) + 1) * static_cast<std::int64_t>(sizeof(double));
}

template <class T>
Status forward(const MseForward& args, Stream stream) {
  const int blocks = partial_blocks(args.prediction);
  const Partials partials = partials_in(args.workspace, blocks);
  SCANTAPE_TRY(launch("mse_fwd_partial_kernel", mse_fwd_partial_kernel<T>,
                      dim3(static_cast<unsigned>(blocks)), dim3(kBlockThreads), 0, stream,
                      extent_of(args.prediction), source<T>(args.prediction, true),
                      source<T>(args.target, true), source<T>(args.mask, true), partials));
  return launch("mse_fwd_join_kernel", mse_fwd_join_kernel, dim3(1), dim3(kBlockThreads), 0, stream, blocks,
                partials, args.loss.as<double>());
}

template <class T>
Status backward(const MseBackward& args, Stream stream) {
  const Extent extent = extent_of(args.prediction);
  if (extent.columns == 0) return Status();
  const double* counted = nullptr;
  if (args.mask.present) {
    const int blocks = partial_blocks(args.prediction);
    const Partials partials = partials_in(args.workspace, blocks);
    SCANTAPE_TRY(launch("mse_bwd_count_kernel", mse_bwd_count_kernel<T>, dim3(static_cast<unsigned>(blocks)),
                        dim3(kBlockThreads), 0, stream, extent, source<T>(args.mask, true), partials));
    SCANTAPE_TRY(launch("mse_bwd_join_count_kernel", mse_bwd_join_count_kernel, dim3(1), dim3(kBlockThreads),
                        0, stream, blocks, partials));
    counted = partials.counted;
  }
  const Grid grid = element_grid<T>(extent);
  return launch("mse_bwd_elementwise_kernel", mse_bwd_elementwise_kernel<T>, grid.grid, grid.block, 0, stream,
                extent, source<T>(args.prediction, true), source<T>(args.target, true),
                source<T>(args.mask, true), counted, args.d_loss.as<double>(),
                target<T>(args.d_prediction, true));
}

constexpr const char* kMissing = "mse: no CUDA kernel for this dtype";

}  // namespace

Status mse_forward(const MseForward& args, Stream stream) noexcept {
  return dispatch_dtype(args.prediction.dtype, kMissing,
                        [&](auto zero) { return forward<decltype(zero)>(args, stream); });
}

Status mse_backward(const MseBackward& args, Stream stream) noexcept {
  if (!args.d_prediction.wanted()) return Status();
  return dispatch_dtype(args.prediction.dtype, kMissing,
                        [&](auto zero) { return backward<decltype(zero)>(args, stream); });
}

std::int64_t mse_forward_workspace(const MseForward& args) noexcept {
  return workspace_bytes(args);
}

std::int64_t mse_backward_workspace(const MseBackward& args) noexcept {
  return args.d_prediction.wanted() && args.mask.present ? workspace_bytes(args) : 0;
}

}  // namespace scantape::cuda
