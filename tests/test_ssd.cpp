/// What the cases of ssd and ssd_step cannot say: a sequence split, packed, padded or taken step by step is the same
/// sequence; nothing comes from the future or from before a start; extremes stay numbers; which form ran.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "cases/rng.h"
#include "scantape/counters.h"
#include "scantape/device.h"
#include "scantape/error.h"
#include "scantape/ssd.h"
#include "scantape/ssd_step.h"
#include "scantape/tensor.h"

namespace scantape {
namespace {

using Values = std::vector<double>;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Sizes {
  std::int64_t B = 2, L = 13, H = 4, G = 2, P = 3, N = 5;
  std::int64_t state() const { return B * H * P * N; }
};

/// The numbers of one call, f64 whatever it runs in, each with the length of what one step holds of it; 0: not by step.
struct Problem {
  Sizes size;
  std::map<std::string, Values> values;
  std::int64_t chunk_length = 0;
  bool softplus = true;
  double dt_min = 0, dt_max = std::numeric_limits<double>::infinity();
  DType dtype = DType::f64;
  Device device = kCpu;

  std::map<std::string, std::int64_t> widths() const {
    const Sizes& s = size;
    return {{"x", s.H * s.P},   {"dt", s.H},          {"B", s.G * s.N},   {"C", s.G * s.N},
            {"z", s.H * s.P},   {"d_out", s.H * s.P}, {"start", 1},       {"out", s.H * s.P},
            {"d_x", s.H * s.P}, {"d_dt", s.H},        {"d_B", s.G * s.N}, {"d_C", s.G * s.N},
            {"d_z", s.H * s.P}};
  }
  Shape shape(const std::string& name) const {
    const Sizes& s = size;
    if (name == "x" || name == "z" || name == "d_out" || name == "out") return {s.B, s.L, s.H, s.P};
    if (name == "dt") return {s.B, s.L, s.H};
    if (name == "B" || name == "C") return {s.B, s.L, s.G, s.N};
    if (name == "A" || name == "dt_bias") return {s.H};
    if (name == "D") return {s.H, s.P};
    if (name == "start") return {s.B, s.L};
    return {s.B, s.H, s.P, s.N};
  }
};

Problem random_problem(const Sizes& size, std::int64_t chunk_length, std::uint64_t seed = 1) {
  Problem problem;
  problem.size = size;
  problem.chunk_length = chunk_length;
  cases::Rng rng(seed);
  for (const char* name :
       {"x", "dt", "A", "B", "C", "D", "z", "dt_bias", "initial_state", "d_out", "d_final_state"}) {
    Values& values = problem.values[name];
    for (std::int64_t i = 0; i < problem.shape(name).elements(); ++i)
      values.push_back(std::string(name) == "A" ? rng.uniform(-2, -0.3) : rng.uniform(-1.5, 1.5));
  }
  return problem;
}

/// Everything that comes out: outputs, and gradients by "d_" and the name.
using Results = std::map<std::string, Values>;

template <class Args>
void call(Device device, Status (*function)(const Args&, Stream) noexcept,
          std::int64_t (*workspace)(const Args&) noexcept, Args args) {
  const std::int64_t bytes = workspace(args);
  Tensor room = Tensor::empty({bytes / 8 + 1}, DType::f64, device);
  args.workspace = {room.writable().as<void>(), bytes};
  require(function(args, Stream{}));
  require(synchronize(device));
}

Values values_of(const Tensor& tensor) {
  const Tensor wide = tensor.to(kCpu).to(DType::f64);
  return wide.values<double>();
}

Results run(const Problem& problem, bool with_backward = true) {
  const Sizes& s = problem.size;
  std::map<std::string, Tensor> inputs, outputs;
  for (const auto& [name, values] : problem.values)
    inputs[name] = Tensor::from(problem.shape(name), values).to(problem.dtype).to(problem.device);
  const auto view = [&](const char* name) {
    return inputs.count(name) == 0 ? ConstView() : inputs[name].view();
  };
  const auto made = [&](const std::string& name, const Shape& shape) {
    outputs[name] = Tensor::full(shape, kNaN, problem.dtype, problem.device);
    return outputs[name].writable();
  };
  SsdBackward args;
  args.x = view("x");
  args.dt = view("dt");
  args.A = view("A");
  args.B = view("B");
  args.C = view("C");
  args.D = view("D");
  args.z = view("z");
  args.dt_bias = view("dt_bias");
  args.initial_state = view("initial_state");
  args.start = view("start");
  args.dt_softplus = problem.softplus;
  args.dt_min = problem.dt_min;
  args.dt_max = problem.dt_max;
  args.chunk_length = problem.chunk_length;
  args.out = made("out", args.x.shape);
  args.final_state = made("final_state", {s.B, s.H, s.P, s.N});
  args.states = made("states", {s.B, (s.L - 1) / ssd_interval(s.L, problem.chunk_length), s.H, s.P, s.N});
  call<SsdForward>(problem.device, ssd_forward, ssd_forward_workspace, args);
  if (with_backward) {
    args.d_out = view("d_out");
    args.d_final_state = view("d_final_state");
    const auto gradient = [&](const char* name) {
      if (inputs.count(name) == 0) return Gradient();
      return Gradient(made("d_" + std::string(name), problem.shape(name)), WriteMode::overwrite);
    };
    args.d_x = gradient("x");
    args.d_dt = gradient("dt");
    args.d_A = gradient("A");
    args.d_B = gradient("B");
    args.d_C = gradient("C");
    args.d_D = gradient("D");
    args.d_z = gradient("z");
    args.d_dt_bias = gradient("dt_bias");
    args.d_initial_state = gradient("initial_state");
    call(problem.device, ssd_backward, ssd_backward_workspace, args);
  }
  Results results;
  for (const auto& [name, tensor] : outputs) results[name] = values_of(tensor);
  return results;
}

/// Steps begin .. end - 1 of each row of a tensor [B, L, width].
Values steps(const Values& values, const Sizes& size, std::int64_t width, std::int64_t begin,
             std::int64_t end) {
  Values part;
  for (std::int64_t item = 0; item < size.B; ++item)
    part.insert(part.end(), values.begin() + (item * size.L + begin) * width,
                values.begin() + (item * size.L + end) * width);
  return part;
}

Problem part_of(const Problem& whole, std::int64_t begin, std::int64_t end) {
  Problem part = whole;
  part.size.L = end - begin;
  for (const auto& [name, width] : whole.widths())
    if (whole.values.count(name) != 0)
      part.values[name] = steps(whole.values.at(name), whole.size, width, begin, end);
  return part;
}

/// Largest difference against |want| + the root mean square of all; NaN fails.
void expect_near(const Values& got, const Values& want, double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double squares = 0;
  for (const double value : want) squares += value * value;
  const double rms = want.empty() ? 0 : std::sqrt(squares / static_cast<double>(want.size()));
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_TRUE(std::abs(got[i] - want[i]) <= tolerance * (std::abs(want[i]) + rms))
        << what << "[" << i << "] is " << got[i] << ", wants " << want[i];
}

/// Bit for bit; NaN equals nothing.
void expect_same(const Values& got, const Values& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_EQ(got[i], want[i]) << what << "[" << i << "]";
}

void expect_numbers(const Results& results, const std::string& what) {
  for (const auto& [name, values] : results)
    for (const double value : values) ASSERT_TRUE(std::isfinite(value)) << what << ": " << name;
}

Values sum(const Values& a, const Values& b) {
  Values total = a;
  for (std::size_t i = 0; i < a.size(); ++i) total[i] += b[i];
  return total;
}

const std::vector<std::string> kByStep = {"out", "d_x", "d_dt", "d_B", "d_C", "d_z"};
const std::vector<std::string> kSummed = {"d_A", "d_D", "d_dt_bias"};

/// The devices at hand, and the forms: sequential, a chunk a step, chunks that do not divide the length, one chunk.
class Ssd : public testing::TestWithParam<std::tuple<Device, std::int64_t>> {
 protected:
  void SetUp() override {
    if (!is_available(device())) GTEST_SKIP() << "no " << name(device());
  }
  Device device() const { return std::get<0>(GetParam()); }
  std::int64_t chunk_length() const { return std::get<1>(GetParam()); }
  bool sequential() const { return chunk_length() == 0; }
  Problem problem(const Sizes& size, std::uint64_t seed = 1) const {
    Problem made = random_problem(size, chunk_length(), seed);
    made.device = device();
    return made;
  }
};

std::string form_name(const testing::TestParamInfo<std::tuple<Device, std::int64_t>>& info) {
  return std::string(std::get<0>(info.param).is_cpu() ? "cpu" : "cuda") + "_" +
         std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Forms, Ssd,
                         testing::Combine(testing::Values(kCpu, kCuda), testing::Values(0, 1, 4, 16)),
                         form_name);

TEST_P(Ssd, SplitAnywhereAndCarriedOnIsTheWhole) {
  const Problem whole = problem({});
  const Results want = run(whole);
  for (const std::int64_t cut : {1, 4, 6, 12}) {
    Problem first = part_of(whole, 0, cut), second = part_of(whole, cut, whole.size.L);
    second.values["initial_state"] = run(first, false).at("final_state");
    const Results late = run(second);
    first.values["d_final_state"] = late.at("d_initial_state");
    const Results early = run(first);
    const auto expect = [&](const Values& got, const Values& all, const std::string& what) {
      const std::string text = what + " cut at " + std::to_string(cut);
      // The CPU walks step by step wherever it was cut; kernels walk from the kept states, which the cut moves.
      sequential() && device().is_cpu() ? expect_same(got, all, text) : expect_near(got, all, 1e-12, text);
    };
    for (const std::string& what : kByStep) {
      const std::int64_t width = whole.widths().at(what);
      expect(early.at(what), steps(want.at(what), whole.size, width, 0, cut), what);
      expect(late.at(what), steps(want.at(what), whole.size, width, cut, whole.size.L), what);
    }
    expect(late.at("final_state"), want.at("final_state"), "final_state");
    expect(early.at("d_initial_state"), want.at("d_initial_state"), "d_initial_state");
    for (const std::string& what : kSummed)
      expect_near(sum(early.at(what), late.at(what)), want.at(what), 1e-12, what);
  }
}

/// Three sequences in one row, of which the first has an initial state; bit for bit, whatever came before.
TEST_P(Ssd, PackedSequencesAreThoseApart) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    Problem packed = problem({1, 21, 4, 2, 3, 5});
    packed.dtype = dtype;
    packed.values["start"] = Values(21, 0.0);
    const std::vector<std::int64_t> begins = {0, 5, 14, 21};
    packed.values["start"][5] = 1;
    packed.values["start"][14] = -3;
    const Results together = run(packed);
    for (std::size_t i = 0; i + 1 < begins.size(); ++i) {
      Problem alone = part_of(packed, begins[i], begins[i + 1]);
      alone.values.erase("start");
      if (i > 0) alone.values.erase("initial_state");
      if (i + 2 < begins.size()) alone.values.erase("d_final_state");
      const Results apart = run(alone);
      for (const std::string& what : kByStep)
        expect_same(steps(together.at(what), packed.size, packed.widths().at(what), begins[i], begins[i + 1]),
                    apart.at(what), what + " of sequence " + std::to_string(i));
      if (i == 0) expect_same(together.at("d_initial_state"), apart.at("d_initial_state"), "d_initial_state");
      if (i == 2) expect_same(together.at("final_state"), apart.at("final_state"), "final_state");
    }
  }
}

