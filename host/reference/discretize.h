#pragma once

#include <array>
#include <cmath>

#include "scantape/discretize.h"

/// What a method of discretisation makes of one diagonal state or head over one step: the formulas of discretize and of
/// whatever discretises on its way.
namespace scantape::reference {

/// (exp(z) - 1) / z without its cancellation.
template <class T>
T phi1(T z) noexcept {
  return std::abs(z) < T(0x1p-30) ? 1 + z / 2 : std::expm1(z) / z;
}

/// phi1'(z) = sum over k of (k+1)/(k+2)! z^k. The closed form divides a difference of close numbers by z where
/// |z| is small; the series is used up to |z| = 1, with as many terms as the type can hold there.
template <class T>
inline constexpr int kLastTerm = sizeof(T) == 4 ? 10 : 17;

template <class T>
constexpr std::array<T, kLastTerm<T> + 1> phi1_derivative_coefficients() noexcept {
  std::array<T, kLastTerm<T> + 1> coefficients{};
  double factorial = 1;
  for (int k = 0; k <= kLastTerm<T>; ++k) {
    factorial *= k + 2;
    coefficients[static_cast<std::size_t>(k)] = static_cast<T>((k + 1) / factorial);
  }
  return coefficients;
}

template <class T>
T phi1_derivative(T z) noexcept {
  if (!(std::abs(z) < 1)) return (std::exp(z) - phi1(z)) / z;
  constexpr auto kCoefficients = phi1_derivative_coefficients<T>();
  T value = 0;
  for (int k = kLastTerm<T>; k >= 0; --k) value = value * z + kCoefficients[static_cast<std::size_t>(k)];
  return value;
}

/// One state: A_bar = a = 1 + f, B_bar = s B.
template <class T>
struct DiscreteStep {
  T a, f, s;
};

template <class T>
DiscreteStep<T> discrete_step(DiscretizeMethod method, T dt, T A) noexcept {
  const T z = dt * A;
  switch (method) {
    case DiscretizeMethod::zoh:
      return {std::exp(z), std::expm1(z), dt * phi1(z)};
    case DiscretizeMethod::exp_euler:
      return {std::exp(z), std::expm1(z), dt};
    case DiscretizeMethod::bilinear: {
      const T r = 1 / (1 - z / 2);
      // (1 + z/2) r, not 2 r - 1, which cancels where z is near -2.
      return {r * (1 + z / 2), z * r, dt * r};
    }
    case DiscretizeMethod::euler:
      break;
  }
  return {1 + z, z, dt};
}

/// The derivatives of a (and of f) and of s.
template <class T>
struct DiscreteSlopes {
  T a_A, a_dt, s_A, s_dt;
};

template <class T>
DiscreteSlopes<T> discrete_slopes(DiscretizeMethod method, T dt, T A) noexcept {
  const T z = dt * A;
  switch (method) {
    case DiscretizeMethod::zoh: {
      const T e = std::exp(z);
      return {dt * e, A * e, dt * (dt * phi1_derivative(z)), e};
    }
    case DiscretizeMethod::exp_euler: {
      const T e = std::exp(z);
      return {dt * e, A * e, 0, 1};
    }
    case DiscretizeMethod::bilinear: {
      const T r = 1 / (1 - z / 2);
      return {dt * r * r, A * r * r, (dt * r) * (dt * r) / 2, r * r};
    }
    case DiscretizeMethod::euler:
      break;
  }
  return {dt, A, 0, 1};
}

}  // namespace scantape::reference
