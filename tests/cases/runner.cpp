#include "runner.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <sstream>

#include "compare.h"
#include "reference.h"

namespace scantape::cases {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kDifferenceTolerance = 1e-6;
constexpr double kDifferenceStep = 1e-5;
constexpr int kRepetitions =
    SCANTAPE_SANITIZED ? 4 : 20;  // what a sanitizer finds does not hide in the twentieth run
constexpr int kRepetitionsOfLargeCases = 4;

Row blank_row(const Case& c, Place place) {
  Row row;
  row.op = c.op;
  row.case_name = c.name;
  row.variant = c.variant();
  row.device = scantape::name(place.device);
  row.backend = place.implementation == Call::Implementation::reference ? "reference"
                : place.device.is_cpu()                                 ? "cpu"
                                                                        : cuda_backend();
  row.dtype = scantape::name(place.dtype);
  return row;
}

/// Collects the verdicts of one case at one place; a call that fails is a verdict, too.
class Report {
 public:
  Report(const Case& c, Place place) : blank_(blank_row(c, place)) {}

  /// A comparison: passes where the error is within the tolerance (NaN is not) and `fault` is empty.
  void error(const std::string& argument, double error, double tolerance, std::string fault,
             std::int64_t launches) {
    Row row = blank_;
    row.argument = argument;
    row.max_rel_err = error;
    row.tolerance = tolerance;
    row.launches = launches;
    if (fault.empty() && !(error <= tolerance)) {
      std::ostringstream text;
      text << "relative error " << error << ", wants at most " << tolerance;
      fault = text.str();
    }
    row.pass = fault.empty();
    row.message = std::move(fault);
    rows_.push_back(std::move(row));
  }
  /// A condition: holds where `fault` is empty.
  void condition(const std::string& argument, std::string fault, std::int64_t launches = 0) {
    error(argument, 0, 0, std::move(fault), launches);
  }
  void failed_call(const std::string& what) { error("call", kNaN, 0, what, 0); }

  Rows take() { return std::move(rows_); }