/// Whatever comes later - other numbers, NaN, more steps - changes no bit of what came before.
TEST_P(Ssd, TheFutureChangesNothing) {
  const Problem whole = problem({});
  const Values want = run(whole, false).at("out");
  for (const std::int64_t cut : {1, 5, 8}) {
    const Values past = steps(want, whole.size, 12, 0, cut);
    expect_same(run(part_of(whole, 0, cut), false).at("out"), past, "out without what is right of it");
    for (const char* name : {"x", "dt", "B", "C", "z"}) {
      Problem changed = whole;
      const std::int64_t width = whole.widths().at(name);
      for (std::int64_t item = 0; item < whole.size.B; ++item)
        std::fill(changed.values[name].begin() + (item * whole.size.L + cut) * width,
                  changed.values[name].begin() + (item + 1) * whole.size.L * width, kNaN);
      const Values got = run(changed, false).at("out");
      expect_same(steps(got, whole.size, 12, 0, cut), past, std::string("out before NaN in ") + name);
      EXPECT_TRUE(std::isnan(got.back())) << "NaN in " << name << " is lost";
    }
  }
}

/// NaN in one sequence stays there: in the values of the next and in the gradients of both.
TEST_P(Ssd, NothingPassesAStart) {
  Problem packed = problem({1, 15, 4, 2, 3, 5});
  packed.values["start"] = Values(15, 0.0);
  packed.values["start"][7] = 1;
  const Results want = run(packed);
  for (const char* name : {"x", "dt", "B", "initial_state", "d_out"}) {
    Problem changed = packed;
    Values& values = changed.values[name];
    const bool by_step = packed.widths().count(name) != 0;
    std::fill(values.begin(), by_step ? values.begin() + 7 * packed.widths().at(name) : values.end(), kNaN);
    const Results got = run(changed);
    expect_same(got.at("final_state"), want.at("final_state"), "final_state");
    for (const std::string& what : kByStep) {
      const std::int64_t width = packed.widths().at(what);
      expect_same(steps(got.at(what), packed.size, width, 7, 15),
                  steps(want.at(what), packed.size, width, 7, 15), what + " after NaN in " + name);
    }
  }
  // And none backwards: a cotangent of the second sequence is none of the first's.
  Problem changed = packed;
  std::fill(changed.values["d_out"].begin() + 7 * 12, changed.values["d_out"].end(), kNaN);
  const Results got = run(changed);
  for (const std::string& what : kByStep) {
    const std::int64_t width = packed.widths().at(what);
    expect_same(steps(got.at(what), packed.size, width, 0, 7), steps(want.at(what), packed.size, width, 0, 7),
                what);
  }
  expect_same(got.at("d_initial_state"), want.at("d_initial_state"), "d_initial_state");
}

