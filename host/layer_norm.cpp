#include "scantape/layer_norm.h"

#include "norm.h"
#include "route.h"

namespace scantape {

namespace {

Status check(const LayerNormForward& args) noexcept {
  return check_norm("layer_norm", "... 3", args);
}

Status check(const LayerNormBackward& args) noexcept {
  return check_norm("layer_norm_backward", "... 3", args);
}

}  // namespace

SCANTAPE_ROUTE_OP(layer_norm_forward, LayerNormForward, weight, reference::layer_norm_forward);
SCANTAPE_ROUTE_OP(layer_norm_backward, LayerNormBackward, weight, reference::layer_norm_backward);

}  // namespace scantape