 private:
  Row blank_;
  Rows rows_;
};

/// Runs `body(report)`; what it throws becomes a row.
template <class Body>
Rows reported(const Case& c, Place place, Body body) {
  Report report(c, place);
  try {
    body(report);
  } catch (const std::exception& error) {
    report.failed_call(error.what());
  }
  return report.take();
}

std::string joined(const std::string& a, const std::string& b) {
  return a.empty() ? b : b.empty() ? a : a + "; " + b;
}

double root_mean_square(const Values& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return values.empty() ? 0 : std::sqrt(sum / static_cast<double>(values.size()));
}

// ---- finite differences

/// Roughly what one forward costs, in operations.
double forward_cost(const Case& c) {
  double elements = 0;
  for (const Input& input : c.inputs) elements += static_cast<double>(input.shape.elements());
  for (const Output& output : c.outputs) elements += static_cast<double>(output.shape.elements());
  return c.forward_operations + 10 * elements + 100;
}

/// Indices to differentiate at: all, or the first, the last and a random choice.
std::vector<std::size_t> difference_points(const Case& c, const Input& input, Rng& rng) {
  constexpr double kOperations = 3e5;
  const std::int64_t elements = input.shape.elements();
  const double cost = forward_cost(c), fewest = cost > 2e5 ? 2 : 5;
  const auto wanted = static_cast<std::int64_t>(std::max(fewest, kOperations / (2 * cost)));
  std::set<std::size_t> points;
  if (elements <= wanted) {
    for (std::int64_t i = 0; i < elements; ++i) points.insert(static_cast<std::size_t>(i));
  } else {
    points.insert(0);
    points.insert(static_cast<std::size_t>(elements - 1));
    while (static_cast<std::int64_t>(points.size()) < wanted)
      points.insert(static_cast<std::size_t>(rng.below(elements)));
  }
  return {points.begin(), points.end()};
}

std::vector<Values> outputs_of(Reference& reference, std::size_t count) {
  reference.forward();
  std::vector<Values> outputs;
  for (std::size_t i = 0; i < count; ++i) outputs.push_back(reference.output(i));
  return outputs;
}

/// d <cotangents, outputs> / d x_i. Outputs are subtracted before they are summed: less cancels.
double central_difference(const Case& c, const Data& data, Reference& reference, std::size_t input,
                          std::size_t at) {
  Values& x = reference.input(input);
  const double middle = x[at];
  const double scale =
      c.inputs[input].step * (c.inputs[input].relative_step && middle != 0 ? std::abs(middle) : 1.0);
  const double step = kDifferenceStep * scale;
  x[at] = middle + step;
  const double above = x[at];
  const std::vector<Values> upper = outputs_of(reference, c.outputs.size());
  x[at] = middle - step;
  const double below = x[at];
  reference.forward();
  x[at] = middle;
  double slope = 0;
  for (std::size_t k = 0; k < c.outputs.size(); ++k) {
    if (!c.outputs[k].cotangent || !c.outputs[k].present) continue;
    for (std::size_t i = 0; i < upper[k].size(); ++i)
      slope += data.cotangents[k][i] * (upper[k][i] - reference.output(k)[i]);
  }
  return slope / (above - below);
}

void difference_row(const Case& c, const Data& data, const Values& analytic, std::size_t index, Rng& rng,
                    Report& report) {
  const Input& input = c.inputs[index];
  Reference moved(c, data);
  const std::vector<std::size_t> points = difference_points(c, input, rng);
  Values numeric, chosen;
  for (const std::size_t at : points) {
    numeric.push_back(central_difference(c, data, moved, index, at));
    chosen.push_back(analytic[at]);
  }
  if (input.zero_gradient) {
    const bool flat =
        std::all_of(numeric.begin(), numeric.end(), [](double slope) { return std::abs(slope) <= 1e-6; });
    report.condition(input.name, !flat                 ? "declared zero, but differences are not"
                                 : !all_zero(analytic) ? "declared zero, but the gradient is not"
                                                       : "");
    return;
  }
  if (numeric.empty() || all_zero(numeric)) {
    report.error(input.name, kNaN, kDifferenceTolerance, "all differences are zero: this check sees nothing",
                 0);
    return;
  }
  double error = 0;
  if (points.size() == analytic.size()) {
    error = relative_error(analytic, numeric, input.shape, DType::f64, ErrorRule::slice);
  } else {
    const double floor = root_mean_square(numeric);
    for (std::size_t i = 0; i < numeric.size(); ++i) {
      const double one = std::abs(chosen[i] - numeric[i]) / (std::abs(numeric[i]) + floor);
      if (!(one <= error)) error = one;
      if (std::isnan(error)) break;
    }
  }
  report.error(input.name, error, kDifferenceTolerance, "", 0);
}

// ---- comparison

/// Without an element in any output, or in any gradient, there is nothing to compute: at most zeros are
/// filled in, which need be neither a launch nor an op.
bool anything_to_do(const Case& c, bool backward) {
  const auto output_has = [](const Output& output) { return output.present && output.shape.elements() > 0; };
  const auto gradient_has = [](const Input& input) { return input.gradient && input.shape.elements() > 0; };
  return std::any_of(c.outputs.begin(), c.outputs.end(), output_has) &&
         (!backward || std::any_of(c.inputs.begin(), c.inputs.end(), gradient_has));
}

/// What the counters of the last call say against the place it was meant to run at.
std::string wrong_place(const Case& c, const Instance& instance, Place place, bool backward) {
  if (place.implementation == Call::Implementation::reference || !anything_to_do(c, backward)) return {};
  std::ostringstream text;
  const bool on_cpu = place.device.is_cpu();
  const bool right = on_cpu ? instance.launches() == 0 && instance.cpu_ops() > 0
                            : instance.launches() > 0 && instance.cpu_ops() == 0;
  if (!right)
    text << instance.launches() << " kernel launches and " << instance.cpu_ops() << " cpu ops, wants "
         << (on_cpu ? "cpu ops only" : "launches only");
  return text.str();
}

/// By the rule for the type that the tensor is stored in.
double error_of(const Values& got, const Values& want, const Shape& shape, DType stored, DType run,
                ErrorRule rule) {
  return is_16_bit(stored) ? rounding_error(got, want, shape, stored)
                           : relative_error(got, want, shape, at_least_f32(run), rule);
}

/// The budget of a tensor stored in `stored`. One of f64 holds what the type of the run lets it.
double budget_of(const Budget& budget, DType stored, DType run) {
  return budget.of(is_16_bit(stored) ? stored : at_least_f32(run));
}

void output_row(const Case& c, std::size_t index, const Instance& instance, const Reference& reference,
                Place place, const std::string& fault, Report& report) {
  const Output& output = c.outputs[index];
  if (!output.present) return;
  Values got = instance.output(index), want = reference.output(index);
  Shape shape = output.shape;
  if (output.canonical) {
    got = output.canonical(got, shape, place.dtype);
    want = output.canonical(want, shape, DType::f64);
    shape = output.canonical_shape;
  }
  std::string what = fault;
  if (!output.zero && !want.empty() && all_zero(want))
    what = joined(what, "the reference is all zero: this compares nothing");
  const DType stored = type_of(output.type, place.dtype);
  report.error(output.name, error_of(got, want, shape, stored, place.dtype, output.rule),
               budget_of(output.budget, stored, place.dtype), what, instance.launches());
}

void gradient_row(const Case& c, std::size_t index, const Instance& instance, const Reference& reference,
                  Place place, const std::string& fault, Report& report) {
  const Input& input = c.inputs[index];
  if (!input.gradient) return;
  const Values& want = reference.gradient(index);
  std::string what = fault;
  if (!input.zero_gradient && !want.empty() && all_zero(want))
    what = joined(what, "the reference is all zero: this compares nothing");
  const DType stored = type_of(input.type_of_gradient(), place.dtype);
  report.error(input.name,
               error_of(instance.gradient(index), want, input.shape, stored, place.dtype, input.rule),
               budget_of(input.budget, stored, place.dtype), what, instance.launches());
}

/// What backward reads is what forward stored, and its error is not backward's.
void give_saved(const Case& c, const Instance& instance, DType dtype, Reference& reference) {
  for (std::size_t i = 0; i < c.outputs.size(); ++i)
    if (c.outputs[i].saved && c.outputs[i].present && is_16_bit(type_of(c.outputs[i].type, dtype)))
      reference.give_output(i, instance.output(i));
}

void exact_row(const Case& c, const Instance& instance, DType dtype, bool backward, Report& report) {
  if (!c.check) return;
  std::vector<Values> outputs, gradients;
  for (std::size_t i = 0; i < c.outputs.size(); ++i) outputs.push_back(instance.output(i));
  for (std::size_t i = 0; backward && i < c.inputs.size(); ++i) gradients.push_back(instance.gradient(i));
  if (is_16_bit(dtype))
    for (auto* list : {&outputs, &gradients})
      for (Values& values : *list)
        for (double& value : values) value = rounded(value, dtype);
  report.condition("exact", c.check(outputs, gradients), instance.launches());
}

// ---- write modes

/// Runs one combination of asks; returns what is wrong with the gradients given those of an overwriting run.
std::string combination_fault(const Case& c, const Data& data, Instance& instance,
                              const std::vector<Ask>& asks, const std::vector<Values>& gradients,
                              const std::vector<std::vector<std::byte>>& gradient_bits, DType dtype) {
  instance.backward(asks);
  std::string fault = instance.damage();
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    if (!c.inputs[i].gradient) continue;
    const DType type = type_of(c.inputs[i].type_of_gradient(), dtype);
    std::string one;
    if (asks[i] == Ask::overwrite && instance.gradient_bits(i) != gradient_bits[i])
      one = "overwrite gives other bytes than beside overwritten gradients";
    if (asks[i] == Ask::accumulate)
      one = accumulation_fault(instance.gradient(i), data.old[i], gradients[i], type);
    if (!one.empty()) fault = joined(fault, "d_" + c.inputs[i].name + ": " + one);
  }
  return fault;
}

