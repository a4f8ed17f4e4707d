#include "image.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#if SCANTAPE_EMULATED
#include "scantape_emulator.h"
#endif

namespace scantape::cases {
namespace {

constexpr std::int64_t kGuardBytes = 256;
constexpr std::int64_t kRowGap = 3;  // elements; odd, so that rows lose their alignment

/// Writes numbers as elements of T, or reads them.
template <class T>
void encode(const double* from, std::int64_t count, std::byte* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T element = static_cast<T>(from[i]);
    std::memcpy(to + i * static_cast<std::int64_t>(sizeof(T)), &element, sizeof(T));
  }
}
template <class T>
void decode(const std::byte* from, std::int64_t count, double* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    T element;
    std::memcpy(&element, from + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    to[i] = static_cast<double>(element);
  }
}

/// Calls f with a value of the element type.
template <class F>
void with_type(DType dtype, const F& f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::f64:
      return f(double{});
    case DType::bf16:
      return f(BFloat16{});
    case DType::f16:
      return f(Float16{});
    case DType::i32:
      return f(std::int32_t{});
  }
}

}  // namespace

double rounded(double value, DType dtype) noexcept {
  switch (dtype) {
    case DType::f64:
      return value;
    case DType::f32:
      return static_cast<double>(static_cast<float>(value));
    case DType::bf16:
      return static_cast<double>(BFloat16(value));
    case DType::f16:
      return static_cast<double>(Float16(value));
    case DType::i32:
      return std::trunc(value);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

Image::Image(const Shape& shape, DType dtype, Device device, Layout layout, int row_axes) : device_(device) {
  const std::int64_t elements = shape.elements();
  row_length_ = 1;
  for (int axis = std::max(shape.rank() - row_axes, 0); axis < shape.rank(); ++axis)
    row_length_ *= shape[axis];
  rows_ = row_length_ == 0 ? 0 : elements / row_length_;
  row_stride_ = row_length_ + (layout == Layout::strided ? kRowGap : 0);
  first_ = kGuardBytes / size_of(dtype) + (layout == Layout::misaligned ? 1 : 0);

  const std::int64_t bytes = (first_ + rows_ * row_stride_) * size_of(dtype) + kGuardBytes;
  host_.assign(static_cast<std::size_t>(bytes), std::byte{0xFF});
  require(allocate(device, bytes, &memory_));
  view_ = View(static_cast<std::byte*>(memory_) + first_ * size_of(dtype), dtype, device, shape);
  // Every leading dimension steps over whole rows.
  for (int axis = 0; axis + row_axes < shape.rank(); ++axis)
    view_.strides[static_cast<std::size_t>(axis)] =
        row_length_ == 0 ? 0 : view_.strides[static_cast<std::size_t>(axis)] / row_length_ * row_stride_;
  upload();
}

Image::Image(Image&& other) noexcept
    : device_(other.device_),
      view_(other.view_),
      row_length_(other.row_length_),
      rows_(other.rows_),
      row_stride_(other.row_stride_),
      first_(other.first_),
      host_(std::move(other.host_)),
      written_(std::move(other.written_)),
      memory_(other.memory_) {
  other.memory_ = nullptr;
}

Image::~Image() {
  deallocate(device_, memory_);
}

std::size_t Image::row_at(std::int64_t row) const noexcept {
  return static_cast<std::size_t>((first_ + row * row_stride_) * size_of(view_.dtype));
}

std::size_t Image::row_bytes() const noexcept {
  return static_cast<std::size_t>(row_length_ * size_of(view_.dtype));
}

void Image::write(const Values& values) {
  if (static_cast<std::int64_t>(values.size()) != view_.elements())
    throw Error(Code::invalid_argument, "a case fills " + scantape::name(view_.shape) + " with " +
                                            std::to_string(values.size()) + " values");
  std::fill(host_.begin(), host_.end(), std::byte{0xFF});
  with_type(view_.dtype, [&](auto zero) {
    for (std::int64_t row = 0; row < rows_; ++row)
      encode<decltype(zero)>(values.data() + row * row_length_, row_length_, host_.data() + row_at(row));
  });
  upload();
}

void Image::write_nan() {
  write(Values(static_cast<std::size_t>(view_.elements()), std::numeric_limits<double>::quiet_NaN()));
}

void Image::upload() {
  written_ = host_;
  require(copy_bytes(device_, memory_, kCpu, host_.data(), static_cast<std::int64_t>(host_.size())));
#if SCANTAPE_EMULATED
  if (device_.is_cpu()) return;
  for_each_gap([this](std::size_t begin, std::size_t end) {
    if (!emulator::forget_written(static_cast<const std::byte*>(memory_) + begin, end - begin))
      throw Error(Code::cuda, "a tensor's guard band is not on the device");
  });
#endif
}

template <class F>
void Image::for_each_gap(const F& f) const {
  std::size_t owned_up_to = 0;
  for (std::int64_t row = 0; row < rows_; ++row) {
    if (row_at(row) > owned_up_to) f(owned_up_to, row_at(row));
    owned_up_to = row_at(row) + row_bytes();
  }
  f(owned_up_to, host_.size());
}

void Image::fetch() {
  require(copy_bytes(kCpu, host_.data(), device_, memory_, static_cast<std::int64_t>(host_.size())));
}

Values Image::values() const {
  Values values(static_cast<std::size_t>(view_.elements()));
  with_type(view_.dtype, [&](auto zero) {
    for (std::int64_t row = 0; row < rows_; ++row)
      decode<decltype(zero)>(host_.data() + row_at(row), row_length_, values.data() + row * row_length_);
  });
  return values;
}

std::vector<std::byte> Image::bits() const {
  std::vector<std::byte> bits;
  bits.reserve(static_cast<std::size_t>(rows_) * row_bytes());
  for (std::int64_t row = 0; row < rows_; ++row) {
    const auto begin = host_.begin() + static_cast<std::ptrdiff_t>(row_at(row));
    bits.insert(bits.end(), begin, begin + static_cast<std::ptrdiff_t>(row_bytes()));
  }
  return bits;
}

std::string Image::guard_damage() const {
  std::string damage;
  for_each_gap([&](std::size_t begin, std::size_t end) {
    for (std::size_t at = begin; at < end && damage.empty(); ++at)
      if (host_[at] != std::byte{0xFF})
        damage = "wrote outside the tensor, byte " +
                 std::to_string(static_cast<std::int64_t>(at) - first_ * size_of(view_.dtype)) +
                 " from its start";
  });
  return damage;
}

std::string Image::element_damage() const {
  const auto size = static_cast<std::size_t>(size_of(view_.dtype));
  for (std::int64_t row = 0; row < rows_; ++row)
    for (std::size_t at = row_at(row); at < row_at(row) + row_bytes(); at += size)
      if (std::memcmp(host_.data() + at, written_.data() + at, size) != 0)
        return "changed element " +
               std::to_string(row * row_length_ + static_cast<std::int64_t>((at - row_at(row)) / size));
  return {};
}

}  // namespace scantape::cases
