/// Shared memory of a block. Kernels come here instead of writing `__shared__`, so that the emulator can
/// poison it and watch its borders; under nvcc these calls are plain shared memory at no cost.
#pragma once

#include <cstddef>
#include <type_traits>

#include "backend.cuh"  // kernels/native or host/emulator/include: the include path decides

namespace scantape::cuda {

inline constexpr std::size_t kStaticSharedLimit = 48 * 1024;

/// The block's one `S`, seen by all its threads. Each kernel puts everything it shares into one struct of its
/// own. The members hold nothing until somebody writes them.
template <class S>
__device__ __forceinline__ S& shared_storage() {
  static_assert(std::is_trivially_default_constructible_v<S> && std::is_trivially_destructible_v<S>,
                "initial values of shared memory would be dropped");
  static_assert(sizeof(S) <= kStaticSharedLimit, "static shared memory of a block ends at 48 KiB");
  return backend::shared_storage<S>();
}

/// The block's dynamic shared memory: as many bytes as its launch asked for.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  static_assert(std::is_trivially_default_constructible_v<T> && alignof(T) <= 16,
                "dynamic shared memory is aligned to 16 bytes");
  return backend::dynamic_shared<T>();
}

}  // namespace scantape::cuda
