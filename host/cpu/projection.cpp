#include "cpu/projection.h"

#include "common/matrix_product.h"
#include "in_f32.h"
#include "reference/common.h"

namespace scantape::cpu {

namespace {

using reference::dispatch;
using reference::RowsOf;
using reference::Target;

/// A [rows, length] operand in memory, rows `stride` apart.
struct Matrix {
  const void* data;
  std::int64_t ld;
  bool transposed = false;
};

Matrix matrix(const ConstView& view) noexcept {
  return {view.data, reference::rows_of(view).stride};
}
Matrix transposed(const ConstView& view) noexcept {
  return {view.data, reference::rows_of(view).stride, true};
}

Status multiply(const Matrix& a, const Matrix& b, std::int64_t m, std::int64_t n, std::int64_t k,
                const View& c, bool accumulate) noexcept {
  MatrixProduct product;
  product.dtype = c.dtype;
  product.transpose_a = a.transposed;
  product.transpose_b = b.transposed;
  product.m = m;
  product.n = n;
  product.k = k;
  product.a = a.data;
  product.lda = a.ld;
  product.b = b.data;
  product.ldb = b.ld;
  product.c = const_cast<void*>(c.data);
  product.ldc = reference::rows_of(c).stride;
  product.accumulate = accumulate;
  return matrix_product(product);
}

Status multiply(const Matrix& a, const Matrix& b, std::int64_t m, std::int64_t n, std::int64_t k,
                const Gradient& c) noexcept {
  return c.wanted() ? multiply(a, b, m, n, k, c.view, c.mode == WriteMode::accumulate) : Status();
}

template <class T>
void fill_with_bias(const ProjectionForward& args, const Rows& out) noexcept {
  const RowsOf<T> y(args.y);
  const T* bias = args.bias.as<T>();
#pragma omp parallel for schedule(static) if (reference::worth_threads(out.count * out.length))
  for (std::int64_t row = 0; row < out.count; ++row) std::copy(bias, bias + out.length, y[row]);
}

template <class T>
void write_d_bias(const ProjectionBackward& args, const Rows& out) {
  const RowsOf<const T> d_y(args.d_y);
  std::vector<double> sums(static_cast<std::size_t>(out.length));
  reference::sum_rows(out.count, out.length, sums.data(),
                      [&](std::int64_t row, std::int64_t begin, std::int64_t end, double* s) {
                        const T* from = d_y[row];
#pragma omp simd
                        for (std::int64_t i = begin; i < end; ++i) s[i] += double(from[i]);
                      });
  const Target<T> d_bias(args.d_bias);
  d_bias.write(0, out.length,
               [&](std::int64_t i) { return static_cast<T>(sums[static_cast<std::size_t>(i)]); });
}

}  // namespace

Status projection_forward(const ProjectionForward& args) noexcept {
  if (is_16_bit(args.x.dtype)) return in_f32("projection", args, projection_forward);
  const Rows in = reference::rows_of(args.x), out = reference::rows_of(args.y);
  const bool with_bias = args.bias.present;
  if (with_bias) dispatch(args.x.dtype, [&](auto zero) { fill_with_bias<decltype(zero)>(args, out); });
  return multiply(matrix(args.x), transposed(args.weight), out.count, out.length, in.length, args.y,
                  with_bias);
}

Status projection_backward(const ProjectionBackward& args) noexcept {
  if (is_16_bit(args.x.dtype)) return in_f32("projection_backward", args, projection_backward);
  const Rows in = reference::rows_of(args.x), out = reference::rows_of(args.d_y);
  SCANTAPE_TRY(multiply(matrix(args.d_y), matrix(args.weight), in.count, in.length, out.length, args.d_x));
  SCANTAPE_TRY(
      multiply(transposed(args.d_y), matrix(args.x), out.length, in.length, in.count, args.d_weight));
  if (!args.d_bias.wanted()) return {};
  return reference::run("projection_backward", [&] {
    dispatch(args.x.dtype, [&](auto zero) { write_d_bias<decltype(zero)>(args, out); });
  });
}

}  // namespace scantape::cpu
