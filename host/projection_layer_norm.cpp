#include "scantape/projection_layer_norm.h"

#include <cmath>

#include "cpu/projection_layer_norm.h"
#include "route.h"

namespace scantape {

namespace {

void check_inputs(Check& check, const ProjectionLayerNormForward& args) noexcept {
  check.input("x", args.x, {"... I", Layout::rows});
  check.input("weight", args.weight, "E I");
  check.not_empty('E');
  check.optional_input("bias", args.bias, "E");
  check.input("norm_weight", args.norm_weight, "E");
  check.number("eps", args.eps, args.eps > 0 && std::isfinite(args.eps), "a finite number above 0");
}

Status check(const ProjectionLayerNormForward& args) noexcept {
  Check check("projection_layer_norm");
  check_inputs(check, args);
  check.optional_input("norm_bias", args.norm_bias, "E");
  check.output("y", args.y, {"... E", Layout::rows});
  check.output("statistics", args.statistics, "... 3");
  return check.finish();
}

Status check(const ProjectionLayerNormBackward& args) noexcept {
  Check check("projection_layer_norm_backward");
  check_inputs(check, args);
  check.input("statistics", args.statistics, "... 3");
  check.input("d_y", args.d_y, {"... E", Layout::rows});
  check.gradient("d_x", args.d_x, {"... I", Layout::rows});
  check.gradient("d_weight", args.d_weight, "E I");
  check.require(args.bias.present || !args.d_bias.wanted(), "d_bias is wanted, but there is no bias");
  check.gradient("d_bias", args.d_bias, "E");
  check.gradient("d_norm_weight", args.d_norm_weight, "E");
  check.require(args.norm_bias.present || !args.d_norm_bias.wanted(),
                "d_norm_bias is wanted, but there is no norm_bias");
  check.gradient("d_norm_bias", args.d_norm_bias, "E");
  return check.finish();
}

}  // namespace

SCANTAPE_ROUTE_OP(projection_layer_norm_forward, ProjectionLayerNormForward, x,
                  cpu::projection_layer_norm_forward);
SCANTAPE_ROUTE_OP(projection_layer_norm_backward, ProjectionLayerNormBackward, x,
                  cpu::projection_layer_norm_backward);

}  // namespace scantape
