#include "scantape/autograd/parameters.h"

#include <algorithm>
#include <cmath>

#include "scantape/autograd/tape.h"

namespace scantape::autograd {
namespace {

constexpr std::int64_t kAlignment = 4;  // elements: 16 bytes in f32, 32 in f64
constexpr double kTwoPi = 6.283185307179586476925;

std::int64_t padded(std::int64_t elements) {
  return (elements + kAlignment - 1) / kAlignment * kAlignment;
}

bool all_finite(const Tensor& tensor) {
  const auto finite = [](double value) { return std::isfinite(value); };
  if (tensor.dtype() == DType::f64) {
    const auto values = tensor.values<double>();
    return std::all_of(values.begin(), values.end(), finite);
  }
  const auto values = tensor.values<float>();
  return std::all_of(values.begin(), values.end(), finite);
}

}  // namespace

std::uint64_t Random::bits() noexcept {
  state_ += 0x9E3779B97F4A7C15U;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

double Random::uniform() noexcept {
  return static_cast<double>(bits() >> 11) * 0x1p-53;
}

double Random::normal() noexcept {
  const double radius = std::sqrt(-2 * std::log1p(-uniform()));
  return radius * std::cos(kTwoPi * uniform());
}

int Parameters::add(std::string name, const Shape& shape, bool decay, std::vector<double> values) {
  if (static_cast<std::int64_t>(values.size()) != shape.elements())
    throw Error(Code::invalid_argument, "parameters: " + name + " has " + std::to_string(values.size()) +
                                            " values for shape " + scantape::name(shape));
  const int added = add(std::move(name), shape, decay);
  initial_.back() = std::move(values);
  return added;
}

int Parameters::add(std::string name, const Shape& shape, bool decay) {
  if (values_.present())
    throw Error(Code::invalid_argument, "parameters: " + name + " is added after allocation");
  for (const Entry& entry : entries_)
    if (entry.name == name) throw Error(Code::invalid_argument, "parameters: " + name + " is added twice");
  entries_.push_back({std::move(name), shape, decay, 0});
  initial_.emplace_back();
  return static_cast<int>(entries_.size()) - 1;
}

void Parameters::allocate(DType dtype, Device device) {
  if (values_.present()) throw Error(Code::invalid_argument, "parameters: allocated twice");
  if (dtype != DType::f32 && dtype != DType::f64)
    throw Error(Code::invalid_argument,
                std::string("parameters: ") + name(dtype) + " is not trained in, wants f32 or f64");
  std::int64_t total = 0;
  for (const bool decay : {true, false}) {
    for (Entry& entry : entries_) {
      if (entry.decay != decay) continue;
      entry.offset = total;
      total += padded(entry.shape.elements());
    }
    if (decay) decayed_elements_ = total;
  }
  values_ = Tensor::zeros({total}, dtype, device);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (initial_[i].empty()) continue;
    value(static_cast<int>(i)).copy_from(Tensor::from(entries_[i].shape, initial_[i]).to(dtype));
    initial_[i] = {};  // so that no more than one is there twice
  }
  initial_.clear();
  gradients_ = Tensor::zeros({total}, dtype, device);
}

int Parameters::index(const std::string& name) const {
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].name == name) return static_cast<int>(i);
  throw Error(Code::invalid_argument, "parameters: there is none called " + name);
}

std::int64_t Parameters::count() const noexcept {
  std::int64_t sum = 0;
  for (const Entry& entry : entries_) sum += entry.shape.elements();
  return sum;
}

Tensor Parameters::part(const Tensor& flat, int index) const {
  const Entry& entry = entries_.at(static_cast<std::size_t>(index));
  return flat.slice(0, entry.offset, entry.offset + entry.shape.elements()).reshape(entry.shape);
}

Tensor Parameters::value(int index) const {
  return part(values_, index);
}
Tensor Parameters::gradient(int index) const {
  return part(gradients_, index);
}

Variable Parameters::on(Tape* tape, int index, WriteMode mode) const {
  return tape == nullptr ? Variable(value(index)) : tape->leaf(value(index), gradient(index), mode);
}

std::string Parameters::first_not_finite() const {
  for (const Tensor* flat : {&values_, &gradients_})
    for (std::size_t i = 0; i < entries_.size(); ++i)
      if (!all_finite(part(*flat, static_cast<int>(i)))) return entries_[i].name;
  return {};
}

}  // namespace scantape::autograd
