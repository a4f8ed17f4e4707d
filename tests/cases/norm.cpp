#include "norm.h"

#include <cmath>

#include "image.h"
#include "pairwise.h"

namespace scantape::cases {
namespace {

/// What the rows look like. `step` is the scale on which y bends.
struct Regime {
  std::string name;
  Fill x, residual;
  double eps = 1e-5;
  double step = 1;
  bool differences = true;
  bool f64_only = false;
  bool in_16_bits = false, beyond_f16 = false;
};

/// Multiples of 1/64: added to numbers of 1e5, whose f32 are 1/128 apart, they give sums without rounding.
/// The rounding of r belongs to the op, but a mean of 1e5 would make it larger than any error of the norm.
Fill coarse() {
  return [plain = normal()](Rng& rng, const Shape& shape) {
    Values values = plain(rng, shape);
    for (double& value : values) value = std::round(value * 64) / 64;
    return values;
  };
}

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

Regime spread(const std::string& name, double deviation) {
  return {.name = name, .x = normal(0, deviation), .residual = normal(0, deviation)};
}

Regime with(Regime regime, double eps, double step) {
  regime.eps = eps;
  regime.step = step;
  return regime;
}

Regime rough(Regime regime, bool f64_only = false) {
  regime.differences = false;
  regime.f64_only = f64_only;
  return regime;
}

Regime in_16_bits(Regime regime, bool beyond_f16 = false) {
  regime.in_16_bits = true;
  regime.beyond_f16 = beyond_f16;
  return regime;
}

const Regime& unit() {
  static const Regime regime = in_16_bits(spread("unit", 1));
  return regime;
}
const Regime& huge() {
  static const Regime regime = in_16_bits(rough(spread("2^61", 0x1p61)), true);
  return regime;
}
const Regime& tiny() {
  // Squares and eps below f32's normal numbers.
  static const Regime regime = in_16_bits(with(spread("1e-20", 1e-20), 1e-42, 1e-20), true);
  return regime;
}
const Regime& far() {
  static const Regime regime = {.name = "mean 1e5", .x = normal(1e5, 1), .residual = coarse()};
  return regime;
}

std::vector<Regime> regimes(bool centred) {
  std::vector<Regime> list = {unit(), in_16_bits(with(spread("eps", 1e-4), 1e-5, 1e-3)), huge(),
                              rough(spread("1e37", 3e36)), tiny()};
  // Where the mean stays every xh is about 1 there, and a column of y is whatever weight + bias leave.
  if (centred)
    list.insert(list.end(), {far(), {.name = "mean 1e3", .x = normal(1e3, 1), .residual = coarse()}});
  return list;
}

/// How many rows there are. All lengths for one norm are enough: both come from the same kernels.
std::vector<std::int64_t> row_counts(bool centred) {
  if (centred) return lengths();
  return {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 70, 128, 129, 1025};
}

/// Which of the optional arguments a case gives.
struct Options {
  bool residual = false, bias = true;
  bool y_cotangent = true, r_cotangent = true;
  Layout layout = Layout::dense;
};

NormForward forward_arguments(double eps, const Call& call) {
  NormForward args;
  args.x = call.input("x");
  args.residual = call.input("residual");
  args.weight = call.input("weight");
  args.bias = call.input("bias");
  args.eps = eps;
  args.y = call.output("y");
  args.r = call.output("r");
  args.statistics = call.output("statistics");
  return args;
}

Status backward(const Direction<NormBackward>& direction, double eps, const Call& call) {
  NormBackward args;
  static_cast<NormForward&>(args) = forward_arguments(eps, call);
  args.y = View();                                  // not read
  if (args.residual.present) args.x = ConstView();  // r is read instead
  args.d_y = call.cotangent("y");
  args.d_r = call.cotangent("r");
  args.d_x = call.gradient("x");
  args.d_residual = call.gradient("residual");
  args.d_weight = call.gradient("weight");
  args.d_bias = call.gradient("bias");
  return run(direction, args, call);
}

/// Of a row's numbers, the last of which is rstd, those that do not depend on the type: (mean, rstd) or rstd of
/// the row as it is, where a negative rstd says that they are those of the row scaled.
Canonical true_statistics(bool centred) {
  return [centred](const Values& statistics, const Shape&, DType dtype) {
    const int exponent = dtype == DType::f64 ? 600 : 100;
    const std::size_t numbers = centred ? 3 : 1;
    Values result;
    for (std::size_t i = 0; i + numbers <= statistics.size(); i += numbers) {
      const double rstd = statistics[i + numbers - 1];
      const int scale = rstd < 0 ? exponent : 0;
      if (centred) result.push_back(std::ldexp(statistics[i] + statistics[i + 1], scale));
      result.push_back(std::ldexp(std::abs(rstd), -scale));
    }
    return result;
  };
}

/// r is rounded to its type first; the rest follows from that.
void rounded_sum(std::vector<Values>& inputs, DType dtype) {
  for (std::size_t i = 0; i < inputs[0].size(); ++i)
    inputs[0][i] = rounded(inputs[0][i] + inputs[1][i], dtype);
  inputs[1].assign(inputs[1].size(), 0.0);
}

std::string option_names(const Options& options) {
  std::string text;
  if (options.residual) text += "residual,";
  if (!options.bias) text += "no bias,";
  if (!options.y_cotangent) text += "no d_y,";
  if (options.residual && !options.r_cotangent) text += "no d_r,";
  return text + name(options.layout);
}

Case norm_case(const NormOp& op, const Shape& rows, std::int64_t width, Regime regime,
               const Options& options) {
  const bool single = width == 1;
  // The root mean square of one number is that number: but for eps nothing depends on it.
  if (single && !op.centred) regime = in_16_bits(with(spread(regime.name, 1), 1, 1));
  Shape x = rows, statistics = rows, canonical = rows;
  x.append(width);
  statistics.append(op.centred ? 3 : 1);
  canonical.append(op.centred ? 2 : 1);
  Case c;
  c.op = op.name;
  c.name = c.op + "/" + scantape::name(rows) + "-" + size_name({{"E", width}}) + "/" + regime.name + "," +
           option_names(options);
  c.options = {{"residual", options.residual ? "present" : "absent"},
               {"bias", options.bias ? "present" : "absent"}};
  const bool items = rows.rank() > 0, empty = rows.elements() == 0;
  const bool d_r = options.residual && options.r_cotangent, d_y = options.y_cotangent;
  const bool flat = op.centred && single;  // r - mean is 0: only the bias is left
  const Input row{.name = "x",
                  .shape = x,
                  .fill = regime.x,
                  .gradient = true,
                  .zero_gradient = (empty || flat || !d_y) && (empty || !d_r),
                  .items = items,
                  .strided = true,
                  .saved = !options.residual,
                  .step = regime.step};
  Input residual = row;
  residual.name = "residual";
  residual.fill = regime.residual;
  residual.present = residual.gradient = options.residual;
  residual.saved = false;
  c.inputs = {row,
              residual,
              {.name = "weight",
               .shape = {width},
               .fill = normal(1, 0.5),
               .gradient = true,
               .zero_gradient = flat || empty || !d_y,
               .gradient_type = ElementType::wide},
              {.name = "bias",
               .shape = {width},
               .fill = normal(),
               .present = options.bias,
               .gradient = options.bias,
               .zero_gradient = empty || !d_y,
               .saved = false,
               .gradient_type = ElementType::wide}};
  c.outputs = {
      {.name = "y",
       .shape = x,
       .cotangent = d_y,
       .zero = flat && !options.bias,
       .items = items,
       .strided = true,
       .budget = {1e-10, 1e-6}},
      {.name = "r",
       .shape = x,
       .present = options.residual,
       .cotangent = options.r_cotangent,
       .saved = true,
       .items = items,
       .strided = true,
       .budget = {1e-15, 1e-7}},
      {.name = "statistics",
       .shape = statistics,
       .cotangent = false,
       .saved = true,
       .items = items,
       .type = ElementType::wide,
       .canonical = true_statistics(op.centred),
       .canonical_shape = canonical},
  };
  c.forward = [op, eps = regime.eps](const Call& call) {
    return run(op.forward, forward_arguments(eps, call), call);
  };
  c.backward = [op, eps = regime.eps](const Call& call) { return backward(op.backward, eps, call); };
  c.layout = options.layout;
  c.aliases = {{"y", "x"}};
  if (d_y) c.aliases.emplace_back("d_x", "d_y");
  if (options.residual) c.aliases.insert(c.aliases.end(), {{"r", "residual"}, {"y", "residual"}, {"r", "x"}});
  if (d_r) c.aliases.emplace_back("d_residual", "d_r");
  c.finite_differences = regime.differences && !empty;
  c.f64_only = regime.f64_only;
  c.in_16_bits = regime.in_16_bits;
  c.beyond_f16 = regime.beyond_f16;
  if (options.residual) c.as_rounded = rounded_sum;
  const auto elements = static_cast<double>(x.elements());
  c.forward_operations = (op.centred ? 9 : 5) * elements;
  c.backward_operations = (op.centred ? 14 : 10) * elements;
  return c;
}

/// A row of which nothing is left gives exactly the bias: every y is the same in all rows.
std::string rows_are_equal(const std::vector<Values>& outputs, std::size_t width) {
  const Values& y = outputs[0];
  for (std::size_t i = width; i < y.size(); ++i)
    if (!(y[i] == y[i - width])) return "rows of which nothing is left give y that differ from the bias";
  return {};
}

/// Rows of one value each, or of zeros where the mean is not taken off.
Case flat_case(const NormOp& op, double magnitude, std::int64_t width) {
  Regime regime = rough({.name = op.centred ? "equal" : "zero",
                         .x = op.centred ? equal_rows(magnitude) : constant(0),
                         .residual = {}});
  Case c = norm_case(op, {4}, width, regime, {});
  c.name += " " + std::to_string(static_cast<int>(std::log10(magnitude)));
  // xh is 0 in every row, so the weight has no gradient.
  c.inputs[2].zero_gradient = true;
  // Beyond 2^60 f32 leaves eps out and f64 does not: with no variance at all they mean different slopes.
  if (magnitude > 0x1p60) {
    c.inputs[0].gradient = false;
    c.outputs[2].canonical = [](const Values& statistics, const Shape& shape, DType dtype) {
      const Values both = true_statistics(true)(statistics, shape, dtype);
      Values means;
      for (std::size_t i = 0; i < both.size(); i += 2) means.push_back(both[i]);
      return means;
    };
    c.outputs[2].canonical_shape = {4};
  }
  c.check = [width](const std::vector<Values>& outputs, const std::vector<Values>&) {
    return rows_are_equal(outputs, static_cast<std::size_t>(width));
  };
  return c;
}

}  // namespace

std::vector<Case> norm_cases(const NormOp& op) {
  std::vector<Case> cases;
  const auto add = [&](Case c, bool properties) {
    c.properties = properties;
    cases.push_back(std::move(c));
  };
  const std::vector<Regime> all = regimes(op.centred);
  const std::vector<Layout> layouts = {Layout::dense, Layout::strided, Layout::misaligned};
  const Options plain, both{.residual = true};
  for (const Layout layout : layouts) {
    add(norm_case(op, {5}, 7, unit(), {.layout = layout}), true);
    add(norm_case(op, {5}, 7, unit(), {.residual = true, .layout = layout}), true);
  }
  for (const Regime& regime : all) {
    // The others differ in their numbers alone.
    const bool properties = regime.name == "unit" || regime.name == "2^61";
    add(norm_case(op, {3, 2}, 33, regime, plain), properties);
    add(norm_case(op, {}, 40, regime, both), false);
  }
  add(norm_case(op, {70}, 129, unit(), plain), true);
  add(norm_case(op, {3}, 1, unit(), plain), true);
  add(norm_case(op, {3}, 6, unit(), {.residual = true, .y_cotangent = false}), true);
  add(norm_case(op, {3}, 6, unit(), {.residual = true, .bias = false, .r_cotangent = false}), true);
  // A block to a row, forward and backward.
  add(norm_case(op, {2}, 5000, unit(), plain), false);
  add(norm_case(op, {3}, 1100, unit(), both), true);
  add(norm_case(op, {2}, 1030, unit(), {.residual = true, .y_cotangent = false}), false);
  add(norm_case(op, {2}, 1100, huge(), both), false);
  add(norm_case(op, {2}, 1100, tiny(), plain), false);
  add(norm_case(op, {2}, 16384, op.centred ? far() : unit(), plain), false);
  for (const Options& options : {plain, both}) add(norm_case(op, {0}, 5, unit(), options), false);
  const std::vector<Regime> special = {
      in_16_bits(with(spread("eps 1", 0.1), 1, 1)),
      with({.name = "eps 1e-12", .x = normal(3, 1e-3), .residual = {}}, 1e-12, op.centred ? 1e-3 : 1),
      rough(spread("2^501", 0x1p501), true),
      rough(spread("1e300", 1e300), true),
      {.name = "1e-200",
       .x = normal(0, 1e-200),
       .residual = {},
       .eps = 1e-300,
       .differences = false,
       .f64_only = true},
  };
  for (const Regime& regime : special) add(norm_case(op, {6}, 50, regime, plain), false);
  for (const double magnitude : {1.0, 1e6, 1e30})
    for (const std::int64_t width : {1, 3, 512, 1023})
      if (op.centred || (magnitude == 1.0 && width > 1)) add(flat_case(op, magnitude, width), false);

  // The long and wide ones stay one batch deep.
  constexpr std::int64_t kMaxDeep = 40000;
  const std::vector<std::int64_t> counts = row_counts(op.centred);
  const auto at = [](int index) { return static_cast<std::size_t>(index); };
  const auto affordable = [&](const PairwiseRow& row) {
    return row[2] == 0 || counts[at(row[0])] * widths()[at(row[1])] <= kMaxDeep;
  };
  const std::vector<Options> given = {
      plain, both, {.residual = true, .y_cotangent = false}, {.residual = true, .r_cotangent = false}};
  for (const PairwiseRow& row :
       pairwise({static_cast<int>(counts.size()), 4, 2, static_cast<int>(all.size()), 3, 4, 2}, affordable)) {
    const Shape rows = row[2] == 0 ? Shape{counts[at(row[0])]} : Shape{3, counts[at(row[0])]};
    Options options = given[at(row[5])];
    options.layout = layouts[at(row[4])];
    options.bias = row[6] == 0;
    add(norm_case(op, rows, widths()[at(row[1])], all[at(row[3])], options), false);
  }

  for (const Options& options : {plain, both})
    for (const bool large : {false, true}) {
      add(large ? norm_case(op, {8, 2048}, 1024, unit(), options)
                : norm_case(op, {32, 60}, 512, unit(), options),
          false);
      cases.back().benchmark = true;
    }
  return cases;
}

}  // namespace scantape::cases
