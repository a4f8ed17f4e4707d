#include "scantape/causal_conv1d.h"

#include "route.h"

namespace scantape {

namespace {

void check_inputs(Check& check, const CausalConv1dForward& args) noexcept {
  check.takes_16_bits();
  check.input("x", args.x, {"B L C", Layout::rows});
  check.not_empty('L');
  check.input("weight", args.weight, "C K");
  check.within('K', 1, kMostConvTaps);
  check.stands_for('S', args.weight.shape.back() - 1, "one less than the last dimension of", 'K');
  check.optional_input("bias", args.bias, "C");
  check.optional_input("initial_state", args.initial_state, "B S C");
  check.optional_input("start", args.start, "B L");
  check.number("activation", static_cast<double>(args.activation), args.activation <= Activation::none,
               "silu or none");
}

Status check(const CausalConv1dForward& args) noexcept {
  Check check("causal_conv1d");
  check_inputs(check, args);
  check.output("y", args.y, {"B L C", Layout::rows});
  check.optional_output("final_state", args.final_state, "B S C");
  return check.finish();
}

Status check(const CausalConv1dBackward& args) noexcept {
  Check check("causal_conv1d_backward");
  check_inputs(check, args);
  check.optional_input("d_y", args.d_y, {"B L C", Layout::rows});
  check.optional_input("d_final_state", args.d_final_state, "B S C");
  check.gradient("d_x", args.d_x, {"B L C", Layout::rows});
  check.gradient("d_weight", args.d_weight, wide("C K"));
  check.require(args.bias.present || !args.d_bias.wanted(), "d_bias is wanted, but there is no bias");
  check.gradient("d_bias", args.d_bias, wide("C"));
  check.gradient("d_initial_state", args.d_initial_state, "B S C");
  return check.finish();
}

}  // namespace

SCANTAPE_ROUTE_OP(causal_conv1d_forward, CausalConv1dForward, x, reference::causal_conv1d_forward);
SCANTAPE_ROUTE_OP(causal_conv1d_backward, CausalConv1dBackward, x, reference::causal_conv1d_backward);

}  // namespace scantape
