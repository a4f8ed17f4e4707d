// Affine map of the last axis, y = x W^T + b, over M rows: x [M, I], W [O, I], b [O], y [M, O].
//
// Gradient. y_mo = sum_i x_mi W_oi + b_o, so
//
//   d_x = d_y W,   d_W = d_y^T x,   d_b = sum over rows of d_y
//
// Forward saves nothing. The products are the vendor's (common/matrix_product.h), which writes or accumulates
// as asked; bias and its gradient are our own kernels, because the library's fused forms can only overwrite, and
// there are none in f64. The bias comes first: y is filled with it, exactly in any type, and the product is added, so
// that y of 16 bits is rounded once. What normalises y next has both in its own pass: projection_layer_norm.cu.
// d_b goes through partial sums per block in the workspace and a second launch that adds them in order. d_W and d_b
// of tensors of 16 bits are f32.
//
// Bytes beside the products': the bias writes y, which the product then reads (2 M O elements); d_b reads d_y (M O).

#include "scantape/projection.h"

#include "common/dispatch.cuh"
#include "common/matrix_product.h"
#include "common/reduce.cuh"

namespace scantape::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    projection_fwd_bias_kernel(Extent extent, Source<T> bias, Target<T> y) {
  y.accumulate = false;  // as it is: said here, the other path takes no registers
  for_each_pack<T>(extent, [&](std::int64_t row, std::int64_t column, std::int64_t remaining) {
    y.store(row, column, remaining, bias.load(0, column, remaining));
  });
}

template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    projection_bwd_bias_columns_kernel(Extent extent, std::int64_t rows_per_chunk, Source<T> d_y,
                                       Compute<T>* partial) {
  auto& cells = shared_storage<ColumnCells<T>>();
  sum_columns(extent, rows_per_chunk, partial, cells,
              [&](std::int64_t row, std::int64_t column, std::int64_t remaining, Pack<T>& sum) {
                const Pack<T> g = d_y.load(row, column, remaining);
#pragma unroll
                for (int i = 0; i < kPack<T>; ++i) sum[i] += g[i];
              });
}

Rows rows_of(const ConstView& view) noexcept {
  Rows rows;
  return as_rows(view, &rows) ? rows : Rows{};
}

Extent extent_of(const ConstView& view) noexcept {
  const Rows rows = rows_of(view);
  return {rows.count, rows.length};
}

template <class T>
Status fill_with_bias(const ProjectionForward& args, Stream stream) {
  const Extent extent = extent_of(args.y);
  if (extent.rows == 0 || extent.columns == 0) return Status();
  const Grid grid = element_grid<T>(extent);
  return launch("projection_fwd_bias_kernel", projection_fwd_bias_kernel<T>, grid.grid, grid.block, 0, stream,
                extent, source<T>(args.bias), target<T>(args.y));
}

Status forward(const ProjectionForward& args, Stream stream) {
  const Rows x = rows_of(args.x), weight = rows_of(args.weight), y = rows_of(args.y);
  MatrixProduct product;
  product.dtype = args.x.dtype;
  product.transpose_b = true;
  product.m = y.count;
  product.n = y.length;
  product.k = x.length;
  product.a = args.x.data;
  product.lda = x.stride;
  product.b = args.weight.data;
  product.ldb = weight.stride;
  product.c = args.y.as<void>();
  product.ldc = y.stride;
  product.accumulate = args.bias.present;
  return matrix_product(product, stream);
}

template <class T>
Status backward_bias(const ProjectionBackward& args, Stream stream) {
  const Extent extent = extent_of(args.d_y);
  if (!args.d_bias.wanted() || extent.columns == 0) return Status();
  const ColumnPlan plan = column_plan<T>(extent);
  Compute<T>* const partial = static_cast<Compute<T>*>(args.workspace.data);
  SCANTAPE_TRY(launch("projection_bwd_bias_columns_kernel", projection_bwd_bias_columns_kernel<T>,
                      plan.grid.grid, plan.grid.block, 0, stream, extent, plan.rows, source<T>(args.d_y),
                      partial));
  return join_column_sums("projection_bwd_join_bias", partial, plan.chunks, extent.columns,
                          target<Compute<T>>(args.d_bias), stream);
}

Status backward_weight(const ProjectionBackward& args, Stream stream) {
  if (!args.d_weight.wanted()) return Status();
  const Rows x = rows_of(args.x), d_y = rows_of(args.d_y), d_weight = rows_of(args.d_weight.view);
  MatrixProduct product;
  product.dtype = args.x.dtype;
  product.transpose_a = true;
  product.m = d_y.length;
  product.n = x.length;
  product.k = d_y.count;
  product.a = args.d_y.data;
  product.lda = d_y.stride;
  product.b = args.x.data;
  product.ldb = x.stride;
  product.c = args.d_weight.view.as<void>();
  product.ldc = d_weight.stride;
  product.f32_result = args.d_weight.view.dtype == DType::f32;
  product.accumulate = args.d_weight.mode == WriteMode::accumulate;
  return matrix_product(product, stream);
}

Status backward_x(const ProjectionBackward& args, Stream stream) {
  if (!args.d_x.wanted()) return Status();
  const Rows d_y = rows_of(args.d_y), weight = rows_of(args.weight), d_x = rows_of(args.d_x.view);
  MatrixProduct product;
  product.dtype = args.x.dtype;
  product.m = d_y.count;
  product.n = weight.length;
  product.k = d_y.length;
  product.a = args.d_y.data;
  product.lda = d_y.stride;
  product.b = args.weight.data;
  product.ldb = weight.stride;
  product.c = args.d_x.view.as<void>();
  product.ldc = d_x.stride;
  product.accumulate = args.d_x.mode == WriteMode::accumulate;
  return matrix_product(product, stream);
}

constexpr const char* kMissing = "projection: no CUDA kernel for this dtype";

}  // namespace

Status projection_forward(const ProjectionForward& args, Stream stream) noexcept {
  if (args.bias.present) {
    SCANTAPE_TRY(dispatch_storage(args.x.dtype, kMissing,
                                  [&](auto zero) { return fill_with_bias<decltype(zero)>(args, stream); }));
  }
  return forward(args, stream);
}

Status projection_backward(const ProjectionBackward& args, Stream stream) noexcept {
  SCANTAPE_TRY(dispatch_storage(args.x.dtype, kMissing,
                                [&](auto zero) { return backward_bias<decltype(zero)>(args, stream); }));
  SCANTAPE_TRY(backward_weight(args, stream));
  return backward_x(args, stream);
}

std::int64_t projection_forward_workspace(const ProjectionForward&) noexcept {
  return 0;
}

std::int64_t projection_backward_workspace(const ProjectionBackward& args) noexcept {
  if (!args.d_bias.wanted()) return 0;
  const Extent extent = extent_of(args.d_y);
  std::int64_t bytes = 0;
  const Status status = dispatch_storage(args.x.dtype, kMissing, [&](auto zero) {
    using T = decltype(zero);
    bytes = column_plan<T>(extent).chunks * extent.columns * static_cast<std::int64_t>(sizeof(Compute<T>));
    return Status();
  });
  return status.ok() ? bytes : 0;
}

}  // namespace scantape::cuda
