#pragma once

#include "common/dispatch.cuh"
#include "common/grid.cuh"
#include "common/launch.cuh"
#include "common/store.cuh"

// An op  y = f(x),  d_x = d_y * f'(x),  element by element. A functor F says what f is:
//
//   struct F {
//     static constexpr const char* kMissing;        what to say without a kernel for the dtype
//     static constexpr const char* kForwardKernel;  the name in the list of launches
//     static constexpr const char* kBackwardKernel;
//     template <class T> __device__ static T value(T x);       // f
//     template <class T> __device__ static T derivative(T x);  // f'
//   };
//
// f and f' are given numbers of the type that is computed in. One variant: a pack of 16 bytes per thread, tensors of any row stride; contiguous ones are taken as one
// row. Forward saves nothing beside x.
//
// Bytes: forward reads x, writes y: 2 n elements; backward reads x and d_y, writes d_x: 3 n (accumulating 4
// n).

namespace scantape::cuda {

template <class T, class F>
static __global__ void __launch_bounds__(kBlockThreads, 1)
    elementwise_fwd_kernel(Extent extent, Source<T> x, Target<T> y) {
  for_each_pack<T>(extent, [&](std::int64_t row, std::int64_t column, std::int64_t remaining) {
    Pack<T> value = x.load(row, column, remaining);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) value[i] = F::value(value[i]);
    y.store(row, column, remaining, value);
  });
}

template <class T, class F>
static __global__ void __launch_bounds__(kBlockThreads)
    elementwise_bwd_kernel(Extent extent, Source<T> x, Source<T> d_y, Target<T> d_x) {
  for_each_pack<T>(extent, [&](std::int64_t row, std::int64_t column, std::int64_t remaining) {
    const Pack<T> value = x.load(row, column, remaining);
    Pack<T> gradient = d_y.load(row, column, remaining);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) gradient[i] *= F::derivative(value[i]);
    d_x.store(row, column, remaining, gradient);
  });
}

/// `args` has x and y.
template <class F, class Args>
Status elementwise_forward(const Args& args, Stream stream) {
  return dispatch_storage(args.x.dtype, F::kMissing, [&](auto zero) {
    using T = decltype(zero);
    const Extent extent = element_extent(args.x, args.y);
    if (extent.rows == 0) return Status();
    const Grid grid = element_grid<T>(extent);
    return launch(F::kForwardKernel, elementwise_fwd_kernel<T, F>, grid.grid, grid.block, 0, stream, extent,
                  source<T>(args.x, extent.one_row()), target<T>(args.y, false, extent.one_row()));
  });
}

/// `args` has x, d_y and d_x.
template <class F, class Args>
Status elementwise_backward(const Args& args, Stream stream) {
  if (!args.d_x.wanted()) return Status();
  return dispatch_storage(args.x.dtype, F::kMissing, [&](auto zero) {
    using T = decltype(zero);
    const Extent extent = element_extent(args.x, args.d_y, args.d_x.view);
    if (extent.rows == 0) return Status();
    const Grid grid = element_grid<T>(extent);
    return launch(F::kBackwardKernel, elementwise_bwd_kernel<T, F>, grid.grid, grid.block, 0, stream, extent,
                  source<T>(args.x, extent.one_row()), source<T>(args.d_y, extent.one_row()),
                  target<T>(args.d_x, extent.one_row()));
  });
}

}  // namespace scantape::cuda
