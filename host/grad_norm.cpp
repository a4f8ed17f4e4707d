#include "scantape/grad_norm.h"

#include "route.h"

namespace scantape {

namespace {

static_assert(kStepControls == 8, "the checks below say 8");

Status check(const GradNorm& args) noexcept {
  Check check("grad_norm");
  check.input("gradient", args.gradient, "n");
  check.optional_input("loss", args.loss, {"", Layout::dense, DType::f64});
  check.output("control", args.control, {"8", Layout::dense, DType::f64});
  return check.finish();
}

}  // namespace

SCANTAPE_ROUTE_OP(grad_norm, GradNorm, gradient, reference::grad_norm);

}  // namespace scantape
