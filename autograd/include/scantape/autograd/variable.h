#pragma once

#include <cstdint>
#include <memory>

#include "scantape/tensor.h"

namespace scantape::autograd {

class Tape;

/// A tensor that an op takes or gives. Made from a Tensor it is a constant; made by Tape::leaf or by an op with an
/// input on a tape it is recorded there. A handle: copying it copies no values.
/// Example
///   #include "scantape/autograd/tape.h"
///   autograd::Tape tape;
///   const autograd::Variable weight = tape.leaf(Tensor::full({2}, 1, DType::f64));
///   const autograd::Variable constant = Tensor::full({2}, 3, DType::f64);
///   const bool recorded = weight.recorded() && !constant.recorded();  // recorded is 1
class Variable {
 public:
  Variable() noexcept = default;                                 // absent: leaves an optional argument out
  Variable(Tensor value) noexcept : value_(std::move(value)) {}  // NOLINT: a constant

  bool present() const noexcept { return value_.present(); }
  const Tensor& value() const noexcept { return value_; }
  const Shape& shape() const noexcept { return value_.shape(); }
  DType dtype() const noexcept { return value_.dtype(); }
  Device device() const noexcept { return value_.device(); }

  /// The tape that records this variable; null for a constant. The tape outlives what is recorded on it.
  Tape* tape() const noexcept { return tape_; }
  bool recorded() const noexcept { return tape_ != nullptr; }

 private:
  friend class Tape;
  Variable(Tensor value, Tape* tape, std::int64_t slot) noexcept
      : value_(std::move(value)), tape_(tape), slot_(slot) {}

  Tensor value_;
  Tape* tape_ = nullptr;
  std::int64_t slot_ = -1;
};

}  // namespace scantape::autograd
