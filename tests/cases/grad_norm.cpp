#include "scantape/grad_norm.h"

#include <limits>
#include <sstream>

#include "control.h"

namespace scantape::cases {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

enum class Loss { absent, finite, nan };

struct Regime {
  const char* name;
  Fill gradient;
  bool finite = true;
};

Fill with_one(double value) {
  return [value](Rng& rng, const Shape& shape) {
    Values values = normal()(rng, shape);
    if (!values.empty()) values[values.size() / 2] = value;
    return values;
  };
}

const std::vector<Regime>& regimes() {
  static const std::vector<Regime> list = {
      {"normal", normal()},      {"tiny", normal(0, 1e-30)},  // squares vanish in f32
      {"huge", normal(0, 1e30)},                              // squares overflow in f32
      {"zero", constant(0)},     {"NaN", with_one(kNaN), false}, {"inf", with_one(-kInfinity), false},
  };
  return list;
}

Status forward(const Call& call) {
  GradNorm args;
  args.gradient = call.input("gradient");
  args.loss = call.input("loss");
  args.control = call.output("control");
  return run(Direction<GradNorm>{grad_norm, reference::grad_norm, grad_norm_workspace}, args, call);
}

/// What can be compared as numbers: not the caller's limit, which may be inf, nor a norm that is not finite.
Values comparable(const Values& control, bool finite) {
  Values list;
  for (int i = 0; i < kStepControls; ++i)
    if (i != kMaxNorm && (finite || (i != kGradNorm && i != kClipFactor)))
      list.push_back(control[static_cast<std::size_t>(i)]);
  return list;
}

/// What the contract says of counters and flags, without arithmetic.
std::string counted_wrongly(const Values& now, const Control& before, bool skip) {
  if (!(now[kLearningRate] == before.learning_rate && now[kMaxNorm] == before.max_norm))
    return "the caller's settings have changed";
  if (!(now[kSkip] == (skip ? 1 : 0))) return "kSkip is wrong";
  if (!(now[kSteps] == before.steps + (skip ? 0 : 1))) return "kSteps is wrong";
  if (!(now[kSkipped] == before.skipped + (skip ? 1 : 0))) return "kSkipped is wrong";
  if (!(now[kSkippedInARow] == (skip ? before.skipped_in_a_row + 1 : 0))) return "kSkippedInARow is wrong";
  if (!skip && !(now[kClipFactor] <= 1 && now[kClipFactor] > 0)) return "kClipFactor is not in (0, 1]";
  return {};
}

Case grad_norm_case(std::int64_t n, const Regime& regime, Loss loss, double max_norm, Layout layout) {
  const bool finite = regime.finite;
  const bool skip = (!finite && n > 0) || loss == Loss::nan;
  const Control before{
      .max_norm = max_norm, .steps = 7, .skipped = 2, .skipped_in_a_row = 1, .norm = 5, .skip = 1};
  Case c;
  c.op = "grad_norm";
  std::ostringstream limit;
  limit << max_norm;
  c.name = "grad_norm/" + size_name({{"n", n}}) + "/" + regime.name + ",limit " + limit.str() +
           (loss == Loss::absent ? ""
            : loss == Loss::nan  ? ",NaN loss"
                                 : ",loss") +
           "," + name(layout);
  c.options = {{"loss", loss == Loss::absent ? "absent" : "present"}};
  c.inputs = {
      {.name = "gradient", .shape = {n}, .fill = regime.gradient},
      {.name = "loss",
       .shape = {},
       .fill = loss == Loss::nan ? constant(kNaN) : normal(),
       .present = loss != Loss::absent,
       .type = ElementType::f64},
  };
  const std::int64_t shown = static_cast<std::int64_t>(comparable(before.values(), finite).size());
  c.outputs = {{.name = "control",
                .shape = {kStepControls},
                .cotangent = false,
                .type = ElementType::f64,
                .initial = before.fill(),
                .rule = ErrorRule::element,
                .budget = {1e-12, 1e-12},
                .canonical = [finite](const Values& control, const Shape&,
                                      DType) { return comparable(control, finite); },
                .canonical_shape = {shown}}};
  c.forward = forward;
  c.layout = layout;
  c.check = [before, skip](const std::vector<Values>& outputs, const std::vector<Values>&) {
    return counted_wrongly(outputs[0], before, skip);
  };
  c.forward_operations = 2 * static_cast<double>(n);
  return c;
}

}  // namespace

std::vector<Case> grad_norm_cases() {
  std::vector<Case> cases;
  const auto add = [&](Case c, bool properties) {
    c.properties = properties;
    cases.push_back(std::move(c));
  };
  const std::vector<double> limits = {0, kInfinity, 0.5, 1e9};
  for (const Regime& regime : regimes())
    for (const double limit : limits)
      add(grad_norm_case(100, regime, limit == 0.5 ? Loss::finite : Loss::absent, limit, Layout::dense),
          limit == 0.5);
  add(grad_norm_case(100, regimes()[0], Loss::nan, 1, Layout::dense), true);
  add(grad_norm_case(0, regimes()[0], Loss::absent, 1, Layout::dense), false);
  for (const std::int64_t n : {70000, 300001})
    add(grad_norm_case(n, regimes()[0], Loss::finite, 1, Layout::dense), false);
  for (const std::int64_t n : lengths())
    add(grad_norm_case(n, regimes()[static_cast<std::size_t>(n) % 3],
                       n % 2 == 0 ? Loss::finite : Loss::absent,
                       limits[static_cast<std::size_t>(n) % limits.size()],
                       n % 3 == 0 ? Layout::misaligned : Layout::dense),
        n % 20 == 0);
  add(grad_norm_case(2500000, regimes()[0], Loss::finite, 1, Layout::dense), false);
  cases.back().benchmark = true;
  return cases;
}

}  // namespace scantape::cases
