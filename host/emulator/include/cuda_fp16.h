/// CUDA's half for machines without a GPU: a type to store numbers in. It converts where that is
/// written, rounding once, and has no arithmetic: kernels compute in f32. Names and meanings are CUDA's.
#pragma once

#include <cuda_runtime.h>

#include "scantape_emulated_narrow.h"

inline namespace scantape_emulated {

struct __half_raw {
  unsigned short x;
};

struct alignas(2) __half {
  __half() = default;
  constexpr __half(const __half_raw& raw) : bits_(raw.x) {}  // NOLINT: as in CUDA
  explicit __half(float value) : bits_(emulator_detail::narrow<10, -14>(static_cast<double>(value))) {}
  explicit __half(double value) : bits_(emulator_detail::narrow<10, -14>(value)) {}
  /// What CUDA makes of integers is not proven here.
  template <class Integer>
  __half(Integer) = delete;

  explicit operator float() const { return emulator_detail::widen<10, -14>(bits_); }
  operator __half_raw() const { return {bits_}; }  // NOLINT: as in CUDA

 private:
  unsigned short bits_;
};
using half = __half;

struct alignas(4) __half2 {
  __half x, y;
};
using half2 = __half2;

__forceinline__ __half __float2half(float value) {
  return __half(value);
}
__forceinline__ __half __float2half_rn(float value) {
  return __half(value);
}
__forceinline__ __half __double2half(double value) {
  return __half(value);
}
__forceinline__ float __half2float(__half value) {
  return static_cast<float>(value);
}
__forceinline__ unsigned short __half_as_ushort(__half value) {
  return __half_raw(value).x;
}
__forceinline__ __half __ushort_as_half(unsigned short bits) {
  return __half_raw{bits};
}

}  // namespace scantape_emulated
