#include <algorithm>
#include <cmath>

#include "discretize.h"
#include "pairwise.h"

namespace scantape::cases {
namespace {

/// What A and the step are.
struct Regime {
  const char* name;
  double dt;
  Fill A;
  double size = 1;  // of elements of A: finite differences move by a part of it; 0: they have none
  double forward_f32 = 1e-5, backward_f32 = 1e-4;  // budgets
  bool zero = false;                               // A is: so is F
  bool stiff = false;                              // some states are gone after one step, others hardly move
  bool exact_dt = false;                           // else a tenth more or less
  bool vanishes = false;                           // exp(dt A) does, and zoh's B_bar no longer depends on dt
  bool dt_differences = true;  // else they drown in the rounding of A_bar, which is nearly 1
};

struct Options {
  DiscretizeMethod method = DiscretizeMethod::zoh;
  const Regime* regime = nullptr;
  bool F = true, d_A_bar = true, d_B_bar = true, d_F = true;
  Layout layout = Layout::dense;
};

/// middle I + skew (G - G^T) + rest G, with G normal of variance 1/n: its norms do not grow with n.
Fill matrix(double middle, double skew, double rest) {
  return [=](Rng& rng, const Shape& shape) {
    const std::int64_t n = shape[0];
    const Values G = normal(0, n > 0 ? 1 / std::sqrt(static_cast<double>(n)) : 1)(rng, shape);
    Values values(G.size());
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        const auto at = static_cast<std::size_t>(i * n + j), across = static_cast<std::size_t>(j * n + i);
        values[at] = (i == j ? middle : 0) + skew * (G[at] - G[across]) + rest * G[at];
      }
    return values;
  };
}

/// Lower triangle zero: far from normal, so that powers grow before they fall.
Values triangular(Rng& rng, const Shape& shape) {
  const std::int64_t n = shape[0];
  Values values(static_cast<std::size_t>(n * n), 0.0);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = i; j < n; ++j)
      values[static_cast<std::size_t>(i * n + j)] = i == j ? -rng.uniform(0.5, 1) : rng.uniform(-2, 2);
  return values;
}

/// -3 v v^T / |v|^2 and a ten-millionth of noise: all but one eigenvalue are next to 0.
Values nearly_singular(Rng& rng, const Shape& shape) {
  const std::int64_t n = shape[0];
  const Values v = normal()(rng, {n}), noise = normal(0, 1e-7)(rng, shape);
  double square = 0;
  for (const double x : v) square += x * x;
  Values values(noise);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      values[static_cast<std::size_t>(i * n + j)] -=
          3 * v[static_cast<std::size_t>(i)] * v[static_cast<std::size_t>(j)] / square;
  return values;
}

/// Rates from 1 to `fastest` on the diagonal, in no order, and a little of everything beside it.
Fill stiff(double fastest) {
  return [fastest](Rng& rng, const Shape& shape) {
    const std::int64_t n = shape[0];
    Values values = matrix(0, 0.5, 0)(rng, shape);
    for (std::int64_t i = 0; i < n; ++i) {
      const double place = n > 1 ? static_cast<double>(i * 7 % n) / static_cast<double>(n - 1) : 0;
      values[static_cast<std::size_t>(i * n + i)] = -std::pow(fastest, place);
    }
    return values;
  };
}

/// With dt = 1, I - dt/2 A has nothing but zeros on its diagonal: without pivoting there is no first step.
Values pivots(Rng& rng, const Shape& shape) {
  const std::int64_t n = shape[0];
  const Values noise = normal(0, 0.1 / std::sqrt(static_cast<double>(n) + 1))(rng, shape);
  Values values(noise.size());
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      const auto at = static_cast<std::size_t>(i * n + j);
      values[at] = (i == j ? 2 : noise[at]) + ((i + 1) % n == j ? 2 : 0);
    }
  return values;
}

