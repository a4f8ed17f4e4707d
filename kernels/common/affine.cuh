#pragma once

#include "common/math.cuh"

// The monoid of first-order recurrences: the map h -> a h + b, composed. Associative, not commutative: what
// comes later in time stands on the left. With starts: a map that begins a sequence, or holds such a step,
// forgets the state before it. That is a selection and not a factor of zero, which would let NaN and infinity
// through.

namespace scantape::cuda {

/// A decay as a + a_low: as given, or 1 + f from its distance to one, which a alone could not hold.
template <class T>
struct Decay {
  T a, a_low;
};

template <class T>
__device__ Decay<T> decay_of(T a) {
  return {a, T(0)};
}

/// 1 + f and what its rounding left, whatever the size of f.
template <class T>
__device__ Decay<T> decay_from_excess(T f) {
  const T a = T(1) + f, one = a - f;
  return {a, (T(1) - one) + (f - (a - one))};
}

/// Steps composed. The product of their factors is a + a_low, so that it is right to about u^2 a step: were
/// it rounded to a alone, equal factors would round to the same side in every segment, and over L steps their
/// error would grow with L (3e-5 of h in f32 after 1,000 steps of a factor near 1) instead of with its root.
template <class T, bool kStarts>
struct Composed;

template <class T>
struct Composed<T, false> {
  T a, a_low, b;
  static constexpr bool start = false;
};

/// `start`: the result is b, whatever came before; a is 0 then.
template <class T>
struct Composed<T, true> {
  T a, a_low, b;
  bool start;
};

template <class T, bool kStarts>
__device__ Composed<T, kStarts> composed(Decay<T> decay, T b) {
  Composed<T, kStarts> map;
  map.a = decay.a;
  map.a_low = decay.a_low;
  map.b = b;
  if constexpr (kStarts) map.start = false;
  return map;
}

template <class T, bool kStarts>
__device__ Composed<T, kStarts> identity() {
  return composed<T, kStarts>(Decay<T>{T(1), T(0)}, T(0));
}

/// The step that begins a sequence.
template <class T>
__device__ Composed<T, true> starting(T b) {
  Composed<T, true> map = composed<T, true>(Decay<T>{T(0), T(0)}, b);
  map.start = true;
  return map;
}

template <class T, bool kStarts>
__device__ T apply(const Composed<T, kStarts>& map, T h) {
  if (map.start) return map.b;
  return fma_of(map.a, h, fma_of(map.a_low, h, map.b));
}

/// The product of two decays and what its rounding left. A product that has overflowed has no low part.
template <class T>
__device__ Decay<T> product(Decay<T> later, Decay<T> earlier) {
  const T a = later.a * earlier.a;
  const T cross = fma_of(later.a, earlier.a_low, later.a_low * earlier.a);
  return {a, is_finite(a) ? fma_of(later.a, earlier.a, -a) + cross : T(0)};
}

/// later o earlier: first `earlier`, then `later`.
template <class T, bool kStarts>
__device__ Composed<T, kStarts> combine(const Composed<T, kStarts>& later,
                                        const Composed<T, kStarts>& earlier) {
  if (later.start) return later;
  const T b = apply(later, earlier.b);
  if constexpr (kStarts) {
    if (earlier.start) return starting(b);
  }
  return composed<T, kStarts>(product(Decay<T>{later.a, later.a_low}, Decay<T>{earlier.a, earlier.a_low}), b);
}

}  // namespace scantape::cuda
