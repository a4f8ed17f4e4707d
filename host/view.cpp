#include "scantape/view.h"

#include <algorithm>
#include <limits>

#include "scantape/counters.h"

namespace scantape {

namespace {

// Sizes come from callers: a product that does not fit must not wrap into a small one.
std::int64_t saturating_product(std::int64_t a, std::int64_t b) noexcept {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::int64_t>::max() : product;
}

}  // namespace

const char* name(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::i32:
      return "i32";
  }
  return "unknown";
}

std::string name(Device device) {
  switch (device.kind) {
    case Device::Kind::cpu:
      return "cpu";
    case Device::Kind::cuda:
      return "cuda:" + std::to_string(device.index);
  }
  return "unknown";
}

Shape::Shape(std::initializer_list<std::int64_t> sizes) noexcept {
  if (sizes.size() > static_cast<std::size_t>(kMaxRank)) {
    rank_ = -1;  // no op accepts this rank
    return;
  }
  std::copy(sizes.begin(), sizes.end(), sizes_.begin());
  rank_ = static_cast<int>(sizes.size());
}

std::int64_t Shape::elements() const noexcept {
  if (rank_ < 0 || rank_ > kMaxRank) return 0;
  const auto end = sizes_.begin() + rank_;
  if (std::any_of(sizes_.begin(), end, [](std::int64_t size) { return size <= 0; })) return 0;
  std::int64_t count = 1;
  for (int axis = 0; axis < rank_; ++axis) count = saturating_product(count, sizes_[axis]);
  return count;
}

bool operator==(const Shape& a, const Shape& b) noexcept {
  if (a.rank_ != b.rank_) return false;
  for (int axis = 0; axis < a.rank_; ++axis) {
    if (a.sizes_[axis] != b.sizes_[axis]) return false;
  }
  return true;
}

std::string name(const Shape& shape) {
  if (shape.rank() < 0 || shape.rank() > kMaxRank) return "[more than 6 dimensions]";
  std::string text = "[";
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(shape[axis]);
  }
  return text + "]";
}

ConstView::ConstView(const void* address, DType type, Device place, const Shape& sizes) noexcept
    : data(address), dtype(type), device(place), shape(sizes), present(true) {
  std::int64_t stride = 1;
  for (int axis = sizes.rank() - 1; axis >= 0; --axis) {
    strides[axis] = stride;
    stride = saturating_product(stride, std::max<std::int64_t>(sizes[axis], 1));
  }
}

bool as_rows(const ConstView& view, Rows* rows) noexcept {
  const int rank = view.rank();
  if (rank < 0 || rank > kMaxRank) return false;
  if (rank == 0) {
    *rows = Rows{1, 1, 1};
    return true;
  }
  const int last = rank - 1;
  Rows found{1, view.shape[last], view.shape[last]};
  for (int axis = 0; axis < last; ++axis) found.count = saturating_product(found.count, view.shape[axis]);
  *rows = found;
  if (found.count == 0 || found.length == 0) return true;  // nothing to step over
  if (found.length > 1 && view.strides[last] != 1) return false;

  std::int64_t next = 0;  // the stride that the next dimension outwards must have; 0 before the first
  for (int axis = last - 1; axis >= 0; --axis) {
    if (view.shape[axis] == 1) continue;
    if (next == 0) {
      found.stride = next = view.strides[axis];
    } else if (view.strides[axis] != next) {
      return false;
    }
    next = saturating_product(next, view.shape[axis]);
  }
  // Rows that run into each other, or backwards, are not rows: matrix products could not take them either.
  if (found.stride < found.length) return false;
  *rows = found;
  return true;
}

bool as_rows(const ConstView& view, int axes, Rows* rows) noexcept {
  if (axes == 1) return as_rows(view, rows);  // of a scalar too
  const int rank = view.rank();
  if (rank < axes || rank > kMaxRank || axes < 2) return false;
  ConstView flat = view;  // the last `axes` dimensions as one
  flat.shape = Shape();
  for (int axis = 0; axis < rank - axes; ++axis) flat.shape.append(view.shape[axis]);
  std::int64_t length = 1;
  bool without_gaps = true;
  for (int axis = rank - 1; axis >= rank - axes; --axis) {
    if (view.shape[axis] > 1 && view.strides[axis] != length) without_gaps = false;
    length = saturating_product(length, view.shape[axis]);
  }
  flat.shape.append(length);
  flat.strides[rank - axes] = 1;
  if (!as_rows(flat, rows)) return false;
  return without_gaps || rows->count == 0 || rows->length == 0;
}

bool is_contiguous(const ConstView& view) noexcept {
  if (view.rank() < 0 || view.rank() > kMaxRank) return false;
  if (view.elements() == 0) return true;
  std::int64_t stride = 1;
  for (int axis = view.rank() - 1; axis >= 0; --axis) {
    if (view.shape[axis] != 1 && view.strides[axis] != stride) return false;
    stride = saturating_product(stride, view.shape[axis]);
  }
  return true;
}

namespace detail {

Counters& mutable_counters() noexcept {
  thread_local Counters counters;
  return counters;
}

LaunchListener& launch_listener() noexcept {
  thread_local LaunchListener listener = nullptr;
  return listener;
}

}  // namespace detail

Counters counters() noexcept {
  return detail::mutable_counters();
}

}  // namespace scantape
