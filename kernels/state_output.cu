// Output of a state space layer: out = residual + act(p), p = z + D u, over rows of E elements; act is silu
// or nothing.
//
// Gradient. With g = d_out act'(p):
//
//   d_z = g,   d_u = g D,   d_D = sum over rows of g u,   d_residual = d_out
//
// Forward saves nothing: p is one multiply-add of z and u, which backward reads anyway for d_D; out could not
// give act'(p) back, since silu is not monotonic and residual would cancel.
//
// Variants: one per activation. Forward is elementwise. Backward is one pass over all gradients: a block
// takes a tile of columns and a chunk of rows, each thread a pack of columns whose part of d_D it keeps; the
// blocks' partial sums go to the workspace and a second launch adds them in order.
//
// Bytes: forward reads z, u, residual, writes out: 4 n elements. Backward reads z, u, d_out, writes d_z, d_u,
// d_residual: up to 6 n.

#include "scantape/state_output.h"

#include "common/dispatch.cuh"
#include "common/math.cuh"
#include "common/reduce.cuh"

namespace scantape::cuda {
namespace {

template <class T, Activation kActivation>
__device__ T act(T p) {
  if constexpr (kActivation == Activation::silu) return silu(p);
  return p;
}

template <class T, Activation kActivation>
__device__ T act_derivative(T p) {
  if constexpr (kActivation == Activation::silu) return silu_derivative(p);
  return T(1);
}

template <class T, Activation kActivation>
__global__ void __launch_bounds__(kBlockThreads)
    state_output_fwd_elementwise_kernel(Extent extent, Source<T> z, Source<T> u, Source<T> D,
                                        Source<T> residual, Target<T> out) {
  for_each_pack<T>(extent, [&](std::int64_t row, std::int64_t column, std::int64_t remaining) {
    const Pack<T> skip = D.load(0, column, remaining), input = u.load(row, column, remaining);
    const Pack<T> state = z.load(row, column, remaining);
    Pack<T> value = residual.load(row, column, remaining);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) value[i] += act<T, kActivation>(fma_of(skip[i], input[i], state[i]));
    out.store(row, column, remaining, value);
  });
}

template <class T, Activation kActivation>
__global__ void __launch_bounds__(kBlockThreads)
    state_output_bwd_columns_kernel(Extent extent, std::int64_t rows_per_chunk, Source<T> z, Source<T> u,
                                    Source<T> D, Source<T> d_out, Target<T> d_z, Target<T> d_u,
                                    Target<T> d_residual, T* partial) {
  auto& cells = shared_storage<ColumnCells<T>>();
  const bool needs_g = d_z.wanted() || d_u.wanted() || partial != nullptr;
  sum_columns(extent, rows_per_chunk, partial, cells,
              [&](std::int64_t row, std::int64_t column, std::int64_t remaining, Pack<T>& sum) {
                Pack<T> g = d_out.load(row, column, remaining);
                if (d_residual.wanted()) d_residual.store(row, column, remaining, g);
                if (!needs_g) return;
                const Pack<T> skip = D.load(0, column, remaining), input = u.load(row, column, remaining);
                const Pack<T> state = z.load(row, column, remaining);
#pragma unroll
                for (int i = 0; i < kPack<T>; ++i) {
                  g[i] *= act_derivative<T, kActivation>(fma_of(skip[i], input[i], state[i]));
                  sum[i] += g[i] * input[i];
                }
                if (d_z.wanted()) d_z.store(row, column, remaining, g);
                if (d_u.wanted()) {
#pragma unroll
                  for (int i = 0; i < kPack<T>; ++i) g[i] *= skip[i];
                  d_u.store(row, column, remaining, g);
                }
              });
}

Extent row_extent(const ConstView& z) noexcept {
  Rows rows;
  return as_rows(z, &rows) ? Extent{rows.count, rows.length} : Extent{};
}

template <class T, Activation kActivation>
Status forward(const StateOutputForward& args, Stream stream) {
  const Extent extent = row_extent(args.z);
  if (extent.rows == 0 || extent.columns == 0) return Status();
  const Grid grid = element_grid<T>(extent);
  return launch("state_output_fwd_elementwise_kernel", state_output_fwd_elementwise_kernel<T, kActivation>,
                grid.grid, grid.block, 0, stream, extent, source<T>(args.z), source<T>(args.u),
                source<T>(args.D), source<T>(args.residual), target<T>(args.out));
}

template <class T, Activation kActivation>
Status backward(const StateOutputBackward& args, Stream stream) {
  const Extent extent = row_extent(args.z);
  if (extent.columns == 0) return Status();
  const ColumnPlan plan = column_plan<T>(extent);
  const Target<T> d_D = target<T>(args.d_D);
  T* const partial = d_D.wanted() ? static_cast<T*>(args.workspace.data) : nullptr;
  SCANTAPE_TRY(launch("state_output_bwd_columns_kernel", state_output_bwd_columns_kernel<T, kActivation>,
                      plan.grid.grid, plan.grid.block, 0, stream, extent, plan.rows, source<T>(args.z),
                      source<T>(args.u), source<T>(args.D), source<T>(args.d_out), target<T>(args.d_z),
                      target<T>(args.d_u), target<T>(args.d_residual), partial));
  return join_column_sums("state_output_bwd_join_d_D", partial, plan.chunks, extent.columns, d_D, stream);
}

template <class Body>
Status dispatch(const StateOutputForward& args, Body&& body) {
  return dispatch_dtype(args.z.dtype, "state_output: no CUDA kernel for this dtype", [&](auto zero) {
    return dispatch_value<Activation::silu, Activation::none>(
        args.activation, "state_output: no CUDA kernel for this activation",
        [&](auto activation) { return body(zero, activation); });
  });
}

}  // namespace

Status state_output_forward(const StateOutputForward& args, Stream stream) noexcept {
  return dispatch(args,
                  [&](auto zero, auto kind) { return forward<decltype(zero), kind.value>(args, stream); });
}

Status state_output_backward(const StateOutputBackward& args, Stream stream) noexcept {
  if (!args.d_z.wanted() && !args.d_u.wanted() && !args.d_D.wanted() && !args.d_residual.wanted())
    return Status();
  return dispatch(args,
                  [&](auto zero, auto kind) { return backward<decltype(zero), kind.value>(args, stream); });
}

std::int64_t state_output_forward_workspace(const StateOutputForward&) noexcept {
  return 0;
}

std::int64_t state_output_backward_workspace(const StateOutputBackward& args) noexcept {
  if (!args.d_D.wanted()) return 0;
  const Extent extent = row_extent(args.z);
  const std::int64_t chunks =
      args.z.dtype == DType::f32 ? column_plan<float>(extent).chunks : column_plan<double>(extent).chunks;
  return chunks * extent.columns * size_of(args.z.dtype);
}

}  // namespace scantape::cuda
