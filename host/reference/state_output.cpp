#include "scantape/state_output.h"

#include <memory>

#include "common.h"

namespace scantape::reference {

namespace {

template <class T>
void forward(const StateOutputForward& args) noexcept {
  const Rows rows = rows_of(args.z);
  const RowsOf<const T> z(args.z), u(args.u), residual(args.residual);
  const RowsOf<T> out(args.out);
  const T* D = args.D.as<T>();
  const bool gated = args.activation == Activation::silu;
#pragma omp parallel for schedule(static) if (worth_threads(rows.count * rows.length))
  for (std::int64_t row = 0; row < rows.count; ++row) {
    const T *zr = z[row], *ur = u[row], *rr = residual[row];
    T* to = out[row];
    for (std::int64_t i = 0; i < rows.length; ++i) {
      const T sum = zr[i] + D[i] * ur[i];
      to[i] = rr[i] + (gated ? silu(sum) : sum);
    }
  }
}

// g = d_out * act'(z + D u), dense [M, E]: three gradients are made of it.
template <class T>
void activation_gradient(const StateOutputBackward& args, const Rows& rows, T* g) noexcept {
  const RowsOf<const T> z(args.z), u(args.u), d_out(args.d_out);
  const T* D = args.D.as<T>();
  const bool gated = args.activation == Activation::silu;
#pragma omp parallel for schedule(static) if (worth_threads(rows.count * rows.length))
  for (std::int64_t row = 0; row < rows.count; ++row) {
    const T *zr = z[row], *ur = u[row], *from = d_out[row];
    T* to = g + row * rows.length;
    for (std::int64_t i = 0; i < rows.length; ++i) {
      to[i] = gated ? from[i] * silu_derivative(zr[i] + D[i] * ur[i]) : from[i];
    }
  }
}

template <class T>
void backward_rows(const StateOutputBackward& args, const Rows& rows, const T* g) noexcept {
  const RowsOf<const T> d_out(args.d_out);
  const Target<T> d_z(args.d_z), d_u(args.d_u), d_residual(args.d_residual);
  const T* D = args.D.as<T>();
#pragma omp parallel for schedule(static) if (worth_threads(rows.count * rows.length))
  for (std::int64_t row = 0; row < rows.count; ++row) {
    const T* gr = g + row * rows.length;
    d_z.write(row, rows.length, [&](std::int64_t i) { return gr[i]; });
    d_u.write(row, rows.length, [&](std::int64_t i) { return gr[i] * D[i]; });
    d_residual.write(row, rows.length, [&](std::int64_t i) { return d_out[row][i]; });
  }
}

template <class T>
void backward_D(const StateOutputBackward& args, const Rows& rows, const T* g) {
  const RowsOf<const T> u(args.u);
  std::vector<double> sums(static_cast<std::size_t>(rows.length));
  sum_rows(rows.count, rows.length, sums.data(),
           [&](std::int64_t row, std::int64_t begin, std::int64_t end, double* s) {
             const T* gr = g + row * rows.length;
             const T* ur = u[row];
#pragma omp simd
             for (std::int64_t i = begin; i < end; ++i) s[i] += double(gr[i]) * ur[i];
           });
  const Target<T> d_D(args.d_D);
  d_D.write(0, rows.length,
            [&](std::int64_t i) { return static_cast<T>(sums[static_cast<std::size_t>(i)]); });
}

}  // namespace

Status state_output_forward(const StateOutputForward& args) noexcept {
  dispatch(args.z.dtype, [&](auto zero) { forward<decltype(zero)>(args); });
  return {};
}

Status state_output_backward(const StateOutputBackward& args) noexcept {
  return run("state_output_backward", [&] {
    dispatch(args.z.dtype, [&](auto zero) {
      using T = decltype(zero);
      const Rows rows = rows_of(args.z);
      const auto g = std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(rows.count * rows.length));
      activation_gradient(args, rows, g.get());
      backward_rows(args, rows, static_cast<const T*>(g.get()));
      if (args.d_D.wanted()) backward_D(args, rows, static_cast<const T*>(g.get()));
    });
  });
}

}  // namespace scantape::reference
