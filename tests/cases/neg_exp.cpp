#include "scantape/neg_exp.h"

#include "elementwise.h"

namespace scantape::cases {
namespace {

NegExpForward forward_arguments(const Call& call) {
  NegExpForward args;
  args.x = call.input("x");
  args.y = call.output("y");
  return args;
}

Status forward(const Call& call) {
  return run(SCANTAPE_DIRECTION(neg_exp_forward), forward_arguments(call), call);
}

Status backward(const Call& call) {
  NegExpBackward args;
  static_cast<NegExpForward&>(args) = forward_arguments(call);
  args.y = View();  // not read
  args.d_y = call.cotangent("y");
  args.d_x = call.gradient("x");
  return run(SCANTAPE_DIRECTION(neg_exp_backward), args, call);
}

}  // namespace

std::vector<Case> neg_exp_cases() {
  const Budget budget{1e-15, 3e-7};
  const ErrorRule element = ErrorRule::element;
  return elementwise_cases("neg_exp",
                           {
                               {.name = "middle",
                                .x = normal(0, 2),  // further out f16 overflows
                                .rule = element,
                                .forward = budget,
                                .backward = budget,
                                .backward_rule = element},
                               {.name = "wide",
                                .x = uniform(-80, 10),
                                .rule = element,
                                .forward = budget,
                                .backward = budget,
                                .backward_rule = element},
                           },
                           forward, backward);
}

}  // namespace scantape::cases