const std::vector<Regime>& regimes() {
  static const std::vector<Regime> list = {
      {.name = "stable", .dt = 0.05, .A = matrix(-0.5, 4, 0)},
      {.name = "dt A 1e-6",
       .dt = 1e-4,
       .A = matrix(-0.005, 0.01, 0.01),
       .size = 1e2,
       .dt_differences = false},
      {.name = "dt A 1e-4", .dt = 1e-3, .A = matrix(-0.05, 0.1, 0.1), .size = 10, .dt_differences = false},
      {.name = "dt A 1e-2", .dt = 1e-2, .A = matrix(-0.5, 1, 1), .size = 10},
      {.name = "nearly singular", .dt = 0.7, .A = nearly_singular},
      {.name = "triangular", .dt = 0.2, .A = triangular},
      {.name = "growing", .dt = 0.5, .A = matrix(1, 0, 2)},
      {.name = "fast",
       .dt = 1,
       .A = matrix(-1, 15, 0),
       // Turns by up to 30 radians: dt A as f32 holds it is off by two millionths of one, and every element with it.
       .forward_f32 = 3e-5,
       .backward_f32 = 2e-4},
      {.name = "stiff", .dt = 0.01, .A = stiff(5e5), .size = 100, .stiff = true},
      // More squarings than a backward keeps.
      {.name = "far apart", .dt = 0.01, .A = stiff(1e15), .size = 0, .stiff = true},
      {.name = "pivots", .dt = 1, .A = pivots, .exact_dt = true},
      {.name = "zero", .dt = 0.1, .A = constant(0), .zero = true},
      {.name = "dt A -5000", .dt = 0.01, .A = matrix(-5e5, 100, 100), .size = 5e5, .vanishes = true},
  };
  return list;
}

Case dense_case(std::int64_t n, std::int64_t width, const Options& options) {
  const Regime& regime = *options.regime;
  const bool zoh = options.method == DiscretizeMethod::zoh;
  const bool exponential = zoh || options.method == DiscretizeMethod::exp_euler;
  const bool through_A_bar = options.d_A_bar || (options.F && options.d_F);
  const bool vanished = exponential && regime.vanishes;
  // zoh's and bilinear's B_bar depend on A.
  const bool B_bar_of_A = options.d_B_bar && (zoh || options.method == DiscretizeMethod::bilinear);
  Case c;
  c.op = "discretize";
  c.name = "discretize/" + size_name({{"N", n}, {"E", width}}) + "/dense," + scantape::name(options.method) +
           "," + regime.name + "," + (options.F ? "F" : "no F") + ",d" + (options.d_A_bar ? " A_bar" : "") +
           (options.d_B_bar ? " B_bar" : "") + (options.d_F ? " F" : "") + "," + name(options.layout);
  const Budget forward{1e-10, regime.forward_f32}, backward{1e-10, regime.backward_f32};
  c.options = {
      {"form", "dense"}, {"method", scantape::name(options.method)}, {"F", options.F ? "present" : "absent"}};
  c.inputs = {
      {.name = "dt",
       .shape = {},
       .fill = regime.exact_dt ? constant(regime.dt) : uniform(0.9 * regime.dt, 1.1 * regime.dt),
       .gradient = !(vanished && zoh),  // nothing but rounding is left of it
       .zero_gradient = !(through_A_bar && !regime.zero && !vanished) && !options.d_B_bar,
       .relative_step = true,
       .differences = regime.dt_differences && !vanished,
       .budget = backward},
      {.name = "A",
       .shape = {n, n},
       .fill = regime.A,
       .gradient = true,
       .zero_gradient = (!through_A_bar || vanished) && !B_bar_of_A,
       .step = regime.size,
       .differences = regime.size > 0,
       .budget = backward},
      {.name = "B",
       .shape = {n, width},
       .fill = normal(),
       .gradient = true,
       .zero_gradient = !options.d_B_bar,
       .strided = true,
       .budget = backward},
  };
  c.outputs = {
      {.name = "A_bar", .shape = {n, n}, .cotangent = options.d_A_bar, .zero = vanished, .budget = forward},
      {.name = "B_bar",
       .shape = {n, width},
       .cotangent = options.d_B_bar,
       .strided = true,
       .budget = forward},
      {.name = "F",
       .shape = {n, n},
       .present = options.F,
       .cotangent = options.d_F,
       .zero = regime.zero,
       .budget = forward},
      {.name = "s", .shape = {}, .present = false, .cotangent = false},
  };
  if (regime.stiff) {
    // A_bar = I + F is rounded as the identity is. Columns whose states are gone after one step are smaller.
    c.outputs[0].canonical = [](const Values& values, const Shape&, DType) { return values; };
    c.outputs[0].canonical_shape = {n * n};
  }
  c.forward = [method = options.method](const Call& call) { return discretize_forward_call(method, call); };
  c.backward = [method = options.method](const Call& call) { return discretize_backward_call(method, call); };
  c.layout = options.layout;
  c.cpu_only = n > kMostDenseStatesOnCuda;
  const double cube = std::pow(static_cast<double>(n), 3), products = exponential ? 24 : 3;
  c.forward_operations = 2 * products * cube + 2 * static_cast<double>(n * n * width);
  c.backward_operations = 8 * products * cube + 4 * static_cast<double>(n * n * width);
  return c;
}

}  // namespace

