#include "scantape/scan.h"

#include <algorithm>
#include <cmath>

#include "case.h"
#include "pairwise.h"
#include "scantape/discretize.h"
#include "timed.h"

namespace scantape::cases {
namespace {

/// What the decays are.
struct Regime {
  const char* name;
  Fill a;
  Fill b = normal();
  bool zero = false;  // all are 0: h is b
  bool differences = true;
  bool in_16_bits = true;
  bool grows = false;  // beyond f16's largest number, in time
};

constexpr Budget kForwardBudget{1e-10, 1e-5};

struct Options {
  bool varying = true, h0 = true, final_state = true;
  bool h_cotangent = true, final_cotangent = true;
  Layout layout = Layout::dense;
  bool start = false, reversed = false, minus_one = false;
  std::int64_t heads = 0;     // 0: no decay is shared
  std::int64_t trailing = 0;  // with heads: C is split once more, [B, L, H, P, N]
  bool dense = false;         // one matrix
};

std::string decay_name(const Options& options) {
  return options.dense ? "dense" : options.heads > 0 ? "per head" : options.varying ? "varying" : "constant";
}

/// The same decays, given by their distance to one (a matrix: to the identity).
Fill less_one(const Fill& fill) {
  return [fill](Rng& rng, const Shape& shape) {
    Values values = fill(rng, shape);
    const std::size_t step = shape.rank() == 2 ? static_cast<std::size_t>(shape[1]) + 1 : 1;
    for (std::size_t i = 0; i < values.size(); i += step) values[i] -= 1;
    return values;
  };
}

/// Elements of `diagonal`, and beside it elements of `others` over sqrt(N): what these add to an eigenvalue does not
/// depend on N. Nothing is symmetric.
Fill matrix(const Fill& diagonal, const Fill& others) {
  return [diagonal, others](Rng& rng, const Shape& shape) {
    Values values = others(rng, shape);
    const std::int64_t n = shape[0];
    for (double& value : values) value /= std::sqrt(static_cast<double>(n));
    const Values on = diagonal(rng, {n});
    for (std::int64_t i = 0; i < n; ++i)
      values[static_cast<std::size_t>(i * n + i)] = on[static_cast<std::size_t>(i)];
    return values;
  };
}

/// Each state takes the place of the one before it: nothing decays, and nothing is symmetric.
Values rotation(Rng&, const Shape& shape) {
  const std::int64_t n = shape[0];
  Values values(static_cast<std::size_t>(n * n), 0.0);
  for (std::int64_t i = 0; i < n; ++i) values[static_cast<std::size_t>(i * n + (i + 1) % n)] = 1;
  return values;
}

/// 0.9 to 1 with the sign of (-1)^t; a constant one is negative.
Values alternating(Rng& rng, const Shape& shape) {
  Values values;
  const bool varying = shape.rank() == 3;
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    const bool positive = varying && (i / shape[2]) % shape[1] % 2 == 0;
    values.push_back(rng.uniform(0.9, 1) * (positive ? 1 : -1));
  }
  return values;
}

const std::vector<Regime>& regimes() {
  static const std::vector<Regime> list = {
      {.name = "stable", .a = uniform(0.2, 0.99)},
      {.name = "zero", .a = constant(0), .zero = true},
      {.name = "one", .a = constant(1)},
      {.name = "below one", .a = constant(1 - 0x1p-24)},
      {.name = "above one", .a = uniform(1, 1.01), .grows = true},
      {.name = "alternating", .a = alternating},
      {.name = "any sign", .a = uniform(-1, 1)},
      // Decays and inputs below f32's normal numbers: a product of two is nothing, a sum is not.
      {.name = "denormal",
       .a = log_uniform(1e-40, 1e-39),
       .b = log_uniform(1e-39, 1e-38),
       .differences = false,
       .in_16_bits = false},
  };
  return list;
}

const std::vector<Regime>& dense_regimes() {
  static const std::vector<Regime> list = {
      {.name = "stable", .a = matrix(uniform(0.3, 0.7), uniform(-0.5, 0.5))},
      {.name = "zero", .a = constant(0), .zero = true},
      {.name = "identity", .a = matrix(constant(1), constant(0))},
      {.name = "near the identity", .a = matrix(uniform(0.999, 1), uniform(-1e-3, 1e-3))},
      {.name = "above one", .a = matrix(uniform(1, 1.01), uniform(-0.01, 0.01))},
      {.name = "rotation", .a = rotation},
      {.name = "any sign", .a = matrix(uniform(-0.8, 0.8), uniform(-0.3, 0.3))},
  };
  return list;
}

ScanForward forward_arguments(const Options& options, const Call& call) {
  ScanForward args;
  args.a = call.input("a");
  args.b = call.input("b");
  args.h0 = call.input("h0");
  args.start = call.input("start");
  args.direction = options.reversed ? ScanDirection::reversed : ScanDirection::forward;
  args.minus_one = options.minus_one;
  args.h = call.output("h");
  args.final_state = call.output("final_state");
  return args;
}

Status forward(const Options& options, const Call& call) {
  return run(SCANTAPE_DIRECTION(scan_forward), forward_arguments(options, call), call);
}

Status backward(const Options& options, const Call& call) {
  ScanBackward args;
  static_cast<ScanForward&>(args) = forward_arguments(options, call);
  args.b = ConstView();  // not read
  args.final_state = View();
  args.d_h = call.cotangent("h");
  args.d_final_state = call.cotangent("final_state");
  args.d_a = call.gradient("a");
  args.d_b = call.gradient("b");
  args.d_h0 = call.gradient("h0");
  return run(SCANTAPE_DIRECTION(scan_backward), args, call);
}

Case scan_case(std::int64_t batch, std::int64_t length, std::int64_t channels, const Regime& regime,
               const Options& options) {
  Shape sequence{batch, length}, state{batch};
  for (Shape* shape : {&sequence, &state}) {
    if (options.heads > 0) shape->append(options.heads);
    shape->append(channels);
    if (options.trailing > 0) shape->append(options.trailing);
  }
  const std::int64_t all = state.elements() / std::max<std::int64_t>(batch, 1);
  const Shape decay = options.dense       ? Shape{channels, channels}
                      : options.heads > 0 ? Shape{batch, length, options.heads}
                      : options.varying   ? sequence
                                          : Shape{channels};
  Case c;
  c.op = "scan";
  const bool has_final = options.final_state && options.final_cotangent;
  c.name = "scan/" + size_name({{"B", batch}, {"L", length}, {"C", channels}}) + "/" + decay_name(options) +
           (options.heads > 0 ? " H" + std::to_string(options.heads) + " N" + std::to_string(options.trailing)
                              : "") +
           (options.reversed ? ",reversed" : "") + (options.start ? ",start" : "") +
           (options.minus_one ? ",less one" : "") + (options.h0 ? ",h0" : "") +
           (options.final_state ? ",final" : "") + (options.h_cotangent ? "" : ",no d_h") +
           (options.final_state && !options.final_cotangent ? ",no d_final" : "") + "," + regime.name + "," +
           name(options.layout);
  c.options = {{"decay", decay_name(options)},
               {"direction", options.reversed ? "reversed" : "forward"},
               {"minus_one", options.minus_one ? "yes" : "no"},
               {"h0", options.h0 ? "present" : "absent"},
               {"start", options.start ? "present" : "absent"},
               {"final_state", options.final_state ? "present" : "absent"}};
  // With one step and nothing before it, no decay is used.
  const bool unused_decay = length == 1 && !options.h0;
  // h is a polynomial of degree L in a constant decay: it bends on a scale of 1/L.
  const double step = decay.rank() == 3 ? 1 : 1 / static_cast<double>(length);
  c.inputs = {
      {.name = "a",
       .shape = decay,
       .fill = options.minus_one ? less_one(regime.a) : regime.a,
       .gradient = true,
       .zero_gradient = unused_decay,
       .items = decay.rank() == 3,
       .strided = decay.rank() == 3,
       .type = ElementType::wide,
       .step = step},
      {.name = "b",
       .shape = sequence,
       .fill = regime.b,
       .gradient = true,
       .items = true,
       .strided = true,
       .saved = false},
      {.name = "h0",
       .shape = state,
       .fill = regime.b,
       .present = options.h0,
       .gradient = true,
       .zero_gradient = regime.zero,
       .items = true,
       .type = ElementType::wide},
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
       .strided = true,
       .budget = kForwardBudget},
      {.name = "final_state",
       .shape = state,
       .present = options.final_state,
       .cotangent = has_final,
       .items = true,
       .type = ElementType::wide,
       .budget = kForwardBudget},
  };
  c.forward = [options](const Call& call) { return forward(options, call); };
  c.backward = [options](const Call& call) { return backward(options, call); };
  c.layout = options.layout;
  c.check = [batch, length, all, reversed = options.reversed](const std::vector<Values>& outputs,
                                                              const std::vector<Values>&) {
    return final_is_not_last(outputs, {batch, length, all}, reversed);
  };
  c.finite_differences = regime.differences;
  // The gradient of a matrix of one number is a sum over all steps, which may cancel to less than its terms' rounding.
  c.in_16_bits = regime.in_16_bits && !(options.dense && channels == 1);
  c.beyond_f16 = regime.grows && length > 300;
  c.cpu_only = options.dense && channels > kMostDenseStatesOnCuda;
  const auto terms = static_cast<double>(sequence.elements() * (options.dense ? channels : 1));
  c.forward_operations = 2 * terms;
  c.backward_operations = 4 * terms;
  return c;
}

