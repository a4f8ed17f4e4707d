#include "scantape/softplus.h"

#include "common.h"

namespace scantape::reference {

namespace {

// PyTorch's threshold: 20 itself takes the logarithm.
template <class T>
T softplus(T x) noexcept {
  return x > 20 ? x : std::log1p(std::exp(x));
}

template <class T>
T softplus_derivative(T x) noexcept {
  return x > 20 ? T(1) : sigmoid(x);
}

}  // namespace

Status softplus_forward(const SoftplusForward& args) noexcept {
  dispatch(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Rows rows = rows_of(args.x);
    const RowsOf<const T> x(args.x);
    const RowsOf<T> y(args.y);
#pragma omp parallel for schedule(static) if (worth_threads(rows.count * rows.length))
    for (std::int64_t row = 0; row < rows.count; ++row) {
      for (std::int64_t i = 0; i < rows.length; ++i) y[row][i] = softplus(x[row][i]);
    }
  });
  return {};
}

Status softplus_backward(const SoftplusBackward& args) noexcept {
  dispatch(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Rows rows = rows_of(args.x);
    const RowsOf<const T> x(args.x), d_y(args.d_y);
    const Target<T> d_x(args.d_x);
#pragma omp parallel for schedule(static) if (worth_threads(rows.count * rows.length))
    for (std::int64_t row = 0; row < rows.count; ++row) {
      d_x.write(row, rows.length,
                [&](std::int64_t i) { return d_y[row][i] * softplus_derivative(x[row][i]); });
    }
  });
  return {};
}

}  // namespace scantape::reference