TEST_P(Ssd, ARowOfTheBatchIsWhatItIsAlone) {
  const Problem all = problem({3, 9, 4, 2, 3, 5});
  const Results together = run(all);
  for (std::int64_t item = 0; item < 3; ++item) {
    Problem one = all;
    one.size.B = 1;
    for (auto& [name, values] : one.values) {
      if (name == "A" || name == "D" || name == "dt_bias") continue;
      const std::int64_t count = static_cast<std::int64_t>(values.size()) / 3;
      values = Values(values.begin() + item * count, values.begin() + (item + 1) * count);
    }
    const Results alone = run(one);
    for (const std::string& what : kByStep) {
      const Values& whole = together.at(what);
      const std::int64_t count = static_cast<std::int64_t>(whole.size()) / 3;
      expect_same(Values(whole.begin() + item * count, whole.begin() + (item + 1) * count), alone.at(what),
                  what);
    }
  }
}

/// The form that was asked for, forward and backward, once each.
TEST_P(Ssd, CountersSayWhichFormRan) {
  const Problem asked = problem({});
  const Counters before = counters();
  (void)run(asked);
  const Counters after = counters();
  EXPECT_EQ(after.ssd_sequential - before.ssd_sequential, sequential() ? 2 : 0);
  EXPECT_EQ(after.ssd_chunked - before.ssd_chunked, sequential() ? 0 : 2);
}