std::vector<Case> dense_discretize_cases() {
  const std::vector<DiscretizeMethod> methods = {DiscretizeMethod::euler, DiscretizeMethod::bilinear,
                                                 DiscretizeMethod::exp_euler, DiscretizeMethod::zoh};
  const std::vector<Layout> layouts = {Layout::dense, Layout::strided, Layout::misaligned};
  std::vector<Case> cases;
  const auto add = [&](Case c, bool properties) {
    c.properties = properties;
    cases.push_back(std::move(c));
  };
  const Regime* const stable = &regimes()[0];
  for (const DiscretizeMethod method : methods) {
    add(dense_case(5, 6, {method, stable}), true);
    add(dense_case(5, 6, {method, stable, false, true, false}), true);
    add(dense_case(5, 6, {method, stable, false, false, true}), true);
    add(dense_case(5, 6, {method, stable, true, false, false, true}), true);
    for (const Layout layout : layouts)
      add(dense_case(17, 33, {method, stable, true, true, true, true, layout}), true);
    for (const Regime& regime : regimes()) add(dense_case(16, 9, {method, &regime}), false);
    for (const std::int64_t n : {70, 100}) add(dense_case(n, 9, {method, stable}), false);
    add(dense_case(0, 4, {method, stable}), false);
    cases.back().inputs[0].zero_gradient = true;
    cases.back().finite_differences = false;
    add(dense_case(4, 0, {method, stable, true, true, false, true}), true);  // no input at all
    cases.back().outputs[1].zero = true;
  }

  const auto at = [](int index) { return static_cast<std::size_t>(index); };
  const auto size = [](const auto& list) { return static_cast<int>(list.size()); };
  const std::vector<std::int64_t> counts = {1, 2, 3, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64};
  const std::vector<Options> given = {{.F = true},
                                      {.F = true, .d_F = false},
                                      {.F = false, .d_F = false},
                                      {.F = true, .d_A_bar = false},
                                      {.F = false, .d_A_bar = false, .d_F = false}};
  for (const PairwiseRow& row :
       pairwise({size(counts), size(widths()), size(methods), size(regimes()), size(given), size(layouts)})) {
    Options options = given[at(row[4])];
    options.method = methods[at(row[2])];
    options.regime = &regimes()[at(row[3])];
    options.layout = layouts[at(row[5])];
    add(dense_case(counts[at(row[0])], widths()[at(row[1])], options), false);
  }
  for (const std::int64_t n : {16, 64}) {
    add(dense_case(n, 512, {DiscretizeMethod::zoh, stable}), false);
    cases.back().benchmark = true;
  }
  return cases;
}

}  // namespace scantape::cases
