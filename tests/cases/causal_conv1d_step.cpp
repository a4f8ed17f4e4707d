#include "scantape/causal_conv1d_step.h"

#include "case.h"
#include "pairwise.h"

namespace scantape::cases {
namespace {

struct Options {
  bool silu = true, bias = true, state = true, new_state = true;
  bool y_cotangent = true, state_cotangent = true;
  Layout layout = Layout::dense;

  Activation activation() const { return silu ? Activation::silu : Activation::none; }
};

CausalConv1dStepForward forward_arguments(const Options& options, const Call& call) {
  CausalConv1dStepForward args;
  args.x = call.input("x");
  args.state = call.input("state");
  args.weight = call.input("weight");
  args.bias = call.input("bias");
  args.activation = options.activation();
  args.y = call.output("y");
  args.new_state = call.output("new_state");
  return args;
}

Status forward(const Options& options, const Call& call) {
  return run(SCANTAPE_DIRECTION(causal_conv1d_step_forward), forward_arguments(options, call), call);
}

Status backward(const Options& options, const Call& call) {
  CausalConv1dStepBackward args;
  static_cast<CausalConv1dStepForward&>(args) = forward_arguments(options, call);
  args.y = args.new_state = View();  // not read
  args.d_y = call.cotangent("y");
  args.d_new_state = call.cotangent("new_state");
  args.d_x = call.gradient("x");
  args.d_state = call.gradient("state");
  args.d_weight = call.gradient("weight");
  args.d_bias = call.gradient("bias");
  return run(SCANTAPE_DIRECTION(causal_conv1d_step_backward), args, call);
}

Case step_case(std::int64_t batch, std::int64_t channels, std::int64_t taps, const Options& options) {
  const Shape row{batch, channels}, state{batch, taps - 1, channels};
  const bool empty = batch == 0;
  const bool d_state = options.new_state && options.state_cotangent && taps > 1;
  Case c;
  c.op = "causal_conv1d_step";
  c.name =
      c.op + "/" + size_name({{"B", batch}, {"C", channels}, {"K", taps}}) + "/" +
      name(options.activation()) + (options.bias ? "" : ",no bias") + (options.state ? "" : ",no state") +
      (options.new_state ? "" : ",no new state") + (options.y_cotangent ? "" : ",no d_y") +
      (options.new_state && !options.state_cotangent ? ",no d_new_state" : "") + "," + name(options.layout);
  c.options = {{"activation", name(options.activation())},
               {"bias", options.bias ? "present" : "absent"},
               {"state", options.state ? "present" : "absent"},
               {"new_state", options.new_state ? "present" : "absent"}};
  c.inputs = {
      {.name = "x",
       .shape = row,
       .fill = normal(),
       .gradient = true,
       .zero_gradient = !options.y_cotangent && !d_state,
       .items = true,
       .strided = true},
      {.name = "state",
       .shape = state,
       .fill = normal(),
       .present = options.state,
       .gradient = taps > 1,
       .zero_gradient = !options.y_cotangent && (!d_state || taps == 2),
       .items = true},
      {.name = "weight",
       .shape = {channels, taps},
       .fill = normal(0, 0.7),
       .gradient = true,
       .zero_gradient = empty || !options.y_cotangent,
       .gradient_type = ElementType::wide},
      {.name = "bias",
       .shape = {channels},
       .fill = normal(0, 0.5),
       .present = options.bias,
       .gradient = options.bias,
       .zero_gradient = empty || !options.y_cotangent,
       .gradient_type = ElementType::wide},
  };
  c.outputs = {
      {.name = "y", .shape = row, .cotangent = options.y_cotangent, .items = true, .strided = true},
      {.name = "new_state",
       .shape = state,
       .present = options.new_state,
       .cotangent = options.new_state && options.state_cotangent,
       .items = true},
  };
  c.forward = [options](const Call& call) { return forward(options, call); };
  c.backward = [options](const Call& call) { return backward(options, call); };
  c.layout = options.layout;
  if (options.state && options.new_state && taps > 1 && !empty) c.aliases = {{"new_state", "state"}};
  c.finite_differences = !empty;
  c.in_16_bits = true;
  const auto elements = static_cast<double>(row.elements()), terms = static_cast<double>(taps);
  c.forward_operations = (2 * terms + 10) * elements;
  c.backward_operations = (6 * terms + 10) * elements;
  return c;
}

}  // namespace

std::vector<Case> causal_conv1d_step_cases() {
  std::vector<Case> cases;
  const auto add = [&](Case c, bool properties) {
    c.properties = properties;
    cases.push_back(std::move(c));
  };
  const std::vector<Layout> layouts = {Layout::dense, Layout::strided, Layout::misaligned};
  const auto at = [](int index) { return static_cast<std::size_t>(index); };
  for (const std::int64_t taps : {1, 2, 4, 5, 16}) {
    for (const Layout layout : layouts) add(step_case(3, 5, taps, {.layout = layout}), true);
    add(step_case(2, 4, taps, {.y_cotangent = false}), taps > 2);
    add(step_case(2, 4, taps, {.state_cotangent = false}), true);
    add(step_case(2, 4, taps, {.state = false}), true);
    add(step_case(0, 3, taps, {}), false);
  }
  const std::vector<std::int64_t> batches = {1, 2, 40}, channels = {1, 3, 31, 64, 100};
  for (const PairwiseRow& row : pairwise({16, 3, 5, 2, 2, 2, 2, 3}))
    add(step_case(batches[at(row[1])], channels[at(row[2])], row[0] + 1,
                  {.silu = row[3] == 0,
                   .bias = row[4] == 0,
                   .state = row[5] == 0,
                   .new_state = row[6] == 0,
                   .layout = layouts[at(row[7])]}),
        false);
  for (const std::int64_t batch : {1, 64}) {
    add(step_case(batch, 1152, 4, {}), false);
    cases.back().benchmark = true;
  }
  return cases;
}

}  // namespace scantape::cases
