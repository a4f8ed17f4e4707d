// Root mean square normalisation by groups of channels, with a gate. On one group of E channels of one row, s = silu(z)
// (1 where there is no z):
//
//   gate first:  u = x s,  xh = u rstd(u),  y = xh weight
//   norm first:  u = x,    xh = u rstd(u),  y = xh weight s
//
// with the rstd of rms_norm (common/norm.cuh), which says what is done near the ends of the type's range. Saved is rstd
// alone. u is formed again from x and z in backward, in the type that is computed in.
//
// Gradient. With g = d_y (norm first: d_y s), the cotangent of xh is weight g, and as in common/norm.cuh
//
//   d_u = rstd (weight g - xh mean(weight g xh)),   d_weight = sum over rows of g xh
//   gate first:  d_x = d_u s,  d_z = d_u x silu'(z)
//   norm first:  d_x = d_u,    d_z = d_y xh weight silu'(z)
//
// Variants, by E alone, those of common/norm.cuh:
//   warp_row   a warp per group of a row, u in registers (forward E <= 1024, backward E <= 512). The backward gathers
//              d_weight in registers too, over its block's rows of one group.
//   block_row  a block per group of a row, u formed again for each sum. d_weight comes from a kernel over tiles of columns,
//              before d_x is written: d_x or d_z may be d_y itself.
// Groups are rows of their own: a tensor's view is moved on by the channels of the groups before.
//
// Bytes: forward reads x and z, writes y: 3 n elements; backward reads x, z and d_y, writes d_x and d_z: 5 n, block_row 3 n
// more.

#include "scantape/gated_rms_norm.h"

#include "common/norm.cuh"

namespace scantape::cuda {
namespace {

/// The rows of one group: a view whose first column is the group's.
template <class V>
__device__ V moved(V view, std::int64_t columns) {
  if (view.data != nullptr) view.data += columns;
  return view;
}

/// Groups of all rows; each of `columns` channels.
struct Groups {
  std::int64_t rows, count, columns;
};

/// What is normalised, u, by packs.
template <class T>
struct GatedRows {
  Source<T> x, z;
  bool norm_first;

  __device__ bool gates_first() const { return z.present() && !norm_first; }
  __device__ bool gates_last() const { return z.present() && norm_first; }
  __device__ Pack<T> load(std::int64_t row, std::int64_t column, std::int64_t remaining) const {
    Pack<T> u = x.load(row, column, remaining);
    if (gates_first()) multiply(u, row, column, remaining);
    return u;
  }
  /// Of what stands on the other side of the norm: y, and d_y on its way back.
  __device__ void gate_last(Pack<T>& pack, std::int64_t row, std::int64_t column,
                            std::int64_t remaining) const {
    if (gates_last()) multiply(pack, row, column, remaining);
  }
  __device__ GatedRows group(std::int64_t first) const {
    return {moved(x, first), moved(z, first), norm_first};
  }

 private:
  __device__ void multiply(Pack<T>& pack, std::int64_t row, std::int64_t column,
                           std::int64_t remaining) const {
    const Pack<T> gate = z.load(row, column, remaining);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) pack[i] *= silu(gate[i]);
  }
};

// ---- forward

template <class T>
struct GatedTargets {
  Source<T> weight;
  Target<T> y;
  Target<Compute<T>> statistics;

  __device__ GatedTargets group(std::int64_t group, std::int64_t first) const {
    return {moved(weight, first), moved(y, first), moved(statistics, group)};
  }
};

/// Normalises one group of one row. Each pack is read before it is written, by one thread: y may lie over x or z.
template <class T, class Row, class Threads>
__device__ void normalise_group(const Row& u, const GatedRows<T>& from, std::int64_t row,
                                std::int64_t columns, Eps<Compute<T>> eps, const GatedTargets<T>& to,
                                const Threads& threads) {
  const auto s = row_statistics<T, Norm::rms>(u, columns, eps, threads);
  u.each_pack([&](std::int64_t column, Pack<T> y) {
    const std::int64_t remaining = columns - column;
    const Pack<T> w = to.weight.load(0, column, remaining);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) y[i] = s.normalised(y[i]) * w[i];
    from.gate_last(y, row, column, remaining);
    to.y.store(row, column, remaining, y);
  });
  if (threads.leads()) s.save(to.statistics, row);
}

