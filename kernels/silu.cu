// SiLU, elementwise.
//
//   y = x s,  s = sigmoid(x)        d_x = d_y * s (1 + x (1 - s))
//
// since s' = s (1 - s). The sigmoid comes from exp(-|x|/2), which never overflows: y goes to x on the right
// and to 0 on the left, and is never NaN for finite x. 1 - s is formed without a subtraction. Forward saves
// nothing beside x; y is not enough, because x s is not monotonic and two x give the same y.
//
// One variant: a pack of 16 bytes per thread, tensors of any row stride; contiguous ones are taken as one
// row.
//
// Bytes: forward reads x, writes y: 2 n elements; backward reads x and d_y, writes d_x: 3 n (accumulating 4
// n).

#include "scantape/silu.h"

#include "common/dispatch.cuh"
#include "common/grid.cuh"
#include "common/launch.cuh"
#include "common/math.cuh"
#include "common/store.cuh"

namespace scantape::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    silu_fwd_elementwise_kernel(Extent extent, Source<T> x, Target<T> y) {
  for_each_pack<T>(extent, [&](std::int64_t row, std::int64_t column, std::int64_t remaining) {
    Pack<T> value = x.load(row, column, remaining);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) value[i] = silu(value[i]);
    y.store(row, column, remaining, value);
  });
}

template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    silu_bwd_elementwise_kernel(Extent extent, Source<T> x, Source<T> d_y, Target<T> d_x) {
  for_each_pack<T>(extent, [&](std::int64_t row, std::int64_t column, std::int64_t remaining) {
    const Pack<T> value = x.load(row, column, remaining);
    Pack<T> gradient = d_y.load(row, column, remaining);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) gradient[i] *= silu_derivative(value[i]);
    d_x.store(row, column, remaining, gradient);
  });
}

}  // namespace

Status silu_forward(const SiluForward& args, Stream stream) noexcept {
  return dispatch_dtype(args.x.dtype, "silu: no CUDA kernel for this dtype", [&](auto zero) {
    using T = decltype(zero);
    const Extent extent = element_extent(args.x, args.y);
    if (extent.rows == 0) return Status();
    const Grid grid = element_grid<T>(extent);
    return launch("silu_fwd_elementwise_kernel", silu_fwd_elementwise_kernel<T>, grid.grid, grid.block, 0,
                  stream, extent, source<T>(args.x, extent.one_row()),
                  target<T>(args.y, false, extent.one_row()));
  });
}

Status silu_backward(const SiluBackward& args, Stream stream) noexcept {
  if (!args.d_x.wanted()) return Status();
  return dispatch_dtype(args.x.dtype, "silu: no CUDA kernel for this dtype", [&](auto zero) {
    using T = decltype(zero);
    const Extent extent = element_extent(args.x, args.d_y, args.d_x.view);
    if (extent.rows == 0) return Status();
    const Grid grid = element_grid<T>(extent);
    return launch("silu_bwd_elementwise_kernel", silu_bwd_elementwise_kernel<T>, grid.grid, grid.block, 0,
                  stream, extent, source<T>(args.x, extent.one_row()), source<T>(args.d_y, extent.one_row()),
                  target<T>(args.d_x, extent.one_row()));
  });
}

std::int64_t silu_forward_workspace(const SiluForward&) noexcept {
  return 0;
}
std::int64_t silu_backward_workspace(const SiluBackward&) noexcept {
  return 0;
}

}  // namespace scantape::cuda
