#include "scantape/discretize.h"

#include "route.h"

namespace scantape {

const char* name(DiscretizeMethod method) noexcept {
  switch (method) {
    case DiscretizeMethod::zoh:
      return "zoh";
    case DiscretizeMethod::exp_euler:
      return "exp_euler";
    case DiscretizeMethod::bilinear:
      return "bilinear";
    case DiscretizeMethod::euler:
      return "euler";
  }
  return "unknown";
}

namespace {

// A leads: it is the parameter that says how many states there are.
void check_model(Check& check, const DiscretizeForward& args) noexcept {
  check.input("A", args.A, "N");
  check.input("dt", args.dt, "N");
  check.input("B", args.B, {"N E", Layout::rows});
  check.number("method", static_cast<double>(args.method), args.method <= DiscretizeMethod::euler,
               "zoh, exp_euler, bilinear or euler");
}

Status check(const DiscretizeForward& args) noexcept {
  Check check("discretize");
  check_model(check, args);
  check.output("A_bar", args.A_bar, "N");
  check.output("B_bar", args.B_bar, {"N E", Layout::rows});
  check.optional_output("F", args.F, "N");
  return check.finish();
}

Status check(const DiscretizeBackward& args) noexcept {
  Check check("discretize_backward");
  check_model(check, args);
  check.optional_input("d_A_bar", args.d_A_bar, "N");
  check.optional_input("d_B_bar", args.d_B_bar, {"N E", Layout::rows});
  check.optional_input("d_F", args.d_F, "N");
  check.gradient("d_dt", args.d_dt, "N");
  check.gradient("d_A", args.d_A, "N");
  check.gradient("d_B", args.d_B, {"N E", Layout::rows});
  return check.finish();
}

}  // namespace

SCANTAPE_ROUTE_OP(discretize_forward, DiscretizeForward, A, reference::discretize_forward);
SCANTAPE_ROUTE_OP(discretize_backward, DiscretizeBackward, A, reference::discretize_backward);

}  // namespace scantape
