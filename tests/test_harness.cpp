/// The harness itself: answers with a planted fault must fail, each by the check that is there for it, and
/// the honest answer must pass. The op is a small one written here:  y = w x^2 + b,  s = x^2 saved;  d_x = 2
/// w x d_y, d_w = sum_rows d_y s,  d_b = sum_rows d_y.

#include <omp.h>

#include <cmath>
#include <limits>

#include "case_tests.h"
#include "cases/compare.h"
#include "cases/image.h"
#include "scantape/counters.h"

namespace scantape::cases {
namespace {

/// A tensor's elements by row and column, whatever its type and strides.
class Matrix {
 public:
  explicit Matrix(const ConstView& view) : view_(view) { as_rows(view, &rows_); }
  std::int64_t rows() const { return rows_.count; }
  std::int64_t columns() const { return rows_.length; }
  double get(std::int64_t row, std::int64_t column) const {
    const std::int64_t at = row * rows_.stride + column;
    if (view_.dtype == DType::bf16) return static_cast<double>(view_.as<BFloat16>()[at]);
    if (view_.dtype == DType::f16) return static_cast<double>(view_.as<Float16>()[at]);
    return view_.dtype == DType::f64 ? view_.as<double>()[at] : static_cast<double>(view_.as<float>()[at]);
  }
  /// Also outside the tensor: some faults write there.
  void set(std::int64_t row, std::int64_t column, double value) {
    const std::int64_t at = row * rows_.stride + column;
    if (view_.dtype == DType::f64)
      const_cast<double*>(view_.as<double>())[at] = value;
    else if (view_.dtype == DType::bf16)
      const_cast<BFloat16*>(view_.as<BFloat16>())[at] = BFloat16(value);
    else if (view_.dtype == DType::f16)
      const_cast<Float16*>(view_.as<Float16>())[at] = Float16(value);
    else
      const_cast<float*>(view_.as<float>())[at] = static_cast<float>(value);
  }

