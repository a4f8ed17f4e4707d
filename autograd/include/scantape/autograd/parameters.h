#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scantape/autograd/variable.h"

namespace scantape::autograd {

/// A generator of random numbers that gives the same ones on every machine: SplitMix64, Box-Muller for normals.
/// Example
///   autograd::Random random(7), again(7);
///   const bool equal = random.normal() == again.normal();  // equal is 1
class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept : state_(seed) {}
  std::uint64_t bits() noexcept;
  double uniform() noexcept;  ///< in [0, 1), multiples of 2^-53
  double uniform(double low, double high) noexcept { return low + (high - low) * uniform(); }
  double normal() noexcept;  ///< mean 0, standard deviation 1
  std::uint64_t state() const noexcept { return state_; }

 private:
  std::uint64_t state_;
};

/// The parameters of a model in one flat tensor, their gradients in another, so that the optimiser works in one launch.
/// Those with weight decay come first. Each parameter starts at a multiple of 16 bytes; the padding stays zero.
/// Example
///   autograd::Parameters parameters;
///   const int weight = parameters.add("weight", {2, 2}, true, {1, 2, 3, 4});
///   const int bias = parameters.add("bias", {2}, false, {5, 6});
///   parameters.allocate(DType::f32, kCpu);
///   const Tensor b = parameters.value(bias);                         // b is 5, 6
///   const double count = static_cast<double>(parameters.count());    // count is 6
///   const bool decayed = parameters.entries()[weight].decay;         // decayed is 1
class Parameters {
 public:
  struct Entry {
    std::string name;  ///< e.g. "layers.0.norm.weight"
    Shape shape;
    bool decay = false;
    std::int64_t offset = 0;
  };

  /// Declares a parameter with its values on the host, row-major; returns its index. Names are unique. Without values it
  /// is zeros, which costs the host nothing: for weights that are read from a file.
  int add(std::string name, const Shape& shape, bool decay, std::vector<double> values);
  int add(std::string name, const Shape& shape, bool decay);
  /// Lays them out and copies them to the device; then no more are added.
  void allocate(DType dtype, Device device);

  const std::vector<Entry>& entries() const noexcept { return entries_; }
  int index(const std::string& name) const;  ///< throws Error where there is none
  std::int64_t count() const noexcept;       ///< numbers in all parameters, without padding
  std::int64_t decayed_elements() const noexcept { return decayed_elements_; }
  DType dtype() const noexcept { return values_.dtype(); }
  Device device() const noexcept { return values_.device(); }

  Tensor value(int index) const;
  Tensor gradient(int index) const;
  Tensor& values() noexcept { return values_; }  ///< flat, padding included
  Tensor& gradients() noexcept { return gradients_; }

  /// The parameter as a leaf of `tape`, its gradient written into gradient(index); a constant where tape is null.
  Variable on(Tape* tape, int index, WriteMode mode = WriteMode::overwrite) const;

  /// A view of parameter `index` in a tensor laid out as values(): the optimiser's moments, say.
  Tensor part(const Tensor& flat, int index) const;

  /// Name of the first parameter with a value, or else a gradient, that is not finite; empty where all are.
  std::string first_not_finite() const;

 private:
  std::vector<Entry> entries_;
  std::vector<std::vector<double>> initial_;
  Tensor values_, gradients_;
  std::int64_t decayed_elements_ = 0;
};

}  // namespace scantape::autograd