/// Kept states lie where the contract says; that forward keeps none changes no bit.
TEST_P(Ssd, KeepsTheStatesBeforeChunks) {
  Problem asked = problem({1, 22, 2, 1, 3, 2});
  asked.values["start"] = Values(22, 0.0);
  asked.values["start"][6] = 1;
  const Results got = run(asked, false);
  const std::int64_t interval = ssd_interval(22, chunk_length()), width = 2 * 3 * 2;
  std::vector<bool> kept(static_cast<std::size_t>(22 / interval + 1), false);
  const auto state_before = [&](std::int64_t t) {
    return run(part_of(asked, 0, t), false).at("final_state");
  };
  const auto place = [&](std::int64_t k) {
    return Values(got.at("states").begin() + (k - 1) * width, got.at("states").begin() + k * width);
  };
  for (const auto& [begin, end] : std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 6}, {6, 22}})
    for (std::int64_t t = begin + interval; t < end; t += interval) {
      expect_near(place(t / interval), state_before(t), 1e-13, "the state before step " + std::to_string(t));
      kept[static_cast<std::size_t>(t / interval)] = true;
    }
  for (std::int64_t k = 1; k <= 21 / interval; ++k)
    if (!kept[static_cast<std::size_t>(k)])
      expect_same(place(k), Values(static_cast<std::size_t>(width), 0.0), "no state");

  const Tensor x = Tensor::from(asked.shape("x"), asked.values["x"]).to(device());
  const Tensor dt = Tensor::from(asked.shape("dt"), asked.values["dt"]).to(device());
  const Tensor A = Tensor::from(asked.shape("A"), asked.values["A"]).to(device());
  const Tensor B = Tensor::from(asked.shape("B"), asked.values["B"]).to(device());
  SsdForward args;
  args.x = x;
  args.dt = dt;
  args.A = A;
  args.B = args.C = B;
  args.dt_softplus = true;
  args.chunk_length = chunk_length();
  Tensor out = Tensor::full(x.shape(), kNaN, DType::f64, device()), again = out.clone();
  Tensor states = Tensor::full({1, 21 / interval, 2, 3, 2}, kNaN, DType::f64, device());
  args.out = out.writable();
  call(device(), ssd_forward, ssd_forward_workspace, args);
  args.out = again.writable();
  args.states = states.writable();
  call(device(), ssd_forward, ssd_forward_workspace, args);
  expect_same(values_of(out), values_of(again), "out");
}

