// Discretisation of a state space model, x' = A x + B u with u held constant over steps of dt: here a diagonal A
// and one number a head; a dense A is in discretize_dense.cuh.
// Per state or head A_bar = a and B_bar = s B, with the a, a - 1 and s of common/discretize.cuh.
//
// Gradient. Both A_bar and F = A_bar - 1 depend on (dt, A) alike, so their cotangents add to g_a; B_bar gives
// g_s = sum over E of d_B_bar B and d_B = s d_B_bar. Then d_A = g_a da/dA + g_s ds/dA, d_dt = g_a da/ddt +
// g_s ds/ddt. Nothing is saved: the factors cost less to form again than to read.
//
// per_head has dt, A_bar, F and s of [B, L, H]: g_s is d_s itself, and d_A is summed over B and L.
//
// Variants: one per method and form. diagonal forward: elementwise over B, each thread forming its row's s; backward:
// a block per state, which sums g_s over E in a fixed order and writes its row of d_B on the way. per_head:
// elementwise; the backward adds its columns for d_A on the way, chunk by chunk, and a second launch joins these.
//
// Bytes: diagonal forward reads B, writes B_bar: 2 N E elements; backward reads d_B_bar and B, writes d_B: 3 N E.
// per_head forward reads dt, writes A_bar, s (and F): 3 B L H; backward reads dt and the cotangents, writes d_dt.

#include "scantape/discretize.h"

#include "common/discretize.cuh"
#include "common/dispatch.cuh"
#include "common/reduce.cuh"
#include "discretize_dense.cuh"

namespace scantape::cuda {
namespace {

template <class T, DiscretizeMethod kMethod>
__global__ void __launch_bounds__(kBlockThreads)
    discretize_fwd_elementwise_kernel(Extent extent, Source<T> dt, Source<T> A, Source<T> B, Target<T> A_bar,
                                      Target<T> B_bar, Target<T> F) {
  for_each_pack<T>(extent, [&](std::int64_t state, std::int64_t column, std::int64_t remaining) {
    const DiscreteStep<T> step = discrete_step<T, kMethod>(dt.at(0, state), A.at(0, state));
    Pack<T> value = B.load(state, column, remaining);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) value[i] *= step.s;
    B_bar.store(state, column, remaining, value);
    if (column == 0) {
      A_bar.put(0, state, step.a);
      if (F.wanted()) F.put(0, state, step.a_less_one);
    }
  });
}

/// Where B has no columns: A_bar and F alone.
template <class T, DiscretizeMethod kMethod>
__global__ void __launch_bounds__(kBlockThreads)
    discretize_fwd_states_kernel(std::int64_t states, Source<T> dt, Source<T> A, Target<T> A_bar,
                                 Target<T> F) {
  const std::int64_t self = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (std::int64_t state = self; state < states;
       state += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const DiscreteStep<T> step = discrete_step<T, kMethod>(dt.at(0, state), A.at(0, state));
    A_bar.put(0, state, step.a);
    if (F.wanted()) F.put(0, state, step.a_less_one);
  }
}

template <class T, DiscretizeMethod kMethod>
__global__ void __launch_bounds__(kBlockThreads)
    discretize_bwd_state_kernel(Extent extent, Source<T> dt, Source<T> A, Source<T> B, Source<T> d_A_bar,
                                Source<T> d_B_bar, Source<T> d_F, Target<T> d_dt, Target<T> d_A,
                                Target<T> d_B) {
  auto& cells = shared_storage<BlockSum<T, kBlockThreads>>();
  const bool wants_g_s = d_B_bar.present() && (d_dt.wanted() || d_A.wanted());
  for (std::int64_t state = blockIdx.x; state < extent.rows; state += gridDim.x) {
    const T step = dt.at(0, state), rate = A.at(0, state);
    const T s = discrete_step<T, kMethod>(step, rate).s;
    T g_s = 0;
    for (std::int64_t column = threadIdx.x * kPack<T>; column < extent.columns;
         column += kBlockThreads * kPack<T>) {
      const std::int64_t remaining = extent.columns - column;
      Pack<T> g = {};
      if (d_B_bar.present()) g = d_B_bar.load(state, column, remaining);
      if (wants_g_s) {
        const Pack<T> b = B.load(state, column, remaining);
#pragma unroll
        for (int i = 0; i < kPack<T>; ++i) g_s += g[i] * b[i];
      }
      if (d_B.wanted()) {
        // Without d_B_bar the gradient is zero, whatever s is.
#pragma unroll
        for (int i = 0; i < kPack<T>; ++i) g[i] = d_B_bar.present() ? g[i] * s : T(0);
        d_B.store(state, column, remaining, g);
      }
    }
    g_s = block_sum(g_s, cells);
    if (threadIdx.x == 0) {
      const DiscreteSlopes<T> slopes = discrete_slopes<T, kMethod>(step, rate);
      const bool has_a = d_A_bar.present() || d_F.present();
      const T g_a =
          (d_A_bar.present() ? d_A_bar.at(0, state) : T(0)) + (d_F.present() ? d_F.at(0, state) : T(0));
      // A cotangent that is absent is left out, not multiplied: a slope may be infinite.
      const auto chain = [&](T a_slope, T s_slope) {
        return (has_a ? g_a * a_slope : T(0)) + (wants_g_s ? g_s * s_slope : T(0));
      };
      if (d_dt.wanted()) d_dt.put(0, state, chain(slopes.a_by_dt, slopes.s_by_dt));
      if (d_A.wanted()) d_A.put(0, state, chain(slopes.a_by_A, slopes.s_by_A));
    }
  }
}

template <class T, DiscretizeMethod kMethod>
__global__ void __launch_bounds__(kBlockThreads, 2)
    discretize_fwd_heads_kernel(Extent extent, Source<T> dt, Source<T> A, Target<T> A_bar, Target<T> F,
                                Target<T> s) {
  for_each_pack<T>(extent, [&](std::int64_t row, std::int64_t column, std::int64_t remaining) {
    const Pack<T> steps = dt.load(row, column, remaining), rates = A.load(0, column, remaining);
    Pack<T> a, f, factor;
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      const DiscreteStep<T> step = discrete_step<T, kMethod>(steps[i], rates[i]);
      a[i] = step.a;
      f[i] = step.a_less_one;
      factor[i] = step.s;
    }
    A_bar.store(row, column, remaining, a);
    if (F.wanted()) F.store(row, column, remaining, f);
    s.store(row, column, remaining, factor);
  });
}

