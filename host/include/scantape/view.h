#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "scantape/half.h"

namespace scantape {

/// Element types. Nothing is ever converted from one to another silently. bf16 and f16 store: an op that takes them
/// computes in f32 and rounds once where it writes. i32 is for indices, such as token ids: only arguments that ask for it
/// by name take it, and no gradient is of it.
enum class DType : std::uint8_t { f32, f64, bf16, f16, i32 };

const char* name(DType dtype) noexcept;  // "f32"
constexpr std::int64_t size_of(DType dtype) noexcept {
  return dtype == DType::f64 ? 8 : dtype == DType::f32 || dtype == DType::i32 ? 4 : 2;
}
/// True for the types of 16 bits.
constexpr bool is_16_bit(DType dtype) noexcept {
  return dtype == DType::bf16 || dtype == DType::f16;
}
/// What must not be narrower than f32 has this type beside data of `dtype`.
constexpr DType at_least_f32(DType dtype) noexcept {
  return is_16_bit(dtype) ? DType::f32 : dtype;
}

namespace detail {

/// Other types have none.
template <class T>
struct DTypeOf;
/// Those that have.
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};

}  // namespace detail

/// The element type of float, double, BFloat16, Float16 and std::int32_t.
template <class T>
inline constexpr DType dtype_of = detail::DTypeOf<T>::value;

/// Where the bytes are. `cuda` is a GPU in a native build and the emulator in an emulated one.
struct Device {
  enum class Kind : std::uint8_t { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = 0;

  constexpr bool is_cpu() const noexcept { return kind == Kind::cpu; }
  friend constexpr bool operator==(Device a, Device b) noexcept {
    return a.kind == b.kind && a.index == b.index;
  }
  friend constexpr bool operator!=(Device a, Device b) noexcept { return !(a == b); }
};

/// The devices that most programs use.
inline constexpr Device kCpu{Device::Kind::cpu, 0};
inline constexpr Device kCuda{Device::Kind::cuda, 0};

std::string name(Device device);  // "cpu", "cuda:0"

/// Tensors have at most so many dimensions.
inline constexpr int kMaxRank = 6;

/// Sizes of the dimensions, outermost first (row-major). Rank 0 is a scalar of one element.
/// Example
///   const Shape shape{2, 3, 4};
///   const double elements = static_cast<double>(shape.elements());  // elements is 24
///   const bool named = name(shape) == "[2, 3, 4]";                  // named is 1
class Shape {
 public:
  Shape() noexcept = default;
  Shape(std::initializer_list<std::int64_t> sizes) noexcept;

  /// -1 where more than kMaxRank sizes were given: every op and every tensor refuses such a shape.
  int rank() const noexcept { return rank_; }
  std::int64_t operator[](int axis) const noexcept { return sizes_[axis]; }
  std::int64_t& operator[](int axis) noexcept { return sizes_[axis]; }
  std::int64_t back() const noexcept { return rank_ > 0 ? sizes_[rank_ - 1] : 1; }
  std::int64_t elements() const noexcept;
  void append(std::int64_t size) noexcept {
    if (rank_ < 0 || rank_ == kMaxRank)
      rank_ = -1;
    else
      sizes_[rank_++] = size;
  }

  friend bool operator==(const Shape& a, const Shape& b) noexcept;
  friend bool operator!=(const Shape& a, const Shape& b) noexcept { return !(a == b); }

 private:
  std::array<std::int64_t, kMaxRank> sizes_{};
  int rank_ = 0;
};

std::string name(const Shape& shape);  // "[32, 60, 512]"

/// A tensor that somebody else owns: address, type, place, sizes and strides (in elements). A default-made view is
/// absent: the way to leave an optional argument out.
struct ConstView {
  const void* data = nullptr;
  DType dtype = DType::f32;
  Device device;
  Shape shape;
  std::array<std::int64_t, kMaxRank> strides{};
  bool present = false;

  ConstView() noexcept = default;
  /// Dense, row-major.
  ConstView(const void* data, DType dtype, Device device, const Shape& shape) noexcept;

  int rank() const noexcept { return shape.rank(); }
  std::int64_t elements() const noexcept { return shape.elements(); }
  template <class T>
  const T* as() const noexcept {
    return static_cast<const T*>(data);
  }
};

/// A view that may be written through.
struct View : ConstView {
  View() noexcept = default;
  View(void* data, DType dtype, Device device, const Shape& shape) noexcept
      : ConstView(data, dtype, device, shape) {}
  template <class T>
  T* as() const noexcept {
    return static_cast<T*>(const_cast<void*>(data));
  }
};

/// A tensor seen as rows: its leading dimensions flattened to `count` rows of `length` contiguous elements that start
/// `stride` elements apart.
struct Rows {
  std::int64_t count = 0;
  std::int64_t length = 0;
  std::int64_t stride = 0;
};

/// True where the view can be seen as rows with one stride; ops accept exactly these. A scalar is one row of one.
/// Example
///   float numbers[6] = {};
///   Rows rows;
///   const bool fits = as_rows(ConstView(numbers, DType::f32, kCpu, {2, 3}), &rows);  // fits is 1
///   const double stride = static_cast<double>(rows.stride);                          // stride is 3
bool as_rows(const ConstView& view, Rows* rows) noexcept;
/// The same where a row is the last `axes` dimensions, which lie without gaps: [B, L, H, P] with axes = 2 is B L rows of
/// H P elements, evenly spaced, as they are where the tensor is some columns of a wider [B, L, ...].
bool as_rows(const ConstView& view, int axes, Rows* rows) noexcept;
bool is_contiguous(const ConstView& view) noexcept;

/// What a backward does with one gradient: leave its bytes alone, write it, or add to what is there.
enum class WriteMode : std::uint8_t { skip, overwrite, accumulate };

/// Where one gradient goes. Skipped gradients may be absent.
struct Gradient {
  View view;
  WriteMode mode = WriteMode::skip;

  Gradient() noexcept = default;
  Gradient(const View& target, WriteMode write_mode) noexcept : view(target), mode(write_mode) {}
  bool wanted() const noexcept { return mode != WriteMode::skip; }
};

/// A CUDA stream (a cudaStream_t); null is the default stream. Not looked at on the CPU.
struct Stream {
  void* handle = nullptr;
};

/// Scratch memory of the caller, on the op's device, aligned to 256 bytes. Each op says how much it wants.
struct Workspace {
  void* data = nullptr;
  std::int64_t bytes = 0;
};

}  // namespace scantape
