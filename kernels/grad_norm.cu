// Norm over all gradients of a model, and what follows from it for the optimiser's step (not differentiable).
//
//   norm = sqrt(sum g^2);  factor = min(1, max_norm / (norm + 1e-6)), 1 where max_norm is 0 or infinite
//   skip = norm or loss not finite;  steps += !skip;  skipped += skip;  skipped_in_a_row = skip ? it + 1 : 0
//
// Squares and sums are f64: no f32 gradient overflows, and the partial sums of the blocks are joined in a
// fixed order by a second launch of one block, which also writes the scalars. Nothing is read back to the
// host: the step that follows reads the same scalars on the device.
//
// Bytes: reads the gradients once.

#include "scantape/grad_norm.h"

#include "common/dispatch.cuh"
#include "common/math.cuh"
#include "common/reduce.cuh"

namespace scantape::cuda {
namespace {

constexpr std::int64_t kMostPartials = 512;

template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    grad_norm_partial_kernel(Extent extent, Source<T> gradient, double* partial) {
  auto& cells = shared_storage<BlockSum<double, kBlockThreads>>();
  double sum = 0;
  for_each_pack<T>(extent, [&](std::int64_t row, std::int64_t column, std::int64_t remaining) {
    const Pack<T> g = gradient.load(row, column, remaining);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) sum += static_cast<double>(g[i]) * static_cast<double>(g[i]);
  });
  sum = block_sum(sum, cells);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__device__ double clip_factor(double norm, double max_norm) {
  if (!(max_norm > 0) || !is_finite(max_norm)) return 1;
  const double factor = max_norm / (norm + 1e-6);
  return factor < 1 ? factor : 1;
}

__global__ void __launch_bounds__(kBlockThreads)
    grad_norm_join_kernel(int blocks, const double* partial, const double* loss, double* control) {
  auto& cells = shared_storage<BlockSum<double, kBlockThreads>>();
  const double norm = sqrt_of(joined_sum(partial, blocks, cells));
  if (threadIdx.x == 0) {
    const bool skip = !is_finite(norm) || (loss != nullptr && !is_finite(*loss));
    control[kGradNorm] = norm;
    control[kClipFactor] = clip_factor(norm, control[kMaxNorm]);
    control[kSkip] = skip ? 1 : 0;
    if (skip) {
      control[kSkipped] += 1;
      control[kSkippedInARow] += 1;
    } else {
      control[kSteps] += 1;
      control[kSkippedInARow] = 0;
    }
  }
}

int partial_blocks(const ConstView& gradient) noexcept {
  const std::int64_t wanted = ceil_div(gradient.elements(), 8 * kBlockThreads);
  return static_cast<int>(wanted < 1 ? 1 : wanted < kMostPartials ? wanted : kMostPartials);
}

template <class T>
Status run(const GradNorm& args, Stream stream) {
  const int blocks = partial_blocks(args.gradient);
  double* const partial = static_cast<double*>(args.workspace.data);
  SCANTAPE_TRY(launch("grad_norm_partial_kernel", grad_norm_partial_kernel<T>,
                      dim3(static_cast<unsigned>(blocks)), dim3(kBlockThreads), 0, stream,
                      Extent{1, args.gradient.elements()}, source<T>(args.gradient), partial));
  const double* const loss = args.loss.present ? args.loss.as<double>() : nullptr;
  return launch("grad_norm_join_kernel", grad_norm_join_kernel, dim3(1), dim3(kBlockThreads), 0, stream,
                blocks, partial, loss, args.control.as<double>());
}

}  // namespace

Status grad_norm(const GradNorm& args, Stream stream) noexcept {
  return dispatch_dtype(args.gradient.dtype, "grad_norm: no CUDA kernel for this dtype",
                        [&](auto zero) { return run<decltype(zero)>(args, stream); });
}

std::int64_t grad_norm_workspace(const GradNorm& args) noexcept {
  return partial_blocks(args.gradient) * static_cast<std::int64_t>(sizeof(double));
}

}  // namespace scantape::cuda
