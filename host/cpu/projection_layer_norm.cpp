#include "cpu/projection_layer_norm.h"

#include "cpu/projection.h"
#include "reference/projection_layer_norm.h"

namespace scantape::cpu {

Status projection_layer_norm_forward(const ProjectionLayerNormForward& args) noexcept {
  return reference::project_and_normalise(args, projection_forward);
}

Status projection_layer_norm_backward(const ProjectionLayerNormBackward& args) noexcept {
  return reference::differentiate(args, projection_forward, projection_backward);
}

}  // namespace scantape::cpu
