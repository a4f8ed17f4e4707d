#include "scantape/projection.h"

#include "common.h"
#include "in_f32.h"

namespace scantape::reference {

namespace {

template <class T>
void forward(const ProjectionForward& args) noexcept {
  const Rows in = rows_of(args.x), out = rows_of(args.y);
  const RowsOf<const T> x(args.x), weight(args.weight);
  const RowsOf<T> y(args.y);
#pragma omp parallel for schedule(static) if (worth_threads(in.count * in.length * out.length))
  for (std::int64_t row = 0; row < in.count; ++row) {
    for (std::int64_t o = 0; o < out.length; ++o) {
      const T *xr = x[row], *w = weight[o];
      const double product = sum(in.length, [&](std::int64_t i) { return double(xr[i]) * w[i]; });
      y[row][o] = static_cast<T>(product + (args.bias.present ? double(args.bias.as<T>()[o]) : 0.0));
    }
  }
}

/// Row `row` of `sums` += factor * from.
template <class T>
void add_scaled(double factor, const T* from, std::int64_t count, double* sums) noexcept {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) sums[i] += factor * double(from[i]);
}

template <class T>
void backward(const ProjectionBackward& args) {
  const Rows in = rows_of(args.x), out = rows_of(args.d_y);
  const RowsOf<const T> x(args.x), weight(args.weight), d_y(args.d_y);
  const Target<T> d_x(args.d_x), d_weight(args.d_weight), d_bias(args.d_bias);
  const auto width = static_cast<std::size_t>(in.length);
  std::vector<double> sums(width * static_cast<std::size_t>(std::max(in.count, out.length)));
  const auto sums_of = [&](std::int64_t row) {
    double* start = sums.data() + row * in.length;
    std::fill(start, start + in.length, 0.0);
    return start;
  };
#pragma omp parallel for schedule(static) if (worth_threads(in.count * in.length * out.length))
  for (std::int64_t row = 0; row < (d_x ? in.count : 0); ++row) {
    double* s = sums_of(row);
    for (std::int64_t o = 0; o < out.length; ++o) add_scaled(d_y[row][o], weight[o], in.length, s);
    d_x.write(row, in.length, [&](std::int64_t i) { return static_cast<T>(s[i]); });
  }
#pragma omp parallel for schedule(static) if (worth_threads(in.count * in.length * out.length))
  for (std::int64_t o = 0; o < (d_weight ? out.length : 0); ++o) {
    double* s = sums_of(o);
    for (std::int64_t row = 0; row < in.count; ++row) add_scaled(d_y[row][o], x[row], in.length, s);
    d_weight.write(o, in.length, [&](std::int64_t i) { return static_cast<T>(s[i]); });
  }
  for (std::int64_t o = 0; o < (d_bias ? out.length : 0); ++o) {
    const double total = sum(in.count, [&](std::int64_t row) { return double(d_y[row][o]); });
    d_bias.write_one(o, static_cast<T>(total));
  }
}

}  // namespace

Status projection_forward(const ProjectionForward& args) noexcept {
  if (is_16_bit(args.x.dtype)) return in_f32("projection", args, projection_forward);
  dispatch(args.x.dtype, [&](auto zero) { forward<decltype(zero)>(args); });
  return {};
}

Status projection_backward(const ProjectionBackward& args) noexcept {
  if (is_16_bit(args.x.dtype)) return in_f32("projection_backward", args, projection_backward);
  return run("projection_backward",
             [&] { dispatch(args.x.dtype, [&](auto zero) { backward<decltype(zero)>(args); }); });
}

}  // namespace scantape::reference
