#include "scantape/discretize.h"

#include "common.h"

namespace scantape::reference {

namespace {

// (exp(z) - 1) / z without its cancellation.
template <class T>
T phi1(T z) noexcept {
  return std::abs(z) < T(0x1p-30) ? 1 + z / 2 : std::expm1(z) / z;
}

// phi1'(z) = sum over k of (k+1)/(k+2)! z^k. The closed form divides a difference of close numbers by z where
// |z| is small; the series is used up to |z| = 1, with as many terms as the type can hold there.
template <class T>
T phi1_derivative(T z) noexcept {
  if (!(std::abs(z) < 1)) return (std::exp(z) - phi1(z)) / z;
  constexpr int kLast = sizeof(T) == 4 ? 10 : 17;
  double coefficients[kLast + 1];
  double factorial = 1;
  for (int k = 0; k <= kLast; ++k) {
    factorial *= k + 2;
    coefficients[k] = (k + 1) / factorial;
  }
  T value = 0;
  for (int k = kLast; k >= 0; --k) value = value * z + static_cast<T>(coefficients[k]);
  return value;
}

/// One state: A_bar = 1 + f, B_bar = s B, and the derivatives of f and s.
template <class T>
struct Step {
  T a, f, s;
  T a_A, a_dt, s_A, s_dt;
};

template <class T>
Step<T> step(DiscretizeMethod method, T dt, T A) noexcept {
  const T z = dt * A;
  switch (method) {
    case DiscretizeMethod::zoh: {
      const T e = std::exp(z);
      return {e, std::expm1(z), dt * phi1(z), dt * e, A * e, dt * (dt * phi1_derivative(z)), e};
    }
    case DiscretizeMethod::exp_euler: {
      const T e = std::exp(z);
      return {e, std::expm1(z), dt, dt * e, A * e, 0, 1};
    }
    case DiscretizeMethod::bilinear: {
      const T r = 1 / (1 - z / 2);
      // (1 + z/2) r, not 2 r - 1, which cancels where z is near -2.
      return {r * (1 + z / 2), z * r, dt * r, dt * r * r, A * r * r, (dt * r) * (dt * r) / 2, r * r};
    }
    case DiscretizeMethod::euler:
      break;
  }
  return {1 + z, z, dt, dt, A, 0, 1};
}

template <class T>
void forward(const DiscretizeForward& args) noexcept {
  const Rows rows = rows_of(args.B);
  const T* dt = args.dt.as<T>();
  const T* A = args.A.as<T>();
  const RowsOf<const T> B(args.B);
  const RowsOf<T> B_bar(args.B_bar);
#pragma omp parallel for schedule(static) if (worth_threads(rows.count * rows.length))
  for (std::int64_t n = 0; n < rows.count; ++n) {
    const Step<T> at = step(args.method, dt[n], A[n]);
    args.A_bar.as<T>()[n] = at.a;
    if (args.F.present) args.F.as<T>()[n] = at.f;
    const T* from = B[n];
    T* to = B_bar[n];
    for (std::int64_t e = 0; e < rows.length; ++e) to[e] = at.s * from[e];
  }
}

template <class T>
void backward(const DiscretizeBackward& args) noexcept {
  const Rows rows = rows_of(args.B);
  const T* dt = args.dt.as<T>();
  const T* A = args.A.as<T>();
  const RowsOf<const T> B(args.B), d_B_bar(args.d_B_bar);
  const Target<T> d_dt(args.d_dt), d_A(args.d_A), d_B(args.d_B);
#pragma omp parallel for schedule(static) if (worth_threads(rows.count * rows.length))
  for (std::int64_t n = 0; n < rows.count; ++n) {
    const Step<T> at = step(args.method, dt[n], A[n]);
    // A cotangent that is absent is left out, not multiplied by 0: a derivative may be infinite.
    T d_A_n = 0, d_dt_n = 0;
    if (args.d_A_bar.present || args.d_F.present) {
      const T g_a = (args.d_A_bar.present ? args.d_A_bar.as<T>()[n] : T(0)) +
                    (args.d_F.present ? args.d_F.as<T>()[n] : T(0));
      d_A_n += g_a * at.a_A;
      d_dt_n += g_a * at.a_dt;
    }
    if (args.d_B_bar.present) {
      const T *g = d_B_bar[n], *b = B[n];
      const T g_s = static_cast<T>(sum(rows.length, [&](std::int64_t e) { return double(g[e]) * b[e]; }));
      d_A_n += g_s * at.s_A;
      d_dt_n += g_s * at.s_dt;
    }
    d_A.write_one(n, d_A_n);
    d_dt.write_one(n, d_dt_n);
    d_B.write(n, rows.length, [&](std::int64_t e) { return d_B_bar ? at.s * d_B_bar[n][e] : T(0); });
  }
}

}  // namespace

Status discretize_forward(const DiscretizeForward& args) noexcept {
  dispatch(args.A.dtype, [&](auto zero) { forward<decltype(zero)>(args); });
  return {};
}

Status discretize_backward(const DiscretizeBackward& args) noexcept {
  dispatch(args.A.dtype, [&](auto zero) { backward<decltype(zero)>(args); });
  return {};
}

}  // namespace scantape::reference
