#include "image.h"

#include <cstring>
#include <limits>

namespace scantape::cases {
namespace {

constexpr std::int64_t kGuardBytes = 256;
constexpr std::int64_t kRowGap = 3;  // elements; odd, so that rows lose their alignment

}  // namespace

double rounded(double value, DType dtype) noexcept {
  return dtype == DType::f64 ? value : static_cast<double>(static_cast<float>(value));
}

Image::Image(const Shape& shape, DType dtype, Device device, Layout layout) : device_(device) {
  const std::int64_t elements = shape.elements();
  row_length_ = shape.rank() == 0 ? 1 : shape.back();
  rows_ = row_length_ == 0 ? 0 : elements / row_length_;
  row_stride_ = row_length_ + (layout == Layout::strided ? kRowGap : 0);
  first_ = kGuardBytes / size_of(dtype) + (layout == Layout::misaligned ? 1 : 0);

  const std::int64_t bytes = (first_ + rows_ * row_stride_) * size_of(dtype) + kGuardBytes;
  host_.assign(static_cast<std::size_t>(bytes), std::byte{0xFF});
  require(allocate(device, bytes, &memory_));
  view_ = View(static_cast<std::byte*>(memory_) + first_ * size_of(dtype), dtype, device, shape);
  // Every leading dimension steps over whole rows.
  for (int axis = 0; axis + 1 < shape.rank(); ++axis)
    view_.strides[static_cast<std::size_t>(axis)] =
        row_length_ == 0 ? 0 : view_.strides[static_cast<std::size_t>(axis)] / row_length_ * row_stride_;
  upload();
}

Image::Image(Image&& other) noexcept
    : device_(other.device_), view_(other.view_), row_length_(other.row_length_), rows_(other.rows_),
      row_stride_(other.row_stride_), first_(other.first_), host_(std::move(other.host_)),
      written_(std::move(other.written_)), memory_(other.memory_) {
  other.memory_ = nullptr;
}

Image::~Image() { deallocate(device_, memory_); }

template <class Visit>
void Image::for_each_element(Visit visit) const {
  const std::int64_t size = size_of(view_.dtype);
  std::int64_t index = 0;
  for (std::int64_t row = 0; row < rows_; ++row)
    for (std::int64_t column = 0; column < row_length_; ++column)
      visit(index++, (first_ + row * row_stride_ + column) * size);
}

void Image::write(const Values& values) {
  if (static_cast<std::int64_t>(values.size()) != view_.elements())
    throw Error(Code::invalid_argument, "a case fills " + scantape::name(view_.shape) + " with " +
                                            std::to_string(values.size()) + " values");
  host_.assign(host_.size(), std::byte{0xFF});
  for_each_element([&](std::int64_t index, std::int64_t at) {
    const double value = values[static_cast<std::size_t>(index)];
    if (view_.dtype == DType::f64) {
      std::memcpy(host_.data() + at, &value, sizeof value);
    } else {
      const float narrow = static_cast<float>(value);
      std::memcpy(host_.data() + at, &narrow, sizeof narrow);
    }
  });
  upload();
}

void Image::write_nan() {
  write(Values(static_cast<std::size_t>(view_.elements()), std::numeric_limits<double>::quiet_NaN()));
}

void Image::upload() {
  written_ = host_;
  require(copy_bytes(device_, memory_, kCpu, host_.data(), static_cast<std::int64_t>(host_.size())));
}

void Image::fetch() {
  require(copy_bytes(kCpu, host_.data(), device_, memory_, static_cast<std::int64_t>(host_.size())));
}

Values Image::values() const {
  Values values(static_cast<std::size_t>(view_.elements()));
  for_each_element([&](std::int64_t index, std::int64_t at) {
    double value = 0;
    if (view_.dtype == DType::f64) {
      std::memcpy(&value, host_.data() + at, sizeof value);
    } else {
      float narrow = 0;
      std::memcpy(&narrow, host_.data() + at, sizeof narrow);
      value = static_cast<double>(narrow);
    }
    values[static_cast<std::size_t>(index)] = value;
  });
  return values;
}

std::vector<std::byte> Image::bits() const {
  const auto size = static_cast<std::size_t>(size_of(view_.dtype));
  std::vector<std::byte> bits(static_cast<std::size_t>(view_.elements()) * size);
  for_each_element([&](std::int64_t index, std::int64_t at) {
    std::memcpy(bits.data() + static_cast<std::size_t>(index) * size, host_.data() + at, size);
  });
  return bits;
}

std::string Image::guard_damage() const {
  std::vector<bool> owned(host_.size(), false);
  for_each_element([&](std::int64_t, std::int64_t at) {
    for (std::int64_t byte = 0; byte < size_of(view_.dtype); ++byte) owned[static_cast<std::size_t>(at + byte)] = true;
  });
  for (std::size_t at = 0; at < host_.size(); ++at)
    if (!owned[at] && host_[at] != std::byte{0xFF})
      return "wrote outside the tensor, byte " +
             std::to_string(static_cast<std::int64_t>(at) - first_ * size_of(view_.dtype)) + " from its start";
  return {};
}

std::string Image::element_damage() const {
  std::string damage;
  const auto size = static_cast<std::size_t>(size_of(view_.dtype));
  for_each_element([&](std::int64_t index, std::int64_t at) {
    if (damage.empty() && std::memcmp(host_.data() + at, written_.data() + at, size) != 0)
      damage = "changed element " + std::to_string(index);
  });
  return damage;
}

}  // namespace scantape::cases
