#pragma once

#include <type_traits>

#include "common/affine.cuh"
#include "scantape/discretize.h"

// What a method makes of one diagonal state (or head) over one step, and the slopes of that. With z = dt A,
// R = 1 / (1 - z/2):
//
//              a - 1      s            da/dA     da/ddt    ds/dA            ds/ddt
//   zoh        expm1(z)   dt phi1(z)   dt e^z    A e^z     dt^2 phi1'(z)    e^z
//   exp_euler  expm1(z)   dt           dt e^z    A e^z     0                1
//   bilinear   z R        dt R         dt R^2    A R^2     dt^2 R^2 / 2     R^2
//   euler      z          dt           dt        A         0                1
//
// zoh's s is the integral of exp(A t) over the step, (e^z - 1) / A = dt phi1(z): written with phi1 it has no
// division by A and no cancellation near z = 0; far left it goes to -1/A. d(dt phi1(dt A))/ddt = phi1 + z
// phi1' = e^z. bilinear's a is R (1 + z/2), not 2 R - 1, which cancels for small a.

namespace scantape::cuda {

/// h_t = a h_{t-1} + s (what comes in).
template <class T>
struct DiscreteStep {
  T a, a_less_one, s;
};

template <class T>
struct DiscreteSlopes {
  T a_by_A, a_by_dt, s_by_A, s_by_dt;
};

template <class T, DiscretizeMethod kMethod>
__device__ DiscreteStep<T> discrete_step(T dt, T A) {
  const T z = dt * A;
  if constexpr (kMethod == DiscretizeMethod::zoh) {
    return {exp_of(z), expm1_of(z), dt * phi1(z)};
  } else if constexpr (kMethod == DiscretizeMethod::exp_euler) {
    return {exp_of(z), expm1_of(z), dt};
  } else if constexpr (kMethod == DiscretizeMethod::bilinear) {
    const T r = T(1) / (T(1) - T(0.5) * z);
    return {r * (T(1) + T(0.5) * z), z * r, dt * r};
  } else {
    return {T(1) + z, z, dt};
  }
}

template <class T, DiscretizeMethod kMethod>
__device__ DiscreteSlopes<T> discrete_slopes(T dt, T A) {
  const T z = dt * A;
  if constexpr (kMethod == DiscretizeMethod::zoh) {
    const T e = exp_of(z);
    return {dt * e, A * e, dt * (dt * phi1_derivative(z)), e};
  } else if constexpr (kMethod == DiscretizeMethod::exp_euler) {
    const T e = exp_of(z);
    return {dt * e, A * e, T(0), T(1)};
  } else if constexpr (kMethod == DiscretizeMethod::bilinear) {
    const T r = T(1) / (T(1) - T(0.5) * z);
    return {dt * r * r, A * r * r, T(0.5) * (dt * r) * (dt * r), r * r};
  } else {
    return {dt, A, T(0), T(1)};
  }
}

/// What a scan wants of a step: a in two numbers, and s.
template <class T>
struct DiscreteMap {
  Decay<T> decay;
  T s;
};

/// a itself, rounded, would lie to the same side of its value in every step. Near 1 its distance to that is known
/// to all digits, and so is, for bilinear far left, that of -a = 1 - 2 R.
template <class T, DiscretizeMethod kMethod>
__device__ DiscreteMap<T> discrete_map(T dt, T A) {
  const DiscreteStep<T> step = discrete_step<T, kMethod>(dt, A);
  if (abs_of(step.a_less_one) <= T(0.5)) return {decay_from_excess(step.a_less_one), step.s};
  if constexpr (kMethod == DiscretizeMethod::bilinear) {
    const T r = T(1) / (T(1) - T(0.5) * (dt * A));
    const Decay<T> negative = decay_from_excess(T(-2) * r);
    if (abs_of(r) <= T(0.25)) return {{-negative.a, -negative.a_low}, step.s};
  }
  return {decay_of(step.a), step.s};
}

/// Calls body(method as a constant) where the method is known only when the kernel runs: the same branch for all
/// threads.
template <class Body>
__device__ auto with_method(DiscretizeMethod method, const Body& body) {
  using Method = DiscretizeMethod;
  switch (method) {
    case Method::exp_euler:
      return body(std::integral_constant<Method, Method::exp_euler>{});
    case Method::bilinear:
      return body(std::integral_constant<Method, Method::bilinear>{});
    case Method::euler:
      return body(std::integral_constant<Method, Method::euler>{});
    case Method::zoh:
      break;
  }
  return body(std::integral_constant<Method, Method::zoh>{});
}

}  // namespace scantape::cuda
