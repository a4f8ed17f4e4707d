#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace scantape {

/// The 16-bit types. They store; every op computes in f32 and rounds once, to the nearest, ties to even, where it
/// writes. Both conversions are explicit, so that nothing is rounded by accident.
///
/// bfloat16: 8 bits of exponent, 8 of precision; a float's upper half.
///
/// Example
///   const BFloat16 third(1.0f / 3);
///   const float back = static_cast<float>(third);  // back is 0.333984375
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() noexcept = default;
  explicit BFloat16(float value) noexcept;
  /// Rounds once, not first to float.
  explicit BFloat16(double value) noexcept;
  explicit operator float() const noexcept;
  explicit operator double() const noexcept { return static_cast<double>(static_cast<float>(*this)); }
};

/// IEEE 754 half precision: 5 bits of exponent, 11 of precision; 65,504 is the largest number.
struct Float16 {
  std::uint16_t bits = 0;

  Float16() noexcept = default;
  explicit Float16(float value) noexcept;
  /// Rounds once, not first to float.
  explicit Float16(double value) noexcept;
  explicit operator float() const noexcept;
  explicit operator double() const noexcept { return static_cast<double>(static_cast<float>(*this)); }
};

namespace detail {

/// A float's bits, and the float of such.
inline std::uint32_t bits_of(float value) noexcept {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float float_of(std::uint32_t bits) noexcept {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// To a float whose last bit is set where anything was cut off ("round to odd"): rounding that float to a type with
/// two bits less or more is the same as rounding the double itself.
inline float to_odd(double value) noexcept {
  const float nearest = static_cast<float>(value);
  if (std::isnan(value) || static_cast<double>(nearest) == value) return nearest;
  const bool away = std::abs(static_cast<double>(nearest)) > std::abs(value);
  const float cut = away ? std::nextafter(nearest, 0.0f) : nearest;
  return float_of(bits_of(cut) | 1);
}

/// The upper `32 - count` bits, rounded to the nearest, ties to even.
inline std::uint32_t shifted(std::uint32_t bits, int count) noexcept {
  const std::uint32_t half = std::uint32_t{1} << (count - 1);
  return (bits + (half - 1) + ((bits >> count) & 1)) >> count;
}

/// NaN in both types, the one that CUDA's conversions give.
inline constexpr std::uint16_t kNaN16 = 0x7fff;

}  // namespace detail

/// Described in the class.
inline BFloat16::BFloat16(float value) noexcept
    : bits(std::isnan(value) ? detail::kNaN16
                             : static_cast<std::uint16_t>(detail::shifted(detail::bits_of(value), 16))) {}
inline BFloat16::BFloat16(double value) noexcept : BFloat16(detail::to_odd(value)) {}
inline BFloat16::operator float() const noexcept {
  return detail::float_of(static_cast<std::uint32_t>(bits) << 16);
}

/// Described in the class.
inline Float16::Float16(float value) noexcept {
  const std::uint32_t all = detail::bits_of(value), sign = all >> 31, magnitude = all & 0x7fffffff;
  constexpr std::uint32_t kSmallestNormal = 0x38800000;  // 2^-14
  constexpr std::uint32_t kOverflow = 0x477ff000;        // 65,520: the tie above the largest number
  std::uint32_t result;
  if (std::isnan(value)) {
    bits = detail::kNaN16;
    return;
  }
  if (magnitude >= kOverflow) {
    result = 0x7c00;
  } else if (magnitude >= kSmallestNormal) {
    result = detail::shifted(magnitude - (std::uint32_t{112} << 23), 13);
  } else {
    // Multiples of 2^-24: an addition to 0.5, whose last bit is worth that, does the rounding.
    result = detail::bits_of(detail::float_of(magnitude) + 0.5f) - detail::bits_of(0.5f);
  }
  bits = static_cast<std::uint16_t>(sign << 15 | result);
}
inline Float16::Float16(double value) noexcept : Float16(detail::to_odd(value)) {}
inline Float16::operator float() const noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits) >> 15, exponent = bits >> 10 & 31,
                      fraction = bits & 1023;
  float magnitude;
  if (exponent == 31) {
    magnitude =
        fraction == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = static_cast<float>(fraction) * 0x1p-24f;
  } else {
    magnitude = detail::float_of(fraction << 13 | (exponent + 112) << 23);
  }
  return detail::float_of(detail::bits_of(magnitude) | sign << 31);
}

}  // namespace scantape
