#include "scantape/state_output.h"

#include "case.h"
#include "pairwise.h"

namespace scantape::cases {
namespace {

StateOutputForward forward_arguments(Activation activation, const Call& call) {
  StateOutputForward args;
  args.z = call.input("z");
  args.u = call.input("u");
  args.D = call.input("D");
  args.residual = call.input("residual");
  args.activation = activation;
  args.out = call.output("out");
  return args;
}

Status forward(Activation activation, const Call& call) {
  return run(SCANTAPE_DIRECTION(state_output_forward), forward_arguments(activation, call), call);
}

Status backward(Activation activation, const Call& call) {
  StateOutputBackward args;
  static_cast<StateOutputForward&>(args) = forward_arguments(activation, call);
  args.residual = ConstView();  // not read
  args.out = View();
  args.d_out = call.cotangent("out");
  args.d_z = call.gradient("z");
  args.d_u = call.gradient("u");
  args.d_D = call.gradient("D");
  args.d_residual = call.gradient("residual");
  return run(SCANTAPE_DIRECTION(state_output_backward), args, call);
}

/// `scale` of z: small ones sit in silu's bend, large ones in its straight and flat parts.
Case state_output_case(const Shape& rows, std::int64_t width, Activation activation, double scale,
                       Layout layout) {
  Shape shape = rows;
  shape.append(width);
  const bool empty = shape.elements() == 0;
  const bool items = rows.rank() > 0;
  Case c;
  c.op = "state_output";
  c.name = "state_output/" + scantape::name(rows) + "-" + size_name({{"E", width}}) + "/" +
           scantape::name(activation) + (scale > 1 ? ",wide" : "") + "," + name(layout);
  c.options = {{"activation", scantape::name(activation)}};
  const auto tensor = [&](const char* argument, const Fill& fill, bool saved) {
    return Input{.name = argument,
                 .shape = shape,
                 .fill = fill,
                 .gradient = true,
                 .items = items,
                 .strided = true,
                 .saved = saved};
  };
  c.inputs = {
      // A slice that lies in silu's flat part alone has a gradient below the rounding of the outputs.
      tensor("z", scale > 1 ? both_signs(normal(0, scale)) : normal(0, scale), true),
      tensor("u", normal(), true),
      Input{.name = "D", .shape = {width}, .fill = normal(), .gradient = true, .zero_gradient = empty},
      tensor("residual", normal(), false)};
  c.outputs = {{.name = "out", .shape = shape, .items = items, .strided = true, .budget = {1e-13, 2e-6}}};
  c.forward = [activation](const Call& call) { return forward(activation, call); };
  c.backward = [activation](const Call& call) { return backward(activation, call); };
  c.layout = layout;
  c.aliases = {{"out", "z"}, {"out", "residual"}};
  c.finite_differences = !empty;
  c.forward_operations = 8.0 * static_cast<double>(shape.elements());
  c.backward_operations = 12.0 * static_cast<double>(shape.elements());
  return c;
}

}  // namespace

std::vector<Case> state_output_cases() {
  std::vector<Case> cases;
  const auto add = [&](Case c, bool properties) {
    c.properties = properties;
    cases.push_back(std::move(c));
  };
  const std::vector<Layout> layouts = {Layout::dense, Layout::strided, Layout::misaligned};
  for (const Activation activation : {Activation::silu, Activation::none}) {
    for (const Layout layout : layouts) add(state_output_case({5}, 7, activation, 1, layout), true);
    add(state_output_case({2, 3}, 40, activation, 30, Layout::dense), true);
    add(state_output_case({}, 9, activation, 1, Layout::dense), false);
    add(state_output_case({0}, 3, activation, 1, Layout::dense), false);
    add(state_output_case({150}, 33, activation, 1, Layout::dense), true);
  }
  constexpr std::int64_t kMaxDeep = 40000;
  const auto at = [](int index) { return static_cast<std::size_t>(index); };
  const auto affordable = [&](const PairwiseRow& row) {
    return row[2] == 0 || lengths()[at(row[0])] * widths()[at(row[1])] <= kMaxDeep;
  };
  for (const PairwiseRow& row : pairwise({static_cast<int>(lengths().size()), 4, 2, 2, 2, 3}, affordable)) {
    const std::int64_t length = lengths()[at(row[0])];
    add(state_output_case(row[2] == 0 ? Shape{length} : Shape{3, length}, widths()[at(row[1])],
                          row[3] == 0 ? Activation::silu : Activation::none, row[4] == 0 ? 1 : 30,
                          layouts[at(row[5])]),
        false);
  }
  for (const bool large : {false, true}) {
    add(large ? state_output_case({8, 2048}, 1024, Activation::silu, 1, Layout::dense)
              : state_output_case({32, 60}, 512, Activation::silu, 1, Layout::dense),
        false);
    cases.back().benchmark = true;
  }
  return cases;
}

}  // namespace scantape::cases
