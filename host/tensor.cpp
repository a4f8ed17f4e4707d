#include "scantape/tensor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "runtime/arena.h"

namespace scantape {

struct Tensor::Storage {
  Device device;
  void* data = nullptr;
  std::uint64_t version = 0;

  std::shared_ptr<runtime::Arena> arena;  // whose memory it is; null: its own
  std::shared_ptr<void> owner;            // of memory that was there before

  Storage(Device where, std::int64_t bytes) : device(where), arena(runtime::workplace().arena) {
    if (arena != nullptr && arena->device() != where) arena = nullptr;
    require(arena != nullptr ? arena->take(bytes, &data) : allocate(where, bytes, &data));
  }
  Storage(Device where, void* memory, std::shared_ptr<void> keeps)
      : device(where), data(memory), owner(std::move(keeps)) {}
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage() {
    if (arena != nullptr)
      arena->give_back(data);
    else if (owner == nullptr)
      deallocate(device, data);
  }
};

namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(Code::invalid_argument, message);
}

/// Calls f(row address offset in elements) for the first element of each row along the last axis, in row-major order.
template <class F>
void for_each_row(const ConstView& view, F f) {
  const int outer = view.rank() - 1;
  std::int64_t rows = 1;
  for (int axis = 0; axis < outer; ++axis) rows *= view.shape[axis];
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t offset = 0;
    std::int64_t rest = row;
    for (int axis = outer - 1; axis >= 0; --axis) {
      offset += rest % view.shape[axis] * view.strides[static_cast<std::size_t>(axis)];
      rest /= view.shape[axis];
    }
    f(offset);
  }
}

/// Copies values between views of equal shape and dtype on any devices; their last axes are contiguous.
void copy_values(const View& to, const ConstView& from) {
  if (from.elements() == 0) return;
  const std::int64_t size = size_of(from.dtype);
  if (is_contiguous(to) && is_contiguous(from)) {
    require(copy_bytes(to.device, to.as<void>(), from.device, from.data, from.elements() * size,
                       current_stream()));
    return;
  }
  std::vector<std::int64_t> sources;
  for_each_row(from, [&](std::int64_t offset) { sources.push_back(offset); });
  std::size_t row = 0;
  for_each_row(to, [&](std::int64_t offset) {
    require(copy_bytes(to.device, to.as<char>() + offset * size, from.device,
                       from.as<char>() + sources[row++] * size, from.shape.back() * size, current_stream()));
  });
}

/// Refuses sizes below zero, too many of them, and those whose bytes cannot be counted.
void check_shape(const Shape& shape, DType dtype) {
  bool fits = shape.rank() >= 0;
  std::int64_t bytes = size_of(dtype);
  for (int axis = 0; axis < shape.rank(); ++axis) {
    fits = fits && shape[axis] >= 0;
    if (fits && shape[axis] > 0) fits = !__builtin_mul_overflow(bytes, shape[axis], &bytes);
  }
  if (!fits) refuse("tensor: " + name(shape) + " is not a shape, or more than memory can hold");
}

/// Calls f with a value of the C++ type that stands for `dtype`.
template <class F>
auto with_type(DType dtype, F f) {
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
  refuse("tensor: dtype code " + std::to_string(static_cast<int>(dtype)) + " is none");
}

/// Of the types of 16 bits all is part of f32, and of i32 all is part of f64: by way of it nothing is rounded twice. An
/// index is a whole number in its range or no index at all.
template <class To, class From>
To converted(From value) {
  constexpr bool kWide = std::is_same_v<From, double> || std::is_same_v<From, std::int32_t>;
  using Wide = std::conditional_t<kWide, double, float>;
  if constexpr (std::is_same_v<To, std::int32_t> && !std::is_same_v<From, std::int32_t>) {
    const auto number = static_cast<double>(static_cast<Wide>(value));
    if (!(number >= std::numeric_limits<To>::min() && number <= std::numeric_limits<To>::max()) ||
        number != std::trunc(number))
      refuse("tensor: " + std::to_string(number) + " is not a number of i32");
  }
  return static_cast<To>(static_cast<Wide>(value));
}

}  // namespace

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  check_shape(shape, dtype);
  Tensor tensor;
  tensor.storage_ = std::make_shared<Storage>(device, shape.elements() * size_of(dtype));
  tensor.view_ = View(tensor.storage_->data, dtype, device, shape);
  return tensor;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  Tensor tensor = empty(shape, dtype, device);
  tensor.fill_zero();
  return tensor;
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  check_shape(shape, dtype);
  const auto count = static_cast<std::size_t>(shape.elements());
  return with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    return from(shape, std::vector<T>(count, converted<T>(value)), device);
  });
}

