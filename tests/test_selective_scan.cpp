/// What the cases of selective_scan and selective_scan_step cannot say: a sequence split, packed, padded or taken step by
/// step is the same sequence; nothing comes from the future or from before a start; extremes stay numbers.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "cases/rng.h"
#include "scantape/counters.h"
#include "scantape/selective_scan.h"
#include "scantape/selective_scan_step.h"
#include "scantape/ssd.h"
#include "scantape/tensor.h"
#include "sequence_checks.h"

namespace scantape {
namespace {

struct Sizes {
  std::int64_t B = 2, L = 13, E = 6, G = 2, N = 5;
};

/// The numbers of one call, f64 whatever it runs in.
struct Problem {
  Sizes size;
  std::map<std::string, Values> values;
  bool softplus = true;
  DType dtype = DType::f64;
  Device device = kCpu;

  /// Of what one step holds of a tensor.
  std::map<std::string, std::int64_t> widths() const {
    const std::int64_t E = size.E, GN = size.G * size.N;
    return {{"u", E},   {"dt", E}, {"z", E},  {"d_out", E}, {"out", E},  {"d_u", E},  {"d_dt", E},
            {"d_z", E}, {"B", GN}, {"C", GN}, {"d_B", GN},  {"d_C", GN}, {"start", 1}};
  }
  Shape shape(const std::string& name) const {
    const Sizes& s = size;
    if (name == "u" || name == "dt" || name == "z" || name == "d_out") return {s.B, s.L, s.E};
    if (name == "A") return {s.E, s.N};
    if (name == "B" || name == "C") return {s.B, s.L, s.G, s.N};
    if (name == "D" || name == "dt_bias") return {s.E};
    if (name == "start") return {s.B, s.L};
    return {s.B, s.E, s.N};
  }
};

Problem random_problem(const Sizes& size) {
  Problem problem;
  problem.size = size;
  cases::Rng rng(1);
  for (const char* name :
       {"u", "dt", "A", "B", "C", "D", "z", "dt_bias", "initial_state", "d_out", "d_final_state"}) {
    Values& values = problem.values[name];
    for (std::int64_t i = 0; i < problem.shape(name).elements(); ++i)
      values.push_back(std::string(name) == "A" ? rng.uniform(-2, -0.3) : rng.uniform(-1.5, 1.5));
  }
  return problem;
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
  SelectiveScanBackward args;
  args.u = view("u");
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
  args.out = made("out", args.u.shape);
  args.final_state = made("final_state", {s.B, s.E, s.N});
  args.states = made("states", {s.B, (s.L - 1) / selective_scan_interval(s.L), s.E, s.N});
  call<SelectiveScanForward>(problem.device, selective_scan_forward, selective_scan_forward_workspace, args);
  if (with_backward) {
    args.d_out = view("d_out");
    args.d_final_state = view("d_final_state");
    const auto gradient = [&](const char* name) {
      if (inputs.count(name) == 0) return Gradient();
      return Gradient(made("d_" + std::string(name), problem.shape(name)), WriteMode::overwrite);
    };
    args.d_u = gradient("u");
    args.d_dt = gradient("dt");
    args.d_A = gradient("A");
    args.d_B = gradient("B");
    args.d_C = gradient("C");
    args.d_D = gradient("D");
    args.d_z = gradient("z");
    args.d_dt_bias = gradient("dt_bias");
    args.d_initial_state = gradient("initial_state");
    call(problem.device, selective_scan_backward, selective_scan_backward_workspace, args);
  }
  Results results;
  for (const auto& [name, tensor] : outputs) results[name] = values_of(tensor);
  return results;
}

const std::vector<std::string> kByStep = {"out", "d_u", "d_dt", "d_B", "d_C", "d_z"};
const std::vector<std::string> kSummed = {"d_A", "d_D", "d_dt_bias"};

/// The devices at hand, and states as the kernels hold them: four lanes' worth, a warp's, and more than that.
class SelectiveScan : public testing::TestWithParam<std::tuple<Device, std::int64_t>> {
 protected:
  void SetUp() override {
    if (!is_available(device())) GTEST_SKIP() << "no " << name(device());
  }
  Device device() const { return std::get<0>(GetParam()); }
  bool emulated() const { return !device().is_cpu() && std::string(cuda_backend()) == "emulated"; }
  Problem problem(Sizes size) const {
    size.N = std::get<1>(GetParam());
    Problem made = random_problem(size);
    made.device = device();
    return made;
  }
};

std::string device_and_states(const testing::TestParamInfo<std::tuple<Device, std::int64_t>>& info) {
  return std::string(std::get<0>(info.param).is_cpu() ? "cpu" : "cuda") + "_" +
         std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Devices, SelectiveScan,
                         testing::Combine(testing::Values(kCpu, kCuda), testing::Values(5, 20, 130)),
                         device_and_states);

/// The CPU and the kernels walk step by step wherever a sequence was cut, from whatever state is kept: the same bits.
TEST_P(SelectiveScan, SplitAnywhereAndCarriedOnIsTheWhole) {
  const Problem whole = problem({});
  const Results want = run(whole);
  for (const std::int64_t cut : {1, 4, 6, 12}) {
    Problem first = part_of(whole, 0, cut), second = part_of(whole, cut, whole.size.L);
    second.values["initial_state"] = run(first, false).at("final_state");
    const Results late = run(second);
    first.values["d_final_state"] = late.at("d_initial_state");
    const Results early = run(first);
    const std::string text = " cut at " + std::to_string(cut);
    for (const std::string& what : kByStep) {
      const std::int64_t width = whole.widths().at(what);
      expect_same(early.at(what), steps(want.at(what), whole.size, width, 0, cut), what + text);
      expect_same(late.at(what), steps(want.at(what), whole.size, width, cut, whole.size.L), what + text);
    }
    expect_same(late.at("final_state"), want.at("final_state"), "final_state" + text);
    expect_same(early.at("d_initial_state"), want.at("d_initial_state"), "d_initial_state" + text);
    for (const std::string& what : kSummed)
      expect_near(sum(early.at(what), late.at(what)), want.at(what), 1e-12, what);
  }
}

/// Three sequences in one row, of which the first has an initial state; bit for bit, whatever came before.
TEST_P(SelectiveScan, PackedSequencesAreThoseApart) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    Problem packed = problem({.B = 1, .L = 21});
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
TEST_P(SelectiveScan, TheFutureChangesNothing) {
  const Problem whole = problem({});
  const std::int64_t E = whole.size.E;
  const Values want = run(whole, false).at("out");
  for (const std::int64_t cut : {1, 8}) {
    const Values past = steps(want, whole.size, E, 0, cut);
    expect_same(run(part_of(whole, 0, cut), false).at("out"), past, "out without what is right of it");
    for (const char* name : {"u", "dt", "B", "C", "z"}) {
      Problem changed = whole;
      const std::int64_t width = whole.widths().at(name);
      for (std::int64_t item = 0; item < whole.size.B; ++item)
        std::fill(changed.values[name].begin() + (item * whole.size.L + cut) * width,
                  changed.values[name].begin() + (item + 1) * whole.size.L * width, kNaN);
      const Values got = run(changed, false).at("out");
      expect_same(steps(got, whole.size, E, 0, cut), past, std::string("out before NaN in ") + name);
      EXPECT_TRUE(std::isnan(got.back())) << "NaN in " << name << " is lost";
    }
  }
}

/// NaN in one sequence stays there: in the values of the next and in the gradients of both.
TEST_P(SelectiveScan, NothingPassesAStart) {
  Problem packed = problem({.B = 1, .L = 15});
  packed.values["start"] = Values(15, 0.0);
  packed.values["start"][7] = 1;
  const Results want = run(packed);
  const auto expect_steps = [&](const Results& got, std::int64_t begin, std::int64_t end,
                                const std::string& text) {
    for (const std::string& what : kByStep) {
      const std::int64_t width = packed.widths().at(what);
      expect_same(steps(got.at(what), packed.size, width, begin, end),
                  steps(want.at(what), packed.size, width, begin, end), what + text);
    }
  };
  for (const char* name : {"u", "dt", "B", "initial_state", "d_out"}) {
    Problem changed = packed;
    Values& values = changed.values[name];
    const bool by_step = packed.widths().count(name) != 0;
    std::fill(values.begin(), by_step ? values.begin() + 7 * packed.widths().at(name) : values.end(), kNaN);
    const Results got = run(changed);
    expect_same(got.at("final_state"), want.at("final_state"), "final_state");
    expect_steps(got, 7, 15, std::string(" after NaN in ") + name);
  }
  // And none backwards: a cotangent of the second sequence is none of the first's.
  Problem changed = packed;
  std::fill(changed.values["d_out"].begin() + 7 * packed.size.E, changed.values["d_out"].end(), kNaN);
  const Results got = run(changed);
  expect_steps(got, 0, 7, " before a NaN cotangent");
  expect_same(got.at("d_initial_state"), want.at("d_initial_state"), "d_initial_state");
}

TEST_P(SelectiveScan, ARowOfTheBatchIsWhatItIsAlone) {
  const Problem all = problem({.B = 3, .L = 9});
  const Results together = run(all);
  for (std::int64_t item = 0; item < 3; ++item) {
    const auto row = [&](const Values& values) {
      const std::int64_t count = static_cast<std::int64_t>(values.size()) / 3;
      return Values(values.begin() + item * count, values.begin() + (item + 1) * count);
    };
    Problem one = all;
    one.size.B = 1;
    for (auto& [name, values] : one.values)
      if (name != "A" && name != "D" && name != "dt_bias") values = row(values);
    const Results alone = run(one);
    for (const std::string& what : kByStep) expect_same(row(together.at(what)), alone.at(what), what);
  }
}

/// Kept states lie where the contract says; that forward keeps none changes no bit.
TEST_P(SelectiveScan, KeepsTheStatesBetweenIntervals) {
  Problem asked = problem({.B = 1, .L = 22});
  asked.values["start"] = Values(22, 0.0);
  asked.values["start"][6] = 1;
  const Results got = run(asked, false);
  const std::int64_t interval = selective_scan_interval(22), width = asked.size.E * asked.size.N;
  ASSERT_EQ(interval, 5);
  for (std::int64_t k = 1; k * interval < 22; ++k)
    expect_same(Values(got.at("states").begin() + (k - 1) * width, got.at("states").begin() + k * width),
                run(part_of(asked, 0, k * interval), false).at("final_state"),
                "the state after " + std::to_string(k) + " intervals");

  const auto tensor = [&](const char* name) {
    return Tensor::from(asked.shape(name), asked.values.at(name)).to(device());
  };
  const Tensor u = tensor("u"), dt = tensor("dt"), A = tensor("A"), B = tensor("B");
  SelectiveScanForward args;
  args.u = u;
  args.dt = dt;
  args.A = A;
  args.B = args.C = B;
  args.dt_softplus = true;
  Tensor out = Tensor::full(u.shape(), kNaN, DType::f64, device()), again = out.clone();
  Tensor states = Tensor::full({1, 4, asked.size.E, asked.size.N}, kNaN, DType::f64, device());
  args.out = out.writable();
  call(device(), selective_scan_forward, selective_scan_forward_workspace, args);
  args.out = again.writable();
  args.states = states.writable();
  call(device(), selective_scan_forward, selective_scan_forward_workspace, args);
  expect_same(values_of(out), values_of(again), "out");
}

/// With the same decay for all states of a channel it is ssd with heads of one channel: two ops, one recurrence.
TEST_P(SelectiveScan, OfOneDecayIsTheStateSpaceOfMamba2) {
  Problem asked = problem({});
  const Sizes& s = asked.size;
  Values of_head;
  for (std::int64_t e = 0; e < s.E; ++e) {
    of_head.push_back(-0.4 - 0.1 * static_cast<double>(e));
    std::fill_n(asked.values["A"].begin() + e * s.N, s.N, of_head.back());
  }
  const auto tensor = [&](const char* name, const Shape& shape) {
    return Tensor::from(shape, asked.values.at(name)).to(device());
  };
  const Tensor x = tensor("u", {s.B, s.L, s.E, 1}), z = tensor("z", {s.B, s.L, s.E, 1}),
               dt = tensor("dt", {s.B, s.L, s.E}), B = tensor("B", {s.B, s.L, s.G, s.N}),
               C = tensor("C", {s.B, s.L, s.G, s.N}), D = tensor("D", {s.E}), bias = tensor("dt_bias", {s.E}),
               A = Tensor::from({s.E}, of_head).to(device()),
               initial = tensor("initial_state", {s.B, s.E, 1, s.N});
  SsdForward args;
  args.x = x;
  args.z = z;
  args.dt = dt;
  args.A = A;
  args.B = B;
  args.C = C;
  args.D = D;
  args.dt_bias = bias;
  args.initial_state = initial;
  args.dt_softplus = true;
  Tensor out = Tensor::full(x.shape(), kNaN, DType::f64, device()),
         last = Tensor::full({s.B, s.E, 1, s.N}, kNaN, DType::f64, device());
  args.out = out.writable();
  args.final_state = last.writable();
  call(device(), ssd_forward, ssd_forward_workspace, args);
  const Results got = run(asked, false);
  expect_near(got.at("out"), values_of(out), 1e-12, "out");
  expect_near(got.at("final_state"), values_of(last), 1e-12, "final_state");
}

/// Columns of one wide projection [B, L, z | u | B | C | dt], as a block of a model cuts it.
TEST_P(SelectiveScan, TakesColumnsOfAWiderTensor) {
  const Problem apart = problem({});
  const Sizes& s = apart.size;
  const std::int64_t widths[] = {s.E, s.E, s.G * s.N, s.G * s.N, s.E};
  const char* const names[] = {"z", "u", "B", "C", "dt"};
  std::int64_t row = 0;
  for (const std::int64_t width : widths) row += width;
  Values wide(static_cast<std::size_t>(s.B * s.L * row));
  for (std::int64_t step = 0; step < s.B * s.L; ++step)
    for (std::int64_t part = 0, from = 0; part < 5; from += widths[part++])
      for (std::int64_t i = 0; i < widths[part]; ++i)
        wide[static_cast<std::size_t>(step * row + from + i)] =
            apart.values.at(names[part])[static_cast<std::size_t>(step * widths[part] + i)];
  const Tensor together = Tensor::from({s.B, s.L, row}, wide).to(device());
  const Tensor A = Tensor::from({s.E, s.N}, apart.values.at("A")).to(device());
  const auto columns = [&](int part) {
    std::int64_t from = 0;
    for (int i = 0; i < part; ++i) from += widths[i];
    ConstView view(together.view().as<double>() + from, DType::f64, device(), apart.shape(names[part]));
    view.strides[0] = s.L * row;
    view.strides[1] = row;
    return view;
  };
  SelectiveScanForward args;
  args.z = columns(0);
  args.u = columns(1);
  args.B = columns(2);
  args.C = columns(3);
  args.dt = columns(4);
  args.A = A;
  args.dt_softplus = true;
  Tensor out = Tensor::full(args.u.shape, kNaN, DType::f64, device());
  args.out = out.writable();
  call(device(), selective_scan_forward, selective_scan_forward_workspace, args);
  Problem dense = apart;
  for (const char* name : {"D", "dt_bias", "initial_state"}) dense.values.erase(name);
  expect_same(values_of(out), run(dense, false).at("out"), "out");
}

/// dt A = -5000 beside -1e-4, dt of 1e-8 and 1e3, in f32: numbers, as near to the f64 ones as anywhere.
TEST_P(SelectiveScan, ExtremeStepsStayNumbers) {
  Problem asked = problem({.B = 1, .L = 40, .E = 2, .G = 1});
  asked.softplus = false;
  asked.values.erase("dt_bias");
  for (std::size_t i = 0; i < asked.values["A"].size(); ++i) asked.values["A"][i] = i % 2 == 0 ? -1 : -5;
  for (std::size_t i = 0; i < asked.values["dt"].size(); ++i) {
    double& dt = asked.values["dt"][i];
    dt = i % 14 < 4 ? (i % 28 < 4 ? 5000 : 1000) : i % 5 == 0 ? 1e-8 : 1e-4;
    if (dt > 1) asked.values["u"][i] *= 1e-4;  // what such a step brings in would hide all else
  }
  for (auto& [name, values] : asked.values)
    for (double& value : values) value = static_cast<double>(static_cast<float>(value));
  const Results want = run(asked);
  expect_numbers(want, "f64");
  asked.dtype = DType::f32;
  const Results got = run(asked);
  for (const char* name : {"out", "final_state"}) expect_near(got.at(name), want.at(name), 2e-6, name);
  for (const auto& [name, values] : want) expect_near(got.at(name), values, 1e-4, name);
}

/// No input, no output: and gradients that are numbers.
TEST_P(SelectiveScan, ZeroInStaysZero) {
  Problem asked = problem({});
  for (const char* name : {"u", "B", "C"})
    std::fill(asked.values[name].begin(), asked.values[name].end(), 0.0);
  asked.values.erase("initial_state");
  const Results got = run(asked);
  for (const double value : got.at("out")) EXPECT_EQ(value, 0);
  for (const double value : got.at("final_state")) EXPECT_EQ(value, 0);
  expect_numbers(got, "zeros");
}

/// f32 over as many steps as a state remembers: the state moves by exp(l) - 1, not by a rounded exp(l).
TEST_P(SelectiveScan, DecaysNearOneKeepTheirDigits) {
  Problem asked = problem({.B = 1, .L = 8192, .E = 1, .G = 1});
  asked.softplus = false;
  for (const char* name : {"dt_bias", "D", "z", "initial_state", "d_final_state"}) asked.values.erase(name);
  for (auto& [name, values] : asked.values)
    for (double& value : values)
      value = name == "u" ? static_cast<double>(static_cast<float>(1 + value / 4)) : 1.0;
  std::fill(asked.values["A"].begin(), asked.values["A"].end(), static_cast<double>(-1.1e-4F));
  const Values want = run(asked, false).at("final_state");
  asked.dtype = DType::f32;
  expect_near(run(asked, false).at("final_state"), want, 1e-5, "final_state");
}

TEST(SelectiveScan, ManyStepsAndManyChannels) {
  for (const Device device : {kCpu, kCuda}) {
    if (!is_available(device)) continue;
    // The emulator pays for each thread.
    const bool emulated = !device.is_cpu() && std::string(cuda_backend()) == "emulated";
    for (const Sizes& size : std::vector<Sizes>{{1, 65537, 1, 1, 1}, {1, 3, emulated ? 4097 : 65537, 1, 2}}) {
      Problem asked = random_problem(size);
      asked.dtype = DType::f32;
      asked.device = device;
      const Results got = run(asked);
      expect_numbers(got, "many");
      asked.dtype = DType::f64;
      asked.device = kCpu;
      const Results want = run(asked);
      for (const char* name : {"out", "final_state"}) expect_near(got.at(name), want.at(name), 2e-5, name);
      for (const char* name : {"d_u", "d_B", "d_C", "d_initial_state"})
        expect_near(got.at(name), want.at(name), 1e-4, name);
    }
  }
}

TEST(SelectiveScan, TooManyStatesAreRefusedOnCuda) {
  if (!is_available(kCuda)) GTEST_SKIP() << "no cuda";
  Problem asked = random_problem({1, 2, 1, 1, kMostSelectiveScanStatesOnCuda + 1});
  EXPECT_NO_THROW(run(asked));
  asked.device = kCuda;
  try {
    run(asked);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported);
    EXPECT_EQ(std::string(error.what()), "selective_scan: B has 1025 states, on cuda at most 1024");
  }
}

// ---- one step

struct Step {
  Values out, next_state;
};

/// Step t of a problem as selective_scan_step takes it; where `in_place`, the state is overwritten.
Step step(const Problem& problem, std::int64_t t, const Values& state, bool in_place) {
  const Problem one = part_of(problem, t, t + 1);
  const Sizes& s = one.size;
  std::map<std::string, Tensor> inputs;
  const auto view = [&](const char* name, const Shape& shape) {
    inputs[name] = Tensor::from(shape, one.values.at(name)).to(one.dtype).to(one.device);
    return inputs[name].view();
  };
  SelectiveScanStepForward args;
  args.u = view("u", {s.B, s.E});
  args.dt = view("dt", {s.B, s.E});
  args.A = view("A", {s.E, s.N});
  args.B = view("B", {s.B, s.G, s.N});
  args.C = view("C", {s.B, s.G, s.N});
  args.D = view("D", {s.E});
  args.z = view("z", {s.B, s.E});
  args.dt_bias = view("dt_bias", {s.E});
  args.dt_softplus = one.softplus;
  Tensor before = Tensor::from({s.B, s.E, s.N}, state).to(one.dtype).to(one.device);
  Tensor after = Tensor::full(before.shape(), kNaN, one.dtype, one.device);
  Tensor out = Tensor::full({s.B, s.E}, kNaN, one.dtype, one.device);
  args.out = out.writable();
  args.next_state = in_place ? before.writable() : after.writable();
  args.state = before.view();
  call(one.device, selective_scan_step_forward, selective_scan_step_forward_workspace, args);
  return {values_of(out), values_of(in_place ? before : after)};
}

/// Prefill, then steps: the bits that forward gives over all.
TEST_P(SelectiveScan, StepsGoOnWhereForwardEnds) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    Problem whole = problem({});
    whole.dtype = dtype;
    for (auto& [name, values] : whole.values)
      for (double& value : values) value = static_cast<double>(static_cast<float>(value));
    const Results want = run(whole, false);
    const std::int64_t prefix = 5;
    Values state = run(part_of(whole, 0, prefix), false).at("final_state");
    for (std::int64_t t = prefix; t < whole.size.L; ++t) {
      const Step taken = step(whole, t, state, t % 2 == 0);
      expect_same(taken.out, steps(want.at("out"), whole.size, whole.size.E, t, t + 1),
                  "out of step " + std::to_string(t));
      state = taken.next_state;
    }
    expect_same(state, want.at("final_state"), "the last state");
  }
}

}  // namespace
}  // namespace scantape