/// Columns of one wide projection [B, L, z | x | B | C | dt], as a block of a model cuts it.
TEST_P(Ssd, TakesColumnsOfAWiderTensor) {
  const Problem apart = problem({});
  const Sizes& s = apart.size;
  const std::int64_t widths[] = {s.H * s.P, s.H * s.P, s.G * s.N, s.G * s.N, s.H};
  const char* const names[] = {"z", "x", "B", "C", "dt"};
  std::int64_t row = 0;
  for (const std::int64_t width : widths) row += width;
  Values wide(static_cast<std::size_t>(s.B * s.L * row));
  for (std::int64_t step = 0; step < s.B * s.L; ++step)
    for (std::int64_t part = 0, from = 0; part < 5; from += widths[part++])
      for (std::int64_t i = 0; i < widths[part]; ++i)
        wide[static_cast<std::size_t>(step * row + from + i)] =
            apart.values.at(names[part])[static_cast<std::size_t>(step * widths[part] + i)];
  const Tensor together = Tensor::from({s.B, s.L, row}, wide).to(device());
  const Tensor A = Tensor::from({s.H}, apart.values.at("A")).to(device());
  const auto columns = [&](int part) {
    std::int64_t from = 0;
    for (int i = 0; i < part; ++i) from += widths[i];
    ConstView view(together.view().as<double>() + from, DType::f64, device(), apart.shape(names[part]));
    view.strides[0] = s.L * row;
    view.strides[1] = row;
    return view;
  };
  SsdForward args;
  args.z = columns(0);
  args.x = columns(1);
  args.B = columns(2);
  args.C = columns(3);
  args.dt = columns(4);
  args.A = A;
  args.dt_softplus = true;
  args.chunk_length = chunk_length();
  Tensor out = Tensor::full(args.x.shape, kNaN, DType::f64, device());
  args.out = out.writable();
  call(device(), ssd_forward, ssd_forward_workspace, args);
  Problem dense = apart;
  for (const char* name : {"D", "dt_bias", "initial_state"}) dense.values.erase(name);
  expect_same(values_of(out), run(dense, false).at("out"), "out");
}