template <class T, int kColumns>
__global__ void __launch_bounds__(kBlockThreads, blocks_at_a_time(kColumns * sizeof(Compute<T>)))
    gated_rms_norm_fwd_warp_row_kernel(Groups groups, GatedRows<T> all, Eps<Compute<T>> eps,
                                       GatedTargets<T> to) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kWarps;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.y;
       i < groups.rows * groups.count; i += step) {
    const std::int64_t row = i / groups.count, group = i % groups.count, first = group * groups.columns;
    const GatedRows<T> from = all.group(first);
    HeldRow<T, kColumns> held;
    held.columns = groups.columns;
#pragma unroll
    for (int p = 0; p < kLanePacks<T, kColumns>; ++p)
      held.packs[p] = from.load(row, lane_column<T>(p), groups.columns - lane_column<T>(p));
    normalise_group<T>(held, from, row, groups.columns, eps, to.group(group, first), WarpGroup<Compute<T>>{});
  }
}

template <class T>
__global__ void __launch_bounds__(kBlockThreads, 1)
    gated_rms_norm_fwd_block_row_kernel(Groups groups, GatedRows<T> all, Eps<Compute<T>> eps,
                                        GatedTargets<T> to) {
  const BlockGroup<Compute<T>> threads{shared_storage<BlockSum<Compute<T>, kBlockThreads>>()};
  for (std::int64_t i = blockIdx.x; i < groups.rows * groups.count; i += gridDim.x) {
    const std::int64_t row = i / groups.count, group = i % groups.count, first = group * groups.columns;
    const GatedRows<T> from = all.group(first);
    const ReadRow<T, GatedRows<T>> u{from, row, groups.columns, static_cast<int>(threadIdx.x), kBlockThreads};
    normalise_group<T>(u, from, row, groups.columns, eps, to.group(group, first), threads);
  }
}

// ---- backward

template <class T>
struct GatedCotangents {
  GatedRows<T> from;
  Source<T> weight, d_y;
  Source<Compute<T>> statistics;

  __device__ GatedCotangents group(std::int64_t group, std::int64_t first) const {
    return {from.group(first), moved(weight, first), moved(d_y, first), moved(statistics, group)};
  }
  /// g, the cotangent of xh weight.
  __device__ Pack<T> cotangent(std::int64_t row, std::int64_t column, std::int64_t remaining) const {
    Pack<T> g = d_y.load(row, column, remaining);
    from.gate_last(g, row, column, remaining);
    return g;
  }
};

template <class T>
struct GatedGradients {
  Target<T> d_x, d_z;

  __host__ __device__ bool wanted() const { return d_x.wanted() || d_z.wanted(); }
  __device__ GatedGradients group(std::int64_t first) const { return {moved(d_x, first), moved(d_z, first)}; }

  /// From d_u and xh of one pack. x, z and d_y are read again, d_y before anything is written over it.
  __device__ void store(const GatedCotangents<T>& all, std::int64_t row, std::int64_t column,
                        std::int64_t remaining, Pack<T> d_u, const Pack<T>& xh) const {
    if (!all.from.z.present()) {
      if (d_x.wanted()) d_x.store(row, column, remaining, d_u);
      return;
    }
    const Pack<T> z = all.from.z.load(row, column, remaining);
    if (d_z.wanted()) {
      // What stands beside the gate, and its cotangent.
      const bool first = all.from.gates_first();
      Pack<T> d = first ? all.from.x.load(row, column, remaining) : all.d_y.load(row, column, remaining);
      const Pack<T> w = all.weight.load(0, column, remaining);
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) d[i] *= (first ? d_u[i] : xh[i] * w[i]) * silu_derivative(z[i]);
      d_z.store(row, column, remaining, d);
    }
    if (!d_x.wanted()) return;
    if (all.from.gates_first()) {
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) d_u[i] *= silu(z[i]);
    }
    d_x.store(row, column, remaining, d_u);
  }
};

