#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "scantape/device.h"
#include "scantape/error.h"
#include "scantape/view.h"

namespace scantape {

/// A dense or strided tensor that shares ownership of its memory. Copying a Tensor copies the handle. Functions throw
/// Error (out_of_memory, cuda, invalid_argument). Not thread-safe for writers of one storage.
/// Example
///   const Tensor a = Tensor::from({2, 3}, std::vector<double>{1, 2, 3, 4, 5, 6});
///   const Tensor middle = a.slice(1, 1, 2);           // middle is 2, 5
///   const Tensor rounded = a.to(DType::bf16);         // rounded is 1, 2, 3, 4, 5, 6
///   const Tensor flat = a.reshape({6}).slice(0, 4, 6); // flat is 5, 6
class Tensor {
 public:
  Tensor() noexcept = default;  // absent

  /// Memory that nobody has written; read before it is written it is garbage (NaN in the emulator).
  static Tensor empty(const Shape& shape, DType dtype, Device device = kCpu);
  static Tensor zeros(const Shape& shape, DType dtype, Device device = kCpu);
  static Tensor full(const Shape& shape, double value, DType dtype, Device device = kCpu);
  /// Copies `values` (row-major, as many as the shape holds): float, double, BFloat16, Float16 or std::int32_t, as below.
  template <class T>
  static Tensor from(const Shape& shape, const std::vector<T>& values, Device device = kCpu);
  /// Memory that is there already, contiguous, and that `owner` keeps as long as there are tensors over it: a mapped file,
  /// say. Nothing is copied; who writes to the tensor writes there.
  static Tensor over(const View& memory, std::shared_ptr<void> owner);

  bool present() const noexcept { return storage_ != nullptr; }
  const Shape& shape() const noexcept { return view_.shape; }
  DType dtype() const noexcept { return view_.dtype; }
  Device device() const noexcept { return view_.device; }
  std::int64_t elements() const noexcept { return view_.elements(); }

  /// For reading.
  ConstView view() const noexcept { return present() ? static_cast<const ConstView&>(view_) : ConstView(); }
  operator ConstView() const noexcept { return view(); }  // NOLINT: an argument of an op
  /// For writing: counts as a change of the storage (see version). Both are absent where the tensor is.
  View writable();

  /// Host address of the first element, checked against T and the device. The mutable one counts as a change.
  template <class T>
  const T* data() const;
  template <class T>
  T* mutable_data();

  /// A contiguous copy of the values.
  template <class T>
  std::vector<T> values() const;

  Tensor clone() const;            // contiguous copy on the same device
  Tensor to(Device device) const;  // contiguous copy; the tensor itself where it is there already
  Tensor to(DType dtype) const;    // the one explicit conversion, between any two types, rounding once; what
                                   // is not a whole number of 32 bits is no i32, and an error
  void copy_from(const Tensor& source);  // equal shape and dtype, any device
  void fill_zero();

  /// Views of the same storage.
  Tensor reshape(
      const Shape& shape) const;  // contiguous tensors, or of strided rows the last axis taken apart
  Tensor slice(int axis, std::int64_t begin, std::int64_t end) const;

  /// Counts the changes of the storage: what is saved for backward must not have changed since.
  std::uint64_t version() const noexcept;

 private:
  struct Storage;
  std::shared_ptr<Storage> storage_;
  View view_;
};

}  // namespace scantape
