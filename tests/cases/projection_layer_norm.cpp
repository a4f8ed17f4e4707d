#include "scantape/projection_layer_norm.h"

#include <array>
#include <cmath>

#include "case.h"
#include "pairwise.h"

namespace scantape::cases {
namespace {

struct Options {
  bool bias = true, norm_bias = true;
  Layout layout = Layout::dense;
  double mean = 0;  // of what the bias adds
};

ProjectionLayerNormForward forward_arguments(const Call& call) {
  ProjectionLayerNormForward args;
  args.x = call.input("x");
  args.weight = call.input("weight");
  args.bias = call.input("bias");
  args.norm_weight = call.input("norm_weight");
  args.norm_bias = call.input("norm_bias");
  args.y = call.output("y");
  args.statistics = call.output("statistics");
  return args;
}

Status forward(const Call& call) {
  return run(SCANTAPE_DIRECTION(projection_layer_norm_forward), forward_arguments(call), call);
}

Status backward(const Call& call) {
  ProjectionLayerNormBackward args;
  static_cast<ProjectionLayerNormForward&>(args) = forward_arguments(call);
  args.y = View();  // not read
  args.d_y = call.cotangent("y");
  args.d_x = call.gradient("x");
  args.d_weight = call.gradient("weight");
  args.d_bias = call.gradient("bias");
  args.d_norm_weight = call.gradient("norm_weight");
  args.d_norm_bias = call.gradient("norm_bias");
  return run(SCANTAPE_DIRECTION(projection_layer_norm_backward), args, call);
}

/// (mean + correction, rstd) of each row.
Values joined_means(const Values& statistics, const Shape&, DType) {
  Values result;
  for (std::size_t i = 0; i + 2 < statistics.size(); i += 3) {
    result.push_back(statistics[i] + statistics[i + 1]);
    result.push_back(statistics[i + 2]);
  }
  return result;
}

/// A vector of the width, present or not.
Input vector(const char* name, std::int64_t width, Fill fill, bool present, bool zero_gradient) {
  return {.name = name,
          .shape = {width},
          .fill = std::move(fill),
          .present = present,
          .gradient = present,
          .zero_gradient = zero_gradient};
}

/// `rows` are the leading dimensions of x.
Case fused_case(const Shape& rows, std::int64_t in, std::int64_t width, Options options) {
  // Else all rows of p are multiples of one: but for eps they are normalised to the same, and x has no gradient.
  if (in == 1) options.bias = true;
  Shape x = rows, y = rows, statistics = rows, canonical = rows;
  x.append(in);
  y.append(width);
  statistics.append(3);
  canonical.append(2);
  Case c;
  c.op = "projection_layer_norm";
  c.name = c.op + "/" + scantape::name(rows) + "-" + size_name({{"I", in}, {"E", width}}) + "/" +
           (options.mean != 0 ? "mean " + std::to_string(static_cast<int>(options.mean)) + "," : "") +
           (options.bias ? "" : "no bias,") + (options.norm_bias ? "" : "no norm_bias,") +
           name(options.layout);
  c.options = {{"bias", options.bias ? "present" : "absent"},
               {"norm_bias", options.norm_bias ? "present" : "absent"}};
  const bool items = rows.rank() > 0, empty = rows.elements() == 0;
  const bool flat = width == 1 || empty;  // p less its mean is 0: only norm_bias is left
  // The products' own rounding is u |p|: the norm makes it u mean/std. That is the op's accuracy, not a fault of it.
  const double rounding = 1 + options.mean;
  c.inputs = {
      {.name = "x",
       .shape = x,
       .fill = normal(),
       .gradient = true,
       .zero_gradient = flat,
       .items = items,
       .strided = true,
       .budget = {1e-10, 1e-4 * rounding}},
      {.name = "weight",
       .shape = {width, in},
       .fill = normal(0, 1 / std::sqrt(static_cast<double>(in))),
       .gradient = true,
       .zero_gradient = flat,
       .budget = {1e-10, 1e-4 * rounding}},
      vector("bias", width, normal(options.mean, 1), options.bias, flat),
      vector("norm_weight", width, normal(1, 0.5), true, flat),
      vector("norm_bias", width, normal(), options.norm_bias, empty),
  };
  c.inputs.back().saved = false;
  c.outputs = {
      {.name = "y",
       .shape = y,
       .zero = flat && !options.norm_bias,
       .items = items,
       .strided = true,
       .budget = {1e-10, 1e-5 * rounding}},
      {.name = "statistics",
       .shape = statistics,
       .cotangent = false,
       .saved = true,
       .items = items,
       .budget = {1e-10, 1e-5 * rounding},
       .canonical = joined_means,
       .canonical_shape = canonical},
  };
  c.forward = forward;
  c.backward = backward;
  c.layout = options.layout;
  c.finite_differences = !empty;
  const double outputs = static_cast<double>(rows.elements()) * static_cast<double>(width);
  const double products = outputs * static_cast<double>(in);
  c.forward_operations = 2 * products + 9 * outputs;
  c.backward_operations = 6 * products + 14 * outputs;
  return c;
}

/// Largest number of products of a swept case.
constexpr double kMaxProducts = 1e5;

}  // namespace

std::vector<Case> projection_layer_norm_cases() {
  std::vector<Case> cases;
  const auto add = [&](Case c, bool properties) {
    c.properties = properties;
    cases.push_back(std::move(c));
  };
  const std::vector<Layout> layouts = {Layout::dense, Layout::strided, Layout::misaligned};
  for (const Layout layout : layouts) add(fused_case({5}, 7, 3, {.layout = layout}), true);
  for (const bool bias : {true, false})
    for (const bool norm_bias : {true, false}) {
      const Options options{.bias = bias, .norm_bias = norm_bias};
      add(fused_case({0}, 5, 4, options), true);  // no rows: gradients of the parameters are zero
      add(fused_case({}, 6, 5, options), true);   // x is one row
      add(fused_case({2, 3, 4}, 5, 6, options), true);
      add(fused_case({3}, 4, 1, options), true);
    }
  add(fused_case({6}, 0, 5, {}), false);  // nothing to sum: p is the bias, the same in every row
  for (Input& input : cases.back().inputs) input.zero_gradient = input.shape.elements() == 0;
  add(fused_case({70}, 9, 130, {}),
      true);  // two parts of rows, two strips of columns, tiles that are not full
  add(fused_case({6}, 12, 40, {.mean = 1000}), false);
  // One of each tile: 16, 8, 4, 2 and 1 rows.
  for (const auto& [rows, in, width] : std::vector<std::array<std::int64_t, 3>>{
           {37, 17, 400}, {19, 9, 1001}, {9, 5, 1500}, {5, 3, 4096}, {3, 3, 4097}, {2, 2, 16384}})
    add(fused_case({rows}, in, width, {}), false);
  add(fused_case({3}, 3, 5000, {.layout = Layout::misaligned}), false);

  const std::vector<std::int64_t> rows = {1, 2, 7, 8, 9, 31, 32, 33, 64, 65, 129, 257, 1025};
  const std::vector<std::int64_t> depths = {1, 3, 16, 17, 64, 100, 512};
  const auto at = [](int index) { return static_cast<std::size_t>(index); };
  const auto affordable = [&](const PairwiseRow& row) {
    return row[0] == 0 || row[1] == 0 || row[2] == 0 ||
           static_cast<double>(rows[at(row[0])] * depths[at(row[1])] * widths()[at(row[2])]) <= kMaxProducts;
  };
  for (const PairwiseRow& row : pairwise({static_cast<int>(rows.size()), static_cast<int>(depths.size()),
                                          static_cast<int>(widths().size()), 2, 2, 3},
                                         affordable))
    add(fused_case({rows[at(row[0])]}, depths[at(row[1])], widths()[at(row[2])],
                   {.bias = row[3] == 0, .norm_bias = row[4] == 0, .layout = layouts[at(row[5])]}),
        false);

  for (const bool large : {false, true}) {
    add(large ? fused_case({8, 2048}, 64, 1024, {}) : fused_case({32, 60}, 256, 512, {}), false);
    cases.back().benchmark = true;
  }
  return cases;
}

}  // namespace scantape::cases
