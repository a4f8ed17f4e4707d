#include "scantape/adamw.h"

#include <cmath>

#include "route.h"

namespace scantape {

namespace {

static_assert(kStepControls == 8, "the checks below say 8");

bool is_beta(double beta) noexcept {
  return beta >= 0 && beta < 1;
}

Status check(const AdamW& args) noexcept {
  Check check("adamw");
  check.output("parameter", args.parameter, "n");
  check.input("gradient", args.gradient, "n");
  check.output("first_moment", args.first_moment, "n");
  check.output("second_moment", args.second_moment, "n");
  check.input("control", args.control, {"8", Layout::dense, DType::f64});
  check.number("decayed_elements", static_cast<double>(args.decayed_elements),
               args.decayed_elements >= 0 && args.decayed_elements <= args.parameter.elements(),
               "0 to the number of parameters");
  check.number("beta1", args.beta1, is_beta(args.beta1), "0 or above and below 1");
  check.number("beta2", args.beta2, is_beta(args.beta2), "0 or above and below 1");
  check.number("eps", args.eps, args.eps > 0 && std::isfinite(args.eps), "a finite number above 0");
  check.number("weight_decay", args.weight_decay, args.weight_decay >= 0 && std::isfinite(args.weight_decay),
               "a finite number, 0 or above");
  return check.finish();
}

}  // namespace

SCANTAPE_ROUTE_OP(adamw, AdamW, parameter, reference::adamw);

}  // namespace scantape
