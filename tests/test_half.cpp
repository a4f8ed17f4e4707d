/// The types of 16 bits on the host: every conversion there is, against the definition of the formats and the nearest
/// of all their values. Where CUDA's headers are at hand, the emulator's or the toolkit's, the bits are theirs as well.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "scantape/half.h"
#include "scantape/tensor.h"

#if SCANTAPE_HAS_CUDA_HEADERS
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace scantape {
namespace {

struct Brain {
  using Type = BFloat16;
  static constexpr int kMantissa = 7, kLowest = -126, kHighest = 127;
#if SCANTAPE_HAS_CUDA_HEADERS
  static std::uint16_t cuda(float x) {
    return __bfloat16_as_ushort(__float2bfloat16(x));
  }
  static std::uint16_t cuda(double x) {
    return __bfloat16_as_ushort(__double2bfloat16(x));
  }
  static float cuda_float(std::uint16_t bits) {
    return __bfloat162float(__ushort_as_bfloat16(bits));
  }
#endif
};

struct Ieee {
  using Type = Float16;
  static constexpr int kMantissa = 10, kLowest = -14, kHighest = 15;
#if SCANTAPE_HAS_CUDA_HEADERS
  static std::uint16_t cuda(float x) {
    return __half_as_ushort(__float2half(x));
  }
  static std::uint16_t cuda(double x) {
    return __half_as_ushort(__double2half(x));
  }
  static float cuda_float(std::uint16_t bits) {
    return __half2float(__ushort_as_half(bits));
  }
#endif
};

template <class F>
typename F::Type of_bits(std::uint32_t bits) {
  typename F::Type value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

/// What the bits of a number that is not negative mean.
template <class F>
double meaning(std::uint32_t bits) {
  const auto field = static_cast<int>(bits >> F::kMantissa);
  const auto fraction = static_cast<double>(bits & ((1u << F::kMantissa) - 1));
  if (field == F::kHighest - F::kLowest + 2)
    return fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  if (field == 0) return std::ldexp(fraction, F::kLowest - F::kMantissa);
  return std::ldexp(1 + std::ldexp(fraction, -F::kMantissa), field - 1 + F::kLowest);
}

/// The numbers from zero up to the largest, then what stands in infinity's place: the step after it. Their places are
/// their bits.
template <class F>
const std::vector<double>& numbers() {
  static const std::vector<double> all = [] {
    std::vector<double> list;
    for (std::uint32_t bits = 0; std::isfinite(meaning<F>(bits)); ++bits) list.push_back(meaning<F>(bits));
    list.push_back(std::ldexp(1.0, F::kHighest + 1));
    return list;
  }();
  return all;
}

/// The bits nearest to x, ties to even. Nothing is known here but the list of all numbers.
template <class F>
std::uint16_t nearest(double x) {
  const std::uint32_t sign = std::signbit(x) ? 0x8000 : 0;
  const std::vector<double>& all = numbers<F>();
  const double size = std::min(std::abs(x), all.back());
  const auto above = static_cast<std::size_t>(std::lower_bound(all.begin(), all.end(), size) - all.begin());
  if (above == 0) return static_cast<std::uint16_t>(sign);
  const double to_high = all[above] - size, to_low = size - all[above - 1];
  const bool up = to_high < to_low || (to_high == to_low && above % 2 == 0);
  return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(up ? above : above - 1));
}

float as_float(std::uint64_t bits) {
  const auto low = static_cast<std::uint32_t>(bits);
  float value;
  std::memcpy(&value, &low, sizeof value);
  return value;
}

template <class F>
void expect_rounds(float x) {
  const std::uint16_t bits = typename F::Type(x).bits;
  if (std::isnan(x))
    ASSERT_TRUE(std::isnan(static_cast<float>(of_bits<F>(bits))));
  else
    ASSERT_EQ(bits, nearest<F>(static_cast<double>(x))) << static_cast<double>(x);
#if SCANTAPE_HAS_CUDA_HEADERS
  ASSERT_EQ(bits, F::cuda(x)) << static_cast<double>(x);
#endif
}

template <class F>
void expect_rounds(double x) {
  const std::uint16_t bits = typename F::Type(x).bits;
  if (std::isnan(x))
    ASSERT_TRUE(std::isnan(static_cast<float>(of_bits<F>(bits))));
  else
    ASSERT_EQ(bits, nearest<F>(x)) << x;
#if SCANTAPE_HAS_CUDA_HEADERS
  ASSERT_EQ(bits, F::cuda(x)) << x;
#endif
}

template <class F>
class Half : public testing::Test {};
using Formats = testing::Types<Brain, Ieee>;
TYPED_TEST_SUITE(Half, Formats);

TYPED_TEST(Half, AllPatternsGoToWhatTheyMeanAndBack) {
  using F = TypeParam;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double size = meaning<F>(bits & 0x7fff), value = (bits & 0x8000) != 0 ? -size : size;
    const float wide = static_cast<float>(of_bits<F>(bits));
    const double wider = static_cast<double>(of_bits<F>(bits));
#if SCANTAPE_HAS_CUDA_HEADERS
    const float theirs = F::cuda_float(static_cast<std::uint16_t>(bits));
    ASSERT_TRUE(std::isnan(value) ? std::isnan(theirs) : theirs == wide) << bits;
#endif
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(wide) && std::isnan(wider)) << bits;
      ASSERT_TRUE(std::isnan(static_cast<float>(typename F::Type(wide)))) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(wide), value) << bits;
    ASSERT_EQ(wider, value) << bits;
    ASSERT_EQ(std::signbit(wide), (bits & 0x8000) != 0) << bits;
    ASSERT_EQ(typename F::Type(wide).bits, bits);
    ASSERT_EQ(typename F::Type(wider).bits, bits);
  }
}

