#include "scantape/projection.h"

#include <cmath>

#include "case.h"
#include "pairwise.h"

namespace scantape::cases {
namespace {

struct Options {
  bool bias = true;
  Layout layout = Layout::dense;
};

ProjectionForward forward_arguments(const Call& call) {
  ProjectionForward args;
  args.x = call.input("x");
  args.weight = call.input("weight");
  args.bias = call.input("bias");
  args.y = call.output("y");
  return args;
}

Status forward(const Call& call) {
  return run(SCANTAPE_DIRECTION(projection_forward), forward_arguments(call), call);
}

Status backward(const Call& call) {
  ProjectionBackward args;
  static_cast<ProjectionForward&>(args) = forward_arguments(call);
  args.y = View();  // not read
  args.d_y = call.cotangent("y");
  args.d_x = call.gradient("x");
  args.d_weight = call.gradient("weight");
  args.d_bias = call.gradient("bias");
  return run(SCANTAPE_DIRECTION(projection_backward), args, call);
}

/// `rows` are the leading dimensions of x.
Case projection_case(const Shape& rows, std::int64_t in, std::int64_t out, const Options& options) {
  Shape x = rows, y = rows;
  x.append(in);
  y.append(out);
  const bool empty = rows.elements() == 0;
  Case c;
  c.op = "projection";
  c.name = "projection/" + scantape::name(rows) + "-" + size_name({{"I", in}, {"O", out}}) + "/" +
           (options.bias ? "bias" : "plain") + "," + name(options.layout);
  c.options = {{"bias", options.bias ? "present" : "absent"}};
  const double scale = 1 / std::sqrt(static_cast<double>(in));
  const bool items = rows.rank() > 0;
  c.inputs = {
      {.name = "x", .shape = x, .fill = normal(), .gradient = true, .items = items, .strided = true},
      {.name = "weight",
       .shape = {out, in},
       .fill = normal(0, scale),
       .gradient = true,
       .zero_gradient = empty,
       .gradient_type = ElementType::wide},
      {.name = "bias",
       .shape = {out},
       .fill = normal(),
       .present = options.bias,
       .gradient = options.bias,
       .zero_gradient = empty,
       .saved = false,
       .gradient_type = ElementType::wide},
  };
  c.outputs = {{.name = "y", .shape = y, .items = items, .strided = true}};
  c.forward = forward;
  c.backward = backward;
  c.layout = options.layout;
  c.finite_differences = !empty;
  c.in_16_bits = true;
  const double products =
      static_cast<double>(rows.elements()) * static_cast<double>(in) * static_cast<double>(out);
  c.forward_operations = 2 * products;
  c.backward_operations = 4 * products;
  return c;
}

/// Largest number of products of a swept case, unless one of the sizes is 1.
constexpr double kMaxProducts = 1e5;

}  // namespace

std::vector<Case> projection_cases() {
  std::vector<Case> cases;
  const auto add = [&](Case c, bool properties) {
    c.properties = properties;
    cases.push_back(std::move(c));
  };
  for (const bool bias : {true, false}) {
    for (const Layout layout : {Layout::dense, Layout::strided, Layout::misaligned})
      add(projection_case({5}, 7, 3, {bias, layout}), true);
    add(projection_case({0}, 5, 4, {bias}), true);  // no rows: gradients of the parameters are zero
    add(projection_case({2, 0}, 3, 2, {bias}), false);
    add(projection_case({}, 6, 5, {bias}), true);  // x is one row
    add(projection_case({2, 3, 4}, 5, 6, {bias}), true);
    add(projection_case({1}, 1, 1, {bias}), true);
    add(projection_case({33}, 17, 65, {bias}), true);
    add(projection_case({130}, 64, 40, {bias}), true);
    add(projection_case({129}, 257, 65, {bias}), false);
  }

  std::vector<std::int64_t> channels = states();
  channels.insert(channels.end(), {31, 512, 1023});
  const std::vector<Layout> layouts = {Layout::dense, Layout::strided, Layout::misaligned};
  const auto at = [](int index) { return static_cast<std::size_t>(index); };
  const auto products = [&](const PairwiseRow& row) {
    return static_cast<double>(lengths()[at(row[0])]) * static_cast<double>(channels[at(row[1])]) *
           static_cast<double>(channels[at(row[2])]);
  };
  const int count = static_cast<int>(channels.size());
  for (const PairwiseRow& row :
       pairwise({static_cast<int>(lengths().size()), count, count, 2, 3}, [&](const PairwiseRow& r) {
         return r[0] == 0 || r[1] == 0 || r[2] == 0 || products(r) <= kMaxProducts;
       }))
    add(projection_case({lengths()[at(row[0])]}, channels[at(row[1])], channels[at(row[2])],
                        {row[3] == 0, layouts[at(row[4])]}),
        false);

  for (const auto& [in, out] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{256, 512}, {512, 16}, {16, 512}, {512, 1}}) {
    add(projection_case({32, 60}, in, out, {true}), false);
    cases.back().benchmark = true;
  }
  for (const auto& [in, out] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1024, 64}, {64, 1024}, {1024, 1}}) {
    add(projection_case({8, 2048}, in, out, {true}), false);
    cases.back().benchmark = true;
  }
  return cases;
}

}  // namespace scantape::cases
