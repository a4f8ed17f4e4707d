#pragma once

#include <cstdint>

namespace scantape::market {

/// Random bits as a function of (seed, stream, counter): no state, hence the same in any order and on every
/// machine.
inline uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t counter) {
  // The finaliser of splitmix64, a bijection with good avalanche, applied to each argument in turn.
  const auto mix = [](uint64_t x) {
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9;
    x ^= x >> 27;
    x *= 0x94D049BB133111EB;
    return x ^ (x >> 31);
  };
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;
  return mix(mix(mix(seed + kGolden) + stream * kGolden) + (counter + 1) * kGolden);
}

/// In [0, 1), a multiple of 2^-53.
inline double random_unit(uint64_t seed, uint64_t stream, uint64_t counter) {
  return static_cast<double>(random_bits(seed, stream, counter) >> 11) * 0x1p-53;
}

/// In [0, bound); the bias of bound / 2^64 does not matter here.
inline uint64_t random_below(uint64_t bound, uint64_t seed, uint64_t stream, uint64_t counter) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((Wide{random_bits(seed, stream, counter)} * bound) >> 64);
}

}  // namespace scantape::market