/// Every middle between two neighbours, infinity among them, and the next float and double to either side of it.
TYPED_TEST(Half, TiesGoToEvenAndNothingIsRoundedTwice) {
  using F = TypeParam;
  const std::vector<double>& all = numbers<F>();
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    const double middle = all[i] + (all[i + 1] - all[i]) / 2;
    for (const double sign : {1.0, -1.0}) {
      const std::uint32_t flag = sign < 0 ? 0x8000 : 0;
      const auto low = static_cast<std::uint32_t>(i) | flag, high = low + 1;
      ASSERT_EQ(typename F::Type(sign * middle).bits, i % 2 == 0 ? low : high) << middle;
      ASSERT_EQ(typename F::Type(sign * std::nextafter(middle, all[i + 1])).bits, high) << middle;
      ASSERT_EQ(typename F::Type(sign * std::nextafter(middle, all[i])).bits, low) << middle;
      const auto narrow = static_cast<float>(sign * middle);
      if (static_cast<double>(narrow) != sign * middle) continue;  // no float
      ASSERT_EQ(typename F::Type(narrow).bits, i % 2 == 0 ? low : high) << middle;
      ASSERT_EQ(typename F::Type(std::nextafter(narrow, 2 * narrow)).bits, high) << middle;
      ASSERT_EQ(typename F::Type(std::nextafter(narrow, 0.0f)).bits, low) << middle;
    }
  }
}

TYPED_TEST(Half, FloatsOfEveryKind) {
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 3001)
    expect_rounds<TypeParam>(as_float(bits));
  for (const std::uint64_t bits : {0x7f800000u, 0xff800000u, 0x7f800001u, 0x7fffffffu, 0xffc00000u,
                                   0x7f7fffffu, 1u, 0x80000001u, 0x007fffffu, 0x00800000u})
    expect_rounds<TypeParam>(as_float(bits));
}

TYPED_TEST(Half, DoublesOfEveryKind) {
  using F = TypeParam;
  std::uint64_t state = 0x243f6a8885a308d3u;
  for (int i = 0; i < 300000; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    double any;
    std::memcpy(&any, &state, sizeof any);
    expect_rounds<F>(any);
    // Digits of that kind, of a size that the type has or just misses.
    const double digits = 1 + static_cast<double>(state >> 12) * 0x1p-52;
    const int exponent =
        static_cast<int>(state % static_cast<unsigned>(F::kHighest - F::kLowest + 30)) + F::kLowest - 20;
    expect_rounds<F>(std::ldexp(i % 2 == 0 ? digits : -digits, exponent));
  }
  for (const double value : {0.0, -0.0, 1e300, -1e300, 5e-324, std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity(), std::nan("")})
    expect_rounds<F>(value);
}

