// Layer normalisation of an affine map:  p = x W^T + b over M rows, x [M, I], W [E, I];  y = LN(p).
//
// A block owns a tile of whole rows of p and keeps it in shared memory: the rows are multiplied out, normalised
// there (common/norm.cuh) and leave the chip as y. Forward is one launch, without workspace.
//
// Tile. kRows rows by E, as many as fit: 32 where E <= 256, half as many for each doubling, one row from E > 4096
// on; E <= 16384. It is filled by strips of columns: slices of x and W, kDepth of the I deep, are staged in shared
// memory and each thread sums 4 columns of up to 4 rows in registers. Every sum runs over I in one sequence,
// whatever the row or its place in the tile. W comes from the cache once a tile: kRows multiply-adds for every
// element of it.
//
// Gradient. With d_p the cotangent of p (norm.cuh: d_p = rstd (g - c1 - xh c2), g = d_y norm_weight):
//
//   d_norm_weight = sum over rows of d_y xh,   d_norm_bias = sum over rows of d_y,   d_bias = sum over rows of d_p
//   d_x = d_p W,   d_W = d_p^T x
//
// Forward saves three numbers a row; the backward multiplies p out again in the same tiles, so that xh has the bits
// of forward's. A block leaves d_p in the workspace and adds its three sums over rows to partial sums of its own
// there; the vendor's products (kernels/projection.cu) take d_p to d_x and d_W. To stay below M E elements this is
// done for a part of the rows after the other, two parts or, from 32768 rows on, parts of 16384. A row is computed
// alike in every part; sums over rows go on from part to part and are joined once, at the end, in order. d_W is
// accumulated product by product, in the workspace where it is to be added to the caller's.
//
// Bytes: forward reads x and writes y, M (I + E); the composed ops read and write p three times more. Backward
// reads x twice, d_y and d_p twice, writes d_p and d_x.

#include "scantape/projection_layer_norm.h"

#include <string>

#include "common/norm.cuh"
#include "scantape/projection.h"

namespace scantape::cuda {
namespace {

constexpr std::int64_t kMostWidth = 16384;
constexpr int kBlocksPerProcessor = 2;  // 128 registers: left alone the compiler aims lower and spills

/// How a block of 8 warps shares out a tile of kRows rows and a strip of its columns: each thread has kThreadRows
/// rows and 4 columns, in packs.
template <class T, int kRows>
struct Tile {
  static constexpr int kRowGroups = kRows < kWarps ? kRows : kWarps;
  static constexpr int kThreadRows = kRows / kRowGroups;
  static constexpr int kColumnGroups = kWarps / kRowGroups;
  static constexpr int kThreadPacks = 4 / kPack<T>;
  static constexpr int kColumns = 128 * kColumnGroups;
  static constexpr int kDepth = 16 / kColumnGroups;
  static constexpr int kWeightStride = kColumns + kPack<T>;  // a pack apart: fewer banks in conflict
  static_assert(kRowGroups * kColumnGroups == kWarps && kDepth >= 1);

  T *p, *weight, *x;  // [kRows, stride], [kDepth, kWeightStride], [kDepth, kRows]
  std::int64_t stride;

  __host__ __device__ __forceinline__ static std::int64_t stride_of(std::int64_t width) {
    return (width + kPack<T> - 1) / kPack<T> * kPack<T>;
  }
  static std::size_t bytes(std::int64_t width) {
    return static_cast<std::size_t>(kRows * stride_of(width) + kDepth * (kWeightStride + kRows)) * sizeof(T);
  }

  __device__ explicit Tile(std::int64_t width) : p(dynamic_shared<T>()), stride(stride_of(width)) {
    weight = p + kRows * stride;
    x = weight + kDepth * kWeightStride;
  }

  __device__ Pack<T>& pack(std::int64_t row, std::int64_t column) const {
    return *reinterpret_cast<Pack<T>*>(p + row * stride + column);
  }
  /// As a source of rows (ReadRow).
  __device__ Pack<T> load(std::int64_t row, std::int64_t column, std::int64_t) const {
    return pack(row, column);
  }

