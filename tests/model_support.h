#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "scantape/autograd/model.h"
#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"

/// What the tests of models share.
namespace scantape::autograd {

using Values = std::vector<double>;

inline Tensor random_tensor(const Shape& shape, std::uint64_t seed, DType dtype = DType::f64,
                            Device device = kCpu) {
  Random random(seed);
  Values values(static_cast<std::size_t>(shape.elements()));
  for (double& value : values) value = random.normal();
  return Tensor::from(shape, values).to(dtype).to(device);
}

inline Values values_of(const Tensor& tensor) {
  return tensor.to(DType::f64).values<double>();
}
inline Values values_of(const Variable& variable) {
  return values_of(variable.value());
}

inline bool all_finite(const Values& values) {
  for (double value : values)
    if (!std::isfinite(value)) return false;
  return !values.empty();
}

inline double largest_difference(const Values& a, const Values& b) {
  double largest = a.size() == b.size() ? 0 : std::nan("");
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (!(std::abs(a[i] - b[i]) <= largest)) largest = std::abs(a[i] - b[i]);
  return largest;
}

inline double loss_value(const Model& model, const Tensor& x, const Tensor& target) {
  return values_of(mse(model.forward(nullptr, x), Variable(target)))[0];
}

/// Each parameter's gradient of a model of 5 features is finite, nowhere zero, and what the loss does along a random
/// direction.
inline void expect_gradient_flow(Model& model) {
  const Device device = model.parameters().device();
  const Tensor x = random_tensor({2, 6, 5}, 1, DType::f64, device);
  const Tensor target = random_tensor({2, 6, 1}, 2, DType::f64, device);
  Parameters& parameters = model.parameters();
  // A fresh model predicts next to nothing, so its inner gradients would drown in the rounding of the loss.
  Tensor output = parameters.value(parameters.index("output_projection.weight"));
  output.copy_from(random_tensor(output.shape(), 4));
  Tape tape;
  tape.backward(mse(model.forward(&tape, x), Variable(target)));
  const double loss = loss_value(model, x, target);

  const Values start = values_of(parameters.values());
  Random random(3);
  for (std::size_t p = 0; p < parameters.entries().size(); ++p) {
    const auto& entry = parameters.entries()[p];
    const Values gradient = values_of(parameters.gradient(static_cast<int>(p)));
    EXPECT_TRUE(all_finite(gradient)) << entry.name;
    for (double g : gradient) EXPECT_NE(g, 0) << entry.name;
    // Along a random direction the loss changes as the gradient says.
    Values direction(gradient.size());
    double want = 0;
    for (std::size_t i = 0; i < direction.size(); ++i) want += gradient[i] * (direction[i] = random.normal());
    const auto at = [&](double step) {
      Values moved = start;
      for (std::size_t i = 0; i < direction.size(); ++i)
        moved[static_cast<std::size_t>(entry.offset) + i] += step * direction[i];
      parameters.values().copy_from(Tensor::from(parameters.values().shape(), moved));
      return loss_value(model, x, target);
    };
    const double h = 1e-4;
    const double got = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
    double scale = 0;
    for (double g : gradient) scale += g * g;
    // The loss is known to a few roundings of itself; a difference of two over h carries them.
    const double rounding = 4 * std::numeric_limits<double>::epsilon() * loss / h;
    EXPECT_LE(std::abs(got - want), 1e-6 * (std::abs(want) + std::sqrt(scale)) + rounding) << entry.name;
    parameters.values().copy_from(Tensor::from(parameters.values().shape(), start));
  }
}

}  // namespace scantape::autograd
