#pragma once

#include <array>
#include <limits>

#include "common.h"
#include "common/norm_range.h"
#include "scantape/norm.h"

/// Both norms. What they share is everything but the mean: see kernels/common/norm.cuh for the maths.
namespace scantape::reference {

template <class T, Norm kNorm>
struct NormStatistics {
  T mean = 0, correction = 0, rstd = 0;  // rstd is negative where the row was scaled

  T scale() const noexcept { return std::signbit(rstd) ? NormRange<T>::kShrink : T(1); }
  T centred(T r, T scale) const noexcept {
    return kNorm == Norm::layer ? (r * scale - mean) - correction : r * scale;
  }
  T normalised(T r) const noexcept { return centred(r, scale()) * std::abs(rstd); }

  void save(T* to) const noexcept {
    if (kNorm == Norm::layer) {
      to[0] = mean;
      to[1] = correction;
    }
    to[kNormStatistics<kNorm> - 1] = rstd;
  }
  static NormStatistics saved(const T* from) noexcept {
    if (kNorm == Norm::rms) return {0, 0, from[0]};
    return {from[0], from[1], from[2]};
  }
};

// Eps vanishes beside the variance of such a row, unless all its values are equal: then it alone is left,
// here in the scaled unit.
template <class T>
double huge_rstd(double variance, double eps) noexcept {
  return variance != 0 ? 1 / std::sqrt(variance) : NormRange<T>::kUnshrink / std::sqrt(eps);
}

// The mean of the deviations is 0 but for the rounding of the mean itself: taking it away once more makes a
// row of equal values exactly 0 and keeps the variance where the mean is far larger than the spread.
template <class T, Norm kNorm, class Row>
NormStatistics<T, kNorm> statistics_of(const Row& r, std::int64_t count, double eps) noexcept {
  using Range = NormRange<T>;
  const auto n = static_cast<double>(count);
  T largest = 0;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(r(i)));
  const bool huge = largest > Range::kHuge, tiny = eps < Range::kTinyEps && largest < Range::kTiny;
  const T scale = huge ? Range::kShrink : T(1);
  const double lift = tiny ? Range::kLift : 1;

  NormStatistics<T, kNorm> s;
  if (kNorm == Norm::layer) {
    s.mean = static_cast<T>(sum(count, [&](std::int64_t i) { return double(r(i) * scale); }) / n);
    s.correction =
        static_cast<T>(sum(count, [&](std::int64_t i) { return double(r(i) * scale - s.mean); }) / n);
  }
  const double variance = sum(count,
                              [&](std::int64_t i) {
                                const double d = s.centred(r(i), scale) * lift;
                                return d * d;
                              }) /
                          n;
  const double least = std::numeric_limits<T>::min();
  const double rstd = huge ? huge_rstd<T>(variance, std::max(eps, least))
                           : lift / std::sqrt(variance + std::max(eps * lift * lift, least));
  const T bounded = static_cast<T>(std::min<double>(rstd, std::numeric_limits<T>::max()));
  s.rstd = huge ? -bounded : bounded;
  return s;
}

template <class T, Norm kNorm>
void norm_forward(const NormForward& args) noexcept {
  const Rows rows = rows_of(args.x);
  const RowsOf<const T> x(args.x), residual(args.residual);
  const RowsOf<T> y(args.y), sums(args.r), saved(args.statistics);
  const T* weight = args.weight.as<T>();
  const T* bias = args.bias.as<T>();
#pragma omp parallel for schedule(static) if (worth_threads(rows.count * rows.length))
  for (std::int64_t row = 0; row < rows.count; ++row) {
    const T *xr = x[row], *more = residual[row];
    T *to = y[row], *sum = sums[row];
    const auto normalise = [&](const auto& r) {
      const auto statistics = statistics_of<T, kNorm>(r, rows.length, args.eps);
      for (std::int64_t i = 0; i < rows.length; ++i) {
        const T value = r(i);  // read before y or r is written over it
        if (sum != nullptr) sum[i] = value;
        to[i] = statistics.normalised(value) * weight[i] + (bias != nullptr ? bias[i] : T(0));
      }
      statistics.save(saved[row]);
    };
    if (more == nullptr) {
      normalise([xr](std::int64_t i) { return xr[i]; });
    } else {
      normalise([xr, more](std::int64_t i) { return T(xr[i] + more[i]); });
    }
  }
}

inline const ConstView& normalised_rows(const NormBackward& args) noexcept {
  return args.residual.present ? static_cast<const ConstView&>(args.r) : args.x;
}

// The cotangent of r by way of y:  rstd (g - mean(g) - xh mean(g xh)), g(i) that of xh (weight d_y), xh the normalised
// r(i) and the first mean for layer alone. rstd is that of r * scale, so the derivative by r has the scale in it once
// more.
template <class T, Norm kNorm, class Row, class Cotangent>
struct RowDerivative {
  NormStatistics<T, kNorm> statistics;
  Row r;
  Cotangent g;
  T c1 = 0, c2 = 0;

