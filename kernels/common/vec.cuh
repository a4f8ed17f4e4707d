#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/storage.cuh"
#include "scantape/view.h"

// Reading tensors of strided rows, 16 bytes at a time where alignment allows. A thread always owns the same
// columns, whether they come in one access or one by one: bits never depend on how a tensor is aligned.
//
// T is what a tensor is stored in. All that is handed out is in the type that it is computed in, Compute<T>.

namespace scantape::cuda {

/// Elements of one 16-byte access.
template <class T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));

/// What one access holds, as it is stored.
template <class T>
struct alignas(16) StoredPack {
  T value[kPack<T>];
};

/// What one access holds, to compute with.
template <class T>
struct alignas(16) Pack {
  Compute<T> value[kPack<T>];

  __device__ Compute<T>& operator[](int i) { return value[i]; }
  __device__ const Compute<T>& operator[](int i) const { return value[i]; }
};

template <class T>
__device__ Pack<T> loaded(const StoredPack<T>& whole) {
  Pack<T> pack;
#pragma unroll
  for (int i = 0; i < kPack<T>; ++i) pack[i] = loaded(whole.value[i]);
  return pack;
}

/// Of one element in memory.
template <class T>
__device__ Compute<T> loaded_from(const T* address) {
  const T element = *address;
  return loaded(element);
}

/// True where every pack that starts at a multiple of kPack<T> columns is aligned in every row.
template <class T>
bool is_pack_aligned(const void* data, std::int64_t stride) noexcept {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride % kPack<T> == 0;
}

/// A tensor to read, as rows; data is null where it is absent.
template <class T>
struct Source {
  const T* data = nullptr;
  std::int64_t stride = 0;
  bool aligned = false;

  __device__ bool present() const { return data != nullptr; }
  __device__ Compute<T> at(std::int64_t row, std::int64_t column) const {
    return loaded_from(data + row * stride + column);
  }

  /// kPack<T> elements from `column` on, zeros beyond the `remaining` ones of the row.
  __device__ Pack<T> load(std::int64_t row, std::int64_t column, std::int64_t remaining) const {
    const T* from = data + row * stride + column;
    if (aligned && remaining >= kPack<T>) {
      const StoredPack<T> whole = *reinterpret_cast<const StoredPack<T>*>(from);
      return loaded(whole);
    }
    Pack<T> pack;
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) pack[i] = i < remaining ? loaded_from(from + i) : Compute<T>(0);
    return pack;
  }
  /// The same, and zeros where the tensor is absent.
  __device__ Pack<T> load_or_zero(std::int64_t row, std::int64_t column, std::int64_t remaining) const {
    return present() ? load(row, column, remaining) : Pack<T>{};
  }
};

/// `one_row`: a contiguous tensor that the kernel reads as one long row, whatever its shape.
template <class T>
Source<T> source(const ConstView& view, bool one_row = false) noexcept {
  Source<T> result;
  Rows rows;
  if (!view.present || !as_rows(view, &rows)) return result;
  result.data = view.as<T>();
  result.stride = rows.stride;
  result.aligned = is_pack_aligned<T>(view.data, one_row || rows.count <= 1 ? 0 : rows.stride);
  return result;
}

}  // namespace scantape::cuda
