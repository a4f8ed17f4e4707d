#include "scantape/layer_norm.h"

#include <cmath>

#include "route.h"

namespace scantape {

namespace {

Status check(const LayerNormForward& args) noexcept {
  Check check("layer_norm");
  check.input("x", args.x, {"... E", Layout::rows});
  check.not_empty('E');
  check.input("weight", args.weight, "E");
  check.input("bias", args.bias, "E");
  check.number("eps", args.eps, args.eps > 0 && std::isfinite(args.eps), "a finite number above 0");
  check.output("y", args.y, {"... E", Layout::rows});
  check.output("statistics", args.statistics, "... 3");
  check.may_be("y", "x");
  return check.finish();
}

Status check(const LayerNormBackward& args) noexcept {
  Check check("layer_norm_backward");
  check.input("x", args.x, {"... E", Layout::rows});
  check.not_empty('E');
  check.input("weight", args.weight, "E");
  check.input("statistics", args.statistics, "... 3");
  check.number("eps", args.eps, args.eps > 0 && std::isfinite(args.eps), "a finite number above 0");
  check.input("d_y", args.d_y, {"... E", Layout::rows});
  check.gradient("d_x", args.d_x, {"... E", Layout::rows});
  check.gradient("d_weight", args.d_weight, "E");
  check.gradient("d_bias", args.d_bias, "E");
  check.may_be("d_x", "d_y");
  return check.finish();
}

}  // namespace

SCANTAPE_ROUTE_OP(layer_norm_forward, LayerNormForward, x, reference::layer_norm_forward);
SCANTAPE_ROUTE_OP(layer_norm_backward, LayerNormBackward, x, reference::layer_norm_backward);

}  // namespace scantape
