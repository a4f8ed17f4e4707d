#include "scantape/state_output.h"

#include "cpu/state_output.h"
#include "route.h"

namespace scantape {

const char* name(Activation activation) noexcept {
  switch (activation) {
    case Activation::silu:
      return "silu";
    case Activation::none:
      return "none";
  }
  return "unknown";
}

namespace {

void check_inputs(Check& check, const StateOutputForward& args) noexcept {
  check.input("z", args.z, {"... E", Layout::rows});
  check.input("u", args.u, {"... E", Layout::rows});
  check.input("D", args.D, "E");
  check.number("activation", static_cast<double>(args.activation), args.activation <= Activation::none,
               "silu or none");
}

Status check(const StateOutputForward& args) noexcept {
  Check check("state_output");
  check_inputs(check, args);
  check.input("residual", args.residual, {"... E", Layout::rows});
  check.output("out", args.out, {"... E", Layout::rows});
  check.may_be("out", "z");
  check.may_be("out", "residual");
  return check.finish();
}

Status check(const StateOutputBackward& args) noexcept {
  Check check("state_output_backward");
  check_inputs(check, args);
  check.input("d_out", args.d_out, {"... E", Layout::rows});
  check.gradient("d_z", args.d_z, {"... E", Layout::rows});
  check.gradient("d_u", args.d_u, {"... E", Layout::rows});
  check.gradient("d_D", args.d_D, "E");
  check.gradient("d_residual", args.d_residual, {"... E", Layout::rows});
  return check.finish();
}

}  // namespace

SCANTAPE_ROUTE_OP(state_output_forward, StateOutputForward, z, cpu::state_output_forward);
SCANTAPE_ROUTE_OP(state_output_backward, StateOutputBackward, z, cpu::state_output_backward);

}  // namespace scantape
