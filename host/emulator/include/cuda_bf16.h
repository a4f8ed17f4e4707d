/// CUDA's bfloat16 for machines without a GPU: a type to store numbers in. It converts where that is
/// written, rounding once, and has no arithmetic: kernels compute in f32. Names and meanings are CUDA's.
#pragma once

#include <cuda_runtime.h>

#include "scantape_emulated_narrow.h"

inline namespace scantape_emulated {

struct __nv_bfloat16_raw {
  unsigned short x;
};

struct alignas(2) __nv_bfloat16 {
  __nv_bfloat16() = default;
  constexpr __nv_bfloat16(const __nv_bfloat16_raw& raw) : bits_(raw.x) {}  // NOLINT: as in CUDA
  explicit __nv_bfloat16(float value) : bits_(emulator_detail::narrow<7, -126>(static_cast<double>(value))) {}
  explicit __nv_bfloat16(double value) : bits_(emulator_detail::narrow<7, -126>(value)) {}
  /// What CUDA makes of integers is not proven here.
  template <class Integer>
  __nv_bfloat16(Integer) = delete;

  explicit operator float() const { return emulator_detail::widen<7, -126>(bits_); }
  operator __nv_bfloat16_raw() const { return {bits_}; }  // NOLINT: as in CUDA

 private:
  unsigned short bits_;
};
using nv_bfloat16 = __nv_bfloat16;

struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
using nv_bfloat162 = __nv_bfloat162;

__forceinline__ __nv_bfloat16 __float2bfloat16(float value) {
  return __nv_bfloat16(value);
}
__forceinline__ __nv_bfloat16 __float2bfloat16_rn(float value) {
  return __nv_bfloat16(value);
}
__forceinline__ __nv_bfloat16 __double2bfloat16(double value) {
  return __nv_bfloat16(value);
}
__forceinline__ float __bfloat162float(__nv_bfloat16 value) {
  return static_cast<float>(value);
}
__forceinline__ unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) {
  return __nv_bfloat16_raw(value).x;
}
__forceinline__ __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  return __nv_bfloat16_raw{bits};
}

}  // namespace scantape_emulated