 private:
  ConstView view_;
  scantape::Rows rows_;
};

/// Where and when a fault strikes: the routed op or the reference, after the honest answer has been written.
struct Fault {
  std::function<void(const Call&)> after_forward{}, after_backward{};
  Call::Implementation where = Call::Implementation::routed;
};

void store(const Gradient& gradient, Matrix& target, std::int64_t row, std::int64_t column, double value) {
  if (gradient.mode == WriteMode::accumulate) value += target.get(row, column);
  target.set(row, column, value);
}

Status honest_forward(const Call& call) {
  const Matrix x(call.input("x")), w(call.input("w")), b(call.input("b"));
  Matrix y(call.output("y")), s(call.output("s"));
  for (std::int64_t i = 0; i < x.rows(); ++i)
    for (std::int64_t j = 0; j < x.columns(); ++j) {
      s.set(i, j, x.get(i, j) * x.get(i, j));
      y.set(i, j, w.get(0, j) * x.get(i, j) * x.get(i, j) + b.get(0, j));
    }
  return {};
}

Status honest_backward(const Call& call) {
  const Matrix x(call.input("x")), w(call.input("w")), s(call.output("s")), d_y(call.cotangent("y"));
  const Gradient gx = call.gradient("x"), gw = call.gradient("w"), gb = call.gradient("b");
  if (gx.wanted()) {
    Matrix d_x(gx.view);
    for (std::int64_t i = 0; i < x.rows(); ++i)
      for (std::int64_t j = 0; j < x.columns(); ++j)
        store(gx, d_x, i, j, 2 * w.get(0, j) * x.get(i, j) * d_y.get(i, j));
  }
  for (std::int64_t j = 0; j < x.columns(); ++j) {
    double sum_w = 0, sum_b = 0;
    for (std::int64_t i = 0; i < x.rows(); ++i) {
      sum_w += d_y.get(i, j) * s.get(i, j);
      sum_b += d_y.get(i, j);
    }
    if (gw.wanted()) {
      Matrix d_w(gw.view);
      store(gw, d_w, 0, j, sum_w);
    }
    if (gb.wanted()) {
      Matrix d_b(gb.view);
      store(gb, d_b, 0, j, sum_b);
    }
  }
  return {};
}

constexpr std::int64_t kRows = 9, kColumns = 9;  // square, so that a transposed answer has the right shape

Case toy_case(const Fault& fault = {}) {
  const Shape shape{kRows, kColumns}, row{kColumns};
  // The last column is a thousand times smaller than the others: its errors must not drown.
  const Fill weights = [](Rng& rng, const Shape& s) {
    Values values = normal(2, 0.3)(rng, s);
    values.back() *= 1e-3;
    return values;
  };
  const Fill offsets = [](Rng& rng, const Shape& s) {
    Values values = normal()(rng, s);
    values.back() *= 1e-3;
    return values;
  };
  Case c;
  c.op = "toy";
  c.name = "toy/R9-C9";
  c.inputs = {
      {.name = "x", .shape = shape, .fill = normal(0.5, 1), .gradient = true, .items = true, .strided = true},
      {.name = "w", .shape = row, .fill = weights, .gradient = true},
      {.name = "b", .shape = row, .fill = offsets, .gradient = true}};
  c.outputs = {
      {.name = "y", .shape = shape, .items = true, .strided = true},
      {.name = "s", .shape = shape, .cotangent = false, .saved = true, .items = true, .strided = true}};
  c.forward = [fault](const Call& call) {
    const Status status = honest_forward(call);
    if (fault.after_forward && call.implementation == fault.where) fault.after_forward(call);
    if (call.implementation == Call::Implementation::routed) ++detail::mutable_counters().cpu_ops;
    return status;
  };
  c.backward = [fault](const Call& call) {
    const Status status = honest_backward(call);
    if (fault.after_backward && call.implementation == fault.where) fault.after_backward(call);
    if (call.implementation == Call::Implementation::routed) ++detail::mutable_counters().cpu_ops;
    return status;
  };
  c.layout = Layout::strided;
  c.properties = true;
  c.in_16_bits = true;
  return c;
}

const Place kPlace{kCpu, DType::f64};

bool passes(const Rows& rows) {
  return all_pass(rows);
}

/// Applies `change(value, row, column)` to every element of the tensor that `pick` finds.
template <class Change>
std::function<void(const Call&)> changed(const char* name, Change change) {
  return [name, change](const Call& call) {
    const std::string text = name;
    if (text.rfind("d_", 0) == 0 && !call.gradient(text.substr(2)).wanted()) return;
    Matrix m(text.rfind("d_", 0) == 0 ? ConstView(call.gradient(text.substr(2)).view)
                                      : ConstView(call.output(text)));
    Values old;
    for (std::int64_t i = 0; i < m.rows(); ++i)
      for (std::int64_t j = 0; j < m.columns(); ++j) old.push_back(m.get(i, j));
    for (std::int64_t i = 0; i < m.rows(); ++i)
      for (std::int64_t j = 0; j < m.columns(); ++j) m.set(i, j, change(old, i, j));
  };
}

double at(const Values& values, std::int64_t i, std::int64_t j) {
  return values[static_cast<std::size_t>(i * kColumns + j)];
}

struct Planted {
  const char* name;
  std::function<double(const Values&, std::int64_t, std::int64_t)> change;
};

/// Wrong answers that a comparison must refuse.
std::vector<Planted> wrong_answers() {
  return {
      {"one NaN",
       [](const Values& v, auto i, auto j) { return i == 0 && j == 0 ? std::nan("") : at(v, i, j); }},
      {"all NaN", [](const Values&, auto, auto) { return std::nan(""); }},
      {"one infinity",
       [](const Values& v, auto i, auto j) {
         return i == 0 && j == 1 ? std::numeric_limits<double>::infinity() : at(v, i, j);
       }},
      {"shifted by one", [](const Values& v, auto i, auto j) { return at(v, i, (j + 1) % kColumns); }},
      {"all zero", [](const Values&, auto, auto) { return 0.0; }},
      {"all one", [](const Values&, auto, auto) { return 1.0; }},
      {"sign flipped", [](const Values& v, auto i, auto j) { return -at(v, i, j); }},
      {"last element missing",
       [](const Values& v, auto i, auto j) {
         return static_cast<std::size_t>(i * kColumns + j) + 1 == v.size() ? 0.0 : at(v, i, j);
       }},
      {"small column off by a percent",
       [](const Values& v, auto i, auto j) { return at(v, i, j) * (j + 1 == kColumns ? 1.01 : 1.0); }},
      {"one element off by 1e-6",
       [](const Values& v, auto i, auto j) { return at(v, i, j) * (i == 0 && j == 2 ? 1 + 1e-6 : 1.0); }},
      {"scaled by the number of rows", [](const Values& v, auto i, auto j) { return at(v, i, j) / kRows; }},
  };
}

TEST(Harness, HonestAnswersPass) {
  const Case c = toy_case();
  EXPECT_TRUE(passes(finite_differences(c, seed()))) << failures(finite_differences(c, seed()), seed());
  for (const DType dtype : dtypes(c)) {
    const Place place{kCpu, dtype};
    for (const auto& property : {compare, write_modes, repetitions, item_independence, zero_cotangents}) {
      const Rows rows = property(c, place, seed());
      EXPECT_TRUE(passes(rows)) << failures(rows, seed());
    }
  }
}

TEST(Harness, WrongOutputsFail) {
  for (const Planted& planted : wrong_answers())
    for (const char* output : {"y", "s"})
      EXPECT_FALSE(
          passes(compare(toy_case({.after_forward = changed(output, planted.change)}), kPlace, seed())))
          << output << " " << planted.name;
}

TEST(Harness, WrongGradientsFail) {
  for (const Planted& planted : wrong_answers())
    for (const char* gradient : {"d_x", "d_w", "d_b"})
      EXPECT_FALSE(
          passes(compare(toy_case({.after_backward = changed(gradient, planted.change)}), kPlace, seed())))
          << gradient << " " << planted.name;
}

TEST(Harness, WrongGradientsOfTheReferenceFailAgainstDifferences) {
  for (const Planted& planted : wrong_answers()) {
    if (std::string(planted.name) == "one element off by 1e-6") continue;  // within what differences can tell
    for (const char* gradient : {"d_x", "d_w", "d_b"}) {
      const Fault fault{.after_backward = changed(gradient, planted.change),
                        .where = Call::Implementation::reference};
      EXPECT_FALSE(passes(finite_differences(toy_case(fault), seed()))) << gradient << " " << planted.name;
    }
  }
}

TEST(Harness, WrongAnswersIn16BitsFail) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Planted& planted : wrong_answers()) {
      // Less than the type can tell, or one small number of a slice.
      const std::string small = planted.name;
      if (small == "one element off by 1e-6" || small == "small column off by a percent") continue;
      const Place place{kCpu, dtype};
      EXPECT_FALSE(passes(compare(toy_case({.after_forward = changed("y", planted.change)}), place, seed())))
          << name(dtype) << " y " << planted.name;
      for (const char* gradient : {"d_x", "d_w", "d_b"})
        EXPECT_FALSE(
            passes(compare(toy_case({.after_backward = changed(gradient, planted.change)}), place, seed())))
            << name(dtype) << " " << gradient << " " << planted.name;
    }
}