  __device__ int row_of_thread() const { return static_cast<int>(threadIdx.y) % kRowGroups * kThreadRows; }
  __device__ int column_of_thread(int pack_index) const {
    return static_cast<int>(threadIdx.y) / kRowGroups * 128 +
           (pack_index * 32 + static_cast<int>(threadIdx.x)) * kPack<T>;
  }
};

/// What p is made of.
template <class T>
struct ProjectedRows {
  Extent extent;  // of p
  std::int64_t depth = 0;
  Source<T> x, weight, bias;
};

/// Stages kDepth columns of x and of W's rows `column` on, zeros beyond their ends.
template <class T, int kRows>
__device__ void stage(const ProjectedRows<T>& from, std::int64_t row, std::int64_t column, std::int64_t depth,
                      const Tile<T, kRows>& tile) {
  using Form = Tile<T, kRows>;
  const int self = static_cast<int>(threadIdx.y * 32 + threadIdx.x);
  for (int i = self; i < Form::kColumns * Form::kDepth; i += kBlockThreads) {
    const int k = i % Form::kDepth, c = i / Form::kDepth;
    const bool inside = column + c < from.extent.columns && depth + k < from.depth;
    tile.weight[k * Form::kWeightStride + c] = inside ? from.weight.at(column + c, depth + k) : T(0);
  }
  for (int i = self; i < kRows * Form::kDepth; i += kBlockThreads) {
    const int k = i % Form::kDepth, r = i / Form::kDepth;
    const bool inside = row + r < from.extent.rows && depth + k < from.depth;
    tile.x[k * kRows + r] = inside ? from.x.at(row + r, depth + k) : T(0);
  }
}

/// Rows `row` on of p, into the tile. All threads must call it; ends with a barrier.
template <class T, int kRows>
__device__ void multiply_tile(const ProjectedRows<T>& from, std::int64_t row, const Tile<T, kRows>& tile) {
  using Form = Tile<T, kRows>;
  constexpr int kThreadRows = Form::kThreadRows, kThreadPacks = Form::kThreadPacks;
  const std::int64_t width = from.extent.columns;
  const int first_row = tile.row_of_thread();
  for (std::int64_t column = 0; column < width; column += Form::kColumns) {
    Pack<T> sum[kThreadRows][kThreadPacks] = {};
    const bool busy = row + first_row < from.extent.rows && column + tile.column_of_thread(0) < width;
    for (std::int64_t depth = 0; depth < from.depth; depth += Form::kDepth) {
      stage(from, row, column, depth, tile);
      __syncthreads();
      if (busy) {
#pragma unroll
        for (int k = 0; k < Form::kDepth; ++k) {
          Pack<T> w[kThreadPacks];
#pragma unroll
          for (int p = 0; p < kThreadPacks; ++p)
            w[p] = *reinterpret_cast<const Pack<T>*>(tile.weight + k * Form::kWeightStride +
                                                     tile.column_of_thread(p));
#pragma unroll
          for (int r = 0; r < kThreadRows; ++r) {
            const T x = tile.x[k * kRows + first_row + r];
#pragma unroll
            for (int p = 0; p < kThreadPacks; ++p) {
#pragma unroll
              for (int i = 0; i < kPack<T>; ++i) sum[r][p][i] = fma_of(x, w[p][i], sum[r][p][i]);
            }
          }
        }
      }
      __syncthreads();
    }
    if (!busy) continue;  // no barrier below in this loop
#pragma unroll
    for (int p = 0; p < kThreadPacks; ++p) {
      const std::int64_t at = column + tile.column_of_thread(p);
      if (at >= width) continue;
      const Pack<T> b = from.bias.load_or_zero(0, at, width - at);
#pragma unroll
      for (int r = 0; r < kThreadRows; ++r) {
#pragma unroll
        for (int i = 0; i < kPack<T>; ++i) sum[r][p][i] += b[i];
        tile.pack(first_row + r, at) = sum[r][p];
      }
    }
  }
  __syncthreads();
}

template <class T, int kRows>
__global__ void __launch_bounds__(kBlockThreads, kBlocksPerProcessor)
    projection_layer_norm_fwd_row_tile_kernel(ProjectedRows<T> from, Eps<T> eps, NormTargets<T> to) {
  const Tile<T, kRows> tile(from.extent.columns);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kRows;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kRows; first < from.extent.rows;
       first += step) {
    multiply_tile(from, first, tile);
    for (std::int64_t r = threadIdx.y; r < kRows && first + r < from.extent.rows; r += kWarps) {
      const ReadRow<T, Tile<T, kRows>> row{tile, r, from.extent.columns, static_cast<int>(threadIdx.x), 32};
      normalise_row<T, Norm::layer>(row, first + r, from.extent.columns, eps, to, WarpGroup<T>{});
    }
    __syncthreads();
  }
}

/// Where a block of the backward leaves its sums over rows, [blocks, E] each; null where nobody asks.
template <class T>
struct ColumnPartials {
  T *norm_weight = nullptr, *norm_bias = nullptr, *bias = nullptr;
};

/// partial[blockIdx.x, column] becomes, or grows by, the sum over the tile's rows of term(row in tile, column,
/// remaining). Each thread has columns of its own.
template <class T, class Term>
__device__ void add_columns(std::int64_t rows, std::int64_t width, bool fresh, T* partial, Term term) {
  if (partial == nullptr) return;
  const std::int64_t self = threadIdx.y * 32 + threadIdx.x;
  for (std::int64_t column = self * kPack<T>; column < width; column += kBlockThreads * kPack<T>) {
    Pack<T> sum = {};
    for (std::int64_t r = 0; r < rows; ++r) {
      const Pack<T> value = term(r, column, width - column);
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) sum[i] += value[i];
    }
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      T& cell = partial[blockIdx.x * width + column + i];
      if (column + i < width) cell = fresh ? sum[i] : cell + sum[i];
    }
  }
}

