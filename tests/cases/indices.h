#pragma once

#include "case.h"

/// Indices into a table or into logits, as cases fill them.
namespace scantape::cases {

/// any: all alike. few: three of them, so that each stands in many places. one: the last alone.
enum class Indices { any, few, one };

inline const char* name(Indices indices) noexcept {
  switch (indices) {
    case Indices::any:
      return "any id";
    case Indices::few:
      return "three ids";
    case Indices::one:
      return "one id";
  }
  return "unknown";
}

/// 0 to count - 1.
inline Fill index_fill(Indices indices, std::int64_t count) {
  return [indices, count](Rng& rng, const Shape& shape) {
    const std::int64_t few[3] = {rng.below(count), rng.below(count), count - 1};
    Values values;
    for (std::int64_t i = 0; i < shape.elements(); ++i)
      values.push_back(static_cast<double>(indices == Indices::any   ? rng.below(count)
                                           : indices == Indices::few ? few[rng.below(3)]
                                                                     : count - 1));
    return values;
  };
}

}  // namespace scantape::cases
