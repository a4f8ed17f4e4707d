#include "scantape/copy.h"

#include "elementwise.h"

namespace scantape::cases {
namespace {

CopyForward forward_arguments(const Call& call) {
  CopyForward args;
  args.x = call.input("x");
  args.y = call.output("y");
  return args;
}

Status forward(const Call& call) {
  return run(SCANTAPE_DIRECTION(copy_forward), forward_arguments(call), call);
}

Status backward(const Call& call) {
  CopyBackward args;
  static_cast<CopyForward&>(args) = forward_arguments(call);
  args.y = View();  // not read
  args.d_y = call.cotangent("y");
  args.d_x = call.gradient("x");
  return run(SCANTAPE_DIRECTION(copy_backward), args, call);
}

}  // namespace

std::vector<Case> copy_cases() {
  const Budget exact{0, 0};
  return elementwise_cases("copy",
                           {{.name = "middle",
                             .x = normal(0, 3),
                             .rule = ErrorRule::element,
                             .forward = exact,
                             .backward = exact,
                             .backward_rule = ErrorRule::element}},
                           forward, backward);
}

}  // namespace scantape::cases
