#pragma once

#include <cmath>
#include <vector>

#include "scantape/autograd/parameters.h"

/// What fresh models are filled with.
namespace scantape::autograd {

/// A fresh model predicts next to nothing: its loss is the zero predictor's.
inline constexpr double kOutputScale = 0.01;

inline std::vector<double> normal(Random& random, const Shape& shape, double deviation) {
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (double& value : values) value = deviation * random.normal();
  return values;
}

inline std::vector<double> uniform(Random& random, const Shape& shape, double low, double high) {
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (double& value : values) value = random.uniform(low, high);
  return values;
}

inline std::vector<double> constant(std::int64_t count, double value) {
  return std::vector<double>(static_cast<std::size_t>(count), value);
}

inline double deviation_of(std::int64_t fan_in) {
  return 1 / std::sqrt(static_cast<double>(fan_in));
}

/// Values whose softplus is log-uniform in [1e-3, 0.1]: steps of time.
inline std::vector<double> steps_of_time(Random& random, std::int64_t count) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) {
    const double dt = std::exp(random.uniform(std::log(1e-3), std::log(0.1)));
    value = dt + std::log(-std::expm1(-dt));
  }
  return values;
}

}  // namespace scantape::autograd
