#include "scantape/mse.h"

#include "route.h"

namespace scantape {

namespace {

void check_inputs(Check& check, const MseForward& args) noexcept {
  check.input("prediction", args.prediction, "...");
  check.input("target", args.target, "...");
  check.optional_input("mask", args.mask, "...");
}

Status check(const MseForward& args) noexcept {
  Check check("mse");
  check_inputs(check, args);
  check.output("loss", args.loss, {"", Layout::dense, DType::f64});
  return check.finish();
}

Status check(const MseBackward& args) noexcept {
  Check check("mse_backward");
  check_inputs(check, args);
  check.input("d_loss", args.d_loss, {"", Layout::dense, DType::f64});
  check.gradient("d_prediction", args.d_prediction, "...");
  return check.finish();
}

}  // namespace

SCANTAPE_ROUTE_OP(mse_forward, MseForward, prediction, reference::mse_forward);
SCANTAPE_ROUTE_OP(mse_backward, MseBackward, prediction, reference::mse_backward);

}  // namespace scantape