  RowDerivative(const T* saved, const Row& row, const Cotangent& cotangent, std::int64_t count) noexcept
      : statistics(NormStatistics<T, kNorm>::saved(saved)), r(row), g(cotangent) {
    const auto n = static_cast<double>(count);
    if (kNorm == Norm::layer)
      c1 = static_cast<T>(sum(count, [&](std::int64_t i) { return double(g(i)); }) / n);
    c2 = static_cast<T>(
        sum(count, [&](std::int64_t i) { return double(g(i) * statistics.normalised(r(i))); }) / n);
  }
  T operator()(std::int64_t i) const noexcept {
    const T rstd = std::abs(statistics.rstd);
    const T scale = statistics.scale();  // apart from rstd: their product alone may be too small for a float
    return rstd * (g(i) - c1 - statistics.normalised(r(i)) * c2) * scale;
  }
};

template <class T, Norm kNorm, class Row, class Cotangent>
RowDerivative<T, kNorm, Row, Cotangent> row_derivative(const T* saved, const Row& row,
                                                       const Cotangent& cotangent,
                                                       std::int64_t count) noexcept {
  return {saved, row, cotangent, count};
}

template <class T, Norm kNorm>
void norm_backward_rows(const NormBackward& args) noexcept {
  const ConstView& from = normalised_rows(args);
  const Rows rows = rows_of(from);
  const RowsOf<const T> r(from), d_y(args.d_y), d_r(args.d_r), saved(args.statistics);
  const T* weight = args.weight.as<T>();
  const Target<T> d_x(args.d_x), d_residual(args.d_residual);
#pragma omp parallel for schedule(static) if (worth_threads(rows.count * rows.length))
  for (std::int64_t row = 0; row < rows.count; ++row) {
    const T* more = d_r[row];
    // In pieces, so that both targets are written from one value: either may lie over what it is made of.
    const auto write = [&](const auto& by_y) {
      std::array<T, 256> piece;
      const auto size = static_cast<std::int64_t>(piece.size());
      for (std::int64_t begin = 0; begin < rows.length; begin += size) {
        const std::int64_t end = std::min(begin + size, rows.length);
        const auto at = [begin](std::int64_t i) { return static_cast<std::size_t>(i - begin); };
        for (std::int64_t i = begin; i < end; ++i)
          piece[at(i)] = by_y(i) + (more != nullptr ? more[i] : T(0));
        const auto value = [&](std::int64_t i) { return piece[at(i)]; };
        d_x.write(row, begin, end, value);
        d_residual.write(row, begin, end, value);
      }
    };
    if (d_y) {
      const T *rr = r[row], *gr = d_y[row];
      write(row_derivative<T, kNorm>(
          saved[row], [rr](std::int64_t i) { return rr[i]; },
          [weight, gr](std::int64_t i) { return weight[i] * gr[i]; }, rows.length));
    } else {
      write([](std::int64_t) { return T(0); });
    }
  }
}

template <class T, Norm kNorm>
void norm_backward_parameters(const NormBackward& args) {
  const ConstView& from = normalised_rows(args);
  const Rows rows = rows_of(from);
  const RowsOf<const T> r(from), d_y(args.d_y), saved(args.statistics);
  const Target<T> d_weight(args.d_weight), d_bias(args.d_bias);
  std::vector<double> sums(static_cast<std::size_t>(rows.length));
  const auto summed = [&](std::int64_t i) { return static_cast<T>(sums[static_cast<std::size_t>(i)]); };
  const std::int64_t count = d_y ? rows.count : 0;  // absent: zero
  if (d_weight) {
    sum_rows(count, rows.length, sums.data(),
             [&](std::int64_t row, std::int64_t begin, std::int64_t end, double* s) {
               const auto statistics = NormStatistics<T, kNorm>::saved(saved[row]);
               const T* rr = r[row];
               const T* gr = d_y[row];
               for (std::int64_t i = begin; i < end; ++i) s[i] += gr[i] * statistics.normalised(rr[i]);
             });
    d_weight.write(0, rows.length, summed);
  }
  if (d_bias) {
    sum_rows(count, rows.length, sums.data(),
             [&](std::int64_t row, std::int64_t begin, std::int64_t end, double* s) {
               const T* gr = d_y[row];
               for (std::int64_t i = begin; i < end; ++i) s[i] += gr[i];
             });
    d_bias.write(0, rows.length, summed);
  }
}

template <Norm kNorm>
Status run_norm_forward(const NormForward& args) noexcept {
  dispatch(args.x.dtype, [&](auto zero) { norm_forward<decltype(zero), kNorm>(args); });
  return {};
}

template <Norm kNorm>
Status run_norm_backward(const char* op, const NormBackward& args) noexcept {
  return run(op, [&] {
    dispatch(args.weight.dtype, [&](auto zero) {
      using T = decltype(zero);
      norm_backward_parameters<T, kNorm>(args);  // first: d_x may be written over d_y
      if (args.d_x.wanted() || args.d_residual.wanted()) norm_backward_rows<T, kNorm>(args);
    });
  });
}

}  // namespace scantape::reference
