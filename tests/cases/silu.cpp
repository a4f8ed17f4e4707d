#include "scantape/silu.h"

#include "elementwise.h"

namespace scantape::cases {
namespace {

SiluForward forward_arguments(const Call& call) {
  SiluForward args;
  args.x = call.input("x");
  args.y = call.output("y");
  return args;
}

Status forward(const Call& call) {
  return run(SCANTAPE_DIRECTION(silu_forward), forward_arguments(call), call);
}

Status backward(const Call& call) {
  SiluBackward args;
  static_cast<SiluForward&>(args) = forward_arguments(call);
  args.y = View();  // not read
  args.d_y = call.cotangent("y");
  args.d_x = call.gradient("x");
  return run(SCANTAPE_DIRECTION(silu_backward), args, call);
}

}  // namespace

std::vector<Case> silu_cases() {
  const ErrorRule element = ErrorRule::element;
  // The slope has a zero near -1.28, so its error is taken relative to a slice.
  return elementwise_cases(
      "silu",
      {
          {.name = "middle", .x = normal(0, 3), .rule = element},
          {.name = "wide", .x = uniform(-80, 80), .rule = element},
          // Slopes of 0 and 1; the step outweighs the rounding of numbers of this size.
          {.name = "far", .x = both_signs(uniform(0, 1e4)), .step = 30},
          // x exp(x) is below the normal numbers of f32: only its smallness is left to see.
          {.name = "vanishing",
           .x = uniform(-760, -110),
           .forward = {1e-13, 1e-5},
           .zero = true,
           .differences = false},
      },
      forward, backward);
}

}  // namespace scantape::cases
