#include "scantape/gated_rms_norm.h"

#include <cmath>

#include "case.h"
#include "pairwise.h"

namespace scantape::cases {
namespace {

/// What the rows look like. `step` is the scale on which y bends with x.
struct Regime {
  const char* name;
  Fill x = normal();
  double eps = 1e-5, step = 1;
  bool differences = true, in_16_bits = true, beyond_f16 = false, f64_only = false, zero = false;
};

const Regime& unit() {
  static const Regime regime{.name = "unit"};
  return regime;
}

const std::vector<Regime>& regimes() {
  static const std::vector<Regime> list = {
      unit(),
      {.name = "eps", .x = normal(0, 1e-4), .step = 1e-3},
      {.name = "2^62", .x = normal(0, 0x1p62), .differences = false, .beyond_f16 = true},
      {.name = "1e36", .x = normal(0, 3e35), .differences = false, .in_16_bits = false},
      // Squares and eps below f32's normal numbers.
      {.name = "1e-20", .x = normal(0, 1e-20), .eps = 1e-42, .step = 1e-20, .beyond_f16 = true},
  };
  return list;
}

struct Options {
  std::int64_t groups = 1;
  bool z = true, norm_before_gate = false;
  Layout layout = Layout::dense;
};

GatedRmsNormForward forward_arguments(const Options& options, double eps, const Call& call) {
  GatedRmsNormForward args;
  args.x = call.input("x");
  args.z = call.input("z");
  args.weight = call.input("weight");
  args.groups = options.groups;
  args.norm_before_gate = options.norm_before_gate;
  args.eps = eps;
  args.y = call.output("y");
  args.statistics = call.output("statistics");
  return args;
}

Status backward(const Options& options, double eps, const Call& call) {
  GatedRmsNormBackward args;
  static_cast<GatedRmsNormForward&>(args) = forward_arguments(options, eps, call);
  args.y = View();  // not read
  args.d_y = call.cotangent("y");
  args.d_x = call.gradient("x");
  args.d_z = call.gradient("z");
  args.d_weight = call.gradient("weight");
  return run(SCANTAPE_DIRECTION(gated_rms_norm_backward), args, call);
}

/// rstd of the group as it is, where a negative one says that it is that of the group scaled.
Values true_rstd(const Values& statistics, const Shape&, DType dtype) {
  Values result;
  for (const double rstd : statistics)
    result.push_back(std::ldexp(std::abs(rstd), rstd < 0 ? (dtype == DType::f64 ? -600 : -100) : 0));
  return result;
}

Case gated_case(const Shape& rows, std::int64_t width, Regime regime, const Options& options) {
  // The root mean square of one number is that number: but for eps nothing depends on it.
  if (width == options.groups) {
    const char* const name = regime.name;
    regime = unit();
    regime.name = name;
    regime.eps = 1;
  }
  Shape x = rows, statistics = rows;
  x.append(width);
  statistics.append(options.groups);
  const bool items = rows.rank() > 0, empty = rows.elements() == 0;
  Case c;
  c.op = "gated_rms_norm";
  c.name = c.op + "/" + scantape::name(rows) + "-" + size_name({{"S", width}, {"G", options.groups}}) + "/" +
           regime.name + (options.z ? "" : ",no z") + (options.norm_before_gate ? ",norm first" : "") + "," +
           name(options.layout);
  c.options = {{"z", options.z ? "present" : "absent"},
               {"norm_before_gate", options.norm_before_gate ? "yes" : "no"}};
  c.inputs = {{.name = "x",
               .shape = x,
               .fill = regime.x,
               .gradient = true,
               .zero_gradient = empty,
               .items = items,
               .strided = true,
               .step = regime.step},
              {.name = "z",
               .shape = x,
               .fill = normal(0, 1.5),
               .present = options.z,
               .gradient = options.z,
               .zero_gradient = empty || regime.zero,
               .items = items,
               .strided = true},
              {.name = "weight",
               .shape = {width},
               .fill = normal(1, 0.5),
               .gradient = true,
               .zero_gradient = empty || regime.zero,
               .gradient_type = ElementType::wide}};
  c.outputs = {{.name = "y",
                .shape = x,
                .zero = regime.zero,
                .items = items,
                .strided = true,
                .budget = {1e-10, 2e-6}},
               {.name = "statistics",
                .shape = statistics,
                .cotangent = false,
                .saved = true,
                .items = items,
                .type = ElementType::wide,
                .canonical = true_rstd,
                .canonical_shape = statistics}};
  c.forward = [options, eps = regime.eps](const Call& call) {
    return run(SCANTAPE_DIRECTION(gated_rms_norm_forward), forward_arguments(options, eps, call), call);
  };
  c.backward = [options, eps = regime.eps](const Call& call) { return backward(options, eps, call); };
  c.layout = options.layout;
  c.aliases = {{"y", "x"}, {"d_x", "d_y"}};
  if (options.z) c.aliases.insert(c.aliases.end(), {{"y", "z"}, {"d_z", "d_y"}});
  c.finite_differences = regime.differences && !empty;
  c.f64_only = regime.f64_only;
  c.in_16_bits = regime.in_16_bits;
  c.beyond_f16 = regime.beyond_f16;
  const auto elements = static_cast<double>(x.elements());
  c.forward_operations = (options.z ? 15 : 5) * elements;
  c.backward_operations = (options.z ? 36 : 10) * elements;
  return c;
}

}  // namespace

std::vector<Case> gated_rms_norm_cases() {
  std::vector<Case> cases;
  const auto add = [&](Case c, bool properties) {
    c.properties = properties;
    cases.push_back(std::move(c));
  };
  const std::vector<Layout> layouts = {Layout::dense, Layout::strided, Layout::misaligned};
  const auto at = [](int index) { return static_cast<std::size_t>(index); };

  // Either order and no gate, in each kernel: few columns, more, more than forward's or backward's registers hold.
  for (const bool norm_before_gate : {false, true})
    for (const bool z : {true, false}) {
      const Options plain{.z = z, .norm_before_gate = norm_before_gate};
      Options grouped = plain;
      for (const Layout layout : layouts) {
        grouped.groups = 3;
        grouped.layout = layout;
        add(gated_case({5}, 12, unit(), grouped), layout == Layout::dense);
        add(gated_case({3, 2}, 15, unit(), grouped), true);
      }
      grouped = plain;
      for (const Regime& regime : regimes())
        add(gated_case({4}, 33, regime, plain), regime.name == unit().name);
      for (const std::int64_t columns : {1, 300, 700, 1100}) {
        grouped.groups = 3;
        add(gated_case({2}, 3 * columns, unit(), grouped), columns < 700);
        add(gated_case({3}, columns, unit(), plain), columns == 1100);
      }
      grouped.groups = 2;
      add(gated_case({2}, 2 * 1100, regimes()[2], grouped), false);
      add(gated_case({2}, 2 * 1100, regimes()[4], grouped), false);
      // Packs that lie in two groups.
      add(gated_case({3}, 2 * 1030 + 2, unit(), grouped), false);
      add(gated_case({0}, 6, unit(), grouped), false);
      add(gated_case({}, 40, unit(), grouped), false);
      add(gated_case({70}, 128, unit(), grouped), false);
      Regime zero{.name = "zero", .x = constant(0), .differences = false, .zero = true};
      add(gated_case({3}, 8, zero, grouped), false);
    }
  add(gated_case({2}, 2200, unit(), {.groups = 1100}), false);  // more groups than blocks along them

  // Any width, and groups of 1 to all channels.
  const std::vector<std::int64_t> counts = {1, 7, 16, 33, 129};
  const std::vector<std::vector<std::int64_t>> sizes = {{1, 1},    {31, 1},    {31, 31},   {512, 1},
                                                        {512, 2},  {512, 8},   {512, 512}, {1023, 1},
                                                        {1023, 3}, {1023, 11}, {64, 4},    {96, 6}};
  for (const PairwiseRow& row : pairwise({5, 12, 2, 2, 5, 3})) {
    const std::vector<std::int64_t>& size = sizes[at(row[1])];
    add(gated_case({counts[at(row[0])]}, size[0], regimes()[at(row[4])],
                   {.groups = size[1],
                    .z = row[2] == 0,
                    .norm_before_gate = row[3] == 1,
                    .layout = layouts[at(row[5])]}),
        false);
  }

  for (const std::int64_t groups : {1, 8}) {
    add(gated_case({32, 60}, 512, unit(), {.groups = groups}), false);
    cases.back().benchmark = true;
    add(gated_case({8, 2048}, 1024, unit(), {.groups = groups}), false);
    cases.back().benchmark = true;
  }
  return cases;
}

}  // namespace scantape::cases