/// A constant input has a closed form: h_t = b (1 - a^t) / (1 - a) + a^t h0.
Case closed_form_case(double decay) {
  constexpr std::int64_t kLength = 777;
  Case c = scan_case(1, kLength, 1, {.name = "closed form", .a = constant(decay), .b = constant(1)},
                     {false, true, true});
  c.name += " " + std::to_string(decay);
  c.in_16_bits = false;  // the sum is compared by itself
  c.check = [decay](const std::vector<Values>& outputs, const std::vector<Values>&) -> std::string {
    const double a = static_cast<double>(static_cast<float>(decay));
    double power = 1;
    for (std::int64_t t = 0; t < kLength; ++t) {
      power *= a;
      const double want = (1 - power) / (1 - a) + power;
      if (!(std::abs(outputs[0][static_cast<std::size_t>(t)] - want) <= 1e-5 * std::abs(want)))
        return "h_" + std::to_string(t + 1) + " is not the sum of the geometric series";
    }
    return {};
  };
  c.inputs[0].fill = constant(static_cast<double>(static_cast<float>(decay)));
  return c;
}

/// The decay as one matrix: both widths of the kernels, lengths on both sides of what they stage and of their parts.
void add_dense_cases(std::vector<Case>& cases) {
  const Regime& stable = dense_regimes()[0];
  const std::vector<Layout> layouts = {Layout::dense, Layout::strided, Layout::misaligned};
  const auto add = [&](std::int64_t batch, std::int64_t length, std::int64_t n, const Regime& regime,
                       Options options, bool properties) {
    options.dense = true;
    cases.push_back(scan_case(batch, length, n, regime, options));
    cases.back().properties = properties;
    // Where states fade within a few steps, so does what bends h; a step for all L would drown in rounding.
    if (&regime == &stable)
      cases.back().inputs[0].step = 1 / static_cast<double>(std::min<std::int64_t>(length, 20));
  };
  for (const bool h0 : {true, false})
    for (const bool final_state : {true, false})
      add(3, 9, 5, stable, {.h0 = h0, .final_state = final_state}, true);
  add(2, 6, 4, stable, {.h_cotangent = false}, true);
  add(2, 6, 4, stable, {.final_cotangent = false}, true);
  add(2, 5, 64, stable, {.start = true}, true);
  add(2, 20, 65, stable, {}, false);
  add(1, 530, 33, stable, {.start = true, .reversed = true}, false);
  add(4, 2050, 2, dense_regimes()[3], {.minus_one = true}, false);
  add(2, 600, 2, dense_regimes()[3], {.start = true, .minus_one = true},
      false);  // nothing fades within a part
  add(0, 5, 3, stable, {}, false);
  cases.back().finite_differences = false;
  cases.back().inputs[0].zero_gradient = true;
  for (const Regime& regime : dense_regimes()) add(2, 40, 3, regime, {}, false);

  const std::vector<std::int64_t> states = {1, 16, 17, 64, 100}, turns = {1, 2, 16, 17, 70, 513, 1030};
  const auto at = [](int index) { return static_cast<std::size_t>(index); };
  const auto affordable = [&](const PairwiseRow& row) {
    return row[8] == 0 || states[at(row[0])] * turns[at(row[1])] <= 4500;
  };
  for (const PairwiseRow& row : pairwise({5, 7, 2, 2, 2, 2, 2, 3, 2}, affordable)) {
    Options options;
    options.reversed = row[2] == 1;
    options.minus_one = row[3] == 1;
    options.h0 = row[4] == 0;
    options.start = row[5] == 1;
    options.final_state = row[6] == 0;
    options.layout = layouts[at(row[7])];
    const std::int64_t n = states[at(row[0])], length = turns[at(row[1])];
    add(row[8] == 0 ? 1 : 3, length, n, stable, options, n * length <= 300);
  }
  add(32, 60, 16, stable, {}, false);
  cases.back().benchmark = true;
  for (const std::int64_t length : {256, 2048, 16384, 65536}) {
    add(8, length, 64, stable, {}, false);
    cases.back().benchmark = true;
  }
}

}  // namespace