/// dt A = -5000 beside -1e-4, dt of 1e-8 and 1e3, in f32: numbers, as near to the f64 ones as anywhere.
TEST_P(Ssd, ExtremeStepsStayNumbers) {
  Problem asked = problem({1, 40, 2, 1, 3, 4});
  asked.softplus = false;
  asked.values.erase("dt_bias");
  asked.values["A"] = {-1, -5};
  for (std::size_t i = 0; i < asked.values["dt"].size(); ++i)
    asked.values["dt"][i] = i % 14 < 4 ? (i % 28 < 4 ? 5000 : 1000) : i % 5 == 0 ? 1e-8 : 1e-4;
  // What a step of 5000 brings in would hide all else.
  for (std::size_t t = 0; t < 40; ++t)
    for (std::size_t i = 0; i < 6; ++i)
      if (asked.values["dt"][2 * t + i / 3] > 1) asked.values["x"][6 * t + i] *= 1e-4;
  for (const char* name : {"x", "dt", "A", "B", "C", "D", "z", "initial_state", "d_out", "d_final_state"})
    for (double& value : asked.values[name]) value = static_cast<double>(static_cast<float>(value));
  const Results want = run(asked);
  expect_numbers(want, "f64");
  asked.dtype = DType::f32;
  const Results got = run(asked);
  for (const char* name : {"out", "final_state"}) expect_near(got.at(name), want.at(name), 2e-6, name);
  for (const auto& [name, values] : want)
    if (name != "states") expect_near(got.at(name), values, 1e-4, name);
}

/// No input, no output: and gradients that are numbers.
TEST_P(Ssd, ZeroInStaysZero) {
  Problem asked = problem({});
  for (const char* name : {"x", "B", "C"})
    std::fill(asked.values[name].begin(), asked.values[name].end(), 0.0);
  asked.values.erase("initial_state");
  const Results got = run(asked);
  for (const double value : got.at("out")) EXPECT_EQ(value, 0);
  for (const double value : got.at("final_state")) EXPECT_EQ(value, 0);
  expect_numbers(got, "zeros");
}

/// Where dt is clamped its gradient is zero, bit for bit, and nowhere else; the clamp comes after the softplus.
TEST_P(Ssd, ClampedStepsHaveNoGradient) {
  Problem asked = problem({});
  asked.dt_min = 0.5;
  asked.dt_max = 0.9;
  const Results got = run(asked);
  int clamped = 0, open = 0;
  for (std::size_t i = 0; i < got.at("d_dt").size(); ++i) {
    const double raw = asked.values["dt"][i] + asked.values["dt_bias"][i % 4], dt = std::log1p(std::exp(raw));
    const bool outside = dt < 0.5 || dt > 0.9;
    EXPECT_EQ(got.at("d_dt")[i] == 0, outside) << "dt " << dt;
    (outside ? clamped : open) += 1;
  }
  EXPECT_GT(clamped, 10);
  EXPECT_GT(open, 10);
}

TEST_P(Ssd, ManyStepsAndManyChannels) {
  const bool emulated = !device().is_cpu() && std::string(cuda_backend()) == "emulated";
  const std::int64_t widest = device().is_cpu() ? 65537 : kMostSsdStatesOnCuda;
  std::vector<Sizes> all = {{1, 65537, 1, 1, 1, 1}, {1, 3, 1, 1, widest, 1}, {1, 3, 257, 1, 256, 1}};
  // The emulator pays for each block of a kernel: many chunks and many heads are left to a GPU.
  if (emulated && !sequential()) all[0].L = 64 * chunk_length() + 1;
  if (emulated && !sequential() && chunk_length() < 16) all.pop_back();
  if (!emulated) all.push_back({1, 3, 65537, 1, 1, 1});
  for (const Sizes& size : all) {
    Problem asked = problem(size);
    asked.dtype = DType::f32;
    const Results got = run(asked);
    expect_numbers(got, "many");
    asked.dtype = DType::f64;
    asked.device = kCpu;
    asked.chunk_length = 0;
    const Results want = run(asked);
    for (const char* name : {"out", "final_state"}) expect_near(got.at(name), want.at(name), 2e-5, name);
  }
}