/// Rows blockIdx.x * rows_per_block on of the groups blockIdx.y on, a warp per row; the block's sums for d_weight go to its
/// row of the partials [blocks, channels], which may be null.
template <class S, int kColumns>
__global__ void __launch_bounds__(kBlockThreads, blocks_at_a_time(2 * kColumns * sizeof(Compute<S>)))
    gated_rms_norm_bwd_warp_row_kernel(Groups groups, std::int64_t rows_per_block, GatedCotangents<S> all,
                                       GatedGradients<S> targets, Compute<S>* partial) {
  using T = Compute<S>;
  constexpr int kPacks = kLanePacks<S, kColumns>;
  struct Storage {
    T cell[kWarps][kColumns];
  };
  auto& storage = shared_storage<Storage>();
  const std::int64_t columns = groups.columns;
  const std::int64_t begin = blockIdx.x * rows_per_block;
  const std::int64_t end = begin + rows_per_block < groups.rows ? begin + rows_per_block : groups.rows;

  for (std::int64_t group = blockIdx.y; group < groups.count; group += gridDim.y) {
    const std::int64_t first = group * columns;
    const GatedCotangents<S> from = all.group(group, first);
    const GatedGradients<S> to = targets.group(first);
    Pack<S> weight_sum[kPacks] = {};
    for (std::int64_t row = begin + threadIdx.y; row < end; row += kWarps) {
      const auto s = RowStatistics<T, Norm::rms>::saved(from.statistics, row);
      Pack<S> xh[kPacks] = {}, g[kPacks] = {};
      T c2 = 0;
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        const std::int64_t column = lane_column<S>(p);
        if (column >= columns) continue;
        xh[p] = from.from.load(row, column, columns - column);
        g[p] = from.cotangent(row, column, columns - column);
        const Pack<S> w = from.weight.load(0, column, columns - column);
#pragma unroll
        for (int i = 0; i < kPack<S>; ++i) {
          if (column + i < columns) {
            xh[p][i] = s.normalised(xh[p][i]);
            weight_sum[p][i] += g[p][i] * xh[p][i];
            g[p][i] *= w[i];
            c2 += g[p][i] * xh[p][i];
          }
        }
      }
      if (!to.wanted()) continue;  // the same for all lanes
      c2 = warp_sum(c2) / static_cast<T>(columns);
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        const std::int64_t column = lane_column<S>(p);
        if (column >= columns) continue;
#pragma unroll
        for (int i = 0; i < kPack<S>; ++i) g[p][i] = s.d_r(g[p][i], xh[p][i], T(0), c2);
        to.store(from, row, column, columns - column, g[p], xh[p]);
      }
    }
    if (partial == nullptr) continue;  // the same for all threads
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
#pragma unroll
      for (int i = 0; i < kPack<S>; ++i) storage.cell[threadIdx.y][lane_column<S>(p) + i] = weight_sum[p][i];
    }
    __syncthreads();
    for (std::int64_t column = threadIdx.y * 32 + threadIdx.x; column < columns; column += kBlockThreads) {
      T sum = storage.cell[0][column];
#pragma unroll
      for (int warp = 1; warp < kWarps; ++warp) sum += storage.cell[warp][column];
      partial[blockIdx.x * groups.count * columns + first + column] = sum;
    }
    __syncthreads();
  }
}

template <class S>
__global__ void __launch_bounds__(kBlockThreads)
    gated_rms_norm_bwd_block_row_kernel(Groups groups, GatedCotangents<S> all, GatedGradients<S> targets) {
  using T = Compute<S>;
  const BlockGroup<T> threads{shared_storage<BlockSum<T, kBlockThreads>>()};
  const std::int64_t columns = groups.columns;
  for (std::int64_t index = blockIdx.x; index < groups.rows * groups.count; index += gridDim.x) {
    const std::int64_t row = index / groups.count, group = index % groups.count, first = group * columns;
    const GatedCotangents<S> from = all.group(group, first);
    const GatedGradients<S> to = targets.group(first);
    const auto s = RowStatistics<T, Norm::rms>::saved(from.statistics, row);
    const ReadRow<S, GatedRows<S>> rows{from.from, row, columns, static_cast<int>(threadIdx.x),
                                        kBlockThreads};
    const auto weighted = [&](std::int64_t column) {
      Pack<S> g = from.cotangent(row, column, columns - column);
      const Pack<S> w = from.weight.load(0, column, columns - column);
#pragma unroll
      for (int i = 0; i < kPack<S>; ++i) g[i] *= w[i];
      return g;
    };
    T c2 = 0;
    rows.each_pack([&](std::int64_t column, const Pack<S>& u) {
      const Pack<S> g = weighted(column);  // zeros beyond the group
#pragma unroll
      for (int i = 0; i < kPack<S>; ++i) {
        if (column + i < columns) c2 += g[i] * s.normalised(u[i]);
      }
    });
    c2 = threads.sum(c2) / static_cast<T>(columns);
    rows.each_pack([&](std::int64_t column, Pack<S> xh) {
      Pack<S> d = weighted(column);
#pragma unroll
      for (int i = 0; i < kPack<S>; ++i) {
        xh[i] = s.normalised(xh[i]);
        d[i] = s.d_r(d[i], xh[i], T(0), c2);
      }
      to.store(from, row, column, columns - column, d, xh);
    });
  }
}

