#include "reference/projection_layer_norm.h"

namespace scantape::reference {

Status projection_layer_norm_forward(const ProjectionLayerNormForward& args) noexcept {
  return project_and_normalise(args, projection_forward);
}

Status projection_layer_norm_backward(const ProjectionLayerNormBackward& args) noexcept {
  return differentiate(args, projection_forward, projection_backward);
}

}  // namespace scantape::reference
