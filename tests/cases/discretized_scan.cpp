#include "scantape/discretized_scan.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "case.h"
#include "pairwise.h"
#include "timed.h"

namespace scantape::cases {
namespace {

constexpr double kStep = 0.01;  // the largest dt

struct Options {
  DiscretizeMethod method = DiscretizeMethod::zoh;
  bool varying = true;
  double magnitude = 1;  // dt A lies between a quarter of it and all of it, below 0
  bool reversed = false, h0 = true, start = false, final_state = true;
  bool h_cotangent = true, final_cotangent = true;
  Layout layout = Layout::dense;
};

DiscretizedScanForward forward_arguments(const Options& options, const Call& call) {
  DiscretizedScanForward args;
  args.dt = call.input("dt");
  args.A = call.input("A");
  args.u = call.input("u");
  args.h0 = call.input("h0");
  args.start = call.input("start");
  args.method = options.method;
  args.direction = options.reversed ? ScanDirection::reversed : ScanDirection::forward;
  args.h = call.output("h");
  args.final_state = call.output("final_state");
  return args;
}

Status forward(const Options& options, const Call& call) {
  return run(SCANTAPE_DIRECTION(discretized_scan_forward), forward_arguments(options, call), call);
}

Status backward(const Options& options, const Call& call) {
  DiscretizedScanBackward args;
  static_cast<DiscretizedScanForward&>(args) = forward_arguments(options, call);
  args.final_state = View();  // not read
  args.d_h = call.cotangent("h");
  args.d_final_state = call.cotangent("final_state");
  args.d_dt = call.gradient("dt");
  args.d_A = call.gradient("A");
  args.d_u = call.gradient("u");
  args.d_h0 = call.gradient("h0");
  return run(SCANTAPE_DIRECTION(discretized_scan_backward), args, call);
}

/// "zoh,varying,z-0.3,reversed,start,h0,final,dense"
std::string title_of(const Options& o) {
  std::ostringstream text;
  text << scantape::name(o.method) << (o.varying ? ",varying" : ",constant") << ",z-" << o.magnitude;
  text << (o.reversed ? ",reversed" : "") << (o.start ? ",start" : "") << (o.h0 ? ",h0" : "")
       << (o.final_state ? ",final" : "") << (o.h_cotangent ? "" : ",no d_h")
       << (o.final_state && !o.final_cotangent ? ",no d_final" : "") << "," << name(o.layout);
  return text.str();
}

/// What there is to see of a gradient: exactly zero, or too small against the rounding of the outputs for finite
/// differences. Where no decay is used, or exp(z) has vanished, only s is left, and slopes of that.
struct Expected {
  bool through_a, through_s, weak;