/// Tiles blockIdx.x * tiles_per_block on of the rows that `from` holds. `fresh`: the block's partial sums are not
/// there yet. d_p is not written where it is not wanted.
template <class T, int kRows>
__global__ void __launch_bounds__(kBlockThreads, kBlocksPerProcessor)
    projection_layer_norm_bwd_row_tile_kernel(ProjectedRows<T> from, std::int64_t tiles_per_block, bool fresh,
                                              Source<T> norm_weight, Source<T> statistics, Source<T> d_y,
                                              Target<T> d_p, ColumnPartials<T> partials) {
  using Statistics = RowStatistics<T, Norm::layer>;
  const Tile<T, kRows> tile(from.extent.columns);
  const std::int64_t width = from.extent.columns, total = from.extent.rows;
  const std::int64_t begin = blockIdx.x * tiles_per_block * kRows;
  const std::int64_t end = begin + tiles_per_block * kRows < total ? begin + tiles_per_block * kRows : total;
  for (std::int64_t first = begin; first < end; first += kRows) {
    const std::int64_t rows = end - first < kRows ? end - first : kRows;
    const bool starts = fresh && first == begin;
    multiply_tile(from, first, tile);
    add_columns(rows, width, starts, partials.norm_weight,
                [&](std::int64_t r, std::int64_t column, std::int64_t remaining) {
                  const Statistics s = Statistics::saved(statistics, first + r);
                  const Pack<T> p = tile.pack(r, column);
                  Pack<T> g = d_y.load(first + r, column, remaining);
#pragma unroll
                  for (int i = 0; i < kPack<T>; ++i) g[i] *= s.normalised(p[i]);
                  return g;
                });
    add_columns(rows, width, starts, partials.norm_bias,
                [&](std::int64_t r, std::int64_t column, std::int64_t remaining) {
                  return d_y.load(first + r, column, remaining);
                });
    __syncthreads();
    if (!d_p.wanted()) continue;  // the same for all threads
    // A lane writes d_p over the packs of p that it alone has read.
    for (std::int64_t r = threadIdx.y; r < rows; r += kWarps) {
      const ReadRow<T, Tile<T, kRows>> row{tile, r, width, static_cast<int>(threadIdx.x), 32};
      differentiate_row(row, first + r, width, Statistics::saved(statistics, first + r), norm_weight, d_y,
                        WarpGroup<T>{}, [&](std::int64_t column, std::int64_t remaining, Pack<T> d) {
                          tile.pack(r, column) = d;
                          d_p.store(first + r, column, remaining, d);
                        });
    }
    __syncthreads();
    add_columns(rows, width, starts, partials.bias, [&](std::int64_t r, std::int64_t column, std::int64_t) {
      return Pack<T>(tile.pack(r, column));
    });
    __syncthreads();
  }
}

// ---- launchers

/// Calls body(constant) with the rows of a tile for this width.
template <class Body>
Status dispatch_rows(std::int64_t width, Body&& body) {
  if (width > kMostWidth) {
    try {
      return Status::fail(Code::unsupported, "projection_layer_norm: E is " + std::to_string(width) +
                                                 ", on cuda wants at most " + std::to_string(kMostWidth));
    } catch (...) {
      return Status::fail(Code::unsupported, "");
    }
  }
  const int rows = width <= 256    ? 32
                   : width <= 512  ? 16
                   : width <= 1024 ? 8
                   : width <= 2048 ? 4
                   : width <= 4096 ? 2
                                   : 1;
  return dispatch_value<32, 16, 8, 4, 2, 1>(rows, "projection_layer_norm: no CUDA kernel for this width",
                                            body);
}

