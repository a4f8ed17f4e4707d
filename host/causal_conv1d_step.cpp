#include "scantape/causal_conv1d_step.h"

#include "route.h"

namespace scantape {

namespace {

void check_inputs(Check& check, const CausalConv1dStepForward& args) noexcept {
  check.takes_16_bits();
  check.input("x", args.x, {"B C", Layout::rows});
  check.input("weight", args.weight, "C K");
  check.within('K', 1, kMostConvTaps);
  check.stands_for('S', args.weight.shape.back() - 1, "one less than the last dimension of", 'K');
  check.optional_input("state", args.state, "B S C");
  check.optional_input("bias", args.bias, "C");
  check.number("activation", static_cast<double>(args.activation), args.activation <= Activation::none,
               "silu or none");
}

Status check(const CausalConv1dStepForward& args) noexcept {
  Check check("causal_conv1d_step");
  check_inputs(check, args);
  check.output("y", args.y, {"B C", Layout::rows});
  check.optional_output("new_state", args.new_state, "B S C");
  check.may_be("new_state", "state");
  return check.finish();
}

Status check(const CausalConv1dStepBackward& args) noexcept {
  Check check("causal_conv1d_step_backward");
  check_inputs(check, args);
  check.optional_input("d_y", args.d_y, {"B C", Layout::rows});
  check.optional_input("d_new_state", args.d_new_state, "B S C");
  check.gradient("d_x", args.d_x, {"B C", Layout::rows});
  check.gradient("d_state", args.d_state, "B S C");
  check.gradient("d_weight", args.d_weight, wide("C K"));
  check.require(args.bias.present || !args.d_bias.wanted(), "d_bias is wanted, but there is no bias");
  check.gradient("d_bias", args.d_bias, wide("C"));
  return check.finish();
}

}  // namespace

SCANTAPE_ROUTE_OP(causal_conv1d_step_forward, CausalConv1dStepForward, x,
                  reference::causal_conv1d_step_forward);
SCANTAPE_ROUTE_OP(causal_conv1d_step_backward, CausalConv1dStepBackward, x,
                  reference::causal_conv1d_step_backward);

}  // namespace scantape