/// The number of the type next to `value` on the side of zero.
double cut_off(double value, DType dtype) {
  const auto cut = [value](auto nearest) {
    if (std::abs(static_cast<double>(nearest)) > std::abs(value)) --nearest.bits;
    return static_cast<double>(nearest);
  };
  return dtype == DType::bf16 ? cut(BFloat16(value)) : cut(Float16(value));
}

TEST(RoundingError, IsOneForTheNearestNumbers) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Rng rng(seed());
    const Shape shape{64, 3};
    const Values want = normal()(rng, shape);
    Values nearest, cut, twice = want;
    for (const double value : want) {
      nearest.push_back(rounded(value, dtype));
      cut.push_back(cut_off(value, dtype));
    }
    EXPECT_EQ(rounding_error(nearest, want, shape, dtype), 1) << name(dtype);
    EXPECT_EQ(rounding_error(want, want, shape, dtype), 0);
    EXPECT_EQ(rounding_error(nearest, nearest, shape, dtype), 0);
    EXPECT_GT(rounding_error(cut, want, shape, dtype), 1.6) << "cut off instead of rounded, " << name(dtype);
    // Rounded to 1/64 first: one digit fewer in half of them.
    for (double& value : twice) value = rounded(std::round(value * 64) / 64, dtype);
    EXPECT_GT(rounding_error(twice, want, shape, dtype), 1.25) << name(dtype);
    // A small column does not drown.
    Values small = want, off;
    for (std::size_t i = 1; i < small.size(); i += 3) small[i] *= 1e-3;
    for (std::size_t i = 0; i < small.size(); ++i)
      off.push_back(rounded(small[i], dtype) * (i % 3 == 1 ? 1 + 0x1p-6 : 1));
    EXPECT_GT(rounding_error(off, small, shape, dtype), 1.25);
  }
}