// ---- one step

struct Step {
  Values out, next_state;
};

/// Step t of a problem as ssd_step takes it; where `in_place`, the state is overwritten.
Step step(const Problem& problem, std::int64_t t, const Values& state, bool in_place) {
  const Problem one = part_of(problem, t, t + 1);
  const Sizes& s = one.size;
  std::map<std::string, Tensor> inputs;
  const auto view = [&](const char* name, const Shape& shape) {
    if (one.values.count(name) == 0) return ConstView();
    inputs[name] = Tensor::from(shape, one.values.at(name)).to(one.dtype).to(one.device);
    return inputs[name].view();
  };
  SsdStepForward args;
  args.x = view("x", {s.B, s.H, s.P});
  args.dt = view("dt", {s.B, s.H});
  args.A = view("A", {s.H});
  args.B = view("B", {s.B, s.G, s.N});
  args.C = view("C", {s.B, s.G, s.N});
  args.D = view("D", {s.H, s.P});
  args.z = view("z", {s.B, s.H, s.P});
  args.dt_bias = view("dt_bias", {s.H});
  args.dt_softplus = one.softplus;
  args.dt_min = one.dt_min;
  args.dt_max = one.dt_max;
  Tensor before = Tensor::from({s.B, s.H, s.P, s.N}, state).to(one.dtype).to(one.device);
  Tensor after = Tensor::full(before.shape(), kNaN, one.dtype, one.device);
  Tensor out = Tensor::full({s.B, s.H, s.P}, kNaN, one.dtype, one.device);
  args.out = out.writable();
  args.next_state = in_place ? before.writable() : after.writable();
  args.state = before.view();
  call(one.device, ssd_step_forward, ssd_step_forward_workspace, args);
  return {values_of(out), values_of(in_place ? before : after)};
}

/// Prefill, then steps: what forward gives over all. On the CPU, after the sequential form, bit for bit.
TEST_P(Ssd, StepsGoOnWhereForwardEnds) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    Problem whole = problem({});
    whole.dtype = dtype;
    whole.dt_min = 0.3;
    whole.dt_max = 1.1;
    for (auto& [name, values] : whole.values)
      for (double& value : values) value = static_cast<double>(static_cast<float>(value));
    const Results want = run(whole, false);
    const std::int64_t prefix = 5;
    Values state = run(part_of(whole, 0, prefix), false).at("final_state");
    const double tolerance = dtype == DType::f64 ? 1e-12 : 1e-5;
    for (std::int64_t t = prefix; t < whole.size.L; ++t) {
      const Step taken = step(whole, t, state, t % 2 == 0);
      const Values all = steps(want.at("out"), whole.size, 12, t, t + 1);
      if (sequential() && device().is_cpu())
        expect_same(taken.out, all, "out of step " + std::to_string(t));
      else
        expect_near(taken.out, all, tolerance, "out of step " + std::to_string(t));
      state = taken.next_state;
    }
    expect_near(state, want.at("final_state"), tolerance, "the last state");
  }
}

/// f32 over as many steps as a state remembers: the state moves by exp(l) - 1, not by a rounded exp(l).
TEST_P(Ssd, DecaysNearOneKeepTheirDigits) {
  Problem asked = problem({1, 8192, 1, 1, 1, 1});
  asked.softplus = false;
  for (const char* name : {"dt_bias", "D", "z", "initial_state", "d_final_state"}) asked.values.erase(name);
  for (auto& [name, values] : asked.values)
    for (double& value : values)
      value = name == "x" ? static_cast<double>(static_cast<float>(1 + value / 4)) : 1.0;
  asked.values["A"] = {static_cast<double>(-1.1e-4F)};
  const Values want = run(asked, false).at("final_state");
  asked.dtype = DType::f32;
  expect_near(run(asked, false).at("final_state"), want, 1e-5, "final_state");
}

}  // namespace
}  // namespace scantape