const char* name(Ask ask) {
  switch (ask) {
    case Ask::absent:
      return "absent";
    case Ask::skip:
      return "skip";
    case Ask::overwrite:
      return "overwrite";
    case Ask::accumulate:
      return "accumulate";
  }
  return "unknown";
}

/// The combinations: all of one mode; each gradient alone; each one differing from all others. Absent and skipped are the
/// same to an op, so that each of the others is met beside one of the two.
std::vector<std::vector<Ask>> combinations(std::size_t count) {
  std::set<std::vector<Ask>> all;
  for (const Ask ask : {Ask::absent, Ask::skip, Ask::overwrite, Ask::accumulate})
    all.insert(std::vector<Ask>(count, ask));
  constexpr std::pair<Ask, Ask> kOthersAndOne[] = {
      {Ask::absent, Ask::overwrite},  {Ask::skip, Ask::accumulate},      {Ask::overwrite, Ask::skip},
      {Ask::accumulate, Ask::absent}, {Ask::overwrite, Ask::accumulate}, {Ask::accumulate, Ask::overwrite}};
  for (std::size_t i = 0; i < count; ++i)
    for (const auto& [others, one] : kOthersAndOne) {
      std::vector<Ask> asks(count, others);
      asks[i] = one;
      all.insert(asks);
    }
  return {all.begin(), all.end()};
}

