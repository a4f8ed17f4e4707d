#pragma once

#include <cstddef>

#include "common.h"

/// Square matrices of the reference path: plain loops, each sum in double and in one order.
namespace scantape::reference {

template <class T>
class Matrix {
 public:
  Matrix() = default;
  explicit Matrix(std::int64_t n) : n_(n), values_(static_cast<std::size_t>(n * n), T(0)) {}
  /// The matrix that is stored at `values`, row after row, times `factor`.
  Matrix(std::int64_t n, const T* values, T factor) : Matrix(n) {
    for (std::int64_t i = 0; i < n * n; ++i) values_[static_cast<std::size_t>(i)] = factor * values[i];
  }
  static Matrix identity(std::int64_t n) {
    Matrix result(n);
    for (std::int64_t i = 0; i < n; ++i) result(i, i) = 1;
    return result;
  }

  std::int64_t size() const noexcept { return n_; }
  std::int64_t elements() const noexcept { return n_ * n_; }
  T* data() noexcept { return values_.data(); }
  const T* data() const noexcept { return values_.data(); }
  T& operator()(std::int64_t i, std::int64_t j) noexcept {
    return values_[static_cast<std::size_t>(i * n_ + j)];
  }
  T operator()(std::int64_t i, std::int64_t j) const noexcept {
    return values_[static_cast<std::size_t>(i * n_ + j)];
  }
  T* row(std::int64_t i) noexcept { return values_.data() + i * n_; }
  const T* row(std::int64_t i) const noexcept { return values_.data() + i * n_; }

 private:
  std::int64_t n_ = 0;
  std::vector<T> values_;
};

template <class T>
Matrix<T> transposed(const Matrix<T>& x) {
  Matrix<T> result(x.size());
  for (std::int64_t i = 0; i < x.size(); ++i)
    for (std::int64_t j = 0; j < x.size(); ++j) result(j, i) = x(i, j);
  return result;
}

/// x y
template <class T>
Matrix<T> product(const Matrix<T>& x, const Matrix<T>& y) {
  const std::int64_t n = x.size();
  Matrix<T> result(n);
  std::vector<double> sums(static_cast<std::size_t>(n * n), 0.0);
#pragma omp parallel for schedule(static) if (worth_threads(n * n))
  for (std::int64_t i = 0; i < n; ++i) {
    double* sum = sums.data() + i * n;
    for (std::int64_t k = 0; k < n; ++k) {
      const double factor = x(i, k);
      const T* from = y.row(k);
#pragma omp simd
      for (std::int64_t j = 0; j < n; ++j) sum[j] += factor * from[j];
    }
    for (std::int64_t j = 0; j < n; ++j) result(i, j) = static_cast<T>(sum[j]);
  }
  return result;
}

/// a x + b y
template <class T>
Matrix<T> weighted(T a, const Matrix<T>& x, T b, const Matrix<T>& y) {
  Matrix<T> result(x.size());
  for (std::int64_t i = 0; i < x.elements(); ++i) result.data()[i] = a * x.data()[i] + b * y.data()[i];
  return result;
}
template <class T>
Matrix<T> operator+(const Matrix<T>& x, const Matrix<T>& y) {
  return weighted(T(1), x, T(1), y);
}

/// The sum over the products of their elements.
template <class T>
double inner(const Matrix<T>& x, const Matrix<T>& y) noexcept {
  return sum(x.elements(), [&](std::int64_t i) { return double(x.data()[i]) * y.data()[i]; });
}

/// The larger one of the largest sums of |elements| along a row and along a column.
template <class T>
T norm_bound(const Matrix<T>& x) noexcept {
  double largest = 0;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    double row = 0, column = 0;
    for (std::int64_t j = 0; j < x.size(); ++j) {
      row += std::abs(double(x(i, j)));
      column += std::abs(double(x(j, i)));
    }
    largest = std::max({largest, row, column});
  }
  return static_cast<T>(largest);
}

/// The inverse by LU with partial pivoting. A singular matrix gives infinities or NaN.
template <class T>
Matrix<T> inverse(Matrix<T> lu) {
  const std::int64_t n = lu.size();
  Matrix<T> result = Matrix<T>::identity(n);
  for (std::int64_t k = 0; k < n; ++k) {
    std::int64_t pivot = k;
    for (std::int64_t i = k + 1; i < n; ++i)
      if (std::abs(lu(i, k)) > std::abs(lu(pivot, k))) pivot = i;
    if (pivot != k) {
      std::swap_ranges(lu.row(k), lu.row(k) + n, lu.row(pivot));
      std::swap_ranges(result.row(k), result.row(k) + n, result.row(pivot));
    }
    for (std::int64_t i = k + 1; i < n; ++i) {
      const T factor = lu(i, k) / lu(k, k);
      for (std::int64_t j = k + 1; j < n; ++j) lu(i, j) -= factor * lu(k, j);
      for (std::int64_t j = 0; j < n; ++j) result(i, j) -= factor * result(k, j);
    }
  }
  for (std::int64_t k = n - 1; k >= 0; --k) {
    for (std::int64_t j = 0; j < n; ++j) result(k, j) /= lu(k, k);
    for (std::int64_t i = 0; i < k; ++i)
      for (std::int64_t j = 0; j < n; ++j) result(i, j) -= lu(i, k) * result(k, j);
  }
  return result;
}

}  // namespace scantape::reference
