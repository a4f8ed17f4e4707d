#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Types that tensors are stored in and the type that each is computed in: itself, or f32 for those of 16 bits.
// What is loaded is converted, exactly; what is stored is rounded once.

namespace scantape::cuda {

template <class T>
struct StorageOf {
  using Compute = T;
};
template <>
struct StorageOf<__nv_bfloat16> {
  using Compute = float;
};
template <>
struct StorageOf<__half> {
  using Compute = float;
};

/// The type that tensors of T are computed in.
template <class T>
using Compute = typename StorageOf<T>::Compute;

__device__ __forceinline__ float loaded(float stored) {
  return stored;
}
__device__ __forceinline__ double loaded(double stored) {
  return stored;
}
__device__ __forceinline__ float loaded(__nv_bfloat16 stored) {
  return __bfloat162float(stored);
}
__device__ __forceinline__ float loaded(__half stored) {
  return __half2float(stored);
}

/// To the nearest, ties to even; in f16 what is beyond 65,504 and its half step becomes infinite.
template <class T>
__device__ __forceinline__ T stored(Compute<T> value) {
  return value;
}
template <>
__device__ __forceinline__ __nv_bfloat16 stored<__nv_bfloat16>(float value) {
  return __float2bfloat16(value);
}
template <>
__device__ __forceinline__ __half stored<__half>(float value) {
  return __float2half(value);
}

}  // namespace scantape::cuda
