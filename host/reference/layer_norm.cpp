#include "scantape/layer_norm.h"

#include <limits>

#include "common.h"

namespace scantape::reference {

namespace {

// Above `threshold` squares could overflow: such a row is normalised as x * scale, without eps.
template <class T>
struct LargeValues {
  static constexpr T kThreshold = 0x1p60F;
  static constexpr T kScale = 0x1p-100F, kUnscale = 0x1p100F;
};
template <>
struct LargeValues<double> {
  static constexpr double kThreshold = 0x1p500;
  static constexpr double kScale = 0x1p-600, kUnscale = 0x1p600;
};

template <class T>
struct Statistics {
  T mean, correction, rstd;  // rstd is negative where the row was scaled

  T scale() const noexcept { return std::signbit(rstd) ? LargeValues<T>::kScale : T(1); }
  T normalised(T x) const noexcept { return ((x * scale() - mean) - correction) * std::abs(rstd); }
};

// Eps vanishes beside the variance of such a row, unless all its values are equal: then it alone is left,
// here in the scaled unit.
template <class T>
T scaled_rstd(double variance, double eps) noexcept {
  const double rstd = variance != 0 ? 1 / std::sqrt(variance) : LargeValues<T>::kUnscale / std::sqrt(eps);
  return static_cast<T>(std::min<double>(rstd, std::numeric_limits<T>::max()));
}

// The mean of the deviations is 0 but for the rounding of the mean itself: taking it away once more makes a
// row of equal values exactly 0 and keeps the variance where the mean is far larger than the spread.
template <class T>
Statistics<T> statistics_of(const T* x, std::int64_t count, double eps) noexcept {
  const auto n = static_cast<double>(count);
  T largest = 0;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(x[i]));
  const bool scaled = largest > LargeValues<T>::kThreshold;
  const T scale = scaled ? LargeValues<T>::kScale : T(1);

  const T mean = static_cast<T>(sum(count, [&](std::int64_t i) { return double(x[i] * scale); }) / n);
  const T correction =
      static_cast<T>(sum(count, [&](std::int64_t i) { return double(x[i] * scale - mean); }) / n);
  const double variance = sum(count,
                              [&](std::int64_t i) {
                                const double d = (x[i] * scale - mean) - correction;
                                return d * d;
                              }) /
                          n;
  return {mean, correction,
          scaled ? -scaled_rstd<T>(variance, eps) : static_cast<T>(1 / std::sqrt(variance + eps))};
}

template <class T>
void forward(const LayerNormForward& args) noexcept {
  const Rows rows = rows_of(args.x);
  const RowsOf<const T> x(args.x);
  const RowsOf<T> y(args.y), saved(args.statistics);
  const T* weight = args.weight.as<T>();
  const T* bias = args.bias.as<T>();
#pragma omp parallel for schedule(static) if (worth_threads(rows.count * rows.length))
  for (std::int64_t row = 0; row < rows.count; ++row) {
    const Statistics<T> statistics = statistics_of(x[row], rows.length, args.eps);
    const T* from = x[row];
    T* to = y[row];
    for (std::int64_t i = 0; i < rows.length; ++i)
      to[i] = statistics.normalised(from[i]) * weight[i] + bias[i];
    saved[row][0] = statistics.mean;
    saved[row][1] = statistics.correction;
    saved[row][2] = statistics.rstd;
  }
}

// d_x = rstd (w d_y - mean(w d_y) - xh mean(w d_y xh)), xh the normalised x. rstd is that of x * scale, so
// the derivative by x has the scale in it once more.
template <class T>
void backward_x(const LayerNormBackward& args) noexcept {
  const Rows rows = rows_of(args.x);
  const auto n = static_cast<double>(rows.length);
  const RowsOf<const T> x(args.x), d_y(args.d_y), saved(args.statistics);
  const T* weight = args.weight.as<T>();
  const Target<T> d_x(args.d_x);
#pragma omp parallel for schedule(static) if (worth_threads(rows.count * rows.length))
  for (std::int64_t row = 0; row < rows.count; ++row) {
    const Statistics<T> statistics{saved[row][0], saved[row][1], saved[row][2]};
    const T* xr = x[row];
    const T* gr = d_y[row];
    const T c1 =
        static_cast<T>(sum(rows.length, [&](std::int64_t i) { return double(weight[i] * gr[i]); }) / n);
    const T c2 = static_cast<T>(
        sum(rows.length,
            [&](std::int64_t i) { return double(weight[i] * gr[i] * statistics.normalised(xr[i])); }) /
        n);
    const T rstd = std::abs(statistics.rstd);
    const T scale = statistics.scale();  // apart from rstd: their product alone may be too small for a float
    d_x.write(row, rows.length, [&](std::int64_t i) {
      return rstd * (weight[i] * gr[i] - c1 - statistics.normalised(xr[i]) * c2) * scale;
    });
  }
}

template <class T>
void backward_parameters(const LayerNormBackward& args) {
  const Rows rows = rows_of(args.x);
  const RowsOf<const T> x(args.x), d_y(args.d_y), saved(args.statistics);
  const Target<T> d_weight(args.d_weight), d_bias(args.d_bias);
  std::vector<double> sums(static_cast<std::size_t>(rows.length));
  const auto summed = [&](std::int64_t i) { return static_cast<T>(sums[static_cast<std::size_t>(i)]); };
  if (d_weight) {
    sum_rows(rows.count, rows.length, sums.data(),
             [&](std::int64_t row, std::int64_t begin, std::int64_t end, double* s) {
               const Statistics<T> statistics{saved[row][0], saved[row][1], saved[row][2]};
               const T* xr = x[row];
               const T* gr = d_y[row];
               for (std::int64_t i = begin; i < end; ++i) s[i] += gr[i] * statistics.normalised(xr[i]);
             });
    d_weight.write(0, rows.length, summed);
  }
  if (d_bias) {
    sum_rows(rows.count, rows.length, sums.data(),
             [&](std::int64_t row, std::int64_t begin, std::int64_t end, double* s) {
               const T* gr = d_y[row];
               for (std::int64_t i = begin; i < end; ++i) s[i] += gr[i];
             });
    d_bias.write(0, rows.length, summed);
  }
}

}  // namespace

Status layer_norm_forward(const LayerNormForward& args) noexcept {
  dispatch(args.x.dtype, [&](auto zero) { forward<decltype(zero)>(args); });
  return {};
}

Status layer_norm_backward(const LayerNormBackward& args) noexcept {
  return run("layer_norm_backward", [&] {
    dispatch(args.x.dtype, [&](auto zero) {
      using T = decltype(zero);
      backward_parameters<T>(args);  // first: d_x may be written over d_y
      if (args.d_x.wanted()) backward_x<T>(args);
    });
  });
}

}  // namespace scantape::reference