/// `partial` is null where d_A is not wanted.
template <class T, DiscretizeMethod kMethod>
__global__ void __launch_bounds__(kBlockThreads, 2)
    discretize_bwd_heads_kernel(Extent extent, std::int64_t rows_per_chunk, Source<T> dt, Source<T> A,
                                Source<T> d_A_bar, Source<T> d_F, Source<T> d_s, Target<T> d_dt, T* partial) {
  auto& cells = shared_storage<ColumnCells<T>>();
  const bool has_a = d_A_bar.present() || d_F.present();
  sum_columns(extent, rows_per_chunk, partial, cells,
              [&](std::int64_t row, std::int64_t column, std::int64_t remaining, Pack<T>& sum) {
                const Pack<T> steps = dt.load(row, column, remaining), rates = A.load(0, column, remaining);
                Pack<T> g_a = {}, g_s = {}, by_dt;
                if (d_A_bar.present()) g_a = d_A_bar.load(row, column, remaining);
                if (d_F.present()) {
                  const Pack<T> more = d_F.load(row, column, remaining);
#pragma unroll
                  for (int i = 0; i < kPack<T>; ++i) g_a[i] += more[i];
                }
                if (d_s.present()) g_s = d_s.load(row, column, remaining);
#pragma unroll
                for (int i = 0; i < kPack<T>; ++i) {
                  const DiscreteSlopes<T> slopes = discrete_slopes<T, kMethod>(steps[i], rates[i]);
                  // A cotangent that is absent is left out, not multiplied: a slope may be infinite.
                  const auto chain = [&](T a_slope, T s_slope) {
                    return (has_a ? g_a[i] * a_slope : T(0)) + (d_s.present() ? g_s[i] * s_slope : T(0));
                  };
                  by_dt[i] = chain(slopes.a_by_dt, slopes.s_by_dt);
                  sum[i] += chain(slopes.a_by_A, slopes.s_by_A);
                }
                if (d_dt.wanted()) d_dt.store(row, column, remaining, by_dt);
              });
}

template <class T, DiscretizeMethod kMethod>
Status forward_diagonal(const DiscretizeForward& args, Stream stream) {
  const Extent extent{args.B.shape[0], args.B.shape[1]};
  const Source<T> dt = source<T>(args.dt), A = source<T>(args.A);
  const Target<T> A_bar = target<T>(args.A_bar), F = target<T>(args.F);
  if (extent.columns == 0) {
    return launch("discretize_fwd_states_kernel", discretize_fwd_states_kernel<T, kMethod>,
                  grid_for(extent.rows, kBlockThreads, kMostBlocksX), dim3(kBlockThreads), 0, stream,
                  extent.rows, dt, A, A_bar, F);
  }
  const Grid grid = element_grid<T>(extent);
  return launch("discretize_fwd_elementwise_kernel", discretize_fwd_elementwise_kernel<T, kMethod>, grid.grid,
                grid.block, 0, stream, extent, dt, A, source<T>(args.B), A_bar, target<T>(args.B_bar), F);
}

template <class T, DiscretizeMethod kMethod>
Status backward_diagonal(const DiscretizeBackward& args, Stream stream) {
  const Extent extent{args.B.shape[0], args.B.shape[1]};
  return launch("discretize_bwd_state_kernel", discretize_bwd_state_kernel<T, kMethod>,
                grid_for(extent.rows, 1, kMostBlocksX), dim3(kBlockThreads), 0, stream, extent,
                source<T>(args.dt), source<T>(args.A), source<T>(args.B), source<T>(args.d_A_bar),
                source<T>(args.d_B_bar), source<T>(args.d_F), target<T>(args.d_dt), target<T>(args.d_A),
                target<T>(args.d_B));
}