void append(Rows& rows, Rows more) {
  for (Row& row : more) rows.push_back(std::move(row));
}

}  // namespace

bool all_pass(const Rows& rows) noexcept {
  return !rows.empty() && std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.pass; });
}

std::string failures(const Rows& rows, std::uint64_t seed) {
  std::ostringstream text;
  if (rows.empty()) text << "no row: nothing was checked\n";
  for (const Row& row : rows) {
    if (row.pass) continue;
    text << row.op << " " << row.dtype << " " << row.device << " (" << row.backend << ") " << row.argument
         << ": " << row.message << "\n    case '" << row.case_name << "' [" << row.variant
         << "]; again: scantape gradcheck --op " << row.op << " --case '" << row.case_name << "' --seed "
         << seed << "\n";
  }
  return text.str();
}

Rows finite_differences(const Case& c, std::uint64_t seed) {
  if (!c.backward || !c.finite_differences) return {};
  const Place place{kCpu, DType::f64, Call::Implementation::reference};
  return reported(c, place, [&](Report& report) {
    const Data data = make_data(c, DType::f64, seed);
    Reference reference(c, data);
    reference.forward();
    reference.backward();
    Rng rng(hash(c.name) + seed);
    for (std::size_t i = 0; i < c.inputs.size(); ++i)
      if (c.inputs[i].gradient && c.inputs[i].differences)
        difference_row(c, data, reference.gradient(i), i, rng, report);
  });
}

Rows compare(const Case& c, Place place, std::uint64_t seed) {
  return reported(c, place, [&](Report& report) {
    const Data data = make_data(c, place.dtype, seed);
    Reference reference(c, data, place.dtype);
    Instance instance(c, data, place);
    reference.forward();
    instance.forward();
    std::string fault = joined(instance.damage(), wrong_place(c, instance, place, false));
    for (std::size_t i = 0; i < c.outputs.size(); ++i)
      output_row(c, i, instance, reference, place, fault, report);
    if (c.backward) {
      give_saved(c, instance, place.dtype, reference);
      reference.backward();
      instance.backward(Ask::overwrite);
      fault = joined(instance.damage(), wrong_place(c, instance, place, true));
      for (std::size_t i = 0; i < c.inputs.size(); ++i)
        gradient_row(c, i, instance, reference, place, fault, report);
    }
    exact_row(c, instance, place.dtype, static_cast<bool>(c.backward), report);
  });
}