/// Rows begin .. begin + count - 1 of a tensor, as a matrix.
template <class AnyView>
AnyView some_rows(const AnyView& view, std::int64_t begin, std::int64_t count) noexcept {
  Rows rows;
  if (!view.present || !as_rows(view, &rows)) return {};
  const std::int64_t offset = begin * rows.stride * size_of(view.dtype);
  AnyView part(const_cast<char*>(view.template as<char>()) + offset, view.dtype, view.device,
               {count, rows.length});
  part.strides[0] = rows.stride;
  return part;
}

Gradient some_rows(const Gradient& gradient, std::int64_t begin, std::int64_t count) noexcept {
  return gradient.wanted() ? Gradient(some_rows(gradient.view, begin, count), gradient.mode) : Gradient();
}

/// The rows begin .. begin + count - 1 of p.
template <class T>
ProjectedRows<T> projected_rows(const ProjectionLayerNormForward& args, std::int64_t begin,
                                std::int64_t count) noexcept {
  const Extent weight = norm_extent(args.weight);
  return {{count, weight.rows},
          weight.columns,
          source<T>(some_rows(args.x, begin, count)),
          source<T>(args.weight),
          source<T>(args.bias)};
}

template <class T>
Status forward(const ProjectionLayerNormForward& args, Stream stream) {
  const ProjectedRows<T> from = projected_rows<T>(args, 0, norm_extent(args.x).rows);
  const NormTargets<T> to{source<T>(args.norm_weight),
                          source<T>(args.norm_bias),
                          target<T>(args.y),
                          {},
                          target<T>(args.statistics)};
  return dispatch_rows(from.extent.columns, [&](auto rows) {
    constexpr int kRows = rows.value;
    return launch("projection_layer_norm_fwd_row_tile_kernel",
                  projection_layer_norm_fwd_row_tile_kernel<T, kRows>,
                  grid_for(from.extent.rows, kRows, kMostBlocksX), dim3(32, kWarps),
                  Tile<T, kRows>::bytes(from.extent.columns), stream, from, eps_of<T>(args.eps), to);
  });
}

/// How the backward shares out the rows, and what lies where in its workspace. Everything follows from shapes and
/// from what is wanted; `tile_rows` from the width alone.
struct BackwardPlan {
  static constexpr std::int64_t kMostRows = 16384, kMostBlocks = 256, kRowsPerBlock = 16;

  bool wants_d_p = false;
  std::int64_t rows = 0, part = 0;  // of p; in one part
  std::int64_t tiles_per_block = 0, blocks = 0;
  std::int64_t sums_at = 0, weight_at = 0, bytes = 0;  // offsets; d_p comes first
  bool sums_weight = false;                            // d_weight is summed up in the workspace

  BackwardPlan(const ProjectionLayerNormBackward& args, std::int64_t tile_rows) noexcept {
    const Extent weight = norm_extent(args.weight);
    rows = norm_extent(args.x).rows;
    wants_d_p = args.d_x.wanted() || args.d_weight.wanted() || args.d_bias.wanted();
    part = ceil_div(ceil_div(rows, 2), tile_rows) * tile_rows;
    if (part > kMostRows) part = kMostRows;
    if (part > rows) part = rows;
    const std::int64_t tiles = ceil_div(part, tile_rows);
    blocks = part / kRowsPerBlock;
    if (blocks < 1) blocks = 1;
    if (blocks > tiles) blocks = tiles;
    if (blocks > kMostBlocks) blocks = kMostBlocks;
    tiles_per_block = blocks == 0 ? 0 : ceil_div(tiles, blocks);
    blocks =
        tiles_per_block == 0 ? 0 : ceil_div(tiles, tiles_per_block);  // each has a tile of the first part
    sums_weight = args.d_weight.mode == WriteMode::accumulate && rows > part;
    const std::int64_t element = size_of(args.x.dtype), width = weight.rows;
    sums_at = aligned(wants_d_p ? part * width * element : 0);
    weight_at = aligned(sums_at + 3 * blocks * width * element);
    bytes = weight_at + (sums_weight ? width * weight.columns * element : 0);
  }

  static std::int64_t aligned(std::int64_t bytes) noexcept { return ceil_div(bytes, 256) * 256; }
};

bool wants_nothing(const ProjectionLayerNormBackward& args) noexcept {
  return !args.d_x.wanted() && !args.d_weight.wanted() && !args.d_bias.wanted() &&
         !args.d_norm_weight.wanted() && !args.d_norm_bias.wanted();
}

/// d_x and d_W of some rows. `weight` is where d_W goes, and how.
Status multiply_back(const ProjectionLayerNormBackward& args, const View& d_p, std::int64_t begin,
                     std::int64_t count, const Gradient& weight, Stream stream) {
  ProjectionBackward projection;
  projection.x = some_rows(args.x, begin, count);
  projection.weight = args.weight;
  projection.d_y = some_rows(d_p, 0, count);
  projection.d_x = some_rows(args.d_x, begin, count);
  projection.d_weight = weight;
  return cuda::projection_backward(projection, stream);
}