Extent heads_extent(const DiscretizeForward& args) noexcept {
  const std::int64_t heads = args.A.shape[0];
  return {args.dt.shape[0] * args.dt.shape[1], heads};
}

template <class T, DiscretizeMethod kMethod>
Status forward_heads(const DiscretizeForward& args, Stream stream) {
  const Extent extent = heads_extent(args);
  const Grid grid = element_grid<T>(extent);
  return launch("discretize_fwd_heads_kernel", discretize_fwd_heads_kernel<T, kMethod>, grid.grid, grid.block,
                0, stream, extent, source<T>(args.dt), source<T>(args.A), target<T>(args.A_bar),
                target<T>(args.F), target<T>(args.s));
}

template <class T, DiscretizeMethod kMethod>
Status backward_heads(const DiscretizeBackward& args, Stream stream) {
  const Extent extent = heads_extent(args);
  if (extent.columns == 0) return Status();
  const ColumnPlan plan = column_plan<T>(extent);
  T* const partial = args.d_A.wanted() ? static_cast<T*>(args.workspace.data) : nullptr;
  SCANTAPE_TRY(launch("discretize_bwd_heads_kernel", discretize_bwd_heads_kernel<T, kMethod>, plan.grid.grid,
                      plan.grid.block, 0, stream, extent, plan.rows, source<T>(args.dt), source<T>(args.A),
                      source<T>(args.d_A_bar), source<T>(args.d_F), source<T>(args.d_s), target<T>(args.d_dt),
                      partial));
  return join_column_sums("discretize_bwd_join_heads", partial, plan.chunks, extent.columns,
                          target<T>(args.d_A), stream);
}

std::int64_t heads_workspace(const DiscretizeBackward& args) noexcept {
  if (!args.d_A.wanted()) return 0;
  const Extent extent = heads_extent(args);
  const std::int64_t chunks =
      args.A.dtype == DType::f32 ? column_plan<float>(extent).chunks : column_plan<double>(extent).chunks;
  return chunks * extent.columns * size_of(args.A.dtype);
}

template <class T, DiscretizeMethod kMethod>
Status forward(const DiscretizeForward& args, Stream stream) {
  switch (form_of(args)) {
    case DiscretizeForm::diagonal:
      return forward_diagonal<T, kMethod>(args, stream);
    case DiscretizeForm::per_head:
      return forward_heads<T, kMethod>(args, stream);
    case DiscretizeForm::dense:
      return dense::forward<T, kMethod>(args, stream);
  }
  return Status::fail(Code::unsupported, "discretize: no CUDA kernel for this form");
}

template <class T, DiscretizeMethod kMethod>
Status backward(const DiscretizeBackward& args, Stream stream) {
  switch (form_of(args)) {
    case DiscretizeForm::diagonal:
      return backward_diagonal<T, kMethod>(args, stream);
    case DiscretizeForm::per_head:
      return backward_heads<T, kMethod>(args, stream);
    case DiscretizeForm::dense:
      return dense::backward<T, kMethod>(args, stream);
  }
  return Status::fail(Code::unsupported, "discretize_backward: no CUDA kernel for this form");
}

template <class Body>
Status dispatch(const DiscretizeForward& args, Body&& body) {
  return dispatch_dtype(args.dt.dtype, "discretize: no CUDA kernel for this dtype", [&](auto zero) {
    return dispatch_value<DiscretizeMethod::zoh, DiscretizeMethod::exp_euler, DiscretizeMethod::bilinear,
                          DiscretizeMethod::euler>(args.method, "discretize: no CUDA kernel for this method",
                                                   [&](auto method) { return body(zero, method); });
  });
}

}  // namespace

Status discretize_forward(const DiscretizeForward& args, Stream stream) noexcept {
  return dispatch(
      args, [&](auto zero, auto method) { return forward<decltype(zero), method.value>(args, stream); });
}

Status discretize_backward(const DiscretizeBackward& args, Stream stream) noexcept {
  if (!args.d_dt.wanted() && !args.d_A.wanted() && !args.d_B.wanted()) return Status();
  return dispatch(
      args, [&](auto zero, auto method) { return backward<decltype(zero), method.value>(args, stream); });
}

std::int64_t discretize_forward_workspace(const DiscretizeForward& args) noexcept {
  return form_of(args) == DiscretizeForm::dense ? dense::forward_workspace(args) : 0;
}

std::int64_t discretize_backward_workspace(const DiscretizeBackward& args) noexcept {
  if (!args.d_dt.wanted() && !args.d_A.wanted() && !args.d_B.wanted()) return 0;
  switch (form_of(args)) {
    case DiscretizeForm::dense:
      return dense::backward_workspace(args);
    case DiscretizeForm::per_head:
      return heads_workspace(args);
    case DiscretizeForm::diagonal:
      break;
  }
  return 0;
}

}  // namespace scantape::cuda
