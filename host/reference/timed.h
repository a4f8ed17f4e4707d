#pragma once

#include "common.h"

/// What the reference's recurrences over time share.
namespace scantape::reference {

/// Steps in the order of the recurrence: step 0 is the first one, whichever way it runs.
struct Order {
  std::int64_t length;
  bool reversed;

  std::int64_t row(std::int64_t item, std::int64_t step) const noexcept {
    return item * length + (reversed ? length - 1 - step : step);
  }
};

/// Flags [B, L]; nothing starts where there are none.
template <class T>
struct Starts {
  const T* data;
  explicit Starts(const ConstView& start) noexcept : data(start.present ? start.as<T>() : nullptr) {}
  bool at(std::int64_t row) const noexcept { return data != nullptr && data[row] != 0; }
};

}  // namespace scantape::reference