Rows write_modes(const Case& c, Place place, std::uint64_t seed) {
  if (!c.backward) return {};
  return reported(c, place, [&](Report& report) {
    const Data data = make_data(c, place.dtype, seed);
    Instance instance(c, data, place);
    instance.forward();
    instance.backward(Ask::overwrite);
    std::vector<Values> gradients;
    std::vector<std::vector<std::byte>> bits;
    std::vector<std::size_t> differentiable;
    for (std::size_t i = 0; i < c.inputs.size(); ++i) {
      gradients.push_back(instance.gradient(i));
      bits.push_back(instance.gradient_bits(i));
      if (c.inputs[i].gradient) differentiable.push_back(i);
    }
    for (const std::vector<Ask>& chosen : combinations(differentiable.size())) {
      std::vector<Ask> asks(c.inputs.size(), Ask::absent);
      std::string title;
      for (std::size_t k = 0; k < differentiable.size(); ++k) {
        asks[differentiable[k]] = chosen[k];
        title += (k == 0 ? "" : ", ") + ("d_" + c.inputs[differentiable[k]].name) + " " + name(chosen[k]);
      }
      report.condition(title, combination_fault(c, data, instance, asks, gradients, bits, place.dtype),
                       instance.launches());
    }
  });
}

int repetitions_of(const Case& c) noexcept {
  return c.benchmark ? kRepetitionsOfLargeCases : kRepetitions;
}

Rows repetitions(const Case& c, Place place, std::uint64_t seed) {
  return reported(c, place, [&](Report& report) {
    const Data data = make_data(c, place.dtype, seed);
    const auto bits = [&] {
      Instance instance(c, data, place);
      instance.forward();
      if (c.backward) instance.backward(Ask::overwrite);
      return instance.all_bits();
    };
    const int threads = omp_get_max_threads();
    std::string fault;
    omp_set_num_threads(1);
    const std::vector<std::byte> first = bits();
    const int runs = repetitions_of(c);
    for (int run = 1; run < runs && fault.empty(); ++run) {
      omp_set_num_threads(1 + run % 2);
      if (bits() != first)
        fault = "run " + std::to_string(run) + ", with " + std::to_string(1 + run % 2) +
                " threads, gives other bytes than the first, with 1";
    }
    omp_set_num_threads(threads);
    report.condition("all", fault);
  });
}

namespace {

/// Runs `whole` items and compares those from `at` with what the same items gave alone.
std::string item_fault(const Case& alone, const Data& alone_data, const Case& batch, const Data& batch_data,
                       std::int64_t at, Place place) {
  Instance one(alone, alone_data, place), many(batch, batch_data, place);
  for (Instance* instance : {&one, &many}) {
    instance->forward();
    if (alone.backward) instance->backward(Ask::overwrite);
  }
  const std::int64_t items = item_count(alone), all = item_count(batch);
  const auto differs = [&](const std::vector<std::byte>& part, const std::vector<std::byte>& whole) {
    const auto item_bytes = static_cast<std::int64_t>(whole.size()) / all;
    return static_cast<std::int64_t>(part.size()) != items * item_bytes ||
           !std::equal(part.begin(), part.end(), whole.begin() + at * item_bytes);
  };
  const std::string where = " of items from " + std::to_string(at) + " of " + std::to_string(all) +
                            " differ from those of the same " + std::to_string(items) + " alone";
  for (std::size_t i = 0; i < alone.outputs.size(); ++i)
    if (alone.outputs[i].items && alone.outputs[i].present &&
        differs(one.output_bits(i), many.output_bits(i)))
      return alone.outputs[i].name + ": bytes" + where;
  for (std::size_t i = 0; alone.backward && i < alone.inputs.size(); ++i)
    if (alone.inputs[i].items && alone.inputs[i].gradient &&
        differs(one.gradient_bits(i), many.gradient_bits(i)))
      return "d_" + alone.inputs[i].name + ": bytes" + where;
  return {};
}

}  // namespace

Rows item_independence(const Case& c, Place place, std::uint64_t seed) {
  if (!has_items(c)) return {};
  return reported(c, place, [&](Report& report) {
    const Data data = make_data(c, place.dtype, seed);
    const std::int64_t items = item_count(c);
    for (const std::int64_t at : std::set<std::int64_t>{0, items / 2, items - 1})
      report.condition(
          "item " + std::to_string(at),
          item_fault(take_items(c, at, at + 1), take_items(c, data, at, at + 1), c, data, at, place));
    report.condition("second half", item_fault(c, data, doubled(c), doubled(c, data), items, place));
  });
}

