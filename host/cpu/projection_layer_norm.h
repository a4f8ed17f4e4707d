#pragma once

#include "scantape/projection_layer_norm.h"

namespace scantape::cpu {

/// The op by our own blocked matrix product. Trusts its arguments.
Status projection_layer_norm_forward(const ProjectionLayerNormForward& args) noexcept;
Status projection_layer_norm_backward(const ProjectionLayerNormBackward& args) noexcept;

}  // namespace scantape::cpu
