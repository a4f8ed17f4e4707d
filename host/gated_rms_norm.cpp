#include "scantape/gated_rms_norm.h"

#include <cmath>

#include "check.h"
#include "route.h"

namespace scantape {

namespace {

const Wanted kRows{"... S", Layout::rows};

void check_inputs(Check& check, const GatedRmsNormForward& args) noexcept {
  check.takes_16_bits();
  check.input("x", args.x, kRows);
  check.not_empty('S');
  check.optional_input("z", args.z, kRows);
  check.input("weight", args.weight, "S");
  check.number("groups", static_cast<double>(args.groups),
               args.groups >= 1 && args.x.shape.back() % args.groups == 0,
               "a divisor of S, the last dimension of x");
  check.stands_for('G', args.groups, "the number of groups");
  check.number("eps", args.eps, args.eps > 0 && std::isfinite(args.eps), "a finite number above 0");
}

Status check(const GatedRmsNormForward& args) noexcept {
  Check check("gated_rms_norm");
  check_inputs(check, args);
  check.output("y", args.y, kRows);
  check.output("statistics", args.statistics, wide("... G"));
  check.may_be("y", "x");
  check.may_be("y", "z");
  return check.finish();
}

Status check(const GatedRmsNormBackward& args) noexcept {
  Check check("gated_rms_norm_backward");
  check_inputs(check, args);
  check.input("statistics", args.statistics, wide("... G"));
  check.input("d_y", args.d_y, kRows);
  check.gradient("d_x", args.d_x, kRows);
  check.require(args.z.present || !args.d_z.wanted(), "d_z is wanted, but there is no z");
  check.gradient("d_z", args.d_z, kRows);
  check.gradient("d_weight", args.d_weight, wide("S"));
  check.may_be("d_x", "d_y");
  check.may_be("d_z", "d_y");
  return check.finish();
}

}  // namespace

SCANTAPE_ROUTE_OP(gated_rms_norm_forward, GatedRmsNormForward, x, reference::gated_rms_norm_forward);
SCANTAPE_ROUTE_OP(gated_rms_norm_backward, GatedRmsNormBackward, x, reference::gated_rms_norm_backward);

}  // namespace scantape