template <class T>
Tensor Tensor::from(const Shape& shape, const std::vector<T>& values, Device device) {
  if (static_cast<std::int64_t>(values.size()) != shape.elements())
    refuse("tensor: " + std::to_string(values.size()) + " values given for shape " + scantape::name(shape));
  Tensor tensor = empty(shape, dtype_of<T>, device);
  const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(T));
  require(copy_bytes(device, tensor.storage_->data, kCpu, values.data(), bytes, current_stream()));
  return tensor;
}

Tensor Tensor::over(const View& memory, std::shared_ptr<void> owner) {
  if (!memory.present || owner == nullptr) refuse("tensor: memory to lie over, and its owner, are missing");
  check_shape(memory.shape, memory.dtype);
  if (!is_contiguous(memory)) refuse("tensor: memory to lie over is not contiguous");
  if (reinterpret_cast<std::uintptr_t>(memory.data) % static_cast<std::uintptr_t>(size_of(memory.dtype)) != 0)
    refuse("tensor: memory to lie over is not aligned to the " + std::to_string(size_of(memory.dtype)) +
           " bytes of its elements");
  Tensor tensor;
  tensor.storage_ = std::make_shared<Storage>(memory.device, memory.as<void>(), std::move(owner));
  tensor.view_ = memory;
  return tensor;
}

View Tensor::writable() {
  if (!present()) return View();
  ++storage_->version;
  return view_;
}

template <class T>
const T* Tensor::data() const {
  if (!present() || dtype() != dtype_of<T> || !device().is_cpu())
    refuse(std::string("tensor: asked for host values of ") + name(dtype_of<T>) + ", is " +
           (present() ? std::string(name(dtype())) + " on " + name(device()) : "absent"));
  return view_.as<T>();
}

template <class T>
T* Tensor::mutable_data() {
  T* address = const_cast<T*>(data<T>());
  ++storage_->version;
  return address;
}

template <class T>
std::vector<T> Tensor::values() const {
  if (!present() || dtype() != dtype_of<T>)
    refuse(std::string("tensor: asked for values of ") + name(dtype_of<T>) + ", is " +
           (present() ? name(dtype()) : "absent"));
  std::vector<T> result(static_cast<std::size_t>(elements()));
  copy_values(View(result.data(), dtype(), kCpu, shape()), view_);
  return result;
}

Tensor Tensor::clone() const {
  if (!present()) refuse("tensor: absent, cannot be copied");
  Tensor copy = empty(shape(), dtype(), device());
  copy_values(copy.view_, view_);
  return copy;
}

Tensor Tensor::to(Device where) const {
  if (!present()) refuse("tensor: absent, cannot be copied");
  if (where == device()) return *this;
  Tensor copy = empty(shape(), dtype(), where);
  copy_values(copy.view_, view_);
  return copy;
}

Tensor Tensor::to(DType type) const {
  if (!present()) refuse("tensor: absent, cannot be converted");
  if (type == dtype()) return *this;
  Tensor host = empty(shape(), type);
  with_type(dtype(), [&](auto from_zero) {
    using From = decltype(from_zero);
    const std::vector<From> from = values<From>();
    with_type(type, [&](auto to_zero) {
      using To = decltype(to_zero);
      To* const target = host.mutable_data<To>();
      for (std::size_t i = 0; i < from.size(); ++i) target[i] = converted<To>(from[i]);
    });
  });
  return host.to(device());
}

