#include "scantape/softplus.h"

#include <cmath>

#include "elementwise.h"

namespace scantape::cases {
namespace {

SoftplusForward forward_arguments(const Call& call) {
  SoftplusForward args;
  args.x = call.input("x");
  args.y = call.output("y");
  return args;
}

Status forward(const Call& call) {
  return run(SCANTAPE_DIRECTION(softplus_forward), forward_arguments(call), call);
}

Status backward(const Call& call) {
  SoftplusBackward args;
  static_cast<SoftplusForward&>(args) = forward_arguments(call);
  args.y = View();  // not read
  args.d_y = call.cotangent("y");
  args.d_x = call.gradient("x");
  return run(SCANTAPE_DIRECTION(softplus_backward), args, call);
}

/// Keeps ten steps of a difference away from 20, where the value jumps by 2.1e-9.
Fill without_kink(const Fill& fill) {
  return [fill](Rng& rng, const Shape& shape) {
    Values values = fill(rng, shape);
    for (double& value : values)
      if (std::abs(value - 20) < 1e-3) value = 19.5;
    return values;
  };
}

}  // namespace

std::vector<Case> softplus_cases() {
  // Two functions of CUDA's library, expf and log1pf, each within 1 ulp: twice what the host's give.
  const Budget forward_budget{1e-15, 3e-7}, backward_budget{1e-14, 1e-6};
  const ErrorRule element = ErrorRule::element;
  std::vector<Case> cases = elementwise_cases("softplus",
                                              {
                                                  {.name = "middle",
                                                   .x = normal(0, 3),
                                                   .rule = element,
                                                   .forward = forward_budget,
                                                   .backward = backward_budget,
                                                   .backward_rule = element},
                                                  {.name = "wide",
                                                   .x = without_kink(uniform(-87, 88)),
                                                   .rule = element,
                                                   .forward = forward_budget,
                                                   .backward = backward_budget,
                                                   .backward_rule = element},
                                                  {.name = "above 20",
                                                   .x = uniform(20.01, 1e4),
                                                   .rule = element,
                                                   .forward = forward_budget,
                                                   .backward = backward_budget,
                                                   .backward_rule = element},
                                                  {.name = "vanishing",
                                                   .x = uniform(-760, -90),
                                                   .rule = element,
                                                   .forward = {1e-14, 1e-6},
                                                   .backward = backward_budget,
                                                   .backward_rule = element,
                                                   .differences = false},
                                              },
                                              forward, backward);

  // 20 itself takes the logarithm; the next number above is its own softplus, with slope 1.
  Case kink = cases.front();
  kink.name = "softplus/kink";
  kink.inputs[0].shape = {2};
  kink.inputs[0].fill = [](Rng&, const Shape&) { return Values{20, 20.000002}; };
  kink.outputs[0].shape = {2};
  kink.finite_differences = false;
  kink.in_16_bits = false;  // both are 20 there
  kink.check = [](const std::vector<Values>& outputs, const std::vector<Values>&) -> std::string {
    const double below = outputs[0][0], above = outputs[0][1];
    // log1p(exp(20)) = 20 + 2.06e-9: seen in f64, rounded away in f32.
    if (!(below >= 20 && below - 20 < 3e-9)) return "softplus(20) is not log1p(exp(20))";
    if (!(above == 20.000002 || above == static_cast<double>(20.000002f)))
      return "softplus above 20 is not x";
    return {};
  };
  cases.push_back(kink);
  return cases;
}

}  // namespace scantape::cases
