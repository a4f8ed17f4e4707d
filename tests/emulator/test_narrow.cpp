/// Conversions between f32, f64 and the floats of 16 bits, against an oracle that knows nothing of bits: the nearest
/// among all values that there are. The same text runs on the emulator's types and, in a native build, on CUDA's
/// own on the host: what the one is trusted with the other must confirm.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

namespace {

struct Bfloat16 {
  using Type = __nv_bfloat16;
  static constexpr int kMantissa = 7, kLowest = -126, kHighest = 127;
  static std::uint16_t from(float x) { return __bfloat16_as_ushort(__float2bfloat16(x)); }
  static std::uint16_t from_cast(float x) { return __bfloat16_as_ushort(static_cast<__nv_bfloat16>(x)); }
  static std::uint16_t from(double x) { return __bfloat16_as_ushort(__double2bfloat16(x)); }
  static float to_float(std::uint16_t bits) { return __bfloat162float(__ushort_as_bfloat16(bits)); }
  static float to_float_cast(std::uint16_t bits) { return static_cast<float>(__ushort_as_bfloat16(bits)); }
};

struct Half {
  using Type = __half;
  static constexpr int kMantissa = 10, kLowest = -14, kHighest = 15;
  static std::uint16_t from(float x) { return __half_as_ushort(__float2half(x)); }
  static std::uint16_t from_cast(float x) { return __half_as_ushort(static_cast<__half>(x)); }
  static std::uint16_t from(double x) { return __half_as_ushort(__double2half(x)); }
  static float to_float(std::uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
  static float to_float_cast(std::uint16_t bits) { return static_cast<float>(__ushort_as_half(bits)); }
};

/// The value of 16 bits, by the definition of the format.
template <class F>
double value_of(std::uint16_t bits) {
  const int field = (bits & 0x7fff) >> F::kMantissa, mantissa = bits & ((1 << F::kMantissa) - 1);
  const double scale = std::pow(2.0, -F::kMantissa);
  double magnitude;
  if (field == F::kHighest + 1 - F::kLowest + 1)
    magnitude =
        mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  else if (field == 0)
    magnitude = mantissa * scale * std::pow(2.0, F::kLowest);
  else
    magnitude = (1 + mantissa * scale) * std::pow(2.0, field - 1 + F::kLowest);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

/// All finite values from zero up: their place in the list is their bits.
template <class F>
const std::vector<double>& values() {
  static const std::vector<double> all = [] {
    std::vector<double> list;
    for (std::uint32_t bits = 0; bits < 0x8000; ++bits) {
      const double value = value_of<F>(static_cast<std::uint16_t>(bits));
      if (std::isfinite(value)) list.push_back(value);
    }
    return list;
  }();
  return all;
}

/// The nearest of all values; of two that are as near the one with even bits. Distances are exact in f64 here: x
/// lies within a factor of two of both neighbours, or they are multiples of the same small number.
template <class F>
std::uint16_t nearest(double x) {
  if (std::isnan(x)) return 0x7fff;
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double magnitude = std::abs(x);
  const std::vector<double>& all = values<F>();
  const auto infinity = static_cast<std::uint16_t>(all.size());
  // Infinity is as far away as the next value would be.
  const double next = 2 * all.back() - all[all.size() - 2];
  const auto above =
      static_cast<std::size_t>(std::lower_bound(all.begin(), all.end(), magnitude) - all.begin());
  if (above == 0) return sign;
  const double low = all[above - 1], high = above == all.size() ? next : all[above];
  const double middle = low + (high - low) / 2;  // has one bit more than they: exact
  std::uint16_t bits;
  if (magnitude == middle)
    bits = static_cast<std::uint16_t>(above % 2 == 0 ? above : above - 1);
  else
    bits = static_cast<std::uint16_t>(magnitude < middle ? above - 1 : above);
  return static_cast<std::uint16_t>(sign | std::min(bits, infinity));
}

float as_float(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

template <class F>
class Narrow : public testing::Test {};
using Formats = testing::Types<Bfloat16, Half>;
TYPED_TEST_SUITE(Narrow, Formats);

TYPED_TEST(Narrow, EveryValueWidensToItselfAndBack) {
  using F = TypeParam;
  for (std::uint32_t i = 0; i < 0x10000; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const double value = value_of<F>(bits);
    const float wide = F::to_float(bits), cast = F::to_float_cast(bits);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(wide) && std::isnan(cast)) << i;
      ASSERT_EQ(F::from(wide), 0x7fff) << i;
      ASSERT_EQ(F::from(static_cast<double>(wide)), 0x7fff) << i;
      continue;
    }
    ASSERT_EQ(static_cast<double>(wide), value) << i;
    ASSERT_EQ(std::signbit(wide), std::signbit(value)) << i;
    ASSERT_EQ(static_cast<double>(cast), value) << i;
    ASSERT_EQ(F::from(wide), bits);
    ASSERT_EQ(F::from_cast(wide), bits);
    ASSERT_EQ(F::from(value), bits);
  }
}

// Between any two neighbours: the middle, and a little to either side of it. What went through f32 on its way from f64
// would land on the middle.
TYPED_TEST(Narrow, MiddlesGoToEvenAndNothingIsRoundedTwice) {
  using F = TypeParam;
  const std::vector<double>& all = values<F>();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double next = i + 1 < all.size() ? all[i + 1] : 2 * all[i] - all[i - 1];
    const double middle = all[i] + (next - all[i]) / 2;
    for (const double sign : {1.0, -1.0}) {
      const auto low = static_cast<std::uint16_t>(i | (sign < 0 ? 0x8000 : 0));
      const auto high = static_cast<std::uint16_t>(low + 1);
      const std::uint16_t even = i % 2 == 0 ? low : high;
      ASSERT_EQ(F::from(sign * middle), even) << i;
      ASSERT_EQ(F::from(sign * std::nextafter(middle, next)), high) << i;
      ASSERT_EQ(F::from(sign * std::nextafter(middle, all[i])), low) << i;
      ASSERT_EQ(nearest<F>(sign * middle), even) << "the oracle";
      const auto middle32 = static_cast<float>(sign * middle);
      if (static_cast<double>(middle32) != sign * middle) continue;  // below f32's own smallest
      ASSERT_EQ(F::from(middle32), even) << i;
      ASSERT_EQ(F::from(std::nextafter(middle32, static_cast<float>(sign * next))), high) << i;
      ASSERT_EQ(F::from(std::nextafter(middle32, static_cast<float>(sign * all[i]))), low) << i;
    }
  }
}

// 2^32 floats by steps of a prime, then all floats near the ends of the format.
TYPED_TEST(Narrow, FloatsOfEveryKind) {
  using F = TypeParam;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 2503) {
    const float x = as_float(static_cast<std::uint32_t>(bits));
    ASSERT_EQ(F::from(x), nearest<F>(static_cast<double>(x))) << "bits " << bits;
    ASSERT_EQ(F::from(static_cast<double>(x)), nearest<F>(static_cast<double>(x))) << "bits " << bits;
  }
  for (const int exponent : {F::kLowest - F::kMantissa - 1, F::kLowest - 1, F::kLowest, F::kHighest}) {
    const double scale = std::pow(2.0, exponent);
    for (int i = 0; i < 100000; ++i) {
      const auto x = static_cast<float>(scale * (1 + i / 50000.0));
      ASSERT_EQ(F::from(x), nearest<F>(static_cast<double>(x))) << static_cast<double>(x);
      ASSERT_EQ(F::from(-x), nearest<F>(static_cast<double>(-x))) << static_cast<double>(x);
    }
  }
}

