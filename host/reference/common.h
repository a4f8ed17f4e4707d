#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <new>
#include <vector>

#include "scantape/status.h"
#include "scantape/view.h"

/// What the reference path's files share. Its sums run in double, also over f32 data, each in an order that
/// the source fixes: never in one that depends on the number of threads.
namespace scantape::reference {

/// Calls `body` with a value of the C++ type that stands for `dtype`, f32 or f64. Tensors of 16 bits have been converted
/// before they come here (in_f32.h), or refused.
template <class Body>
void dispatch(DType dtype, const Body& body) {
  if (dtype == DType::f32) body(float{});
  if (dtype == DType::f64) body(double{});
}

/// `body` allocates scratch: the one thing that can go wrong here.
template <class Body>
Status run(const char* op, const Body& body) noexcept {
  try {
    body();
  } catch (const std::bad_alloc&) {
    return Status::fail(Code::out_of_memory, op);
  } catch (const std::exception& error) {
    return Status::fail(Code::out_of_memory, error.what());
  }
  return {};
}

/// A row is the last `axes` dimensions.
inline Rows rows_of(const ConstView& view, int axes = 1) noexcept {
  Rows rows;
  as_rows(view, axes, &rows);
  return rows;
}

/// Whether a loop over so many elements gains by threads. Bits do not depend on it.
inline bool worth_threads(std::int64_t elements) noexcept {
  return elements >= 1 << 14;
}

/// The rows of a tensor; all null where it is absent.
template <class T>
class RowsOf {
 public:
  RowsOf() noexcept = default;
  explicit RowsOf(const ConstView& view, int axes = 1) noexcept
      : data_(view.present ? const_cast<T*>(view.as<T>()) : nullptr),
        stride_(view.present ? rows_of(view, axes).stride : 0) {}
  explicit operator bool() const noexcept { return data_ != nullptr; }
  T* operator[](std::int64_t row) const noexcept {
    return data_ == nullptr ? nullptr : data_ + row * stride_;
  }
  std::int64_t stride() const noexcept { return stride_; }

 private:
  T* data_ = nullptr;
  std::int64_t stride_ = 0;
};

/// A gradient's target. Not written where the gradient is skipped.
template <class T>
class Target {
 public:
  explicit Target(const Gradient& gradient, int axes = 1) noexcept
      : rows_(gradient.wanted() ? RowsOf<T>(gradient.view, axes) : RowsOf<T>()),
        accumulate_(gradient.mode == WriteMode::accumulate) {}
  explicit operator bool() const noexcept { return static_cast<bool>(rows_); }
  bool accumulates() const noexcept { return accumulate_; }
  T* row(std::int64_t index) const noexcept { return rows_[index]; }
  /// Writes value(i), or adds it, for i in begin..end-1.
  template <class Value>
  void write(std::int64_t row, std::int64_t begin, std::int64_t end, const Value& value) const noexcept {
    T* target = rows_[row];
    if (target == nullptr) return;
    if (accumulate_) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) target[i] += value(i);
    } else {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) target[i] = value(i);
    }
  }
  template <class Value>
  void write(std::int64_t row, std::int64_t count, const Value& value) const noexcept {
    write(row, 0, count, value);
  }
  /// The same for one element.
  void write_at(std::int64_t row, std::int64_t i, T value) const noexcept {
    T* target = rows_[row];
    if (target != nullptr) target[i] = accumulate_ ? target[i] + value : value;
  }
  /// The same for element i of the first row.
  void write_one(std::int64_t i, T value) const noexcept {
    write_at(0, i, value);
  }

 private:
  RowsOf<T> rows_;
  bool accumulate_;
};

/// sum of term(i), i in 0..count-1: sixteen running sums, then these in order. One running sum would wait for
/// each addition, and an order left to the compiler would not be one.
template <class Term>
double sum(std::int64_t count, const Term& term) noexcept {
  constexpr int kLanes = 16;
  double lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma omp simd
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  for (int lane = 0; i < count; ++i, ++lane) lanes[lane] += term(i);
  double total = 0;
  for (double lane : lanes) total += lane;
  return total;
}

/// sums[column] = sum over rows, first to last, of what add_row(row, begin, end, sums) adds to
/// sums[begin..end-1]. Threads share out the columns, so each sum has one order.
template <class AddRow>
void sum_rows(std::int64_t rows, std::int64_t columns, double* sums, const AddRow& add_row) noexcept {
  constexpr std::int64_t kBlock = 64;
  const std::int64_t blocks = (columns + kBlock - 1) / kBlock;
#pragma omp parallel for schedule(static) if (worth_threads(rows * columns))
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t begin = block * kBlock;
    const std::int64_t end = std::min(begin + kBlock, columns);
    std::fill(sums + begin, sums + end, 0.0);
    for (std::int64_t row = 0; row < rows; ++row) add_row(row, begin, end, sums);
  }
}

template <class T>
T sigmoid(T z) noexcept {
  const T e = std::exp(-std::abs(z));
  return z >= 0 ? 1 / (1 + e) : e / (1 + e);
}

/// What silu and its derivative are made of: sigmoid(z) = near^2 share, 1 - sigmoid(z) = far^2 share. Far
/// left, sigmoid(z) alone would be a denormal short of digits: z takes its two factors one after the other.
template <class T>
struct Sigmoid {
  T near, far, share;

  explicit Sigmoid(T z) noexcept {
    const T half = std::exp(-std::abs(z) / 2);
    near = z >= 0 ? 1 : half;
    far = z >= 0 ? half : 1;
    share = 1 / (1 + half * half);
  }
};

template <class T>
T silu(T z) noexcept {
  const Sigmoid<T> s(z);
  return (z * s.near) * (s.near * s.share);
}

template <class T>
T silu_derivative(T z) noexcept {
  const Sigmoid<T> s(z);
  return (s.near * (1 + z * (s.far * s.far * s.share))) * (s.near * s.share);
}

}  // namespace scantape::reference