/// Partial sums of d_weight over a tile of columns and a chunk of rows. A pack lies in two groups at most: they are wide.
template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    gated_rms_norm_bwd_columns_kernel(Groups groups, std::int64_t rows_per_chunk, GatedCotangents<T> from,
                                      Compute<T>* partial) {
  auto& cells = shared_storage<ColumnCells<T>>();
  sum_columns(Extent{groups.rows, groups.count * groups.columns}, rows_per_chunk, partial, cells,
              [&](std::int64_t row, std::int64_t column, std::int64_t remaining, Pack<T>& sum) {
                const Pack<T> u = from.from.load(row, column, remaining);
                const Pack<T> g = from.cotangent(row, column, remaining);
                const std::int64_t group = column / groups.columns, next = (group + 1) * groups.columns;
                const std::int64_t last = group + 1 < groups.count ? group + 1 : group;
                using Saved = RowStatistics<Compute<T>, Norm::rms>;
                const Saved s = Saved::saved(moved(from.statistics, group), row);
                const Saved other = Saved::saved(moved(from.statistics, last), row);
#pragma unroll
                for (int i = 0; i < kPack<T>; ++i)
                  sum[i] += g[i] * (column + i < next ? s : other).normalised(u[i]);
              });
}

// ---- launchers

constexpr const char* kMissing = "gated_rms_norm: no CUDA kernel for this dtype";

Groups groups_of(const GatedRmsNormForward& args) noexcept {
  const Extent extent = norm_extent(args.x);
  return {extent.rows, args.groups, extent.columns / args.groups};
}

/// A view read or written by packs in each group: whole ones only where each group begins at a pack's border.
template <class T, class V>
V by_groups(V view, const Groups& groups) noexcept {
  view.aligned = view.aligned && (groups.count == 1 || groups.columns % kPack<T> == 0);
  return view;
}

template <class T>
GatedRows<T> gated_rows(const GatedRmsNormForward& args, const Groups& groups) noexcept {
  return {by_groups<T>(source<T>(args.x), groups), by_groups<T>(source<T>(args.z), groups),
          args.norm_before_gate};
}

template <class T>
Status forward(const GatedRmsNormForward& args, Stream stream) {
  const Groups groups = groups_of(args);
  const std::int64_t all = groups.rows * groups.count;
  const GatedRows<T> from = gated_rows<T>(args, groups);
  const GatedTargets<T> to{by_groups<T>(source<T>(args.weight), groups),
                           by_groups<T>(target<T>(args.y), groups), target<Compute<T>>(args.statistics)};
  const Eps<Compute<T>> eps = eps_of<Compute<T>>(args.eps);
  const auto warp_row = [&](auto kernel) {
    return launch("gated_rms_norm_fwd_warp_row_kernel", kernel, grid_for(all, kWarps, kMostBlocksX),
                  dim3(32, kWarps), 0, stream, groups, from, eps, to);
  };
  if (groups.columns <= kFewColumns<T>)
    return warp_row(gated_rms_norm_fwd_warp_row_kernel<T, kFewColumns<T>>);
  if (groups.columns <= 512) return warp_row(gated_rms_norm_fwd_warp_row_kernel<T, 512>);
  if (groups.columns <= kMostForwardWarpColumns) return warp_row(gated_rms_norm_fwd_warp_row_kernel<T, 1024>);
  return launch("gated_rms_norm_fwd_block_row_kernel", gated_rms_norm_fwd_block_row_kernel<T>,
                grid_for(all, 1, kMostBlocksX), dim3(kBlockThreads), 0, stream, groups, from, eps, to);
}

