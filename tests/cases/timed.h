#pragma once

#include "case.h"

/// What the cases of recurrences over time share.
namespace scantape::cases {

/// About one step in four starts a sequence; flags are any number but 0. At the ends of time the first item has
/// none, so that h0 is seen from either side, and the last of several always has one.
inline Values some_starts(Rng& rng, const Shape& shape) {
  Values values;
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    const std::int64_t item = i / shape[1], t = i % shape[1];
    const bool end = t == 0 || t == shape[1] - 1;
    const bool start = end && (item == 0 || item == shape[0] - 1) ? item > 0 : rng.uniform(0, 1) < 0.25;
    values.push_back(start ? (i % 2 == 0 ? 1 : -2.5) : 0);
  }
  return values;
}

/// The final state is the last row of h (reversed: the first), bit for bit. `shape` is [B, L, channels].
inline std::string final_is_not_last(const std::vector<Values>& outputs, const Shape& shape, bool reversed) {
  const Values &h = outputs[0], &last = outputs[1];
  if (last.empty()) return {};
  for (std::int64_t batch = 0; batch < shape[0]; ++batch)
    for (std::int64_t channel = 0; channel < shape[2]; ++channel) {
      const std::int64_t row = reversed ? batch * shape[1] : (batch + 1) * shape[1] - 1;
      const std::int64_t at = row * shape[2] + channel;
      if (!(h[static_cast<std::size_t>(at)] == last[static_cast<std::size_t>(batch * shape[2] + channel)]))
        return "the final state is not the last h";
    }
  return {};
}

}  // namespace scantape::cases
