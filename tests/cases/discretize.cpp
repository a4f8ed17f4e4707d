#include "scantape/discretize.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "case.h"
#include "pairwise.h"

namespace scantape::cases {
namespace {

/// Which outputs have a cotangent.
struct Cotangents {
  const char* name;
  bool A_bar, B_bar, F;
};

struct Options {
  DiscretizeMethod method = DiscretizeMethod::zoh;
  double magnitude = 1;  // dt A lies between a quarter of it and all of it, below 0
  bool F = true;
  Cotangents cotangents{"all", true, true, true};
  Layout layout = Layout::dense;
};

constexpr double kStep = 0.01;  // the largest dt

DiscretizeForward forward_arguments(DiscretizeMethod method, const Call& call) {
  DiscretizeForward args;
  args.dt = call.input("dt");
  args.A = call.input("A");
  args.B = call.input("B");
  args.method = method;
  args.A_bar = call.output("A_bar");
  args.B_bar = call.output("B_bar");
  args.F = call.output("F");
  return args;
}

Status forward(DiscretizeMethod method, const Call& call) {
  return run(SCANTAPE_DIRECTION(discretize_forward), forward_arguments(method, call), call);
}

Status backward(DiscretizeMethod method, const Call& call) {
  DiscretizeBackward args;
  static_cast<DiscretizeForward&>(args) = forward_arguments(method, call);
  args.A_bar = args.B_bar = args.F = View();  // not read
  args.d_A_bar = call.cotangent("A_bar");
  args.d_B_bar = call.cotangent("B_bar");
  args.d_F = call.cotangent("F");
  args.d_dt = call.gradient("dt");
  args.d_A = call.gradient("A");
  args.d_B = call.gradient("B");
  return run(SCANTAPE_DIRECTION(discretize_backward), args, call);
}

/// What is left of a gradient: it is there, it is exactly zero, or it is too small against the rounding of
/// the outputs for finite differences.
struct Expected {
  bool zero = false, seen = true;
};

/// z = dt A is about -magnitude. Through a = A_bar (and F) the slopes carry exp(z) for the two exponential
/// methods, which vanishes in f64 below -745; through s, the factor of B_bar, they carry what the table of
/// the op says.
struct Slopes {
  bool exponential, through_a, through_s, vanished, weak, tiny;
  explicit Slopes(const Options& o)
      : exponential(o.method == DiscretizeMethod::zoh || o.method == DiscretizeMethod::exp_euler),
        through_a(o.cotangents.A_bar || (o.F && o.cotangents.F)),
        through_s(o.cotangents.B_bar),
        vanished(exponential && o.magnitude >= 5000),
        weak(exponential && o.magnitude >= 50 && !vanished),
        tiny(o.cotangents.A_bar && o.magnitude <= 1e-3) {}