Rows zero_cotangents(const Case& c, Place place, std::uint64_t seed) {
  if (!c.backward) return {};
  return reported(c, place, [&](Report& report) {
    Instance instance(c, make_data(c, place.dtype, seed), place);
    instance.forward();
    instance.zero_cotangents();
    instance.backward(Ask::overwrite);
    for (std::size_t i = 0; i < c.inputs.size(); ++i)
      if (c.inputs[i].gradient)
        report.condition(
            c.inputs[i].name,
            all_zero(instance.gradient(i)) ? "" : "a zero cotangent gives a gradient that is not zero",
            instance.launches());
  });
}

Rows in_place(const Case& c, Place place, std::uint64_t seed) {
  if (c.aliases.empty()) return {};
  return reported(c, place, [&](Report& report) {
    const Data data = make_data(c, place.dtype, seed);
    Instance apart(c, data, place);
    apart.forward();
    if (c.backward) apart.backward(Ask::overwrite);
    for (const auto& [upper, lower] : c.aliases) {
      Instance laid(c, data, place);
      const bool gradient = upper.rfind("d_", 0) == 0;
      std::string fault;
      if (gradient) {
        laid.forward();
        laid.alias(upper, lower);
        laid.backward(Ask::overwrite);
        for (std::size_t i = 0; i < c.inputs.size(); ++i)
          if (c.inputs[i].gradient && "d_" + c.inputs[i].name != upper &&
              laid.gradient_bits(i) != apart.gradient_bits(i))
            fault = joined(fault, "d_" + c.inputs[i].name + " changes");
        for (std::size_t i = 0; i < c.inputs.size(); ++i)
          if ("d_" + c.inputs[i].name == upper && laid.bits_of(lower) != apart.gradient_bits(i))
            fault = joined(fault, "gives other bytes");
      } else {
        laid.alias(upper, lower);
        laid.forward();
        for (std::size_t i = 0; i < c.outputs.size(); ++i)
          if (laid.bits_of(c.outputs[i].name == upper ? lower : c.outputs[i].name) != apart.output_bits(i))
            fault = joined(fault, c.outputs[i].name + " has other bytes");
      }
      report.condition(upper + " over " + lower, joined(fault, laid.damage()));
    }
  });
}

std::vector<const Case*> selected(const Selection& selection) {
  std::vector<const Case*> cases;
  bool known = selection.op.empty();
  for (const OpEntry& entry : op_entries()) known = known || selection.op == entry.name;
  if (!known) throw Error(Code::invalid_argument, "no op is named " + selection.op);
  for (const Case& c : all_cases())
    if (!c.benchmark && (selection.op.empty() || c.op == selection.op) &&
        c.name.find(selection.case_name) != std::string::npos)
      cases.push_back(&c);
  if (cases.empty())
    throw Error(Code::invalid_argument, "no case has '" + selection.case_name + "' in its name");
  return cases;
}

Rows gradcheck(const Selection& selection, const std::function<void(const Row&)>& on_row) {
  const std::vector<const Case*> cases = selected(selection);
  std::vector<Device> devices;
  if (selection.device) {
    if (!is_available(*selection.device))
      throw Error(Code::unsupported, "there is no device " + scantape::name(*selection.device));
    devices = {*selection.device};
  } else {
    devices = {kCpu};
    if (is_available(kCuda)) devices.push_back(kCuda);
  }
  Rows rows;
  const auto add = [&](Rows more) {
    if (on_row)
      for (const Row& row : more) on_row(row);
    append(rows, std::move(more));
  };
  for (const Case* c : cases)
    for (const Device device : devices) {
      if (c->cpu_only && !device.is_cpu()) continue;
      if (device.is_cpu()) add(finite_differences(*c, selection.seed));
      for (const DType dtype : dtypes(*c)) add(compare(*c, Place{device, dtype}, selection.seed));
    }
  return rows;
}

}  // namespace scantape::cases
