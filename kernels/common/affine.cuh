#pragma once

#include "common/math.cuh"

// The monoid of first-order recurrences: the map h -> a h + b, composed. Associative, not commutative: what
// comes later in time stands on the left.

namespace scantape::cuda {

template <class T>
struct Affine {
  T a, b;
};

template <class T>
__device__ Affine<T> affine_identity() {
  return {T(1), T(0)};
}

/// later o earlier: first `earlier`, then `later`.
template <class T>
__device__ Affine<T> combine(Affine<T> later, Affine<T> earlier) {
  return {later.a * earlier.a, fma_of(later.a, earlier.b, later.b)};
}

template <class T>
__device__ T apply(Affine<T> map, T h) {
  return fma_of(map.a, h, map.b);
}

}  // namespace scantape::cuda
