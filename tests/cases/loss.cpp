#include "loss.h"

#include <limits>

#include "pairwise.h"

namespace scantape::cases {
namespace {

enum class Mask { none, half, ones, nothing, hides_nan };

const char* name(Mask mask) {
  switch (mask) {
    case Mask::none:
      return "no mask";
    case Mask::half:
      return "half";
    case Mask::ones:
      return "ones";
    case Mask::nothing:
      return "n 0";
    case Mask::hides_nan:
      return "NaN under the mask";
  }
  return "unknown";
}

/// Which elements count: every second one, beginning with the first, so that a few are enough to see
/// something.
bool counted(Mask mask, std::int64_t index) {
  if (mask == Mask::nothing) return false;
  return (mask != Mask::half && mask != Mask::hides_nan) || index % 2 == 0;
}

/// Any number but 0 counts, and counts once: 1, 0.5, -2, ...
Fill mask_fill(Mask mask) {
  return [mask](Rng& rng, const Shape& shape) {
    Values values;
    for (std::int64_t i = 0; i < shape.elements(); ++i)
      values.push_back(counted(mask, i) ? (mask == Mask::ones ? 1 : rng.sign() * rng.uniform(0.25, 3)) : 0);
    return values;
  };
}

Fill target_fill(Mask mask, const Fill& plain) {
  return [mask, plain](Rng& rng, const Shape& shape) {
    Values values = plain(rng, shape);
    for (std::int64_t i = 0; i < shape.elements(); ++i)
      if (mask == Mask::hides_nan && !counted(mask, i))
        values[static_cast<std::size_t>(i)] = rng.unit() < 0.5 ? std::numeric_limits<double>::quiet_NaN()
                                                               : std::numeric_limits<double>::infinity();
    return values;
  };
}

/// What does not count has a gradient of exactly zero.
std::string hidden_are_zero(Mask mask, const std::vector<Values>& gradients) {
  if (mask == Mask::none) return {};
  for (std::size_t i = 0; i < gradients[0].size(); ++i)
    if (!counted(mask, static_cast<std::int64_t>(i)) && !(gradients[0][i] == 0))
      return "element " + std::to_string(i) + " does not count but has a gradient";
  return {};
}

Case loss_case(const LossForm& form, const Shape& shape, Mask mask, Layout layout) {
  const bool nothing = mask == Mask::nothing || shape.elements() == 0;
  Case c;
  c.op = form.op;
  c.name = form.op + "/" + scantape::name(shape) + "/" + (form.number.empty() ? "" : form.number + ",") +
           name(mask) + "," + scantape::cases::name(layout);
  c.options = {{"mask", mask == Mask::none ? "absent" : "present"}};
  c.inputs = {
      {.name = "prediction",
       .shape = shape,
       .fill = form.prediction,
       .gradient = true,
       .zero_gradient = nothing,
       .budget = {1e-14, 1e-6}},
      {.name = "target", .shape = shape, .fill = target_fill(mask, form.target)},
      {.name = "mask", .shape = shape, .fill = mask_fill(mask), .present = mask != Mask::none},
  };
  c.outputs = {
      {.name = "loss", .shape = {}, .zero = nothing, .type = ElementType::f64, .budget = {1e-13, 1e-6}}};
  c.forward = form.forward;
  c.backward = form.backward;
  c.layout = layout;
  c.check = [mask](const std::vector<Values>&, const std::vector<Values>& gradients) {
    return gradients.empty() ? std::string() : hidden_are_zero(mask, gradients);
  };
  c.forward_operations = 3.0 * static_cast<double>(shape.elements());
  c.backward_operations = 3.0 * static_cast<double>(shape.elements());
  return c;
}

/// unit (whole + part): whole in -3..3, part between low and high.
Fill off_corners(double unit, double low, double high) {
  return [=](Rng& rng, const Shape& shape) {
    Values values;
    for (std::int64_t i = 0; i < shape.elements(); ++i)
      values.push_back(unit * (static_cast<double>(rng.below(7) - 3) + rng.uniform(low, high)));
    return values;
  };
}

}  // namespace

Fill off_corners_prediction(double unit) {
  return off_corners(unit, 0.35, 0.65);
}
Fill off_corners_target(double unit) {
  return off_corners(unit, -0.1, 0.1);
}

std::vector<Case> loss_cases(const std::vector<LossForm>& forms) {
  std::vector<Case> cases;
  const auto add = [&](Case c, bool properties) {
    c.properties = properties;
    cases.push_back(std::move(c));
  };
  const std::vector<Mask> masks = {Mask::none, Mask::half, Mask::ones, Mask::nothing, Mask::hides_nan};
  for (const LossForm& form : forms)
    for (const Mask mask : masks) {
      add(loss_case(form, {5, 7}, mask, Layout::dense), true);
      add(loss_case(form, {11}, mask, Layout::misaligned), true);
      add(loss_case(form, {2, 3, 500}, mask, Layout::dense), true);
    }
  add(loss_case(forms[0], {}, Mask::none, Layout::dense), false);
  add(loss_case(forms[0], {0}, Mask::none, Layout::dense), false);
  cases.back().finite_differences = false;
  const std::vector<std::int64_t> batches = {1, 2, 32};
  const auto at = [](int index) { return static_cast<std::size_t>(index); };
  for (const PairwiseRow& row : pairwise({static_cast<int>(lengths().size()), 3,
                                          static_cast<int>(masks.size()), 2, static_cast<int>(forms.size())}))
    add(loss_case(forms[at(row[4])], {batches[at(row[1])], lengths()[at(row[0])]}, masks[at(row[2])],
                  row[3] == 0 ? Layout::dense : Layout::misaligned),
        false);
  for (const Shape& shape : {Shape{32, 60, 1}, Shape{8, 2048, 1}}) {
    add(loss_case(forms[0], shape, Mask::half, Layout::dense), false);
    cases.back().benchmark = true;
  }
  return cases;
}

}  // namespace scantape::cases
