#pragma once

#include <cstdint>
#include <cstring>

/// An exponential for loops without branches or calls, which the compiler turns into vectors, once for each instruction
/// set. Nothing is fused or reordered, so all of them give the same bits.

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__)
#define SCANTAPE_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define SCANTAPE_CLONES
#endif
#define SCANTAPE_INLINE __attribute__((always_inline)) inline

namespace scantape::cpu {

/// exp(x) for x <= 0, within 1.5e-7 of itself; 0 below -87. NaN may give any number: who
/// uses it multiplies by the argument too.
SCANTAPE_INLINE float exp_below_zero(float x) noexcept {
  // x = n ln 2 + r with |r| <= ln 2 / 2. Adding and taking away 1.5 * 2^23 rounds to a whole number, which
  // then stands in the low bits of the sum.
  constexpr float kLeast = -87.0F, kRound = 0x1.8p23F, kLog2E = 1.44269504F;
  constexpr float kLn2High = 0x1.62e4p-1F, kLn2Low = 1.42860677e-6F;  // the high part times n is exact
  const float clamped = x < kLeast ? kLeast : x;
  const float shifted = clamped * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * kLn2High) - n * kLn2Low;
  // exp(r) = 1 + r + r^2 (1/2 + r/6 + ...): seven terms of the series leave 5e-9 at the ends.
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * (r * r) + r;
  p = p + 1.0F;
  std::uint32_t bits = 0, power = 0;
  std::memcpy(&power, &shifted, sizeof power);
  std::memcpy(&bits, &p, sizeof bits);
  bits += power << 23;  // times 2^n: the rest of `shifted` leaves at the top
  std::memcpy(&p, &bits, sizeof p);
  return p * (x < kLeast ? 0.0F : 1.0F);
}

}  // namespace scantape::cpu