template <class T, int kRows>
Status backward(const ProjectionLayerNormBackward& args, Stream stream) {
  const BackwardPlan plan(args, kRows);
  const std::int64_t width = norm_extent(args.weight).rows;
  char* const workspace = static_cast<char*>(args.workspace.data);
  const View d_p(workspace, args.x.dtype, args.x.device, {plan.part, width});
  T* const sums = reinterpret_cast<T*>(workspace + plan.sums_at);
  const auto partial = [&](const Gradient& wanted, int index) {
    return wanted.wanted() ? sums + index * plan.blocks * width : nullptr;
  };
  const ColumnPartials<T> partials{partial(args.d_norm_weight, 0), partial(args.d_norm_bias, 1),
                                   partial(args.d_bias, 2)};
  Gradient d_weight = args.d_weight;
  if (plan.sums_weight)
    d_weight = {View(workspace + plan.weight_at, args.x.dtype, args.x.device, args.weight.shape),
                WriteMode::overwrite};

  std::int64_t begin = 0;
  do {  // also where there are no rows: d_W is zero then
    const std::int64_t count = plan.rows - begin < plan.part ? plan.rows - begin : plan.part;
    const ProjectedRows<T> from = projected_rows<T>(args, begin, count);
    SCANTAPE_TRY(launch("projection_layer_norm_bwd_row_tile_kernel",
                        projection_layer_norm_bwd_row_tile_kernel<T, kRows>,
                        grid_for(count, static_cast<int>(plan.tiles_per_block * kRows), kMostBlocksX),
                        dim3(32, kWarps), Tile<T, kRows>::bytes(width), stream, from, plan.tiles_per_block,
                        begin == 0, source<T>(args.norm_weight),
                        source<T>(some_rows(static_cast<const ConstView&>(args.statistics), begin, count)),
                        source<T>(some_rows(args.d_y, begin, count)),
                        plan.wants_d_p ? target<T>(d_p) : Target<T>{}, partials));
    SCANTAPE_TRY(multiply_back(args, d_p, begin, count, d_weight, stream));
    if (d_weight.wanted()) d_weight.mode = WriteMode::accumulate;
    begin += count;
  } while (begin < plan.rows);

  if (plan.sums_weight) {
    SCANTAPE_TRY(join_column_sums("projection_layer_norm_bwd_add_weight", d_weight.view.as<T>(), 1,
                                  args.weight.elements(), target<T>(args.d_weight, true), stream));
  }
  const auto join = [&](const char* name, const T* sum, const Gradient& gradient) {
    return join_column_sums(name, sum, plan.blocks, width, target<T>(gradient), stream);
  };
  SCANTAPE_TRY(join("projection_layer_norm_bwd_join_norm_weight", partials.norm_weight, args.d_norm_weight));
  SCANTAPE_TRY(join("projection_layer_norm_bwd_join_norm_bias", partials.norm_bias, args.d_norm_bias));
  return join("projection_layer_norm_bwd_join_bias", partials.bias, args.d_bias);
}

constexpr const char* kMissing = "projection_layer_norm: no CUDA kernel for this dtype";

}  // namespace

Status projection_layer_norm_forward(const ProjectionLayerNormForward& args, Stream stream) noexcept {
  return dispatch_dtype(args.x.dtype, kMissing,
                        [&](auto zero) { return forward<decltype(zero)>(args, stream); });
}

Status projection_layer_norm_backward(const ProjectionLayerNormBackward& args, Stream stream) noexcept {
  if (wants_nothing(args)) return Status();
  return dispatch_dtype(args.x.dtype, kMissing, [&](auto zero) {
    return dispatch_rows(args.weight.shape[0],
                         [&](auto rows) { return backward<decltype(zero), rows.value>(args, stream); });
  });
}

std::int64_t projection_layer_norm_forward_workspace(const ProjectionLayerNormForward&) noexcept {
  return 0;
}

std::int64_t projection_layer_norm_backward_workspace(const ProjectionLayerNormBackward& args) noexcept {
  if (wants_nothing(args)) return 0;
  std::int64_t bytes = 0;
  const Status status = dispatch_rows(args.weight.shape[0], [&](auto rows) {
    bytes = BackwardPlan(args, rows.value).bytes;
    return Status();
  });
  return status.ok() ? bytes : 0;
}

}  // namespace scantape::cuda
