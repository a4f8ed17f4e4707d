#pragma once

#include "common/dispatch.cuh"
#include "common/reduce.cuh"

// The mean of a penalty of d = prediction - target over the elements whose mask is not 0, n of them, and its
// gradient:
//
//   loss = sum penalty(d) / n       d_prediction = slope(d) / n * d_loss where counted, 0 elsewhere   (n = 0: 0)
//
// A penalty is a struct with `double value(double d)` and `T slope(T d)`, the slope but for the constant
// `kFactor`, which is multiplied into d_loss / n.
//
// An element that is not counted is selected away, never multiplied by 0: a NaN in its target stays there.
// Differences, penalties and the sum of the loss are f64, so that the order of the partial sums is the only
// thing that could move its last bits, and that order is fixed. n depends on the mask alone: the backward
// counts again rather than have forward save it, because a caller may run it without the forward.
//
// The gradient is formed in the data's dtype, with the factor kFactor d_loss / n rounded to it once.
//
// Bytes: forward reads p, t (and mask); backward reads them and writes d_p: 3 n elements, 5 n with a mask.

namespace scantape::cuda {

/// Partial sums and counts of the blocks, and the joined count, in the workspace.
struct LossPartials {
  double* sums = nullptr;
  double* counts = nullptr;
  double* counted = nullptr;
};

inline constexpr std::int64_t kMostLossPartials = 512;

template <class T>
__device__ bool is_counted(const Pack<T>& mask, int i, bool has_mask, std::int64_t remaining) {
  return i < remaining && (!has_mask || mask[i] != T(0));
}

template <class T, class Penalty>
static __global__ void __launch_bounds__(kBlockThreads)
    loss_fwd_partial_kernel(Extent extent, Source<T> prediction, Source<T> truth, Source<T> mask,
                            Penalty penalty, LossPartials partials) {
  auto& cells = shared_storage<BlockSum<double, kBlockThreads>>();
  double sum = 0, count = 0;
  for_each_pack<T>(extent, [&](std::int64_t row, std::int64_t column, std::int64_t remaining) {
    const Pack<T> p = prediction.load(row, column, remaining), t = truth.load(row, column, remaining);
    Pack<T> m = {};
    if (mask.present()) m = mask.load(row, column, remaining);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      if (is_counted(m, i, mask.present(), remaining)) {
        sum += penalty.value(static_cast<double>(p[i]) - static_cast<double>(t[i]));
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

/// The same kernel for every loss; a template so that it may stand in a header.
template <class Sum>
static __global__ void __launch_bounds__(kBlockThreads)
    loss_fwd_join_kernel(int blocks, const Sum* sums, const Sum* counts, Sum* loss) {
  auto& cells = shared_storage<BlockSum<Sum, kBlockThreads>>();
  const Sum sum = joined_sum(sums, blocks, cells), count = joined_sum(counts, blocks, cells);
  if (threadIdx.x == 0) *loss = count > 0 ? sum / count : 0;
}

template <class T>
static __global__ void __launch_bounds__(kBlockThreads)
    loss_bwd_count_kernel(Extent extent, Source<T> mask, LossPartials partials) {
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

template <class Sum>
static __global__ void __launch_bounds__(kBlockThreads)
    loss_bwd_join_count_kernel(int blocks, const Sum* counts, Sum* counted) {
  auto& cells = shared_storage<BlockSum<Sum, kBlockThreads>>();
  const Sum count = joined_sum(counts, blocks, cells);
  if (threadIdx.x == 0) *counted = count;
}

/// `counted` is null where there is no mask: then every element counts.
template <class T, class Penalty>
static __global__ void __launch_bounds__(kBlockThreads)
    loss_bwd_elementwise_kernel(Extent extent, Source<T> prediction, Source<T> truth, Source<T> mask,
                                Penalty penalty, const double* counted, const double* d_loss,
                                Target<T> d_prediction) {
  const double n = counted == nullptr ? static_cast<double>(extent.columns) : *counted;
  const T factor = n > 0 ? static_cast<T>(Penalty::kFactor * *d_loss / n) : T(0);
  for_each_pack<T>(extent, [&](std::int64_t row, std::int64_t column, std::int64_t remaining) {
    const Pack<T> t = truth.load(row, column, remaining);
    Pack<T> g = prediction.load(row, column, remaining), m = {};
    if (mask.present()) m = mask.load(row, column, remaining);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      const bool counts = is_counted(m, i, mask.present(), remaining);
      g[i] = counts ? penalty.slope(g[i] - t[i]) * factor : T(0);
    }
    d_prediction.store(row, column, remaining, g);
  });
}

/// All tensors of a loss are contiguous: one row.
inline Extent loss_extent(const ConstView& view) noexcept {
  return {1, view.elements()};
}

inline int loss_blocks(const ConstView& prediction) noexcept {
  const std::int64_t wanted = ceil_div(prediction.elements(), 8 * kBlockThreads);
  return static_cast<int>(wanted < 1 ? 1 : wanted < kMostLossPartials ? wanted : kMostLossPartials);
}

inline LossPartials loss_partials(const Workspace& workspace, int blocks) noexcept {
  double* const data = static_cast<double*>(workspace.data);
  return {data, data + blocks, data + 2 * blocks};
}

template <class Forward>
std::int64_t loss_forward_workspace(const Forward& args) noexcept {
  return (2 * loss_blocks(args.prediction) + 1) * static_cast<std::int64_t>(sizeof(double));
}

template <class Backward>
std::int64_t loss_backward_workspace(const Backward& args) noexcept {
  return args.d_prediction.wanted() && args.mask.present ? loss_forward_workspace(args) : 0;
}

template <class T, class Penalty, class Forward>
Status loss_forward_of(const Forward& args, const Penalty& penalty, Stream stream) {
  const int blocks = loss_blocks(args.prediction);
  const LossPartials partials = loss_partials(args.workspace, blocks);
  SCANTAPE_TRY(launch("loss_fwd_partial_kernel", loss_fwd_partial_kernel<T, Penalty>,
                      dim3(static_cast<unsigned>(blocks)), dim3(kBlockThreads), 0, stream,
                      loss_extent(args.prediction), source<T>(args.prediction, true),
                      source<T>(args.target, true), source<T>(args.mask, true), penalty, partials));
  return launch("loss_fwd_join_kernel", loss_fwd_join_kernel<double>, dim3(1), dim3(kBlockThreads), 0, stream,
                blocks, partials.sums, partials.counts, args.loss.template as<double>());
}

template <class T, class Penalty, class Backward>
Status loss_backward_of(const Backward& args, const Penalty& penalty, Stream stream) {
  const Extent extent = loss_extent(args.prediction);
  if (extent.columns == 0) return Status();
  const double* counted = nullptr;
  if (args.mask.present) {
    const int blocks = loss_blocks(args.prediction);
    const LossPartials partials = loss_partials(args.workspace, blocks);
    SCANTAPE_TRY(launch("loss_bwd_count_kernel", loss_bwd_count_kernel<T>,
                        dim3(static_cast<unsigned>(blocks)), dim3(kBlockThreads), 0, stream, extent,
                        source<T>(args.mask, true), partials));
    SCANTAPE_TRY(launch("loss_bwd_join_count_kernel", loss_bwd_join_count_kernel<double>, dim3(1),
                        dim3(kBlockThreads), 0, stream, blocks, partials.counts, partials.counted));
    counted = partials.counted;
  }
  const Grid grid = element_grid<T>(extent);
  return launch("loss_bwd_elementwise_kernel", loss_bwd_elementwise_kernel<T, Penalty>, grid.grid, grid.block,
                0, stream, extent, source<T>(args.prediction, true), source<T>(args.target, true),
                source<T>(args.mask, true), penalty, counted, args.d_loss.template as<double>(),
                target<T>(args.d_prediction, true));
}

template <class Penalty, class Forward>
Status loss_forward(const char* missing, const Forward& args, const Penalty& penalty, Stream stream) {
  return dispatch_dtype(args.prediction.dtype, missing,
                        [&](auto zero) { return loss_forward_of<decltype(zero)>(args, penalty, stream); });
}

template <class Penalty, class Backward>
Status loss_backward(const char* missing, const Backward& args, const Penalty& penalty, Stream stream) {
  if (!args.d_prediction.wanted()) return Status();
  return dispatch_dtype(args.prediction.dtype, missing,
                        [&](auto zero) { return loss_backward_of<decltype(zero)>(args, penalty, stream); });
}

}  // namespace scantape::cuda
