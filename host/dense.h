#pragma once

#include <string>

#include "route.h"

namespace scantape {

/// What is right but more than a block of threads holds: an N x N matrix on cuda with N above `most`.
inline Status check_dense_size(const char* op, const char* argument, const ConstView& matrix,
                               std::int64_t most) noexcept {
  if (matrix.device.is_cpu() || matrix.shape[0] <= most) return {};
  try {
    return Status::fail(Code::unsupported, std::string(op) + ": " + argument + " has shape " +
                                               name(matrix.shape) + ", on cuda a dense one has at most " +
                                               std::to_string(most) + " states");
  } catch (...) {
    return Status::fail(Code::unsupported, "");
  }
}

}  // namespace scantape
