/// Shared memory of the emulator, behind common/shared.cuh. kernels/native has the file of this name for
/// nvcc.
#pragma once

#include <cuda_runtime.h>

namespace scantape::cuda::backend {

/// `bytes` of static shared memory of this block, the same for every caller with the same `tag`. NaN to begin
/// with; reading what nobody wrote, and leaving it, are faults.
void* static_shared_memory(const void* tag, std::size_t bytes, std::size_t alignment);
/// The block's dynamic shared memory, as large as its launch asked for, aligned to 16 bytes.
void* dynamic_shared_memory();

template <class S>
inline constexpr char tag_of = 0;

template <class S>
__forceinline__ S& shared_storage() {
  return *static_cast<S*>(static_shared_memory(&tag_of<S>, sizeof(S), alignof(S)));
}

template <class T>
__forceinline__ T* dynamic_shared() {
  return static_cast<T*>(dynamic_shared_memory());
}

}  // namespace scantape::cuda::backend
