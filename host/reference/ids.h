#pragma once

#include <optional>
#include <string>

#include "common.h"

/// Indices into rows of a table, as ops read them on the CPU.
namespace scantape::reference {

/// An error that names the first index outside 0 to rows - 1, but for `ignored`.
inline Status check_ids(const char* op, const char* argument, const ConstView& ids, std::int64_t rows,
                        std::optional<std::int32_t> ignored = {}) noexcept {
  const auto* const values = ids.as<std::int32_t>();
  for (std::int64_t i = 0; i < ids.elements(); ++i) {
    if ((values[i] >= 0 && values[i] < rows) || values[i] == ignored) continue;
    try {
      return Status::fail(Code::invalid_argument,
                          std::string(op) + ": " + argument + " " + name(ids.shape) + " holds " +
                              std::to_string(values[i]) + " at element " + std::to_string(i) +
                              ", wants at least 0 and below " + std::to_string(rows) +
                              (ignored ? ", or the ignored " + std::to_string(*ignored) : std::string()));
    } catch (...) {
      return Status::fail(Code::invalid_argument, "");
    }
  }
  return {};
}

}  // namespace scantape::reference
