#include "scantape/layer_norm.h"

#include <cmath>

#include "case.h"
#include "pairwise.h"

namespace scantape::cases {
namespace {

/// What the rows look like. `step` is the scale on which y bends.
struct Regime {
  const char* name;
  Fill x;
  double eps = 1e-5;
  double step = 1;
  bool differences = true;
  bool f64_only = false;
};

/// Every row holds one value, another in each row.
Fill equal_rows(double magnitude) {
  return [magnitude](Rng& rng, const Shape& shape) {
    Values values;
    const std::int64_t length = shape.back();
    for (std::int64_t row = 0; row < shape.elements() / length; ++row)
      values.insert(values.end(), static_cast<std::size_t>(length),
                    magnitude * rng.uniform(0.5, 1.5) * rng.sign());
    return values;
  };
}

const std::vector<Regime>& regimes() {
  static const std::vector<Regime> list = {
      {.name = "unit", .x = normal()},
      {.name = "mean 1e3", .x = normal(1e3, 1)},
      {.name = "mean 1e5", .x = normal(1e5, 1)},
      {.name = "eps", .x = normal(0, 1e-4), .step = 1e-3},  // variance 1e-8 under an eps of 1e-5
      {.name = "2^61", .x = normal(0, 0x1p61), .differences = false},
      {.name = "1e37", .x = normal(0, 3e36), .differences = false},
  };
  return list;
}

template <class Function>
auto with_eps(double eps, Function function) {
  return [eps, function](const Call& call) { return function(eps, call); };
}

LayerNormForward forward_arguments(double eps, const Call& call) {
  LayerNormForward args;
  args.x = call.input("x");
  args.weight = call.input("weight");
  args.bias = call.input("bias");
  args.eps = eps;
  args.y = call.output("y");
  args.statistics = call.output("statistics");
  return args;
}

Status forward(double eps, const Call& call) {
  return run(SCANTAPE_DIRECTION(layer_norm_forward), forward_arguments(eps, call), call);
}

Status backward(double eps, const Call& call) {
  LayerNormBackward args;
  static_cast<LayerNormForward&>(args) = forward_arguments(eps, call);
  args.y = View();  // not read
  args.d_y = call.cotangent("y");
  args.d_x = call.gradient("x");
  args.d_weight = call.gradient("weight");
  args.d_bias = call.gradient("bias");
  return run(SCANTAPE_DIRECTION(layer_norm_backward), args, call);
}

/// (mean, correction, rstd) of the row as it is or, where rstd is negative, scaled: (mean, rstd) of the row
/// as it is.
Values true_statistics(const Values& statistics, const Shape&, DType dtype) {
  const int exponent = dtype == DType::f64 ? 600 : 100;
  Values result;
  for (std::size_t i = 0; i + 2 < statistics.size(); i += 3) {
    const bool is_scaled = statistics[i + 2] < 0;
    const double mean = statistics[i] + statistics[i + 1], rstd = std::abs(statistics[i + 2]);
    result.push_back(is_scaled ? std::ldexp(mean, exponent) : mean);
    result.push_back(is_scaled ? std::ldexp(rstd, -exponent) : rstd);
  }
  return result;
}

Case layer_norm_case(const Shape& rows, std::int64_t width, const Regime& regime, Layout layout) {
  Shape x = rows, statistics = rows, canonical = rows;
  x.append(width);
  statistics.append(3);
  canonical.append(2);
  Case c;
  c.op = "layer_norm";
  c.name = "layer_norm/" + scantape::name(rows) + "-" + size_name({{"E", width}}) + "/" + regime.name + "," +
           name(layout);
  const bool items = rows.rank() > 0;
  const bool single = width == 1;  // x - mean is 0: only the bias is left
  c.inputs = {
      {.name = "x",
       .shape = x,
       .fill = regime.x,
       .gradient = true,
       .zero_gradient = single,
       .items = items,
       .strided = true,
       .step = regime.step},
      {.name = "weight", .shape = {width}, .fill = normal(1, 0.5), .gradient = true, .zero_gradient = single},
      {.name = "bias", .shape = {width}, .fill = normal(), .gradient = true, .saved = false},
  };
  c.outputs = {
      {.name = "y", .shape = x, .items = items, .strided = true, .budget = {1e-10, 1e-6}},
      {.name = "statistics",
       .shape = statistics,
       .cotangent = false,
       .saved = true,
       .items = items,
       .canonical = true_statistics,
       .canonical_shape = canonical},
  };
  c.forward = with_eps(regime.eps, forward);
  c.backward = with_eps(regime.eps, backward);
  c.layout = layout;
  c.aliases = {{"y", "x"}, {"d_x", "d_y"}};
  c.finite_differences = regime.differences;
  c.f64_only = regime.f64_only;
  const auto elements = static_cast<double>(x.elements());
  c.forward_operations = 9 * elements;
  c.backward_operations = 14 * elements;
  return c;
}

/// A row of equal values is normalised to exactly 0: every y is the bias, the same in all rows.
std::string rows_are_equal(const std::vector<Values>& outputs, std::size_t width) {
  const Values& y = outputs[0];
  for (std::size_t i = width; i < y.size(); ++i)
    if (!(y[i] == y[i - width])) return "rows of equal values give y that differ from the bias";
  return {};
}

}  // namespace

std::vector<Case> layer_norm_cases() {
  std::vector<Case> cases;
  const auto add = [&](Case c, bool properties) {
    c.properties = properties;
    cases.push_back(std::move(c));
  };
  const std::vector<Layout> layouts = {Layout::dense, Layout::strided, Layout::misaligned};
  for (const Layout layout : layouts) add(layer_norm_case({5}, 7, regimes()[0], layout), true);
  for (const Regime& regime : regimes()) {
    add(layer_norm_case({3, 2}, 33, regime, Layout::dense), true);
    add(layer_norm_case({}, 40, regime, Layout::dense), false);
  }
  add(layer_norm_case({70}, 129, regimes()[0], Layout::dense), true);
  add(layer_norm_case({3}, 1, regimes()[0], Layout::dense), true);
  add(layer_norm_case({2}, 5000, regimes()[0], Layout::dense), false);
  add(layer_norm_case({0}, 5, regimes()[0], Layout::dense), false);
  cases.back().finite_differences = false;
  for (Input& input : cases.back().inputs) input.zero_gradient = true;
  const std::vector<Regime> special = {
      {.name = "eps 1", .x = normal(0, 0.1), .eps = 1},
      {.name = "eps 1e-12", .x = normal(3, 1e-3), .eps = 1e-12, .step = 1e-3},
      {.name = "2^501", .x = normal(0, 0x1p501), .differences = false, .f64_only = true},
      {.name = "1e300", .x = normal(0, 1e300), .differences = false, .f64_only = true},
  };
  for (const Regime& regime : special) add(layer_norm_case({6}, 50, regime, Layout::dense), false);
  for (const double magnitude : {1.0, 1e6, 1e30})
    for (const std::int64_t width : {1, 3, 512, 1023}) {
      Case c = layer_norm_case(
          {4}, width, {.name = "equal", .x = equal_rows(magnitude), .differences = false}, Layout::dense);
      c.name += " " + std::to_string(static_cast<int>(std::log10(magnitude)));
      // xh is 0 in every row, so the weight has no gradient.
      c.inputs[1].zero_gradient = true;
      // Beyond 2^60 f32 leaves eps out and f64 does not: with no variance at all they mean different slopes.
      if (magnitude > 0x1p60) {
        c.inputs[0].gradient = false;
        c.outputs[1].canonical = [](const Values& statistics, const Shape& shape, DType dtype) {
          const Values both = true_statistics(statistics, shape, dtype);
          Values means;
          for (std::size_t i = 0; i < both.size(); i += 2) means.push_back(both[i]);
          return means;
        };
        c.outputs[1].canonical_shape = {4};
      }
      c.check = [width](const std::vector<Values>& outputs, const std::vector<Values>&) {
        return rows_are_equal(outputs, static_cast<std::size_t>(width));
      };
      add(std::move(c), false);
    }

  // The long and wide ones stay one batch deep.
  constexpr std::int64_t kMaxDeep = 40000;
  const auto at = [](int index) { return static_cast<std::size_t>(index); };
  const auto affordable = [&](const PairwiseRow& row) {
    return row[2] == 0 || lengths()[at(row[0])] * widths()[at(row[1])] <= kMaxDeep;
  };
  const int regime_count = static_cast<int>(regimes().size());
  for (const PairwiseRow& row :
       pairwise({static_cast<int>(lengths().size()), 4, 2, regime_count, 3}, affordable)) {
    const Shape rows = row[2] == 0 ? Shape{lengths()[at(row[0])]} : Shape{3, lengths()[at(row[0])]};
    add(layer_norm_case(rows, widths()[at(row[1])], regimes()[at(row[3])], layouts[at(row[4])]), false);
  }

  add(layer_norm_case({32, 60}, 512, regimes()[0], Layout::dense), false);
  cases.back().benchmark = true;
  return cases;
}

}  // namespace scantape::cases
