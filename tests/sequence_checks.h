#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "scantape/device.h"
#include "scantape/error.h"
#include "scantape/op.h"
#include "scantape/tensor.h"

/// What the tests of recurrences over time share: calls, the steps of a tensor [B, L, width], and comparisons.
namespace scantape {

using Values = std::vector<double>;
/// Everything that comes out: outputs, and gradients by "d_" and the name.
using Results = std::map<std::string, Values>;

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <class Args>
void call(Device device, Status (*function)(const Args&, Stream) noexcept,
          std::int64_t (*workspace)(const Args&) noexcept, Args args) {
  const std::int64_t bytes = workspace(args);
  Tensor room = Tensor::empty({bytes / 8 + 1}, DType::f64, device);
  args.workspace = {room.writable().template as<void>(), bytes};
  require(function(args, Stream{}));
  require(synchronize(device));
}

inline Values values_of(const Tensor& tensor) {
  const Tensor wide = tensor.to(kCpu).to(DType::f64);
  return wide.values<double>();
}

/// Steps begin .. end - 1 of each row of a tensor [B, L, width].
template <class Sizes>
Values steps(const Values& values, const Sizes& size, std::int64_t width, std::int64_t begin,
             std::int64_t end) {
  Values part;
  for (std::int64_t item = 0; item < size.B; ++item)
    part.insert(part.end(), values.begin() + (item * size.L + begin) * width,
                values.begin() + (item * size.L + end) * width);
  return part;
}

/// Those of a problem's tensors, which knows their widths.
template <class Problem>
Problem part_of(const Problem& whole, std::int64_t begin, std::int64_t end) {
  Problem part = whole;
  part.size.L = end - begin;
  for (const auto& [name, width] : whole.widths())
    if (whole.values.count(name) != 0)
      part.values[name] = steps(whole.values.at(name), whole.size, width, begin, end);
  return part;
}

/// Largest difference against |want| + the root mean square of all; NaN fails.
inline void expect_near(const Values& got, const Values& want, double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double squares = 0;
  for (const double value : want) squares += value * value;
  const double rms = want.empty() ? 0 : std::sqrt(squares / static_cast<double>(want.size()));
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_TRUE(std::abs(got[i] - want[i]) <= tolerance * (std::abs(want[i]) + rms))
        << what << "[" << i << "] is " << got[i] << ", wants " << want[i];
}

/// Bit for bit; NaN equals nothing.
inline void expect_same(const Values& got, const Values& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_EQ(got[i], want[i]) << what << "[" << i << "]";
}

inline void expect_numbers(const Results& results, const std::string& what) {
  for (const auto& [name, values] : results)
    for (const double value : values) ASSERT_TRUE(std::isfinite(value)) << what << ": " << name;
}

inline Values sum(const Values& a, const Values& b) {
  Values total = a;
  for (std::size_t i = 0; i < a.size(); ++i) total[i] += b[i];
  return total;
}

}  // namespace scantape
