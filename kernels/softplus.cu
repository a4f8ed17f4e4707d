// softplus, elementwise.
//
//   y = x > 20 ? x : log1p(exp(x))        d_x = d_y * (x > 20 ? 1 : sigmoid(x))
//
// d/dx log(1 + exp(x)) = exp(x) / (1 + exp(x)) = sigmoid(x). log1p keeps y's relative accuracy where exp(x)
// is far below 1: the plain log(1 + exp(x)) rounds to 0 or loses all digits there. At 20 the two arms differ
// by 2.1e-9, less than an ulp of 20 in f32. Forward saves nothing: the backward needs x alone, and y would
// not tell on which side of 20 it was.
//
// One variant: a pack of 16 bytes per thread, tensors of any row stride; contiguous ones are taken as one
// row.
//
// Bytes: forward reads x, writes y: 2 n elements; backward reads x and d_y, writes d_x: 3 n (accumulating 4
// n).

#include "scantape/softplus.h"

#include "common/dispatch.cuh"
#include "common/grid.cuh"
#include "common/launch.cuh"
#include "common/math.cuh"
#include "common/store.cuh"

namespace scantape::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    softplus_fwd_elementwise_kernel(Extent extent, Source<T> x, Target<T> y) {
  for_each_pack<T>(extent, [&](std::int64_t row, std::int64_t column, std::int64_t remaining) {
    Pack<T> value = x.load(row, column, remaining);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) value[i] = softplus(value[i]);
    y.store(row, column, remaining, value);
  });
}

template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    softplus_bwd_elementwise_kernel(Extent extent, Source<T> x, Source<T> d_y, Target<T> d_x) {
  for_each_pack<T>(extent, [&](std::int64_t row, std::int64_t column, std::int64_t remaining) {
    const Pack<T> value = x.load(row, column, remaining);
    Pack<T> gradient = d_y.load(row, column, remaining);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) gradient[i] *= softplus_derivative(value[i]);
    d_x.store(row, column, remaining, gradient);
  });
}

}  // namespace

Status softplus_forward(const SoftplusForward& args, Stream stream) noexcept {
  return dispatch_dtype(args.x.dtype, "softplus: no CUDA kernel for this dtype", [&](auto zero) {
    using T = decltype(zero);
    const Extent extent = element_extent(args.x, args.y);
    if (extent.rows == 0) return Status();
    const Grid grid = element_grid<T>(extent);
    return launch("softplus_fwd_elementwise_kernel", softplus_fwd_elementwise_kernel<T>, grid.grid,
                  grid.block, 0, stream, extent, source<T>(args.x, extent.one_row()),
                  target<T>(args.y, false, extent.one_row()));
  });
}

Status softplus_backward(const SoftplusBackward& args, Stream stream) noexcept {
  if (!args.d_x.wanted()) return Status();
  return dispatch_dtype(args.x.dtype, "softplus: no CUDA kernel for this dtype", [&](auto zero) {
    using T = decltype(zero);
    const Extent extent = element_extent(args.x, args.d_y, args.d_x.view);
    if (extent.rows == 0) return Status();
    const Grid grid = element_grid<T>(extent);
    return launch("softplus_bwd_elementwise_kernel", softplus_bwd_elementwise_kernel<T>, grid.grid,
                  grid.block, 0, stream, extent, source<T>(args.x, extent.one_row()),
                  source<T>(args.d_y, extent.one_row()), target<T>(args.d_x, extent.one_row()));
  });
}

std::int64_t softplus_forward_workspace(const SoftplusForward&) noexcept {
  return 0;
}
std::int64_t softplus_backward_workspace(const SoftplusBackward&) noexcept {
  return 0;
}

}  // namespace scantape::cuda
