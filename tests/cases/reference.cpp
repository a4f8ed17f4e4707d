#include "reference.h"

#include <algorithm>
#include <limits>

namespace scantape::cases {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Addresses must not be null even where there is nothing.
Values room(const Shape& shape) {
  Values values;
  values.reserve(static_cast<std::size_t>(shape.elements()) + 1);
  values.assign(static_cast<std::size_t>(shape.elements()), kNaN);
  return values;
}

}  // namespace

Reference::Reference(const Case& c, const Data& data) : case_(c), data_(data) {
  call_.implementation = Call::Implementation::reference;
  call_.device = kCpu;
  call_.workspace = [](std::int64_t) { return Workspace{}; };
  const auto at = [](Values& values, const Shape& shape) {
    return View(values.data(), DType::f64, kCpu, shape);
  };
  outputs_.reserve(c.outputs.size());
  gradients_.reserve(c.inputs.size());
  indices_.resize(c.inputs.size());
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    const Input& input = c.inputs[i];
    data_.inputs[i].reserve(data_.inputs[i].size() + 1);
    if (input.type == ElementType::i32) {
      indices_[i].reserve(data_.inputs[i].size() + 1);
      for (const double value : data_.inputs[i]) indices_[i].push_back(static_cast<std::int32_t>(value));
    }
    const View view = input.type == ElementType::i32 ? View(indices_[i].data(), DType::i32, kCpu, input.shape)
                                                     : at(data_.inputs[i], input.shape);
    call_.inputs.emplace_back(input.name, input.present ? view : View());
    gradients_.push_back(room(input.gradient ? input.shape : Shape{0}));
    call_.gradients.emplace_back(
        input.name,
        input.gradient ? Gradient(at(gradients_[i], input.shape), WriteMode::overwrite) : Gradient());
  }
  for (std::size_t i = 0; i < c.outputs.size(); ++i) {
    const Output& output = c.outputs[i];
    outputs_.push_back(room(output.present ? output.shape : Shape{0}));
    data_.cotangents[i].reserve(data_.cotangents[i].size() + 1);
    call_.outputs.emplace_back(output.name, output.present ? at(outputs_[i], output.shape) : View());
    const bool given = output.present && output.cotangent;
    call_.cotangents.emplace_back(output.name, given ? at(data_.cotangents[i], output.shape) : View());
  }
}

Reference::Reference(const Case& c, const Data& data, DType dtype) : Reference(c, data) {
  if (!is_16_bit(dtype) || !c.as_rounded) return;
  std::vector<Values> inputs = data_.inputs;
  c.as_rounded(inputs, dtype);
  for (std::size_t i = 0; i < inputs.size(); ++i)  // the views keep their addresses
    std::copy(inputs[i].begin(), inputs[i].end(), data_.inputs[i].begin());
}

Values& Reference::input(std::size_t index) {
  call_.inputs[index].second =
      ConstView(data_.inputs[index].data(), DType::f64, kCpu, case_.inputs[index].shape);
  return data_.inputs[index];
}

void Reference::forward() {
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    if (case_.outputs[i].initial)
      std::copy(data_.initial[i].begin(), data_.initial[i].end(), outputs_[i].begin());
    else
      std::fill(outputs_[i].begin(), outputs_[i].end(), kNaN);
  }
  require(case_.forward(call_));
}

void Reference::give_output(std::size_t index, const Values& values) {
  std::copy(values.begin(), values.end(), outputs_[index].begin());
}

void Reference::backward() {
  for (Values& gradient : gradients_) std::fill(gradient.begin(), gradient.end(), kNaN);
  require(case_.backward(call_));
}

}  // namespace scantape::cases
