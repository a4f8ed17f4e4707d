#include "scantape/discretize.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "discretize.h"
#include "pairwise.h"

namespace scantape::cases {

namespace {

DiscretizeForward forward_arguments(DiscretizeMethod method, const Call& call) {
  DiscretizeForward args;
  args.dt = call.input("dt");
  args.A = call.input("A");
  args.B = call.input("B");
  args.method = method;
  args.A_bar = call.output("A_bar");
  args.B_bar = call.output("B_bar");
  args.F = call.output("F");
  args.s = call.output("s");
  return args;
}

}  // namespace

Status discretize_forward_call(DiscretizeMethod method, const Call& call) {
  return run(SCANTAPE_DIRECTION(discretize_forward), forward_arguments(method, call), call);
}

Status discretize_backward_call(DiscretizeMethod method, const Call& call) {
  DiscretizeBackward args;
  static_cast<DiscretizeForward&>(args) = forward_arguments(method, call);
  args.A_bar = args.B_bar = args.F = args.s = View();  // not read
  args.d_A_bar = call.cotangent("A_bar");
  args.d_B_bar = call.cotangent("B_bar");
  args.d_F = call.cotangent("F");
  args.d_s = call.cotangent("s");
  args.d_dt = call.gradient("dt");
  args.d_A = call.gradient("A");
  args.d_B = call.gradient("B");
  return run(SCANTAPE_DIRECTION(discretize_backward), args, call);
}

namespace {

/// Which outputs have a cotangent; `input` is that of B_bar, or of s where the form has that.
struct Cotangents {
  const char* name;
  bool A_bar, input, F;
};

struct Options {
  DiscretizeMethod method = DiscretizeMethod::zoh;
  double magnitude = 1;  // dt A lies between a quarter of it and all of it, below 0
  bool F = true;
  Cotangents cotangents{"all", true, true, true};
  Layout layout = Layout::dense;
};

constexpr double kStep = 0.01;  // the largest dt

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
        through_s(o.cotangents.input),
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

std::vector<std::pair<std::string, std::string>> options_of(const char* form, const Options& options) {
  return {
      {"form", form}, {"method", scantape::name(options.method)}, {"F", options.F ? "present" : "absent"}};
}

Output absent_output(const char* name) {
  return {.name = name, .shape = {}, .present = false, .cotangent = false};
}

std::string text_of(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

/// "zoh,z-0.3,F,d all,dense"
std::string title_of(const Options& options) {
  return std::string(scantape::name(options.method)) + ",z-" + text_of(options.magnitude) + "," +
         (options.F ? "F" : "no F") + ",d " + options.cotangents.name + "," + name(options.layout);
}

/// Without cancellation: these follow element by element.
constexpr Budget kFewUlp{1e-14, 1e-6};

Case discretize_case(std::int64_t states_count, std::int64_t width, const Options& options) {
  const std::int64_t n = states_count;
  const double z = options.magnitude;
  const Slopes slopes(options);
  const Expected dt = slopes.of_dt(options.method), A = slopes.of_A(options.method);
  Case c;
  c.op = "discretize";
  c.name = "discretize/" + size_name({{"N", n}, {"E", width}}) + "/" + title_of(options);
  c.options = options_of("diagonal", options);
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
       .zero_gradient = !options.cotangents.input,
       .items = true,
       .strided = true},
  };
  // exp(z) is as far off as z is rounded; the others have no cancellation.
  c.outputs = {
      {.name = "A_bar", .shape = {n}, .cotangent = options.cotangents.A_bar, .zero = z >= 700, .items = true},
      {.name = "B_bar",
       .shape = {n, width},
       .cotangent = options.cotangents.input,
       .items = true,
       .strided = true,
       .rule = ErrorRule::element,
       .budget = kFewUlp},
      {.name = "F",
       .shape = {n},
       .present = options.F,
       .cotangent = options.cotangents.F,
       .items = true,
       .rule = ErrorRule::element,
       .budget = kFewUlp},
      absent_output("s"),
  };
  c.forward = [method = options.method](const Call& call) { return discretize_forward_call(method, call); };
  c.backward = [method = options.method](const Call& call) { return discretize_backward_call(method, call); };
  c.layout = options.layout;
  const auto elements = static_cast<double>(n * width);
  c.forward_operations = elements + 30 * static_cast<double>(n);
  c.backward_operations = 4 * elements + 60 * static_cast<double>(n);
  return c;
}

/// A number a head, a step for every position and head.
Case per_head_case(std::int64_t batch, std::int64_t length, std::int64_t heads, const Options& options) {
  const double z = options.magnitude;
  const Slopes slopes(options);
  const Expected dt = slopes.of_dt(options.method), A = slopes.of_A(options.method);
  const Shape steps{batch, length, heads};
  const bool nothing = steps.elements() == 0;
  Case c;
  c.op = "discretize";
  c.name = "discretize/" + size_name({{"B", batch}, {"L", length}, {"H", heads}}) + "/per_head," +
           title_of(options);
  c.options = options_of("per_head", options);
  c.inputs = {
      {.name = "dt",
       .shape = steps,
       .fill = uniform(kStep / 2, kStep),
       .gradient = true,
       .zero_gradient = dt.zero,
       .items = true,
       .strided = true,
       .relative_step = true,
       .differences = dt.seen},
      {.name = "A",
       .shape = {heads},
       .fill = uniform(-z / kStep, -z / kStep / 2),
       .gradient = true,
       .zero_gradient = A.zero || nothing,
       .step = std::max(1.0, z / 4) / kStep,
       .differences = A.seen},
      {.name = "B", .shape = {}, .present = false},
  };
  c.outputs = {
      {.name = "A_bar",
       .shape = steps,
       .cotangent = options.cotangents.A_bar,
       .zero = z >= 700,
       .items = true,
       .strided = true},
      absent_output("B_bar"),
      {.name = "F",
       .shape = steps,
       .present = options.F,
       .cotangent = options.cotangents.F,
       .items = true,
       .strided = true,
       .rule = ErrorRule::element,
       .budget = kFewUlp},
      {.name = "s",
       .shape = steps,
       .cotangent = options.cotangents.input,
       .items = true,
       .strided = true,
       .rule = ErrorRule::element,
       .budget = kFewUlp},
  };
  c.forward = [method = options.method](const Call& call) { return discretize_forward_call(method, call); };
  c.backward = [method = options.method](const Call& call) { return discretize_backward_call(method, call); };
  c.layout = options.layout;
  c.finite_differences = dt.seen || A.seen;
  c.forward_operations = 30 * static_cast<double>(steps.elements());
  c.backward_operations = 60 * static_cast<double>(steps.elements());
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
                                              {"B_bar or s", false, true, false},
                                              {"F", false, false, true},
                                              {"A_bar and B_bar or s", true, true, false}};
  const std::vector<double> magnitudes = {1e-8, 1e-6, 1e-4, 1e-2, 0.3, 1, 2, 10, 50, 88, 700, 5000};
  const std::vector<Layout> layouts = {Layout::dense, Layout::strided, Layout::misaligned};
  std::vector<Case> cases;
  const auto add = [&](Case c, bool properties) {
    c.properties = properties;
    cases.push_back(std::move(c));
  };
  for (const DiscretizeMethod method : methods) {
    for (const Cotangents& which : cotangents) add(per_head_case(3, 4, 5, {method, 1, true, which}), true);
    for (const Layout layout : layouts)
      add(per_head_case(2, 70, 9, {method, 0.3, false, cotangents[4], layout}), true);
    add(per_head_case(2, 2100, 3, {method}), false);  // sums over more than one chunk of rows
    add(per_head_case(0, 5, 3, {method}), false);
    cases.back().finite_differences = false;
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
    if (which.A_bar || which.input) outputs.emplace_back(false, which);  // else nothing would be left
  }
  for (const PairwiseRow& row : pairwise(
           {size(counts), size(widths()), size(methods), size(magnitudes), size(outputs), size(layouts)}))
    add(discretize_case(counts[at(row[0])], widths()[at(row[1])],
                        {methods[at(row[2])], magnitudes[at(row[3])], outputs[at(row[4])].first,
                         outputs[at(row[4])].second, layouts[at(row[5])]}),
        false);

  const std::vector<std::int64_t> batches = {1, 2, 3}, heads = {1, 3, 4, 8, 31, 64, 100};
  const auto few = [&](const PairwiseRow& row) {
    return row[1] == 0 || batches[at(row[1])] * lengths()[at(row[0])] * heads[at(row[2])] <= 40000;
  };
  for (const PairwiseRow& row : pairwise({size(lengths()), size(batches), size(heads), size(methods),
                                          size(magnitudes), size(outputs), size(layouts)},
                                         few))
    add(per_head_case(batches[at(row[1])], lengths()[at(row[0])], heads[at(row[2])],
                      {methods[at(row[3])], magnitudes[at(row[4])], outputs[at(row[5])].first,
                       outputs[at(row[5])].second, layouts[at(row[6])]}),
        false);

  for (Case& c : dense_discretize_cases()) cases.push_back(std::move(c));

  for (Case c : {discretize_case(16, 512, {}), discretize_case(64, 1024, {}), per_head_case(8, 2048, 16, {}),
                 per_head_case(32, 60, 16, {}), per_head_case(8, 2048, 64, {})}) {
    add(std::move(c), false);
    cases.back().benchmark = true;
  }
  return cases;
}

}  // namespace scantape::cases
