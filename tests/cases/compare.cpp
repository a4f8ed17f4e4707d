#include "compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "image.h"
#include "scantape/autograd/gradcheck.h"

namespace scantape::cases {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double element_error(const Values& got, const Values& want, DType dtype) {
  // Below the smallest normal number the distance of two neighbours no longer shrinks with the value.
  const double floor = dtype == DType::f64 ? std::numeric_limits<double>::min()
                                           : static_cast<double>(std::numeric_limits<float>::min());
  double largest = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(got[i] - want[i]) / std::max(std::abs(want[i]), floor);
    if (!(error <= largest)) largest = error;
    if (std::isnan(largest)) return kNaN;
  }
  return largest;
}

/// `got` with every difference of at most the type's smallest number taken away: where the wanted value lies
/// between two of these, no result is nearer.
Values without_underflow(Values got, const Values& want, DType dtype) {
  const double smallest = dtype == DType::f64 ? std::numeric_limits<double>::denorm_min()
                                              : static_cast<double>(std::numeric_limits<float>::denorm_min());
  for (std::size_t i = 0; i < got.size(); ++i)
    if (std::abs(got[i] - want[i]) <= smallest) got[i] = want[i];
  return got;
}

/// The slices of slice_error have one index on the last axis. One of few elements says little of its own
/// scale: a single sum that happens to cancel would be all there is. Then the whole tensor is the slice.
Shape slices(const Shape& shape) {
  constexpr std::int64_t kFewest = 8;
  const bool few = shape.rank() > 0 && shape.back() > 0 && shape.elements() / shape.back() < kFewest;
  return few ? Shape{shape.elements()} : shape;
}

/// Values times a power of two: exact, and squares of the result neither overflow nor vanish.
Values scaled(const Values& values, int exponent) {
  Values result = values;
  for (double& value : result) value = std::ldexp(value, exponent);
  return result;
}

}  // namespace

bool all_zero(const Values& values) noexcept {
  return std::all_of(values.begin(), values.end(), [](double value) { return value == 0; });
}

double relative_error(const Values& got, const Values& want, const Shape& shape, DType dtype,
                      ErrorRule rule) {
  if (got.size() != want.size() || static_cast<std::int64_t>(want.size()) != shape.elements()) return kNaN;
  double largest = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (!std::isfinite(want[i]) || !std::isfinite(got[i])) return kNaN;
    largest = std::max(largest, std::abs(want[i]));
  }
  if (largest == 0) return all_zero(got) ? 0 : std::numeric_limits<double>::infinity();
  if (rule == ErrorRule::element) return element_error(got, want, dtype);
  int exponent = 0;
  std::frexp(largest, &exponent);
  return autograd::slice_error(scaled(without_underflow(got, want, dtype), -exponent),
                               scaled(want, -exponent),
                               rule == ErrorRule::tensor ? Shape{shape.elements()} : slices(shape));
}

double rounding_error(const Values& got, const Values& want, const Shape& shape, DType dtype) {
  if (got.size() != want.size() || static_cast<std::int64_t>(want.size()) != shape.elements()) return kNaN;
  const Shape parts = slices(shape);
  const std::size_t count = parts.rank() < 2 ? 1 : static_cast<std::size_t>(parts.back());
  double largest = 0;
  for (std::size_t slice = 0; slice < count; ++slice) {
    double error = 0, least = 0;
    for (std::size_t i = slice; i < want.size(); i += count) {
      const double nearest = rounded(want[i], dtype);
      if (std::isinf(nearest) && std::isfinite(want[i])) {
        if (!(got[i] == nearest)) return kNaN;
        continue;
      }
      if (!std::isfinite(want[i]) || !std::isfinite(got[i])) return kNaN;
      error += (got[i] - want[i]) * (got[i] - want[i]);
      least += (nearest - want[i]) * (nearest - want[i]);
    }
    if (error > 0) largest = std::max(largest, std::sqrt(error / least));
  }
  return largest;
}

std::string accumulation_fault(const Values& got, const Values& old, const Values& gradient, DType dtype) {
  const double unit = dtype == DType::f64    ? 0x1p-53
                      : dtype == DType::f32  ? 0x1p-24
                      : dtype == DType::bf16 ? 0x1p-8
                                             : 0x1p-11;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double want = old[i] + gradient[i];
    const double allowed = 4 * unit * (std::abs(old[i]) + std::abs(gradient[i]));
    if (!(std::abs(got[i] - want) <= allowed)) {
      std::ostringstream text;
      text.precision(17);
      text << "accumulate: element " << i << " is " << got[i] << ", wants old " << old[i] << " + gradient "
           << gradient[i] << " = " << want;
      return text.str();
    }
  }
  return {};
}

}  // namespace scantape::cases
