#pragma once

#include "scantape/projection.h"

namespace scantape::cpu {

/// The projection by our own blocked matrix product. Trusts its arguments.
Status projection_forward(const ProjectionForward& args) noexcept;
Status projection_backward(const ProjectionBackward& args) noexcept;

}  // namespace scantape::cpu