TEST(RoundingError, OfNaNAndInfinity) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Shape shape{2};
  EXPECT_TRUE(std::isnan(rounding_error({std::nan(""), 1}, {1, 1}, shape, DType::bf16)));
  EXPECT_TRUE(std::isnan(rounding_error({1, 1}, {std::nan(""), 1}, shape, DType::bf16)));
  EXPECT_TRUE(std::isnan(rounding_error({1}, {1, 1}, shape, DType::bf16)));
  EXPECT_TRUE(std::isnan(rounding_error({infinity, 1}, {1, 1}, shape, DType::bf16)));
  EXPECT_TRUE(std::isnan(rounding_error({infinity, 1}, {infinity, 1}, shape, DType::bf16)));
  // Beyond the largest number infinity is the answer, and only that.
  EXPECT_EQ(rounding_error({infinity, 1}, {70000, 1}, shape, DType::f16), 0);
  EXPECT_TRUE(std::isnan(rounding_error({65504, 1}, {70000, 1}, shape, DType::f16)));
  EXPECT_TRUE(std::isnan(rounding_error({-infinity, 1}, {70000, 1}, shape, DType::f16)));
  EXPECT_EQ(rounding_error({0, 0}, {0, 0}, shape, DType::f16), 0);
  EXPECT_FALSE(rounding_error({0, 1e-7}, {0, 0}, shape, DType::f16) <= 1e9);
}

TEST(Harness, TransposedAnswersFail) {
  const auto transposed = [](const Values& v, std::int64_t i, std::int64_t j) { return at(v, j, i); };
  EXPECT_FALSE(passes(compare(toy_case({.after_forward = changed("y", transposed)}), kPlace, seed())));
  EXPECT_FALSE(passes(compare(toy_case({.after_backward = changed("d_x", transposed)}), kPlace, seed())));
}

/// An op that leaves its output as it was answers with what the last call left there.
TEST(Harness, StaleOutputsFail) {
  Case c = toy_case();
  c.forward = [](const Call& call) {
    if (call.implementation == Call::Implementation::reference) return honest_forward(call);
    ++detail::mutable_counters().cpu_ops;
    return Status();
  };
  EXPECT_FALSE(passes(compare(c, kPlace, seed())));
}

TEST(Harness, IgnoredCotangentsFail) {
  // The gradient of sum(y): right for cotangents of one, and only for those.
  const auto as_if_ones = [](const Call& call) {
    if (!call.gradient("b").wanted()) return;
    Matrix d_b(call.gradient("b").view);
    for (std::int64_t j = 0; j < d_b.columns(); ++j) d_b.set(0, j, kRows);
  };
  EXPECT_FALSE(passes(compare(toy_case({.after_backward = as_if_ones}), kPlace, seed())));
  EXPECT_FALSE(passes(zero_cotangents(toy_case({.after_backward = as_if_ones}), kPlace, seed())));
}