  explicit Expected(const Options& o, std::int64_t length) {
    const bool exponential = o.method == DiscretizeMethod::zoh || o.method == DiscretizeMethod::exp_euler;
    const bool vanished = exponential && o.magnitude >= 5000;
    through_a = !vanished && (length > 1 || o.h0);
    through_s = o.method == DiscretizeMethod::zoh || o.method == DiscretizeMethod::bilinear;
    weak = exponential && o.magnitude >= 50;
  }
  bool dt_is_zero(DiscretizeMethod method) const {
    return method == DiscretizeMethod::zoh && !through_a && weak;  // ds/ddt = exp(z)
  }
  bool dt_is_seen(DiscretizeMethod method) const { return method != DiscretizeMethod::zoh || !weak; }
  bool A_is_zero() const { return !through_a && !through_s; }
  bool A_is_seen() const { return through_s || !weak; }
};

Case discretized_scan_case(std::int64_t batch, std::int64_t length, std::int64_t states,
                           const Options& options) {
  const Shape sequence{batch, length, states}, state{batch, states};
  const double z = options.magnitude;
  const Expected expected(options, length);
  const bool vanished = expected.weak && z >= 5000, empty = sequence.elements() == 0;
  Case c;
  c.op = "discretized_scan";
  c.name = c.op + "/" + size_name({{"B", batch}, {"L", length}, {"N", states}}) + "/" + title_of(options);
  c.options = {{"step", options.varying ? "varying" : "constant"},
               {"method", scantape::name(options.method)},
               {"direction", options.reversed ? "reversed" : "forward"},
               {"h0", options.h0 ? "present" : "absent"},
               {"start", options.start ? "present" : "absent"},
               {"final_state", options.final_state ? "present" : "absent"}};
  // A state remembers 1/z steps, and h bends on a scale of as many; where it forgets at once, s bends on that of A.
  // One number is a sum of either sign that stands alone: what it loses where it cancels is no error of the op. So
  // a lone state has an input of one sign; of its gradients, whose cotangents have both, less is asked.
  const bool lone = state.elements() == 1;
  const Budget lone_gradient{1e-10, lone ? 1e-3 : 1e-4};
  const double bend = std::max(1 / static_cast<double>(length), z / 4);
  c.inputs = {
      {.name = "dt",
       .shape = options.varying ? sequence : Shape{states},
       .fill = uniform(kStep / 2, kStep),
       .gradient = true,
       .zero_gradient = expected.dt_is_zero(options.method) || (empty && !options.varying),
       .items = options.varying,
       .strided = options.varying,
       .relative_step = true,
       .differences = expected.dt_is_seen(options.method),
       .budget = lone_gradient},
      {.name = "A",
       .shape = {states},
       .fill = uniform(-z / kStep, -z / kStep / 2),
       .gradient = true,
       .zero_gradient = expected.A_is_zero() || empty,
       .step = bend / kStep,
       .differences = expected.A_is_seen(),
       .budget = lone_gradient},
      {.name = "u",
       .shape = sequence,
       .fill = lone ? uniform(0.5, 1.5) : normal(),
       .gradient = true,
       .items = true,
       .strided = true,
       .step = std::max(1.0, z)},
      {.name = "h0",
       .shape = state,
       .fill = normal(),
       .present = options.h0,
       .gradient = true,
       .zero_gradient = vanished,
       .items = true,
       .differences = !expected.weak,
       .budget = lone_gradient},
      {.name = "start",
       .shape = {batch, length},
       .fill = some_starts,
       .present = options.start,
       .items = true},
  };
  c.outputs = {
      {.name = "h",
       .shape = sequence,
       .cotangent = options.h_cotangent,
       .saved = true,
       .items = true,
       .strided = true},
      {.name = "final_state",
       .shape = state,
       .present = options.final_state,
       .cotangent = options.final_state && options.final_cotangent,
       .items = true},
  };
  c.forward = [options](const Call& call) { return forward(options, call); };
  c.backward = [options](const Call& call) { return backward(options, call); };
  c.layout = options.layout;
  c.check = [sequence, reversed = options.reversed](const std::vector<Values>& outputs,
                                                    const std::vector<Values>&) {
    return final_is_not_last(outputs, sequence, reversed);
  };
  c.finite_differences = !empty;
  const auto elements = static_cast<double>(sequence.elements());
  const double formed = options.varying ? 1 : 0;
  c.forward_operations = (3 + 30 * formed) * elements;
  c.backward_operations = (11 + 60 * formed) * elements;
  return c;
}

/// dt A from 1e-6 to 1e-2 beside one another, in either way that dt is given.
Case small_case(DiscretizeMethod method, bool varying) {
  Options options;
  options.method = method;
  options.varying = varying;
  options.magnitude = 1e-2;
  Case c = discretized_scan_case(1, 600, 9, options);
  c.name += ",1e-6 to 1e-2";
  c.inputs[1].fill = log_uniform(1e-6 / kStep, 1e-2 / kStep, -1);
  c.finite_differences = false;
  return c;
}

/// As many steps as the state remembers, or more.
Case long_case(DiscretizeMethod method, bool varying, double magnitude, std::int64_t length) {
  Options options;
  options.method = method;
  options.varying = varying;
  options.magnitude = magnitude;
  Case c = discretized_scan_case(1, length, 3, options);
  c.name += ",long";
  c.finite_differences = false;
  return c;
}

/// Nothing happens in no time: h is h0, whatever A and u are.
Case zero_step_case(DiscretizeMethod method, bool varying) {
  Options options;
  options.method = method;
  options.varying = varying;
  Case c = discretized_scan_case(2, 5, 3, options);
  c.name += ",dt 0";
  c.inputs[0].fill = constant(0);
  c.inputs[1].zero_gradient = c.inputs[2].zero_gradient = true;
  c.finite_differences = false;
  return c;
}

}  // namespace

std::vector<Case> discretized_scan_cases() {
  std::vector<Case> cases;
  const auto add = [&](Case c, bool properties) {
    c.properties = properties;
    cases.push_back(std::move(c));
  };
  const std::vector<DiscretizeMethod> methods = {DiscretizeMethod::zoh, DiscretizeMethod::exp_euler,
                                                 DiscretizeMethod::bilinear, DiscretizeMethod::euler};
  const std::vector<Layout> layouts = {Layout::dense, Layout::strided, Layout::misaligned};
  const auto at = [](int index) { return static_cast<std::size_t>(index); };
  const auto size = [](const auto& list) { return static_cast<int>(list.size()); };

  for (const bool varying : {true, false}) {
    for (const DiscretizeMethod method : methods) {
      add(discretized_scan_case(3, 9, 5, {.method = method, .varying = varying}), true);
      add(discretized_scan_case(2, 1, 3, {.method = method, .varying = varying, .h0 = false}), true);
      add(small_case(method, varying), false);
      add(zero_step_case(method, varying), false);
      for (const double far : {50.0, 700.0, 5000.0})
        if (method != DiscretizeMethod::euler)
          add(discretized_scan_case(2, 40, 3, {.method = method, .varying = varying, .magnitude = far}),
              false);
    }
    for (const Layout layout : layouts)
      add(discretized_scan_case(2, 70, 3, {.varying = varying, .magnitude = 0.3, .layout = layout}), true);
    add(discretized_scan_case(2, 6, 4, {.varying = varying, .h_cotangent = false}), true);
    add(discretized_scan_case(2, 6, 4, {.varying = varying, .final_cotangent = false}), true);
    add(discretized_scan_case(2, 300, 3, {.varying = varying, .magnitude = 1e-3, .h_cotangent = false}),
        false);
    add(discretized_scan_case(40, 5, 7, {.varying = varying}), true);
    add(discretized_scan_case(0, 5, 3, {.varying = varying}), false);
  }
  // Decays near 1 and, far left, near -1, over as many steps as they last; parts of time side by side.
  add(long_case(DiscretizeMethod::zoh, false, 1e-4, 16384), false);
  add(long_case(DiscretizeMethod::exp_euler, true, 1e-4, 16384), false);
  add(long_case(DiscretizeMethod::bilinear, false, 5000, 6000), false);
  add(long_case(DiscretizeMethod::euler, true, 1e-4, 4500), false);
  for (const bool reversed : {false, true})
    add(discretized_scan_case(reversed ? 2 : 1, 4097, 1,
                              {.varying = reversed,
                               .magnitude = 1e-3,
                               .reversed = reversed,
                               .start = true,
                               .final_state = false}),
        false);

  // Every pair of what the forms can do, with lengths on both sides of each change of grid.
  const std::vector<std::int64_t> turns = {2, 7, 64, 65, 129, 300, 1030};
  const std::vector<double> magnitudes = {1e-4, 1e-2, 0.3, 1, 1.9};
  for (const PairwiseRow& row : pairwise({size(methods), 2, 2, 2, 2, 2, 3, size(turns), size(magnitudes)})) {
    Options options;
    options.method = methods[at(row[0])];
    options.varying = row[1] == 0;
    options.reversed = row[2] == 1;
    options.h0 = row[3] == 0;
    options.start = row[4] == 1;
    options.final_state = row[5] == 0;
    options.layout = layouts[at(row[6])];
    options.magnitude = magnitudes[at(row[8])];
    const std::int64_t length = turns[at(row[7])];
    add(discretized_scan_case(2, length, 5, options), length <= 65);
  }

  constexpr std::int64_t kMaxDeep = 10000;
  std::vector<std::int64_t> widths = states();
  widths.push_back(31);
  const std::vector<std::int64_t> batches = {1, 3};
  const auto affordable = [&](const PairwiseRow& row) {
    return row[2] == 0 || batches[at(row[2])] * lengths()[at(row[0])] * widths[at(row[1])] <= kMaxDeep;
  };
  for (const PairwiseRow& row :
       pairwise({size(lengths()), size(widths), size(batches), size(methods), 2, 2, 3}, affordable))
    add(discretized_scan_case(batches[at(row[2])], lengths()[at(row[0])], widths[at(row[1])],
                              {.method = methods[at(row[3])],
                               .varying = row[4] == 0,
                               .magnitude = 0.3,
                               .h0 = row[5] == 0,
                               .layout = layouts[at(row[6])]}),
        false);

  for (const bool varying : {false, true}) {
    add(discretized_scan_case(32, 60, 16, {.varying = varying}), false);
    cases.back().benchmark = true;
    for (const std::int64_t length : {256, 1024, 2048, 4096, 16384, 65536}) {
      add(discretized_scan_case(8, length, 64, {.varying = varying}), false);
      cases.back().benchmark = true;
    }
  }
  return cases;
}

}  // namespace scantape::cases
