#include "scantape/autograd/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "scantape/autograd/tape.h"

namespace scantape::autograd {
namespace {

using Values = std::vector<double>;

/// Up to this many entries the whole Jacobian is compared, above it one product with a random cotangent.
constexpr std::size_t kFullJacobian = 4096;
/// A row of the Jacobian that is far smaller than the others drowns in the rounding of the differences.
constexpr double kRowFloor = 1e-2;

double rms(const double* values, std::size_t count, std::size_t stride = 1) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += values[i * stride] * values[i * stride];
  return count == 0 ? 0 : std::sqrt(sum / static_cast<double>(count));
}

/// |got - want| / scale where equal values, zeros among them, have no error.
double element_error(double got, double want, double slice_rms) {
  if (got == want && std::isfinite(got)) return 0;
  return std::abs(got - want) / (std::abs(want) + slice_rms);
}

/// The larger error; NaN, once met, stays.
double worse(double a, double b) {
  return std::isnan(a) || a > b ? a : b;
}

/// What finite differences say about one input.
struct Differences {
  std::vector<Values> products;  // cotangent times Jacobian, one a cotangent
  double jacobian_rms = 0;
};

/// The function under test with the inputs' values at hand.
class Subject {
 public:
  Subject(const DifferentiableFunction& function, const std::vector<Tensor>& inputs) : function_(function) {
    for (const Tensor& input : inputs) {
      shapes_.push_back(input.shape());
      devices_.push_back(input.device());
      values_.push_back(input.values<double>());
    }
    const auto outputs = function_(constants(values_));
    for (const Variable& output : outputs) {
      if (!output.present() || output.dtype() != DType::f64)
        throw Error(Code::invalid_argument,
                    "gradcheck: every output of the function must be present and f64");
      output_sizes_.push_back(static_cast<std::size_t>(output.value().elements()));
    }
    if (output_count() == 0) throw Error(Code::invalid_argument, "gradcheck: the outputs have no elements");
  }

  std::size_t inputs() const { return values_.size(); }
  const Values& input(std::size_t i) const { return values_[i]; }
  const Shape& shape(std::size_t i) const { return shapes_[i]; }
  std::size_t output_count() const {
    return std::accumulate(output_sizes_.begin(), output_sizes_.end(), std::size_t{0});
  }

  /// d outputs / d input i by central differences of fourth order, multiplied with each cotangent.
  Differences differences(std::size_t i, const std::vector<Values>& cotangents, double step) const {
    const std::size_t columns = values_[i].size(), rows = output_count();
    Differences result{std::vector<Values>(cotangents.size(), Values(columns)), 0};
    std::vector<Values> moved = values_;
    Values column(rows);
    for (std::size_t j = 0; j < columns; ++j) {
      const double x = values_[i][j];
      const double h = step * std::max(1.0, std::abs(x));
      const auto at = [&](double steps) {
        moved[i][j] = x + steps * h;
        return evaluate(moved);
      };
      const Values p1 = at(1), m1 = at(-1), p2 = at(2), m2 = at(-2);
      moved[i][j] = x;
      for (std::size_t k = 0; k < rows; ++k) column[k] = (8 * (p1[k] - m1[k]) - (p2[k] - m2[k])) / (12 * h);
      for (std::size_t c = 0; c < cotangents.size(); ++c)
        result.products[c][j] = std::inner_product(column.begin(), column.end(), cotangents[c].begin(), 0.0);
      result.jacobian_rms +=
          rms(column.data(), rows) * rms(column.data(), rows) / static_cast<double>(columns);
    }
    result.jacobian_rms = std::sqrt(result.jacobian_rms);
    return result;
  }

  /// The gradients of every input by the tape, one set for each cotangent of all outputs.
  std::vector<std::vector<Values>> gradients(const std::vector<Values>& cotangents) const {
    Tape tape;
    std::vector<Variable> leaves;
    for (std::size_t i = 0; i < values_.size(); ++i)
      leaves.push_back(tape.leaf(Tensor::from(shapes_[i], values_[i], devices_[i])));
    const auto outputs = function_(leaves);
    std::vector<std::vector<Values>> all;
    for (const Values& cotangent : cotangents) {
      tape.backward(seeds(outputs, cotangent), true);
      std::vector<Values> gradients;
      for (std::size_t i = 0; i < leaves.size(); ++i) {
        const Tensor gradient = tape.gradient(leaves[i]);
        if (gradient.shape() != shapes_[i])
          throw Error(Code::invalid_argument, "gradcheck: a gradient's shape is wrong");
        gradients.push_back(gradient.values<double>());
      }
      all.push_back(std::move(gradients));
    }
    return all;
  }

 private:
  std::vector<Variable> constants(const std::vector<Values>& values) const {
    std::vector<Variable> variables;
    for (std::size_t i = 0; i < values.size(); ++i)
      variables.emplace_back(Tensor::from(shapes_[i], values[i], devices_[i]));
    return variables;
  }

