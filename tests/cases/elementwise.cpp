#include "elementwise.h"

namespace scantape::cases {

std::vector<Case> elementwise_cases(const std::string& op, const std::vector<ElementwiseRegime>& regimes,
                                    Status (*forward)(const Call&), Status (*backward)(const Call&)) {
  const auto make = [&](const Shape& shape, const ElementwiseRegime& regime, Layout layout) {
    Case c;
    c.op = op;
    c.name = op + "/" + scantape::name(shape) + "/" + regime.name + "," + name(layout);
    const bool items = shape.rank() > 0;
    c.inputs = {{.name = "x",
                 .shape = shape,
                 .fill = regime.x,
                 .gradient = true,
                 .zero_gradient = regime.zero_gradient,
                 .items = items,
                 .strided = true,
                 .step = regime.step,
                 .rule = regime.backward_rule,
                 .budget = regime.backward}};
    c.outputs = {{.name = "y",
                  .shape = shape,
                  .zero = regime.zero,
                  .items = items,
                  .strided = true,
                  .rule = regime.rule,
                  .budget = regime.forward}};
    c.forward = forward;
    c.backward = backward;
    c.layout = layout;
    c.aliases = {{"y", "x"}, {"d_x", "d_y"}};
    c.finite_differences = regime.differences;
    c.in_16_bits = shape.elements() <= 100000;  // larger ones show nothing more
    c.forward_operations = 4.0 * static_cast<double>(shape.elements());
    c.backward_operations = 6.0 * static_cast<double>(shape.elements());
    return c;
  };

  std::vector<Case> cases;
  const auto add = [&](Case c, bool properties) {
    c.properties = properties;
    cases.push_back(std::move(c));
  };
  const std::vector<Layout> layouts = {Layout::dense, Layout::strided, Layout::misaligned};
  for (const Layout layout : layouts) add(make({5, 7}, regimes[0], layout), true);
  for (const ElementwiseRegime& regime : regimes) add(make({3, 2, 37}, regime, Layout::dense), true);
  add(make({}, regimes[0], Layout::dense), false);
  add(make({1500}, regimes[0], Layout::misaligned), true);
  add(make({0, 4}, regimes[0], Layout::dense), false);
  cases.back().finite_differences = false;

  const auto at = [](int index) { return static_cast<std::size_t>(index); };
  for (const PairwiseRow& row :
       pairwise({static_cast<int>(lengths().size()), static_cast<int>(widths().size()),
                 static_cast<int>(regimes.size()), 3})) {
    const Shape shape{lengths()[at(row[0])], widths()[at(row[1])]};
    add(make(shape, regimes[at(row[2])], layouts[at(row[3])]), false);
  }
  for (const Shape& shape : {Shape{32, 60, 512}, Shape{8, 2048, 1024}}) {
    add(make(shape, regimes[0], Layout::dense), false);
    cases.back().benchmark = true;
  }
  return cases;
}

}  // namespace scantape::cases