/// How backward shares out rows: by their groups, as a norm of as many columns, or by tiles of all columns.
template <class T>
struct GatedBackwardPlan {
  bool warp_row;
  std::int64_t partial_rows, rows_per_block = 0;
  ColumnPlan columns;

  explicit GatedBackwardPlan(const Groups& groups) {
    const NormBackwardPlan<T> of_group(Extent{groups.rows, groups.columns});
    warp_row = of_group.warp_row;
    rows_per_block = of_group.rows_per_block;
    if (!warp_row) columns = column_plan<T>(Extent{groups.rows, groups.count * groups.columns});
    partial_rows = warp_row ? of_group.partial_rows : columns.chunks;
  }
};

template <class T>
Status backward(const GatedRmsNormBackward& args, Stream stream) {
  const Groups groups = groups_of(args);
  const GatedBackwardPlan<T> plan(groups);
  const GatedCotangents<T> from{gated_rows<T>(args, groups), by_groups<T>(source<T>(args.weight), groups),
                                by_groups<T>(source<T>(args.d_y), groups),
                                source<Compute<T>>(args.statistics)};
  const GatedGradients<T> to{by_groups<T>(target<T>(args.d_x), groups),
                             by_groups<T>(target<T>(args.d_z), groups)};
  const Target<Compute<T>> d_weight = target<Compute<T>>(args.d_weight);
  Compute<T>* const partial = d_weight.wanted() ? static_cast<Compute<T>*>(args.workspace.data) : nullptr;

  if (plan.warp_row) {
    const dim3 grid(static_cast<unsigned>(plan.partial_rows),
                    static_cast<unsigned>(groups.count < kMostBlocksY ? groups.count : kMostBlocksY));
    const auto warp_row = [&](auto kernel) {
      return launch("gated_rms_norm_bwd_warp_row_kernel", kernel, grid, dim3(32, kWarps), 0, stream, groups,
                    plan.rows_per_block, from, to, partial);
    };
    SCANTAPE_TRY(groups.columns <= kFewColumns<T>
                     ? warp_row(gated_rms_norm_bwd_warp_row_kernel<T, kFewColumns<T>>)
                     : warp_row(gated_rms_norm_bwd_warp_row_kernel<T, 512>));
  } else {
    if (partial != nullptr)
      SCANTAPE_TRY(launch("gated_rms_norm_bwd_columns_kernel", gated_rms_norm_bwd_columns_kernel<T>,
                          plan.columns.grid.grid, plan.columns.grid.block, 0, stream, groups,
                          plan.columns.rows, from, partial));
    if (to.wanted())
      SCANTAPE_TRY(launch("gated_rms_norm_bwd_block_row_kernel", gated_rms_norm_bwd_block_row_kernel<T>,
                          grid_for(groups.rows * groups.count, 1, kMostBlocksX), dim3(kBlockThreads), 0,
                          stream, groups, from, to));
  }
  return join_column_sums("gated_rms_norm_bwd_join_weight", partial, plan.partial_rows,
                          groups.count * groups.columns, d_weight, stream);
}

}  // namespace

Status gated_rms_norm_forward(const GatedRmsNormForward& args, Stream stream) noexcept {
  return dispatch_storage(args.x.dtype, kMissing,
                          [&](auto zero) { return forward<decltype(zero)>(args, stream); });
}

Status gated_rms_norm_backward(const GatedRmsNormBackward& args, Stream stream) noexcept {
  if (!args.d_x.wanted() && !args.d_z.wanted() && !args.d_weight.wanted()) return Status();
  return dispatch_storage(args.x.dtype, kMissing,
                          [&](auto zero) { return backward<decltype(zero)>(args, stream); });
}

std::int64_t gated_rms_norm_forward_workspace(const GatedRmsNormForward&) noexcept {
  return 0;
}

std::int64_t gated_rms_norm_backward_workspace(const GatedRmsNormBackward& args) noexcept {
  if (!args.d_weight.wanted()) return 0;
  std::int64_t bytes = 0;
  const Status status = dispatch_storage(args.x.dtype, kMissing, [&](auto zero) {
    using T = decltype(zero);
    const Groups groups = groups_of(args);
    bytes = GatedBackwardPlan<T>(groups).partial_rows * groups.count * groups.columns *
            static_cast<std::int64_t>(sizeof(Compute<T>));
    return Status();
  });
  return status.ok() ? bytes : 0;
}

}  // namespace scantape::cuda