void Tensor::copy_from(const Tensor& source) {
  if (!present() || !source.present() || source.shape() != shape() || source.dtype() != dtype())
    refuse("tensor: copy from " +
           (source.present() ? name(source.shape()) + " " + name(source.dtype()) : "absent") + " to " +
           (present() ? name(shape()) + " " + name(dtype()) : "absent"));
  copy_values(writable(), source.view_);
}

void Tensor::fill_zero() {
  if (!present()) refuse("tensor: absent, cannot be filled");
  const View view = writable();
  if (elements() == 0) return;
  const std::int64_t size = size_of(dtype());
  if (is_contiguous(view))
    return require(zero_bytes(device(), view.as<void>(), elements() * size, current_stream()));
  for_each_row(view, [&](std::int64_t offset) {
    require(zero_bytes(device(), view.as<char>() + offset * size, shape().back() * size, current_stream()));
  });
}

namespace {

/// Whether `shape` differs from that of the view in nothing but what became of its last axis, which has no gaps.
bool splits_last_axis(const ConstView& view, const Shape& shape) noexcept {
  const int kept = view.rank() - 1;
  if (kept < 0 || shape.rank() <= kept || view.strides[static_cast<std::size_t>(kept)] != 1) return false;
  for (int axis = 0; axis < kept; ++axis)
    if (shape[axis] != view.shape[axis]) return false;
  return true;
}

}  // namespace

Tensor Tensor::reshape(const Shape& shape) const {
  const bool kept = present() && splits_last_axis(view_, shape);
  if (!present() || shape.elements() != elements() || !(is_contiguous(view_) || kept))
    refuse("tensor: " + (present() ? name(this->shape()) : "absent") + " cannot be seen as " + name(shape) +
           ": the numbers of elements differ, or it is not contiguous");
  check_shape(shape, dtype());
  Tensor result = *this;
  static_cast<ConstView&>(result.view_) = ConstView(view_.data, dtype(), device(), shape);
  if (kept) std::copy_n(view_.strides.begin(), view_.rank() - 1, result.view_.strides.begin());
  return result;
}

Tensor Tensor::slice(int axis, std::int64_t begin, std::int64_t end) const {
  if (!present() || axis < 0 || axis >= shape().rank() || begin < 0 || end < begin || end > shape()[axis])
    refuse("tensor: slice [" + std::to_string(begin) + ", " + std::to_string(end) + ") of axis " +
           std::to_string(axis) + " is outside " + (present() ? name(shape()) : "an absent tensor"));
  Tensor result = *this;
  result.view_.shape[axis] = end - begin;
  result.view_.data =
      view_.as<char>() + begin * view_.strides[static_cast<std::size_t>(axis)] * size_of(dtype());
  return result;
}

std::uint64_t Tensor::version() const noexcept {
  return storage_ ? storage_->version : 0;
}

template Tensor Tensor::from<float>(const Shape&, const std::vector<float>&, Device);
template Tensor Tensor::from<double>(const Shape&, const std::vector<double>&, Device);
template Tensor Tensor::from<BFloat16>(const Shape&, const std::vector<BFloat16>&, Device);
template Tensor Tensor::from<Float16>(const Shape&, const std::vector<Float16>&, Device);
template Tensor Tensor::from<std::int32_t>(const Shape&, const std::vector<std::int32_t>&, Device);
template const float* Tensor::data<float>() const;
template const double* Tensor::data<double>() const;
template const BFloat16* Tensor::data<BFloat16>() const;
template const Float16* Tensor::data<Float16>() const;
template const std::int32_t* Tensor::data<std::int32_t>() const;
template float* Tensor::mutable_data<float>();
template double* Tensor::mutable_data<double>();
template BFloat16* Tensor::mutable_data<BFloat16>();
template Float16* Tensor::mutable_data<Float16>();
template std::int32_t* Tensor::mutable_data<std::int32_t>();
template std::vector<float> Tensor::values<float>() const;
template std::vector<double> Tensor::values<double>() const;
template std::vector<BFloat16> Tensor::values<BFloat16>() const;
template std::vector<Float16> Tensor::values<Float16>() const;
template std::vector<std::int32_t> Tensor::values<std::int32_t>() const;

}  // namespace scantape