  Values evaluate(const std::vector<Values>& values) const {
    Values all;
    for (const Variable& output : function_(constants(values))) {
      const Values part = output.value().values<double>();
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  static std::vector<Tape::Seed> seeds(const std::vector<Variable>& outputs, const Values& cotangent) {
    std::vector<Tape::Seed> result;
    auto from = cotangent.begin();
    for (const Variable& output : outputs) {
      const auto to = from + output.value().elements();
      // An output that depends on no input is not on the tape and takes no cotangent.
      if (output.recorded())
        result.push_back({output, Tensor::from(output.shape(), Values(from, to), output.device())});
      from = to;
    }
    if (result.empty())
      throw Error(Code::invalid_argument, "gradcheck: no output depends on an input through the tape");
    return result;
  }

  const DifferentiableFunction& function_;
  std::vector<Shape> shapes_;
  std::vector<Device> devices_;
  std::vector<Values> values_;
  std::vector<std::size_t> output_sizes_;
};

/// All unit cotangents and a random one where the Jacobian is small, else the random one alone.
std::vector<Values> choose_cotangents(std::size_t outputs, bool full, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Values> cotangents(1, Values(outputs));
  // Away from zero, so that no output goes unseen.
  for (double& value : cotangents[0]) {
    const double uniform = static_cast<double>(random() >> 11) * 0x1p-53;
    value = (random() & 1U ? 1 : -1) * (0.5 + uniform);
  }
  for (std::size_t k = 0; full && k < outputs; ++k) {
    cotangents.emplace_back(outputs, 0.0);
    cotangents.back()[k] = 1;
  }
  return cotangents;
}

bool all_zero(const Values& values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return value == 0; });
}

bool same_bits(const Values& a, const Values& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

void fail(GradcheckRow& row, const std::string& message) {
  row.pass = false;
  row.message += (row.message.empty() ? "" : "; ") + message;
}

std::string argument_name(const GradcheckOptions& options, std::size_t i) {
  return i < options.names.size() ? options.names[i] : "input " + std::to_string(i);
}

std::string worst_element(const Values& got, const Values& want) {
  std::size_t worst = 0;
  for (std::size_t j = 0; j < got.size(); ++j)
    if (!(std::abs(got[j] - want[j]) <= std::abs(got[worst] - want[worst]))) worst = j;
  char text[128];
  std::snprintf(text, sizeof text, "element %zu: by the tape %.10g, by differences %.10g", worst, got[worst],
                want[worst]);
  return text;
}

}  // namespace

double slice_error(const std::vector<double>& got, const std::vector<double>& want, const Shape& shape,
                   double floor) {
  if (got.size() != want.size() || static_cast<std::int64_t>(want.size()) != shape.elements())
    return std::numeric_limits<double>::quiet_NaN();
  const std::size_t slices = shape.rank() < 2 ? 1 : static_cast<std::size_t>(shape.back());
  const double whole = rms(want.data(), want.size());
  double error = 0;
  for (std::size_t slice = 0; slice < slices; ++slice) {
    const std::size_t count = slices == 0 ? 0 : want.size() / slices;
    const double scale = std::max(rms(want.data() + slice, count, slices), floor * whole);
    for (std::size_t i = slice; i < want.size(); i += slices)
      error = worse(error, element_error(got[i], want[i], scale));
  }
  return error;
}

GradcheckReport gradcheck(const DifferentiableFunction& function, const std::vector<Tensor>& inputs,
                          const GradcheckOptions& options) {
  if (inputs.empty()) throw Error(Code::invalid_argument, "gradcheck: wants at least one input");
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].present() || inputs[i].dtype() != DType::f64 || inputs[i].elements() == 0)
      throw Error(Code::invalid_argument,
                  "gradcheck: " + argument_name(options, i) +
                      " must be f64 and have elements: differences in f32, or of nothing, prove nothing");

  const Subject subject(function, inputs);
  const std::size_t outputs = subject.output_count();
  std::size_t elements = 0;
  for (std::size_t i = 0; i < subject.inputs(); ++i) elements += subject.input(i).size();
  const auto cotangents = choose_cotangents(outputs, outputs * elements <= kFullJacobian, options.seed);
  const auto analytic = subject.gradients(cotangents);
  const auto again = subject.gradients({cotangents[0], Values(outputs, 0.0)});

  GradcheckReport report;
  for (std::size_t i = 0; i < subject.inputs(); ++i) {
    GradcheckRow row{argument_name(options, i), 0, options.tolerance, true, ""};
    const Differences numeric = subject.differences(i, cotangents, options.step);
    const bool zero = numeric.jacobian_rms == 0;
    for (std::size_t c = 0; c < cotangents.size(); ++c) {
      const Values& got = analytic[c][i];
      const Values& want = numeric.products[c];
      const double scale = std::max(rms(want.data(), want.size()), kRowFloor * numeric.jacobian_rms);
      double error = 0;
      for (std::size_t j = 0; j < want.size(); ++j)
        error = worse(error, element_error(got[j], want[j], scale));
      if (row.pass && !(error <= options.tolerance)) fail(row, worst_element(got, want));
      row.max_rel_err = worse(row.max_rel_err, error);
    }
    const bool expected_zero = std::find(options.zero_gradients.begin(), options.zero_gradients.end(),
                                         static_cast<int>(i)) != options.zero_gradients.end();
    if (zero && !expected_zero)
      fail(row, "the gradient is zero everywhere by differences, so this check sees nothing");
    if (!zero && expected_zero) fail(row, "the gradient was declared zero and is not");
    if (!same_bits(again[0][i], analytic[0][i])) fail(row, "two runs give different bits");
    if (!all_zero(again[1][i])) fail(row, "a cotangent of zero gives a gradient that is not zero");
    report.rows.push_back(std::move(row));
  }
  return report;
}

bool GradcheckReport::pass() const noexcept {
  return !rows.empty() &&
         std::all_of(rows.begin(), rows.end(), [](const GradcheckRow& row) { return row.pass; });
}

std::string GradcheckReport::text() const {
  std::string result;
  for (const GradcheckRow& row : rows) {
    char line[256];
    std::snprintf(line, sizeof line, "%-4s %-24s error %.2e, tolerance %.2e", row.pass ? "ok" : "FAIL",
                  row.argument.c_str(), row.max_rel_err, row.tolerance);
    result += line + (row.message.empty() ? "" : ": " + row.message) + "\n";
  }
  return result;
}

}  // namespace scantape::autograd
