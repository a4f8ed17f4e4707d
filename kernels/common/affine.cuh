#pragma once

#include "common/math.cuh"

// The monoid of first-order recurrences: the map h -> a h + b, composed. Associative, not commutative: what
// comes later in time stands on the left.

namespace scantape::cuda {

/// One step of a recurrence, its factor exact as given.
template <class T>
struct Affine {
  T a, b;
};

template <class T>
__device__ T apply(Affine<T> step, T h) {
  return fma_of(step.a, h, step.b);
}

/// Steps composed. The product of their factors is a + a_low, so that it is right to about u^2 a step: were
/// it rounded to a alone, equal factors would round to the same side in every segment, and over L steps their
/// error would grow with L (3e-5 of h in f32 after 1,000 steps of a factor near 1) instead of with its root.
template <class T>
struct Composed {
  T a, a_low, b;
};

template <class T>
__device__ Composed<T> identity() {
  return {T(1), T(0), T(0)};
}

template <class T>
__device__ T apply(Composed<T> map, T h) {
  return fma_of(map.a, h, fma_of(map.a_low, h, map.b));
}

/// The product of two factors and what its rounding left, with the products of their low parts in `cross`. A
/// product that has overflowed has no low part.
template <class T>
__device__ Composed<T> composed(T later_a, T earlier_a, T cross, T b) {
  const T a = later_a * earlier_a;
  return {a, is_finite(a) ? fma_of(later_a, earlier_a, -a) + cross : T(0), b};
}

/// later o earlier: first `earlier`, then `later`.
template <class T>
__device__ Composed<T> combine(Composed<T> later, Composed<T> earlier) {
  const T cross = fma_of(later.a, earlier.a_low, later.a_low * earlier.a);
  return composed(later.a, earlier.a, cross, apply(later, earlier.b));
}

template <class T>
__device__ Composed<T> combine(Affine<T> later, Composed<T> earlier) {
  return composed(later.a, earlier.a, later.a * earlier.a_low, apply(later, earlier.b));
}

}  // namespace scantape::cuda