  Expected of_dt(DiscretizeMethod method) const {
    const bool s_counts = through_s && !(method == DiscretizeMethod::zoh && vanished);
    const bool s_seen = through_s && !(method == DiscretizeMethod::zoh && weak);
    return {!(through_a && !vanished) && !s_counts, s_seen || (!weak && !tiny)};
  }
  Expected of_A(DiscretizeMethod method) const {
    const bool s_counts =
        through_s && (method == DiscretizeMethod::zoh || method == DiscretizeMethod::bilinear);
    return {!(through_a && !vanished) && !s_counts, s_counts || !weak};
  }
};

Case discretize_case(std::int64_t states_count, std::int64_t width, const Options& options) {
  const std::int64_t n = states_count;
  const double z = options.magnitude;
  const Slopes slopes(options);
  const Expected dt = slopes.of_dt(options.method), A = slopes.of_A(options.method);
  Case c;
  c.op = "discretize";
  std::ostringstream z_text;
  z_text << z;
  c.name = "discretize/" + size_name({{"N", n}, {"E", width}}) + "/" + scantape::name(options.method) +
           ",z-" + z_text.str() + "," + (options.F ? "F" : "no F") + ",d " + options.cotangents.name + "," +
           name(options.layout);
  c.options = {{"method", scantape::name(options.method)}, {"F", options.F ? "present" : "absent"}};
  c.inputs = {
      {.name = "dt",
       .shape = {n},
       .fill = uniform(kStep / 2, kStep),
       .gradient = true,
       .zero_gradient = dt.zero,
       .items = true,
       .relative_step = true,
       .differences = dt.seen},
      {.name = "A",
       .shape = {n},
       .fill = uniform(-z / kStep, -z / kStep / 2),
       .gradient = true,
       .zero_gradient = A.zero,
       .items = true,
       .step = std::max(1.0, z / 4) / kStep,
       .differences = A.seen},
      {.name = "B",
       .shape = {n, width},
       .fill = normal(),
       .gradient = true,
       .zero_gradient = !options.cotangents.B_bar,
       .items = true,
       .strided = true},
  };
  // exp(z) is as far off as z is rounded; the others have no cancellation and follow element by element.
  const Budget few_ulp{1e-14, 1e-6};
  c.outputs = {
      {.name = "A_bar", .shape = {n}, .cotangent = options.cotangents.A_bar, .zero = z >= 700, .items = true},
      {.name = "B_bar",
       .shape = {n, width},
       .cotangent = options.cotangents.B_bar,
       .items = true,
       .strided = true,
       .rule = ErrorRule::element,
       .budget = few_ulp},
      {.name = "F",
       .shape = {n},
       .present = options.F,
       .cotangent = options.cotangents.F,
       .items = true,
       .rule = ErrorRule::element,
       .budget = few_ulp},
  };
  c.forward = [method = options.method](const Call& call) { return forward(method, call); };
  c.backward = [method = options.method](const Call& call) { return backward(method, call); };
  c.layout = options.layout;
  const auto elements = static_cast<double>(n * width);
  c.forward_operations = elements + 30 * static_cast<double>(n);
  c.backward_operations = 4 * elements + 60 * static_cast<double>(n);
  return c;
}

/// dt A over all magnitudes in one tensor: every element must be right by itself.
Case mixed_case(DiscretizeMethod method, double largest) {
  Options options;
  options.method = method;
  Case c = discretize_case(100, 3, options);
  c.name = std::string("discretize/mixed/") + scantape::name(method);
  c.inputs[1].fill = log_uniform(1e-8 / kStep, largest / kStep, -1);
  c.finite_differences = false;
  return c;
}

Case zero_step_case(DiscretizeMethod method) {
  Options options;
  options.method = method;
  Case c = discretize_case(5, 3, options);
  c.name = std::string("discretize/dt 0/") + scantape::name(method);
  c.inputs[0].fill = constant(0);
  c.inputs[1].zero_gradient = true;  // nothing happens in no time, whatever A and B are
  c.inputs[2].zero_gradient = true;
  c.outputs[1].zero = c.outputs[2].zero = true;
  c.finite_differences = false;
  c.check = [](const std::vector<Values>& outputs, const std::vector<Values>&) -> std::string {
    for (const double a : outputs[0])
      if (!(a == 1)) return "dt = 0 does not give A_bar = 1";
    for (const std::size_t k : {1, 2})
      for (const double value : outputs[k])
        if (!(value == 0)) return "dt = 0 does not give B_bar = 0 and F = 0";
    return {};
  };
  return c;
}

}  // namespace

std::vector<Case> discretize_cases() {
  const std::vector<DiscretizeMethod> methods = {DiscretizeMethod::zoh, DiscretizeMethod::exp_euler,
                                                 DiscretizeMethod::bilinear, DiscretizeMethod::euler};
  const std::vector<Cotangents> cotangents = {{"all", true, true, true},
                                              {"A_bar", true, false, false},
                                              {"B_bar", false, true, false},
                                              {"F", false, false, true},
                                              {"A_bar and B_bar", true, true, false}};
  const std::vector<double> magnitudes = {1e-8, 1e-6, 1e-4, 1e-2, 0.3, 1, 2, 10, 50, 88, 700, 5000};
  const std::vector<Layout> layouts = {Layout::dense, Layout::strided, Layout::misaligned};
  std::vector<Case> cases;
  const auto add = [&](Case c, bool properties) {
    c.properties = properties;
    cases.push_back(std::move(c));
  };
  for (const DiscretizeMethod method : methods) {
    for (const Cotangents& which : cotangents) add(discretize_case(5, 7, {method, 1, true, which}), true);
    for (const Layout layout : layouts)
      add(discretize_case(7, 33, {method, 0.3, false, cotangents[4], layout}), true);
    add(mixed_case(method, method == DiscretizeMethod::euler ? 2 : 5000), false);
    add(zero_step_case(method), false);
    add(discretize_case(300, 2, {method}), false);
    add(discretize_case(6, 0, {method, 1, true, {"A_bar and F", true, false, true}}),
        true);  // no input at all
    cases.back().outputs[1].zero = true;
    add(discretize_case(2, 3000, {method}), false);
  }

  const auto at = [](int index) { return static_cast<std::size_t>(index); };
  std::vector<std::int64_t> counts = states();
  counts.insert(counts.end(), {31, 33, 129});
  const auto size = [](const auto& list) { return static_cast<int>(list.size()); };
  std::vector<std::pair<bool, Cotangents>> outputs;  // F given or not, which cotangents
  for (const Cotangents& which : cotangents) {
    outputs.emplace_back(true, which);
    if (which.A_bar || which.B_bar) outputs.emplace_back(false, which);  // else nothing would be left
  }
  for (const PairwiseRow& row : pairwise(
           {size(counts), size(widths()), size(methods), size(magnitudes), size(outputs), size(layouts)}))
    add(discretize_case(counts[at(row[0])], widths()[at(row[1])],
                        {methods[at(row[2])], magnitudes[at(row[3])], outputs[at(row[4])].first,
                         outputs[at(row[4])].second, layouts[at(row[5])]}),
        false);

  add(discretize_case(16, 512, {}), false);
  cases.back().benchmark = true;
  return cases;
}

}  // namespace scantape::cases