std::vector<Case> scan_cases() {
  std::vector<Case> cases;
  const auto add = [&](Case c, bool properties) {
    c.properties = properties;
    cases.push_back(std::move(c));
  };
  const std::vector<Layout> layouts = {Layout::dense, Layout::strided, Layout::misaligned};
  const Regime& stable = regimes()[0];
  for (const bool varying : {true, false}) {
    for (const bool h0 : {true, false})
      for (const bool final_state : {true, false})
        add(scan_case(3, 9, 5, stable, {varying, h0, final_state}), true);
    for (const Layout layout : layouts)
      add(scan_case(2, 70, 3, stable, {varying, true, true, true, true, layout}), true);
    add(scan_case(2, 6, 4, stable, {varying, true, true, false, true}), true);
    add(scan_case(2, 6, 4, stable, {varying, true, true, true, false}), true);
    add(scan_case(2, 300, 3, regimes()[3], {varying, true, true, false, true}), false);
    add(scan_case(1, 1, 1, stable, {varying, true, true}), true);
    add(scan_case(2, 1, 3, stable, {varying, false, true}), true);
    add(scan_case(2, 600, 2, stable, {varying, true, true}), true);
    add(scan_case(40, 5, 7, stable, {varying, true, true}), true);
    add(scan_case(0, 5, 3, stable, {varying, true, true}), false);
    cases.back().finite_differences = false;
    if (!varying) cases.back().inputs[0].zero_gradient = true;
    for (const Regime& regime : regimes()) add(scan_case(2, 40, 3, regime, {varying, true, true}), false);
  }
  for (const double decay : {0.5, 0.999, -0.75}) add(closed_form_case(decay), false);

  // Every pair of what the forms can do, with lengths on both sides of each change of grid.
  const std::vector<std::int64_t> turns = {2, 7, 64, 65, 300, 1030};
  for (const PairwiseRow& row : pairwise({3, 2, 2, 2, 2, 2, 3, 6})) {
    Options options;
    options.varying = row[0] == 1;
    options.heads = row[0] == 2 ? 3 : 0;
    options.reversed = row[1] == 1;
    options.minus_one = row[2] == 1;
    options.h0 = row[3] == 0;
    options.start = row[4] == 1;
    options.final_state = row[5] == 0;
    options.layout = layouts[static_cast<std::size_t>(row[6])];
    const std::int64_t length = turns[static_cast<std::size_t>(row[7])];
    add(scan_case(2, length, row[0] == 2 && length % 2 == 0 ? 11 : 5, stable, options), length <= 65);
  }
  // Heads of one tile, of several, with two trailing dimensions; parts of time that run side by side.
  for (const std::int64_t length : {5, 80}) {
    for (const std::int64_t width : {1, 4, 70}) {
      Options options;
      options.start = width == 4;
      options.reversed = width == 70;
      options.heads = 2;
      add(scan_case(2, length, width, stable, options), length == 5);
      options.trailing = 3;
      options.layout = Layout::strided;
      add(scan_case(2, length, width, stable, options), length == 5);
    }
  }
  // More parts than one thread takes, with decays that reach from part to part.
  add(scan_case(1, 14400, 1, {.name = "slow", .a = uniform(0.9995, 1)}, {true, true, true}), false);
  for (const bool start : {false, true})
    for (const int form : {0, 1, 2}) {
      Options options;
      options.varying = form == 1;
      options.heads = form == 2 ? 2 : 0;
      options.start = start;
      options.reversed = form == 1;
      options.minus_one = form == 0;
      add(scan_case(form == 0 ? 2 : 1, 4097 + 2048 * form, 1, stable, options), false);
    }
  add(scan_case(1, 5000, 2, stable, {true, true, true}), false);
  add(scan_case(1, 5000, 2, stable, {false, true, true}), false);

  constexpr std::int64_t kMaxDeep = 20000;
  const auto at = [](int index) { return static_cast<std::size_t>(index); };
  std::vector<std::int64_t> channels = states();
  channels.push_back(31);
  channels.push_back(512);
  const std::vector<std::int64_t> batches = {1, 3, 2};
  const auto affordable = [&](const PairwiseRow& row) {
    return row[2] == 0 || batches[at(row[2])] * lengths()[at(row[0])] * channels[at(row[1])] <= kMaxDeep;
  };
  const auto size = [](const auto& list) { return static_cast<int>(list.size()); };
  for (const PairwiseRow& row :
       pairwise({size(lengths()), size(channels), size(batches), 2, 2, 2, size(regimes()), 3}, affordable))
    add(scan_case(batches[at(row[2])], lengths()[at(row[0])], channels[at(row[1])], regimes()[at(row[6])],
                  {row[3] == 0, row[4] == 0, row[5] == 0, true, true, layouts[at(row[7])]}),
        false);

  for (const bool varying : {false, true}) {
    add(scan_case(32, 60, 16, stable, {varying, true, true}), false);
    cases.back().benchmark = true;
    for (const std::int64_t length : {256, 1024, 2048, 4096, 16384, 65536}) {
      add(scan_case(8, length, 64, stable, {varying, true, true}), false);
      cases.back().benchmark = true;
    }
  }
  add_dense_cases(cases);
  return cases;
}

}  // namespace scantape::cases
