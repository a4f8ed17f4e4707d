#pragma once

#include "common.h"

namespace scantape::reference {

/// y = value(x), element by element. `args` has x and y.
template <class Args, class Value>
void elementwise_forward(const Args& args, const Value& value) noexcept {
  dispatch(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Rows rows = rows_of(args.x);
    const RowsOf<const T> x(args.x);
    const RowsOf<T> y(args.y);
#pragma omp parallel for schedule(static) if (worth_threads(rows.count * rows.length))
    for (std::int64_t row = 0; row < rows.count; ++row) {
      for (std::int64_t i = 0; i < rows.length; ++i) y[row][i] = value(x[row][i]);
    }
  });
}

/// d_x = d_y * derivative(x), element by element. `args` has x, d_y and d_x.
template <class Args, class Derivative>
void elementwise_backward(const Args& args, const Derivative& derivative) noexcept {
  dispatch(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Rows rows = rows_of(args.x);
    const RowsOf<const T> x(args.x), d_y(args.d_y);
    const Target<T> d_x(args.d_x);
    const Derivative& slope = derivative;  // clang 14 loses the name itself in a lambda in a parallel loop
#pragma omp parallel for schedule(static) if (worth_threads(rows.count * rows.length))
    for (std::int64_t row = 0; row < rows.count; ++row) {
      d_x.write(row, rows.length, [&](std::int64_t i) { return d_y[row][i] * slope(x[row][i]); });
    }
  });
}

}  // namespace scantape::reference
