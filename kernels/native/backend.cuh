/// Shared memory of a GPU, behind common/shared.cuh. host/emulator/include has the file of this name for the
/// emulator.
#pragma once

#include <cuda_runtime.h>

namespace scantape::cuda::backend {

template <class S>
__device__ __forceinline__ S& shared_storage() {
  __shared__ S storage;
  return storage;
}

template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char scantape_dynamic_shared[];
  return reinterpret_cast<T*>(scantape_dynamic_shared);
}

}  // namespace scantape::cuda::backend
