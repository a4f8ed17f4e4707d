#include "scantape/adamw.h"

#include <algorithm>

#include "control.h"

namespace scantape::cases {
namespace {

struct Options {
  double steps = 3;  // performed, this one included
  double clip_factor = 1;
  bool skip = false;
  bool fresh = false;  // moments are zero, as before the first step
  double weight_decay = 0.01;
  double gradient = 1;        // its size
  std::int64_t decayed = -1;  // -1: half
  Layout layout = Layout::dense;
};

AdamW arguments(const Call& call, const Options& options, std::int64_t decayed) {
  AdamW args;
  args.parameter = call.output("parameter");
  args.gradient = call.input("gradient");
  args.first_moment = call.output("first_moment");
  args.second_moment = call.output("second_moment");
  args.control = call.input("control");
  args.decayed_elements = decayed;
  args.beta2 = 0.99;
  args.weight_decay = options.weight_decay;
  return args;
}

/// A skipped step leaves everything as it was.
std::string moved(const std::vector<Values>& outputs, const std::vector<Values>& before) {
  for (std::size_t k = 0; k < outputs.size(); ++k)
    for (std::size_t i = 0; i < outputs[k].size(); ++i)
      if (!(outputs[k][i] == before[k][i])) return "a skipped step has changed element " + std::to_string(i);
  return {};
}

Case adamw_case(std::int64_t n, const std::string& title, const Options& options) {
  const std::int64_t decayed = options.decayed >= 0 ? std::min(options.decayed, n) : n / 2;
  const Control control{.learning_rate = 0.01,
                        .steps = options.steps,
                        .clip_factor = options.clip_factor,
                        .skip = options.skip ? 1.0 : 0.0};
  Case c;
  c.op = "adamw";
  c.name = "adamw/" + size_name({{"n", n}, {"decayed", decayed}}) + "/" + title + "," + name(options.layout);
  c.inputs = {
      {.name = "gradient", .shape = {n}, .fill = normal(0, options.gradient)},
      {.name = "control", .shape = {kStepControls}, .fill = control.fill(), .type = ElementType::f64},
  };
  const auto state = [&](const char* name_of_state, const Fill& initial, ErrorRule rule) {
    return Output{.name = name_of_state,
                  .shape = {n},
                  .cotangent = false,
                  .zero = n == 0,
                  .initial = initial,
                  .rule = rule,
                  .budget = {1e-14, n < 8 ? 1e-5 : 1e-6}};  // a few sums may all cancel
  };
  if (options.skip) {
    // A known start: whether anything moved can then be seen exactly.
    c.outputs = {state("parameter", constant(0.75), ErrorRule::element),
                 state("first_moment", constant(-0.5), ErrorRule::element),
                 state("second_moment", constant(0.25), ErrorRule::element)};
    const auto count = static_cast<std::size_t>(n);
    c.check = [before = std::vector<Values>{Values(count, 0.75), Values(count, -0.5), Values(count, 0.25)}](
                  const std::vector<Values>& outputs, const std::vector<Values>&) {
      return moved(outputs, before);
    };
  } else {
    c.outputs = {
        state("parameter", normal(), ErrorRule::slice),
        state("first_moment", options.fresh ? constant(0) : normal(0, 0.1 * options.gradient),
              ErrorRule::slice),
        state("second_moment", options.fresh ? constant(0) : uniform(0, options.gradient * options.gradient),
              ErrorRule::element)};
  }
  c.forward = [options, decayed](const Call& call) {
    return run(Direction<AdamW>{adamw, reference::adamw, adamw_workspace}, arguments(call, options, decayed),
               call);
  };
  c.layout = options.layout;
  c.forward_operations = 15 * static_cast<double>(n);
  return c;
}

}  // namespace

std::vector<Case> adamw_cases() {
  std::vector<Case> cases;
  const auto add = [&](Case c, bool properties) {
    c.properties = properties;
    cases.push_back(std::move(c));
  };
  for (const std::int64_t n : {1, 100, 1025}) {
    add(adamw_case(n, "first", {.steps = 1, .fresh = true}), true);
    add(adamw_case(n, "later", {}), true);
    add(adamw_case(n, "late", {.steps = 1e6}), false);
    add(adamw_case(n, "clipped", {.clip_factor = 0.125}), false);
    add(adamw_case(n, "skipped", {.skip = true}), true);
    add(adamw_case(n, "no decay", {.weight_decay = 0}), false);
    add(adamw_case(n, "all decay", {.decayed = n}), false);
    add(adamw_case(n, "none decays", {.decayed = 0}), false);
    add(adamw_case(n, "small gradient", {.gradient = 1e-7}), false);
    add(adamw_case(n, "large gradient", {.gradient = 1e4}), false);
  }
  add(adamw_case(0, "later", {}), false);
  for (const std::int64_t n : lengths())
    add(adamw_case(n, "swept",
                   {.steps = static_cast<double>(n),
                    .clip_factor = n % 2 == 0 ? 1 : 0.5,
                    .decayed = n / 3,
                    .layout = n % 3 == 0 ? Layout::misaligned : Layout::dense}),
        false);
  add(adamw_case(300001, "swept", {}), false);
  add(adamw_case(2500000, "later", {}), false);
  cases.back().benchmark = true;
  return cases;
}

}  // namespace scantape::cases
