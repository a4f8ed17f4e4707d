#pragma once

#include "common/vec.cuh"

// Writing tensors of strided rows in the caller's write mode. Overwriting never reads the target: it may hold
// NaN. What is added to is read, added to in the type that is computed in, and rounded once.

namespace scantape::cuda {

/// A tensor to write, as rows; data is null where nothing is to be written (skipped or absent).
template <class T>
struct Target {
  T* data = nullptr;
  std::int64_t stride = 0;
  bool aligned = false;
  bool accumulate = false;

  __host__ __device__ bool wanted() const { return data != nullptr; }

  __device__ void put(std::int64_t row, std::int64_t column, Compute<T> value) const {
    T* to = data + row * stride + column;
    *to = stored<T>(accumulate ? loaded_from(to) + value : value);
  }

  /// Writes the first `remaining` elements of a pack (all of it where there are more).
  __device__ void store(std::int64_t row, std::int64_t column, std::int64_t remaining, Pack<T> pack) const {
    T* to = data + row * stride + column;
    if (aligned && remaining >= kPack<T>) {
      StoredPack<T>& target = *reinterpret_cast<StoredPack<T>*>(to);
      StoredPack<T> whole;
      if (accumulate) {
        whole = target;
#pragma unroll
        for (int i = 0; i < kPack<T>; ++i) pack[i] = loaded(whole.value[i]) + pack[i];
      }
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) whole.value[i] = stored<T>(pack[i]);
      target = whole;
      return;
    }
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      if (i < remaining) to[i] = stored<T>(accumulate ? loaded_from(to + i) + pack[i] : pack[i]);
    }
  }
};

template <class T>
Target<T> target(const View& view, bool accumulate = false, bool one_row = false) noexcept {
  const Source<T> rows = source<T>(view, one_row);
  return Target<T>{const_cast<T*>(rows.data), rows.stride, rows.aligned, accumulate};
}

template <class T>
Target<T> target(const Gradient& gradient, bool one_row = false) noexcept {
  return gradient.wanted() ? target<T>(gradient.view, gradient.mode == WriteMode::accumulate, one_row)
                           : Target<T>{};
}

}  // namespace scantape::cuda
