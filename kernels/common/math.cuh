#pragma once

#include <cuda_runtime.h>

// The scalar functions of the ops, in forms that keep their relative accuracy over the whole range. Names
// with and without suffix are spelled out: an unqualified exp of a float may be evaluated in double by a host
// compiler.

namespace scantape::cuda {

__device__ inline float exp_of(float x) {
  return expf(x);
}
__device__ inline double exp_of(double x) {
  return ::exp(x);
}
__device__ inline float expm1_of(float x) {
  return expm1f(x);
}
__device__ inline double expm1_of(double x) {
  return ::expm1(x);
}
__device__ inline float log1p_of(float x) {
  return log1pf(x);
}
__device__ inline double log1p_of(double x) {
  return ::log1p(x);
}
__device__ inline float log_of(float x) {
  return logf(x);
}
__device__ inline double log_of(double x) {
  return ::log(x);
}
__device__ inline float sqrt_of(float x) {
  return sqrtf(x);
}
__device__ inline double sqrt_of(double x) {
  return ::sqrt(x);
}
__device__ inline float abs_of(float x) {
  return fabsf(x);
}
__device__ inline double abs_of(double x) {
  return ::fabs(x);
}
__device__ inline float fma_of(float a, float b, float c) {
  return fmaf(a, b, c);
}
__device__ inline double fma_of(double a, double b, double c) {
  return ::fma(a, b, c);
}

/// Neither infinite nor NaN: both have no zero difference to themselves.
template <class T>
__device__ bool is_finite(T x) {
  return x - x == T(0);
}

/// 1 / (1 + exp(-x)); the exponential never overflows.
template <class T>
__device__ T sigmoid(T x) {
  const T e = exp_of(-abs_of(x));
  return x >= T(0) ? T(1) / (T(1) + e) : e / (T(1) + e);
}

template <class T>
__device__ T softplus(T x) {
  return x > T(20) ? x : log1p_of(exp_of(x));
}

template <class T>
__device__ T softplus_derivative(T x) {
  return x > T(20) ? T(1) : sigmoid(x);
}

/// x * sigmoid(x). With h = exp(-|x|/2) the sigmoid of a negative x is h * h / (1 + h * h): its two factors
/// are applied one after the other, so that no digits are lost where sigmoid(x) alone is already denormal.
template <class T>
__device__ T silu(T x) {
  const T h = exp_of(T(-0.5) * abs_of(x));
  const T r = T(1) / (T(1) + h * h);
  return x >= T(0) ? x * r : (x * h) * (h * r);
}

/// s (1 + x (1 - s)), s = sigmoid(x); 1 - s comes without a subtraction.
template <class T>
__device__ T silu_derivative(T x) {
  const T h = exp_of(T(-0.5) * abs_of(x));
  const T r = T(1) / (T(1) + h * h);
  return x >= T(0) ? r * (T(1) + x * (h * h * r)) : (h * (T(1) + x * r)) * (h * r);
}

/// phi1(z) = (exp(z) - 1) / z, 1 at 0.
template <class T>
__device__ T phi1(T z) {
  return abs_of(z) < T(9.3132257461547852e-10) ? T(1) + z * T(0.5) : expm1_of(z) / z;  // 2^-30
}

/// (k + 1) / (k + 2)!, the Taylor coefficients of phi1'.
constexpr double phi1_derivative_coefficient(int k) {
  double factorial = 1;
  for (int i = 2; i <= k + 2; ++i) factorial *= i;
  return (k + 1) / factorial;
}

template <class T, int kTerm, int kLast>
__device__ T phi1_derivative_series(T z) {
  constexpr T kCoefficient = static_cast<T>(phi1_derivative_coefficient(kTerm));
  if constexpr (kTerm == kLast) {
    return kCoefficient;
  } else {
    return fma_of(phi1_derivative_series<T, kTerm + 1, kLast>(z), z, kCoefficient);
  }
}

/// phi1'(z) = (exp(z) - phi1(z)) / z, which cancels near 0: there its series.
template <class T>
__device__ T phi1_derivative(T z) {
  constexpr int kLast = sizeof(T) == 4 ? 10 : 17;
  if (abs_of(z) < T(1)) return phi1_derivative_series<T, 0, kLast>(z);
  return (exp_of(z) - phi1(z)) / z;
}

}  // namespace scantape::cuda
