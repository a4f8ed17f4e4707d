#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

namespace scantape::cases {

/// Random numbers that are the same on every standard library: SplitMix64.
class Rng {
 public:
  explicit Rng(std::uint64_t seed) noexcept : state_(seed) {}

  std::uint64_t next() noexcept {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// In [0, 1), 53 random bits.
  double unit() noexcept { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double uniform(double low, double high) noexcept { return low + (high - low) * unit(); }
  double log_uniform(double low, double high) noexcept {
    return std::exp(uniform(std::log(low), std::log(high)));
  }
  double sign() noexcept { return (next() & 1) != 0 ? 1.0 : -1.0; }
  double normal() noexcept {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - unit()));
    return radius * std::cos(6.283185307179586 * unit());
  }
  /// In 0 .. count - 1.
  std::int64_t below(std::int64_t count) noexcept {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(count));
  }

 private:
  std::uint64_t state_;
};

/// FNV-1a: gives every case, by its name, a stream of numbers of its own.
constexpr std::uint64_t hash(std::string_view text) noexcept {
  std::uint64_t value = 0xcbf29ce484222325u;
  for (const char letter : text) value = (value ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  return value;
}

}  // namespace scantape::cases
