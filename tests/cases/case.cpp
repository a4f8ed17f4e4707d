#include "case.h"

#include <numeric>

namespace scantape::cases {

#define SCANTAPE_OP(op, kind) std::vector<Case> op##_cases();
#include "ops.inc"
#undef SCANTAPE_OP

const std::vector<OpEntry>& op_entries() {
  static const std::vector<OpEntry> entries = {
#define SCANTAPE_OP(op, kind) {#op, #kind, op##_cases},
#include "ops.inc"
#undef SCANTAPE_OP
  };
  return entries;
}

const std::vector<Case>& all_cases() {
  static const std::vector<Case> cases = [] {
    std::vector<Case> all;
    for (const OpEntry& entry : op_entries())
      for (Case& c : entry.cases()) all.push_back(std::move(c));
    return all;
  }();
  return cases;
}

const char* name(Layout layout) noexcept {
  switch (layout) {
    case Layout::dense:
      return "dense";
    case Layout::strided:
      return "strided";
    case Layout::misaligned:
      return "misaligned";
  }
  return "unknown";
}

std::string Case::variant() const {
  std::string text;
  for (const auto& [option, value] : options) text += (text.empty() ? "" : ",") + option + "=" + value;
  return text;
}

std::vector<DType> dtypes(const Case& c) {
  if (c.f64_only) return {DType::f64};
  if (c.in_16_bits && c.beyond_f16) return {DType::f64, DType::f32, DType::bf16};
  if (c.in_16_bits) return {DType::f64, DType::f32, DType::bf16, DType::f16};
  return {DType::f64, DType::f32};
}

namespace {

template <class Argument>
double bytes_of(const Argument& argument, ElementType type, DType dtype) {
  if (!argument.present) return 0;
  return static_cast<double>(argument.shape.elements()) * static_cast<double>(size_of(type_of(type, dtype)));
}
template <class Argument>
double bytes_of(const Argument& argument, DType dtype) {
  return bytes_of(argument, argument.type, dtype);
}

}  // namespace

double forward_bytes(const Case& c, DType dtype) {
  double bytes = 0;
  for (const Input& input : c.inputs) bytes += bytes_of(input, dtype);
  for (const Output& output : c.outputs) bytes += bytes_of(output, dtype) * (output.initial ? 2 : 1);
  return bytes;
}

double backward_bytes(const Case& c, DType dtype) {
  double bytes = 0;
  for (const Input& input : c.inputs)
    bytes += bytes_of(input, dtype) * (input.saved ? 1 : 0) +
             bytes_of(input, input.type_of_gradient(), dtype) * (input.gradient ? 1 : 0);
  for (const Output& output : c.outputs)
    bytes += bytes_of(output, dtype) * ((output.saved ? 1 : 0) + (output.cotangent ? 1 : 0));
  return bytes;
}

const std::vector<std::int64_t>& lengths() {
  static const std::vector<std::int64_t> values = [] {
    std::vector<std::int64_t> list(70);
    std::iota(list.begin(), list.end(), 1);
    list.insert(list.end(), {127, 128, 129, 257, 1000, 1025});
    return list;
  }();
  return values;
}

const std::vector<std::int64_t>& states() {
  static const std::vector<std::int64_t> values = {1, 3, 16, 64, 100};
  return values;
}

const std::vector<std::int64_t>& widths() {
  static const std::vector<std::int64_t> values = {1, 31, 512, 1023};
  return values;
}

namespace {

/// Fills a shape, element after element.
template <class Draw>
Fill each(Draw draw) {
  return [draw](Rng& rng, const Shape& shape) {
    Values values(static_cast<std::size_t>(shape.elements()));
    for (double& value : values) value = draw(rng);
    return values;
  };
}

}  // namespace

Fill normal(double mean, double deviation) {
  return each([=](Rng& rng) { return mean + deviation * rng.normal(); });
}
Fill uniform(double low, double high) {
  return each([=](Rng& rng) { return rng.uniform(low, high); });
}
Fill log_uniform(double low, double high, double sign) {
  return each([=](Rng& rng) { return sign * rng.log_uniform(low, high); });
}
Fill constant(double value) {
  return each([=](Rng&) { return value; });
}
Fill both_signs(Fill magnitudes) {
  return [magnitudes = std::move(magnitudes)](Rng& rng, const Shape& shape) {
    Values values = magnitudes(rng, shape);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = i % 2 == 0 ? std::abs(values[i]) : -std::abs(values[i]);
    return values;
  };
}

std::string size_name(const std::vector<std::pair<const char*, std::int64_t>>& sizes) {
  std::string text;
  for (const auto& [letter, size] : sizes)
    text += (text.empty() ? "" : "-") + (letter + std::to_string(size));
  return text;
}

}  // namespace scantape::cases
