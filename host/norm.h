#pragma once

#include "scantape/norm.h"
#include "scantape/status.h"

namespace scantape {

/// The checks of either norm; `statistics` is the shape that it saves.
Status check_norm(const char* op, const char* statistics, const NormForward& args) noexcept;
Status check_norm(const char* op, const char* statistics, const NormBackward& args) noexcept;

}  // namespace scantape