/// A case whose backward gets `wrong` for every gradient whose mode `strikes`.
Case mode_fault(const char* gradient,
                std::function<void(const Gradient&, Matrix&, const Values& before)> wrong) {
  Case c = toy_case();
  c.backward = [gradient, wrong](const Call& call) {
    const Gradient g = call.gradient(gradient);
    Values before;
    if (g.view.present) {
      const Matrix m(g.view);
      for (std::int64_t i = 0; i < m.rows(); ++i)
        for (std::int64_t j = 0; j < m.columns(); ++j) before.push_back(m.get(i, j));
    }
    const Status status = honest_backward(call);
    if (g.view.present) {
      Matrix m(g.view);
      wrong(g, m, before);
    }
    if (call.implementation == Call::Implementation::routed) ++detail::mutable_counters().cpu_ops;
    return status;
  };
  return c;
}

TEST(Harness, WrongWriteModesFail) {
  for (const char* gradient : {"d_x", "d_w", "d_b"}) {
    const char* name = gradient + 2;
    const Case assigns = mode_fault(name, [](const Gradient& g, Matrix& m, const Values& before) {
      if (g.mode != WriteMode::accumulate) return;
      for (std::int64_t i = 0; i < m.rows(); ++i)
        for (std::int64_t j = 0; j < m.columns(); ++j)
          m.set(i, j, m.get(i, j) - before[static_cast<std::size_t>(i * m.columns() + j)]);
    });
    EXPECT_FALSE(passes(write_modes(assigns, kPlace, seed()))) << gradient << " = for +=";
    const Case adds = mode_fault(name, [](const Gradient& g, Matrix& m, const Values& before) {
      if (g.mode != WriteMode::overwrite) return;
      for (std::int64_t i = 0; i < m.rows(); ++i)
        for (std::int64_t j = 0; j < m.columns(); ++j)
          m.set(i, j, m.get(i, j) + before[static_cast<std::size_t>(i * m.columns() + j)]);
    });
    EXPECT_FALSE(passes(compare(adds, kPlace, seed()))) << gradient << " += for =";
    const Case writes = mode_fault(name, [](const Gradient& g, Matrix& m, const Values&) {
      if (g.mode == WriteMode::skip) m.set(m.rows() - 1, m.columns() - 1, 0.125);
    });
    EXPECT_FALSE(passes(write_modes(writes, kPlace, seed()))) << gradient << " written though skipped";
    const Case last_only = mode_fault(name, [](const Gradient& g, Matrix& m, const Values& before) {
      if (g.mode == WriteMode::accumulate) m.set(m.rows() - 1, m.columns() - 1, before.back());
    });
    EXPECT_FALSE(passes(write_modes(last_only, kPlace, seed())))
        << gradient << " last element not accumulated";
  }
}

/// The other gradients must not depend on one that is skipped.
TEST(Harness, GradientsThatDependOnASkippedOneFail) {
  Case c = toy_case();
  c.backward = [](const Call& call) {
    const Status status = honest_backward(call);
    if (call.gradient("b").wanted() && !call.gradient("x").wanted()) {
      Matrix d_b(call.gradient("b").view);
      d_b.set(0, 0, d_b.get(0, 0) * 1.5);
    }
    ++detail::mutable_counters().cpu_ops;
    return status;
  };
  EXPECT_TRUE(passes(compare(toy_case(), kPlace, seed())));
  EXPECT_FALSE(passes(write_modes(c, kPlace, seed())));
}

