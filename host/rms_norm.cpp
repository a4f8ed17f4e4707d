#include "scantape/rms_norm.h"

#include "norm.h"
#include "route.h"

namespace scantape {

namespace {

Status check(const RmsNormForward& args) noexcept {
  return check_norm("rms_norm", "... 1", args);
}

Status check(const RmsNormBackward& args) noexcept {
  return check_norm("rms_norm_backward", "... 1", args);
}

}  // namespace

SCANTAPE_ROUTE_OP(rms_norm_forward, RmsNormForward, weight, reference::rms_norm_forward);
SCANTAPE_ROUTE_OP(rms_norm_backward, RmsNormBackward, weight, reference::rms_norm_backward);

}  // namespace scantape
