#include "scantape/projection.h"

#include "cpu/projection.h"
#include "route.h"

namespace scantape {

namespace {

Status check(const ProjectionForward& args) noexcept {
  Check check("projection");
  check.takes_16_bits();
  check.input("x", args.x, {"... I", Layout::rows});
  check.input("weight", args.weight, "O I");
  check.optional_input("bias", args.bias, "O");
  check.output("y", args.y, {"... O", Layout::rows});
  return check.finish();
}

Status check(const ProjectionBackward& args) noexcept {
  Check check("projection_backward");
  check.takes_16_bits();
  check.input("x", args.x, {"... I", Layout::rows});
  check.input("weight", args.weight, "O I");
  check.input("d_y", args.d_y, {"... O", Layout::rows});
  check.gradient("d_x", args.d_x, {"... I", Layout::rows});
  check.gradient("d_weight", args.d_weight, wide("O I"));
  check.gradient("d_bias", args.d_bias, wide("O"));
  check.require(args.bias.present || !args.d_bias.wanted(), "d_bias is wanted, but there is no bias");
  return check.finish();
}

}  // namespace

SCANTAPE_ROUTE_OP(projection_forward, ProjectionForward, x, cpu::projection_forward);
SCANTAPE_ROUTE_OP(projection_backward, ProjectionBackward, x, cpu::projection_backward);

}  // namespace scantape