TEST(HalfByHand, OverflowBecomesInfinity) {
  EXPECT_EQ(Float16(65504.0f).bits, 0x7bff);
  EXPECT_EQ(Float16(65519.9f).bits, 0x7bff);
  EXPECT_EQ(Float16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(Float16(-1e30f).bits, 0xfc00);
  EXPECT_EQ(BFloat16(3.4e38f).bits, 0x7f80);
  EXPECT_EQ(BFloat16(1e300).bits, 0x7f80);
  EXPECT_EQ(Float16(0x1p-24f).bits, 1);
  EXPECT_EQ(Float16(0x1p-25f).bits, 0);
  EXPECT_EQ(Float16(0x1.8p-25f).bits, 1);
  EXPECT_EQ(BFloat16(1 + 0x1p-8f).bits, 0x3f80);
  EXPECT_EQ(BFloat16(1 + 0x1.8p-7f).bits, 0x3f82);
}

static_assert(sizeof(BFloat16) == 2 && sizeof(Float16) == 2);
static_assert(std::is_trivially_copyable_v<BFloat16> && std::is_trivially_copyable_v<Float16>);
// Nothing is rounded, and nothing computed, by accident.
static_assert(!std::is_convertible_v<float, BFloat16> && !std::is_convertible_v<BFloat16, float>);
static_assert(!std::is_convertible_v<float, Float16> && !std::is_convertible_v<Float16, float>);
static_assert(!std::is_constructible_v<BFloat16, int> && !std::is_constructible_v<Float16, int>);

// ---- tensors

std::vector<Device> devices_here() {
  std::vector<Device> list{kCpu};
  if (is_available(kCuda)) list.push_back(kCuda);
  return list;
}

constexpr DType kAll[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

double as_held(double value, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return static_cast<double>(static_cast<float>(value));
    case DType::f64:
      return value;
    case DType::bf16:
      return static_cast<double>(BFloat16(value));
    case DType::f16:
      return static_cast<double>(Float16(value));
    case DType::i32:
      break;  // not a type of these tests
  }
  return std::nan("");
}

/// From each type to each, strided and on each device: rounded once, by the type that it goes to.
TEST(HalfTensor, ConvertsBetweenAllTypes) {
  const std::vector<double> given = {
      1.00390625 + 1e-12, -2.00048828125 - 1e-12, 65519.99, 70000, -1e-8, 3e-41, 1e300, 0};
  for (const Device device : devices_here()) {
    const Tensor exact = Tensor::from({2, 4}, given, device);
    for (const DType first : kAll) {
      const Tensor start = exact.to(first);
      EXPECT_EQ(start.dtype(), first);
      EXPECT_EQ(start.device(), device);
      for (const DType second : kAll) {
        const std::vector<double> got = start.slice(1, 1, 4).to(second).to(DType::f64).values<double>();
        for (std::size_t i = 0; i < got.size(); ++i) {
          const double source = given[i / 3 * 4 + 1 + i % 3];
          EXPECT_EQ(got[i], as_held(as_held(source, first), second))
              << name(first) << " " << name(second) << " " << i;
        }
      }
    }
  }
}

TEST(HalfTensor, IsMadeAndReadInItsOwnType) {
  for (const Device device : devices_here()) {
    const Tensor filled = Tensor::full({3}, 1.00390625 + 1e-12, DType::bf16, device);
    for (const BFloat16 value : filled.values<BFloat16>()) EXPECT_EQ(value.bits, 0x3f81);
    EXPECT_THROW((void)filled.values<float>(), Error);
    EXPECT_THROW((void)filled.values<Float16>(), Error);
    const Tensor given = Tensor::from({2}, std::vector<Float16>{Float16(0.1f), Float16(-3.0f)}, device);
    EXPECT_EQ(given.dtype(), DType::f16);
    EXPECT_EQ(given.to(DType::f32).values<float>()[1], -3.0f);
    EXPECT_EQ(given.clone().values<Float16>()[0].bits, 0x2e66);
    Tensor zeros = Tensor::zeros({2}, DType::f16, device);
    EXPECT_EQ(zeros.values<Float16>()[1].bits, 0);
    zeros.copy_from(given);
    EXPECT_EQ(zeros.values<Float16>()[0].bits, 0x2e66);
    EXPECT_THROW(zeros.copy_from(filled), Error);
  }
  EXPECT_EQ(size_of(DType::bf16), 2);
  EXPECT_EQ(size_of(DType::f16), 2);
  EXPECT_STREQ(name(DType::bf16), "bf16");
  EXPECT_STREQ(name(DType::f16), "f16");
  EXPECT_EQ(at_least_f32(DType::bf16), DType::f32);
  EXPECT_EQ(at_least_f32(DType::f64), DType::f64);
}

}  // namespace
}  // namespace scantape
