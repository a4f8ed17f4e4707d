/// Conversions to and from floats of 16 bits, for cuda_bf16.h and cuda_fp16.h.
#pragma once

#include <cuda_runtime.h>

inline namespace scantape_emulated {
namespace emulator_detail {

/// The 16 bits nearest to `x`, ties to even, rounded once: kMantissa bits behind the point, exponents from
/// kLowest for normal numbers. Too large becomes infinite, NaN the one that CUDA makes.
template <int kMantissa, int kLowest>
__forceinline__ unsigned short narrow(double x) {
  constexpr int kDoubleMantissa = 52;
  constexpr unsigned long long kOne = 1;
  constexpr unsigned int kInfinity = 0x7fffu >> kMantissa << kMantissa;
  const unsigned long long bits = __builtin_bit_cast(unsigned long long, x);
  const auto sign = static_cast<unsigned int>(bits >> 63 << 15);
  const unsigned long long magnitude = bits & 0x7fffffffffffffffu;
  if (magnitude > 0x7ff0000000000000u) return 0x7fff;
  const int exponent = static_cast<int>(magnitude >> kDoubleMantissa) - 1023;
  int shift = kDoubleMantissa - kMantissa;
  if (exponent < kLowest) shift += kLowest - exponent;
  if (exponent < -1022 || shift > kDoubleMantissa + 2) return static_cast<unsigned short>(sign);
  const unsigned long long significand =
      kOne << kDoubleMantissa | (magnitude & ((kOne << kDoubleMantissa) - 1));
  unsigned long long kept = significand >> shift;
  const unsigned long long rest = significand & ((kOne << shift) - 1), half = kOne << (shift - 1);
  if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  // The leading bit of a normal number counts one into the exponent, as does a carry.
  const unsigned long long above =
      exponent < kLowest ? 0 : static_cast<unsigned long long>(exponent - kLowest) << kMantissa;
  const unsigned long long result = above + kept;
  return static_cast<unsigned short>(sign |
                                     (result < kInfinity ? static_cast<unsigned int>(result) : kInfinity));
}

/// The float that 16 bits stand for: exact.
template <int kMantissa, int kLowest>
__forceinline__ float widen(unsigned short bits) {
  const unsigned int sign = (bits & 0x8000u) << 16;
  const unsigned int field = (bits & 0x7fffu) >> kMantissa, mantissa = bits & ((1u << kMantissa) - 1);
  if (field == 0x7fffu >> kMantissa)
    return __uint_as_float(sign | 0x7f800000u | mantissa << (23 - kMantissa));
  if (field != 0)
    return __uint_as_float(sign | (field + static_cast<unsigned int>(kLowest + 126)) << 23 |
                           mantissa << (23 - kMantissa));
  // Below the normal numbers: multiples of the smallest one.
  const float magnitude = ::ldexpf(static_cast<float>(mantissa), kLowest - kMantissa);
  return __uint_as_float(sign | __float_as_uint(magnitude));
}

}  // namespace emulator_detail
}  // namespace scantape_emulated