TEST(Harness, WritesOutsideFail) {
  const auto expect_found = [](const Fault& fault, const char* what) {
    const Rows rows = compare(toy_case(fault), kPlace, seed());
    EXPECT_FALSE(passes(rows)) << what;
    EXPECT_NE(failures(rows, seed()).find("outside"), std::string::npos) << what << failures(rows, seed());
  };
  expect_found({.after_forward = [](const Call& call) { Matrix(call.output("y")).set(kRows, 0, 1); }},
               "a row too many");
  expect_found({.after_forward = [](const Call& call) { Matrix(call.output("y")).set(0, -1, 1); }},
               "before the first");
  expect_found({.after_forward = [](const Call& call) { Matrix(call.output("y")).set(2, kColumns, 1); }},
               "between rows");
  expect_found(
      {.after_backward = [](const Call& call) { Matrix(call.gradient("w").view).set(0, kColumns, 1); }},
      "a gradient");
}

TEST(Harness, ChangedInputsFail) {
  EXPECT_FALSE(passes(
      compare(toy_case({.after_forward = [](const Call& call) { Matrix(call.input("x")).set(1, 1, 7); }}),
              kPlace, seed())));
  EXPECT_FALSE(passes(compare(
      toy_case({.after_backward = [](const Call& call) { Matrix(call.cotangent("y")).set(1, 1, 7); }}),
      kPlace, seed())));
}

TEST(Harness, BytesThatDependOnTheRunFail) {
  auto runs = std::make_shared<int>(0);
  const Fault fault{.after_forward = [runs, last = repetitions_of(toy_case({}))](const Call& call) {
    Matrix y(call.output("y"));
    if (++*runs == last) y.set(3, 3, y.get(3, 3) * (1 + 0x1p-52));
  }};
  EXPECT_FALSE(passes(repetitions(toy_case(fault), kPlace, seed())));
}

TEST(Harness, BytesThatDependOnTheThreadsFail) {
  const Fault fault{.after_backward = [](const Call& call) {
    if (!call.gradient("w").wanted()) return;
    Matrix d_w(call.gradient("w").view);
    if (omp_get_max_threads() > 1) d_w.set(0, 0, d_w.get(0, 0) * (1 + 0x1p-50));
  }};
  EXPECT_FALSE(passes(repetitions(toy_case(fault), kPlace, seed())));
}

TEST(Harness, ItemsThatSeeEachOtherFail) {
  const Fault by_count{.after_forward = [](const Call& call) {
    Matrix y(call.output("y"));
    if (y.rows() > 1) y.set(0, 0, y.get(0, 0) * (1 + 0x1p-50));
  }};
  EXPECT_FALSE(passes(item_independence(toy_case(by_count), kPlace, seed())));
  const Fault by_place{.after_backward = [](const Call& call) {
    Matrix d_x(call.gradient("x").view);
    d_x.set(d_x.rows() - 1, 0, d_x.get(d_x.rows() - 1, 0) * (d_x.rows() > kRows ? 1 + 0x1p-50 : 1));
  }};
  EXPECT_FALSE(passes(item_independence(toy_case(by_place), kPlace, seed())));
}

TEST(Harness, WorkInTheWrongPlaceFails) {
  Case c = toy_case();
  c.forward = honest_forward;  // counts nothing
  EXPECT_FALSE(passes(compare(c, kPlace, seed())));
  c.forward = [](const Call& call) {
    ++detail::mutable_counters().cpu_ops;
    ++detail::mutable_counters().kernel_launches;
    return honest_forward(call);
  };
  EXPECT_FALSE(passes(compare(c, kPlace, seed())));
}

TEST(Harness, FailedCallsFail) {
  Case c = toy_case();
  c.backward = [](const Call&) { return Status::fail(Code::unsupported, "toy: not today"); };
  for (const auto& property : {compare, write_modes, repetitions, item_independence, zero_cotangents}) {
    const Rows rows = property(c, kPlace, seed());
    EXPECT_FALSE(passes(rows));
    EXPECT_NE(failures(rows, seed()).find("not today"), std::string::npos);
  }
}

