#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "case.h"

namespace scantape::cases {

/// A tensor in memory of its own on a device, with guard bands around it and in the gaps between its rows.
/// Bytes that belong to no element hold 0xFF (a NaN in any type): whoever reads them spoils the result,
/// whoever writes them is found. In the emulator whoever reads them is found as well, whatever becomes of the
/// value. Not copyable.
class Image {
 public:
  /// Rows are made of the last `row_axes` dimensions.
  Image(const Shape& shape, DType dtype, Device device, Layout layout, int row_axes = 1);
  ~Image();
  Image(Image&& other) noexcept;
  Image& operator=(Image&&) = delete;
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  View view() const noexcept { return view_; }

  /// Writes the elements, rounded to the type, and renews the guard bands.
  void write(const Values& values);
  /// NaN in every element: what is read before it is written is seen.
  void write_nan();

  /// Copies the memory back; what follows looks at that copy.
  void fetch();
  Values values() const;
  /// The elements' bytes, one after the other.
  std::vector<std::byte> bits() const;
  /// "" where every byte outside the elements is as it was; else where the first damage is.
  std::string guard_damage() const;
  /// The same for the elements: "" where none has changed since it was written.
  std::string element_damage() const;

 private:
  void upload();
  /// Calls f(first byte, behind the last) for each stretch of bytes that belong to no element.
  template <class F>
  void for_each_gap(const F& f) const;
  /// The host bytes of one row.
  std::size_t row_at(std::int64_t row) const noexcept;
  std::size_t row_bytes() const noexcept;

  Device device_;
  View view_;
  std::int64_t row_length_ = 1, rows_ = 1, row_stride_ = 1, first_ = 0;  // in elements
  std::vector<std::byte> host_, written_;
  void* memory_ = nullptr;
};

/// The value as the type holds it.
double rounded(double value, DType dtype) noexcept;

}  // namespace scantape::cases
