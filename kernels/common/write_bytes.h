#pragma once

#include <cstdint>

#include "scantape/status.h"
#include "scantape/view.h"

namespace scantape::cuda {

inline constexpr std::int64_t kWriteBytesLimit = 64;

/// Writes 1 to kWriteBytesLimit bytes of the host's memory to the device, in the order of the stream. They travel as the
/// kernel's argument: nothing waits, and the source may change as soon as this returns. Can be captured.
Status write_bytes(void* target, const void* source, std::int64_t bytes, Stream stream) noexcept;

}  // namespace scantape::cuda