/// Evidence that shows nothing is no evidence.
TEST(Harness, EmptyEvidenceFails) {
  EXPECT_FALSE(all_pass({}));
  Case flat = toy_case();
  flat.inputs[1].fill = constant(0);  // w = 0: x has no gradient, which this case does not declare
  EXPECT_FALSE(passes(finite_differences(flat, seed())));
  EXPECT_FALSE(passes(compare(flat, kPlace, seed())));
  flat.inputs[0].zero_gradient = true;
  EXPECT_TRUE(passes(finite_differences(flat, seed()))) << failures(finite_differences(flat, seed()), seed());
  Case declared = toy_case();
  declared.inputs[0].zero_gradient = true;  // declared, but not so
  EXPECT_FALSE(passes(finite_differences(declared, seed())));
}

TEST(Harness, ExactConditionsCount) {
  Case c = toy_case();
  c.check = [](const std::vector<Values>&, const std::vector<Values>&) { return std::string("never right"); };
  EXPECT_FALSE(passes(compare(c, kPlace, seed())));
}

TEST(Harness, OutputsOverInputsAreCompared) {
  Case c = toy_case();
  c.aliases = {{"y", "x"}};  // not true of this op: it reads x again after writing s only by luck of order
  c.forward = [](const Call& call) {
    const Matrix x(call.input("x"));
    Matrix y(call.output("y")), s(call.output("s"));
    for (std::int64_t i = 0; i < x.rows(); ++i)
      for (std::int64_t j = 0; j < x.columns(); ++j) y.set(i, j, 1 + x.get(i, j));
    for (std::int64_t i = 0; i < x.rows(); ++i)
      for (std::int64_t j = 0; j < x.columns(); ++j) s.set(i, j, x.get(i, j) * x.get(i, j));
    ++detail::mutable_counters().cpu_ops;
    return Status();
  };
  EXPECT_FALSE(passes(in_place(c, kPlace, seed())));
}

TEST(RelativeError, IsNaNForWhatCannotBeCompared) {
  const Shape shape{2};
  const auto error = [&](const Values& got, const Values& want) {
    return relative_error(got, want, shape, DType::f64, ErrorRule::slice);
  };
  EXPECT_FALSE(error({1, std::nan("")}, {1, 2}) <= 1e300);
  EXPECT_FALSE(error({1, 2}, {1, std::nan("")}) <= 1e300);
  EXPECT_FALSE(error({1}, {1, 2}) <= 1e300);
  EXPECT_FALSE(error({1e-300, 0}, {0, 0}) <= 1e300);
  EXPECT_EQ(error({0, -0.0}, {0, 0}), 0);
}

TEST(RelativeError, KnowsTheScaleOfItsRule) {
  // A small column beside a large one: lost by the scale of the tensor, seen by its own, and by each element's.
  Values want(16), got(16);
  for (std::size_t i = 0; i < 16; ++i) got[i] = want[i] = i % 2 == 0 ? 1 : 1e-6;
  got[3] = 1.5e-6;
  const auto error = [&](ErrorRule rule) { return relative_error(got, want, {8, 2}, DType::f64, rule); };
  EXPECT_NEAR(error(ErrorRule::slice), 0.25, 1e-9);
  EXPECT_NEAR(error(ErrorRule::tensor), 0.5e-6 / (1e-6 + std::sqrt(0.5)), 1e-9);
  EXPECT_NEAR(error(ErrorRule::element), 0.5, 1e-9);
}

TEST(RelativeError, HoldsFarFromOne) {
  // Squares of these overflow or vanish; the error must not.
  for (const double scale : {1e-200, 1e-30, 1.0, 1e30, 1e200}) {
    const Values want = {1 * scale, 2 * scale}, got = {1 * scale, 2.002 * scale};
    const double error = relative_error(got, want, {2}, DType::f64, ErrorRule::slice);
    EXPECT_GT(error, 4e-4) << scale;
    EXPECT_LT(error, 1e-3) << scale;
    EXPECT_NEAR(relative_error(got, want, {2}, DType::f64, ErrorRule::element), 1e-3, 1e-9) << scale;
  }
}

}  // namespace
}  // namespace scantape::cases
