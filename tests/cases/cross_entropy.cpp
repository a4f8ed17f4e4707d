#include "scantape/cross_entropy.h"

#include <cmath>
#include <limits>

#include "case.h"
#include "indices.h"
#include "pairwise.h"

namespace scantape::cases {
namespace {

constexpr std::int32_t kIgnored = -7;

/// Which rows count: all; every second one; the same, the others hiding NaN and infinity in their logits; none.
enum class Counted { all, half, hides_nan, nothing };

const char* name(Counted counted) {
  switch (counted) {
    case Counted::all:
      return "all";
    case Counted::half:
      return "half";
    case Counted::hides_nan:
      return "NaN in others";
    case Counted::nothing:
      return "n 0";
  }
  return "unknown";
}

bool counts(Counted counted, std::int64_t row) {
  return counted == Counted::all || (counted != Counted::nothing && row % 2 == 0);
}

/// What the logits are.
struct Regime {
  const char* name;
  Fill logits;
  Indices targets = Indices::any;
  bool differences = true, in_16_bits = true, beyond_f16 = false;
};

/// Some have no probability at all, but never the last of a row, which is to be its target.
Values with_holes(Rng& rng, const Shape& shape) {
  Values values = normal(0, 3)(rng, shape);
  for (std::size_t i = 0; i < values.size(); ++i)
    if ((i + 1) % static_cast<std::size_t>(shape.back()) != 0 && rng.unit() < 0.3)
      values[i] = -std::numeric_limits<double>::infinity();
  return values;
}

/// The last logit is far above the others.
Values sure_of_the_last(Rng& rng, const Shape& shape) {
  Values values = normal()(rng, shape);
  const auto columns = static_cast<std::size_t>(shape.back());
  for (std::size_t i = columns - 1; i < values.size(); i += columns) values[i] += 25;
  return values;
}

Values rising(Rng& rng, const Shape& shape) {
  Values values;
  for (std::int64_t i = 0; i < shape.elements(); ++i)
    values.push_back(0.25 * static_cast<double>(i % shape.back()) + rng.uniform(0, 0.1));
  return values;
}

const std::vector<Regime>& regimes() {
  static const std::vector<Regime> list = {
      {.name = "usual", .logits = normal(0, 2)},
      // A larger logit again and again: what was summed is rescaled each time.
      {.name = "rising", .logits = rising},
      // exp would overflow in every type, or vanish.
      {.name = "far above", .logits = normal(1e4, 3), .in_16_bits = false},
      {.name = "far below", .logits = normal(-1e4, 3), .in_16_bits = false},
      {.name = "wide", .logits = normal(0, 100), .differences = false},
      {.name = "1e30", .logits = normal(0, 1e30), .differences = false, .beyond_f16 = true},
      {.name = "holes", .logits = with_holes, .targets = Indices::one, .differences = false},
      // All but certain, and rightly so: the loss and the gradient at the target are small and have digits.
      {.name = "sure", .logits = sure_of_the_last, .targets = Indices::one, .differences = false},
  };
  return list;
}

CrossEntropyForward forward_arguments(const Call& call) {
  CrossEntropyForward args;
  args.logits = call.input("logits");
  args.target = call.input("target");
  args.ignore_index = kIgnored;
  args.loss = call.output("loss");
  args.statistics = call.output("statistics");
  return args;
}

Status forward(const Call& call) {
  return run(SCANTAPE_DIRECTION(cross_entropy_forward), forward_arguments(call), call);
}

Status backward(const Call& call) {
  CrossEntropyBackward args;
  static_cast<CrossEntropyForward&>(args) = forward_arguments(call);
  args.loss = View();  // not read
  args.d_loss = call.cotangent("loss");
  args.d_logits = call.gradient("logits");
  return run(SCANTAPE_DIRECTION(cross_entropy_backward), args, call);
}

Fill target_fill(Counted counted, std::int64_t columns, Indices indices) {
  return [=](Rng& rng, const Shape& shape) {
    Values values = index_fill(indices, columns)(rng, shape);
    for (std::size_t row = 0; row < values.size(); ++row)
      if (!counts(counted, static_cast<std::int64_t>(row))) values[row] = kIgnored;
    return values;
  };
}

Fill hiding(Counted counted, const Fill& plain) {
  return [=](Rng& rng, const Shape& shape) {
    Values values = plain(rng, shape);
    const std::int64_t columns = shape.back();
    for (std::size_t i = 0; i < values.size(); ++i)
      if (counted == Counted::hides_nan && !counts(counted, static_cast<std::int64_t>(i) / columns))
        values[i] =
            i % 2 == 0 ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    return values;
  };
}

/// What does not count has a gradient of exactly zero.
std::string hidden_are_zero(Counted counted, std::int64_t columns, const std::vector<Values>& gradients) {
  if (gradients.empty()) return {};
  const Values& d = gradients[0];
  for (std::size_t i = 0; i < d.size(); ++i)
    if (!counts(counted, static_cast<std::int64_t>(i) / columns) && !(d[i] == 0))
      return "element " + std::to_string(i) + " does not count but has a gradient";
  return {};
}

Case cross_entropy_case(const Shape& rows, std::int64_t columns, const Regime& regime, Counted counted,
                        Layout layout) {
  const bool nothing = counted == Counted::nothing || rows.elements() == 0;
  Shape logits = rows, statistics = rows;
  logits.append(columns);
  statistics.append(2);
  Case c;
  c.op = "cross_entropy";
  c.name = "cross_entropy/" + scantape::name(rows) + "-" + size_name({{"V", columns}}) + "/" + regime.name +
           "," + name(counted) + "," + scantape::cases::name(layout);
  c.inputs = {
      {.name = "logits",
       .shape = logits,
       .fill = hiding(counted, regime.logits),
       .gradient = true,
       .zero_gradient = nothing || columns == 1,  // one logit alone is certain
       .strided = true,
       // The gradient is one over the number of logits: of a small one the loss has few digits, and it bends on a scale
       // of 1.
       .step = 100,
       .budget = {1e-12, 5e-5}},
      {.name = "target",
       .shape = rows,
       .fill = target_fill(counted, columns, regime.targets),
       .type = ElementType::i32},
  };
  c.outputs = {
      {.name = "loss",
       .shape = {},
       .zero = nothing || columns == 1,
       .type = ElementType::f64,
       .budget = {1e-12, 1e-5}},
      {.name = "statistics",
       .shape = statistics,
       .cotangent = false,
       .saved = true,
       .zero = nothing,
       .type = ElementType::wide,
       .budget = {1e-12, 1e-5}},
  };
  c.forward = forward;
  c.backward = backward;
  c.layout = layout;
  c.check = [counted, columns](const std::vector<Values>&, const std::vector<Values>& gradients) {
    return hidden_are_zero(counted, columns, gradients);
  };
  c.aliases = {{"d_logits", "logits"}};
  c.finite_differences =
      regime.differences && !nothing && counted != Counted::hides_nan && logits.elements() <= 4000;
  c.in_16_bits = regime.in_16_bits;
  c.beyond_f16 = regime.beyond_f16;
  c.forward_operations = 3.0 * static_cast<double>(logits.elements());
  c.backward_operations = 4.0 * static_cast<double>(logits.elements());
  return c;
}

}  // namespace

std::vector<Case> cross_entropy_cases() {
  std::vector<Case> cases;
  const auto add = [&](Case c, bool properties) {
    c.properties = properties;
    cases.push_back(std::move(c));
  };
  const std::vector<Layout> layouts = {Layout::dense, Layout::strided, Layout::misaligned};
  const std::vector<Counted> all = {Counted::all, Counted::half, Counted::hides_nan, Counted::nothing};
  const Regime& usual = regimes()[0];
  for (const Counted counted : all)
    for (const Layout layout : layouts) add(cross_entropy_case({2, 3}, 5, usual, counted, layout), true);
  for (const Regime& regime : regimes()) {
    add(cross_entropy_case({4}, 37, regime, Counted::hides_nan, Layout::dense), false);
    add(cross_entropy_case({3}, 1300, regime, Counted::all, Layout::strided), false);
  }
  // A block to a row.
  add(cross_entropy_case({2, 2}, 1025, usual, Counted::half, Layout::dense), true);
  add(cross_entropy_case({2}, 9001, usual, Counted::all, Layout::misaligned), false);
  add(cross_entropy_case({3, 2}, 1, usual, Counted::all, Layout::dense), false);
  add(cross_entropy_case({}, 6, usual, Counted::all, Layout::dense), false);
  add(cross_entropy_case({0}, 6, usual, Counted::all, Layout::dense), false);
  // More rows than the warps of a launch take at once.
  add(cross_entropy_case({33000}, 2, usual, Counted::half, Layout::dense), false);
  cases.back().in_16_bits = false;
  const auto at = [](int index) { return static_cast<std::size_t>(index); };
  const auto affordable = [&](const PairwiseRow& row) {
    return row[1] == 0 || lengths()[at(row[0])] * widths()[at(row[2])] <= 40000;
  };
  const std::vector<std::int64_t> batches = {1, 3};
  for (const PairwiseRow& row : pairwise(
           {static_cast<int>(lengths().size()), 2, 4, static_cast<int>(regimes().size()), 4, 3}, affordable))
    add(cross_entropy_case({batches[at(row[1])], lengths()[at(row[0])]}, widths()[at(row[2])],
                           regimes()[at(row[3])], all[at(row[4])], layouts[at(row[5])]),
        false);
  add(cross_entropy_case({32, 60}, 1024, usual, Counted::all, Layout::dense), false);
  cases.back().benchmark = true;
  add(cross_entropy_case({2, 512}, 16384, usual, Counted::all, Layout::dense), false);
  cases.back().benchmark = true;
  return cases;
}

}  // namespace scantape::cases