TYPED_TEST(Narrow, DoublesOfEveryKind) {
  using F = TypeParam;
  std::uint64_t state = 88172645463325252u;
  for (int i = 0; i < 1000000; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    double x;
    std::memcpy(&x, &state, sizeof(x));
    ASSERT_EQ(F::from(x), nearest<F>(x)) << x;
    // The same digits at a size that the format has.
    if (!std::isfinite(x)) continue;
    int exponent = 0;
    const double small = std::ldexp(
        std::frexp(x, &exponent),
        static_cast<int>(state % static_cast<unsigned>(F::kHighest - F::kLowest + 15)) + F::kLowest - 12);
    ASSERT_EQ(F::from(small), nearest<F>(small)) << small;
  }
}

TEST(NarrowByHand, SomeValues) {
  EXPECT_EQ(Bfloat16::from(1.0F), 0x3f80);
  EXPECT_EQ(Bfloat16::from(-2.5F), 0xc020);
  EXPECT_EQ(Bfloat16::from(3.0e38F), 0x7f62);
  EXPECT_EQ(Bfloat16::from(3.4e38F), 0x7f80) << "rounds up to infinity";
  EXPECT_EQ(Bfloat16::from(1.00390625F), 0x3f80) << "1 + 2^-8: a tie, to even";
  EXPECT_EQ(Bfloat16::from(1.01171875F), 0x3f82) << "1 + 3 2^-8: a tie, to even";
  EXPECT_EQ(Bfloat16::from(1.00390625 + 1e-12), 0x3f81) << "f32 on the way would make it the tie";
  EXPECT_EQ(Half::from(1.0F), 0x3c00);
  EXPECT_EQ(Half::from(65504.0F), 0x7bff);
  EXPECT_EQ(Half::from(65519.996F), 0x7bff);
  EXPECT_EQ(Half::from(65520.0F), 0x7c00);
  EXPECT_EQ(Half::from(5.9604645e-8F), 0x0001) << "2^-24";
  EXPECT_EQ(Half::from(2.9802322e-8F), 0x0000) << "2^-25: a tie with zero";
  EXPECT_EQ(Half::from(-3.0e-8F), 0x8001);
  EXPECT_EQ(Half::from(1.00048828125 + 1e-12), 0x3c01) << "f32 on the way would make it a tie";
}

// Types to store numbers in: as trivial as the bits.
static_assert(sizeof(__half) == 2 && sizeof(__nv_bfloat16) == 2 && alignof(__half) == 2);
static_assert(std::is_trivially_copyable_v<__half> && std::is_trivially_copyable_v<__nv_bfloat16>);
static_assert(std::is_trivially_default_constructible_v<__half>);
static_assert(std::is_trivially_default_constructible_v<__nv_bfloat16>);

#if SCANTAPE_EMULATED
// What the emulator does not prove does not compile.
template <class T>
constexpr bool kHasArithmetic = requires(T a) {
  a + a;
}
|| requires(T a) {
  a* a;
}
|| requires(T a) {
  -a;
}
|| requires(T a) {
  a += a;
}
|| requires(T a) {
  a < a;
}
|| requires(T a) {
  a == a;
};
static_assert(!kHasArithmetic<__half> && !kHasArithmetic<__nv_bfloat16>);
static_assert(!std::is_convertible_v<float, __half> && !std::is_convertible_v<__half, float>);
static_assert(!std::is_convertible_v<float, __nv_bfloat16> && !std::is_convertible_v<__nv_bfloat16, float>);
static_assert(!std::is_constructible_v<__half, int> && !std::is_constructible_v<__nv_bfloat16, __half>);
#endif

}  // namespace
