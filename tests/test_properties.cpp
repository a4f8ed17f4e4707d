/// What must hold whatever the numbers are: write modes, the same bytes every time and wherever an item
/// stands, zero in and zero out, outputs over inputs, guard bands. On the CPU, by its reference, and on cuda
/// where there is one.

#include <cmath>

#include "case_tests.h"
#include "cases/compare.h"
#include "scantape/scan.h"
#include "scantape/tensor.h"

#if SCANTAPE_EMULATED
#include "scantape_emulator.h"
#endif

namespace scantape::cases {
namespace {

using Property = Rows (*)(const Case&, Place, std::uint64_t);

void expect_everywhere(Property property, const Case& c) {
  for (const Place place : places(c)) expect_all_pass(property(c, place, seed()));
}

class WriteModes : public CaseTest {};
class Repetitions : public CaseTest {};
class Items : public CaseTest {};
class ZeroCotangents : public CaseTest {};
class InPlace : public CaseTest {};

TEST_P(WriteModes, OverwriteAccumulateSkip) {
  expect_everywhere(write_modes, *GetParam());
}
TEST_P(Repetitions, GiveTheSameBytes) {
  expect_everywhere(repetitions, *GetParam());
}
/// On sizes at which the CPU's loops share their work among threads: those of the benchmarks, but the largest,
/// which share it no further and take minutes.
constexpr std::int64_t kMostElements = 4000000;
constexpr double kMostOperations = 5e8;

class Threads : public CaseTest {};

bool fits(const Case& c) {
  std::int64_t most = 0;
  for (const Input& input : c.inputs) most = std::max(most, input.shape.elements());
  for (const Output& output : c.outputs) most = std::max(most, output.shape.elements());
  return most <= kMostElements && c.forward_operations + c.backward_operations <= kMostOperations;
}

std::vector<const Case*> large_cases() {
  std::vector<const Case*> list;
  for (const Case& c : all_cases())
    if (c.benchmark && fits(c)) list.push_back(&c);
  return list;
}

TEST_P(Threads, GiveTheSameBytes) {
  for (const Place place : places(*GetParam()))
    if (place.device.is_cpu()) expect_all_pass(repetitions(*GetParam(), place, seed()));
}
TEST_P(Items, DoNotSeeEachOther) {
  expect_everywhere(item_independence, *GetParam());
}
TEST_P(ZeroCotangents, GiveZero) {
  expect_everywhere(zero_cotangents, *GetParam());
}
TEST_P(InPlace, GivesTheSameBytes) {
  expect_everywhere(in_place, *GetParam());
}

INSTANTIATE_TEST_SUITE_P(Properties, WriteModes, testing::ValuesIn(tested_cases([](const Case& c) {
                           return c.properties && c.backward;
                         })),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Properties, Repetitions,
                         testing::ValuesIn(tested_cases([](const Case& c) { return c.properties; })),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Properties, Threads, testing::ValuesIn(large_cases()), test_name);
INSTANTIATE_TEST_SUITE_P(Properties, Items, testing::ValuesIn(tested_cases([](const Case& c) {
                           return c.properties && has_items(c);
                         })),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Properties, ZeroCotangents, testing::ValuesIn(tested_cases([](const Case& c) {
                           return c.properties && c.backward;
                         })),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Properties, InPlace, testing::ValuesIn(tested_cases([](const Case& c) {
                           return c.properties && !c.aliases.empty();
                         })),
                         test_name);

// ---- scan: cut anywhere and carried on, it is the whole

std::vector<double> scanned(const Tensor& a, const Tensor& b, const Tensor& h0, Tensor* final_state) {
  Tensor h = Tensor::empty(b.shape(), b.dtype(), b.device());
  *final_state = Tensor::empty(h0.shape(), b.dtype(), b.device());
  ScanForward args;
  args.a = a;
  args.b = b;
  args.h0 = h0;
  args.h = h.writable();
  args.final_state = final_state->writable();
  const Tensor room = Tensor::empty({(scan_forward_workspace(args) + 7) / 8 + 1}, DType::f64, b.device());
  args.workspace = {const_cast<void*>(room.view().data), room.elements() * 8};
  require(scan_forward(args));
  return h.values<double>();
}

void expect_split_is_whole(Device device, double tolerance) {
  constexpr std::int64_t kLength = 300, kChannels = 3;
  const Shape sequence{1, kLength, kChannels}, state{1, kChannels};
  Rng rng(seed());
  const Tensor a = Tensor::from(sequence, uniform(-1, 1)(rng, sequence), device);
  const Tensor b = Tensor::from(sequence, normal()(rng, sequence), device);
  const Tensor h0 = Tensor::from(state, normal()(rng, state), device);
  Tensor last;
  const std::vector<double> whole = scanned(a, b, h0, &last);
  for (const std::int64_t cut : {1, 31, 32, 128, 150, 256, 299}) {
    Tensor carry, end;
    std::vector<double> parts = scanned(a.slice(1, 0, cut), b.slice(1, 0, cut), h0, &carry);
    for (const double value : scanned(a.slice(1, cut, kLength), b.slice(1, cut, kLength), carry, &end))
      parts.push_back(value);
    ASSERT_EQ(parts.size(), whole.size());
    for (std::size_t i = 0; i < whole.size(); ++i)
      ASSERT_LE(std::abs(parts[i] - whole[i]), tolerance)
          << "cut at " << cut << ", element " << i << ", seed " << seed();
  }
}

TEST(ScanSplit, IsWholeBitForBitOnCpu) {
  expect_split_is_whole(kCpu, 0);
}

// ---- scan: NaN and infinity end with their sequence

/// h and the gradients of a scan over packed sequences, all in one list per tensor.
std::vector<std::vector<double>> packed_scan(const std::vector<double>& a, const std::vector<double>& b,
                                             const std::vector<double>& start, const std::vector<double>& d_h,
                                             ScanDirection direction, Device device) {
  const auto length = static_cast<std::int64_t>(b.size());
  const Shape sequence{1, length, 1};
  const Tensor a_on = Tensor::from(sequence, a, device), b_on = Tensor::from(sequence, b, device);
  const Tensor flags = Tensor::from({1, length}, start, device), g_on = Tensor::from(sequence, d_h, device);
  std::vector<Tensor> made(3);
  for (Tensor& tensor : made) tensor = Tensor::zeros(sequence, DType::f64, device);
  ScanBackward args;
  args.a = a_on;
  args.b = b_on;
  args.start = flags;
  args.direction = direction;
  args.h = made[0].writable();
  const ScanForward& first = args;
  const std::int64_t bytes = scan_forward_workspace(first) + 1024;
  Tensor room = Tensor::empty({bytes}, DType::f64, device);
  args.workspace = {room.writable().as<void>(), room.elements() * 8};
  require(scan_forward(first));
  args.d_h = g_on;
  args.d_a = {made[1].writable(), WriteMode::overwrite};
  args.d_b = {made[2].writable(), WriteMode::overwrite};
  require(scan_backward(args));
  std::vector<std::vector<double>> values;
  for (const Tensor& tensor : made) values.push_back(tensor.values<double>());
  return values;
}

/// Three sequences, of `lengths` steps; the middle one is spoilt. The bits of the others must not change.
void expect_nan_stays(Device device, ScanDirection direction, const std::vector<int>& lengths) {
  std::vector<double> start;
  for (const int length : lengths)
    for (int t = 0; t < length; ++t)
      start.push_back((direction == ScanDirection::forward ? t == 0 : t == length - 1) ? 1 : 0);
  Rng rng(seed());
  const Shape shape{static_cast<std::int64_t>(start.size())};
  std::vector<double> a = uniform(-1, 1)(rng, shape), b = normal()(rng, shape), g = normal()(rng, shape);
  const auto clean = packed_scan(a, b, start, g, direction, device);
  const std::size_t begin = static_cast<std::size_t>(lengths[0]),
                    end = begin + static_cast<std::size_t>(lengths[1]);
  for (std::size_t t = begin; t < end; ++t) {
    a[t] = t % 2 == 0 ? std::nan("") : HUGE_VAL;
    b[t] = t % 2 == 0 ? -HUGE_VAL : std::nan("");
    g[t] = std::nan("");
  }
  const auto spoilt = packed_scan(a, b, start, g, direction, device);
  for (std::size_t k = 0; k < clean.size(); ++k)
    for (std::size_t t = 0; t < a.size(); ++t) {
      if (t < begin || t >= end) {
        ASSERT_EQ(clean[k][t], spoilt[k][t]) << "tensor " << k << ", step " << t << " on " << name(device);
      } else if (k != 1) {
        ASSERT_FALSE(std::isfinite(spoilt[k][t]))
            << "tensor " << k << ", step " << t << ": nothing was spoilt";
      }
    }
}

TEST(ScanStarts, KeepNaNInItsSequence) {
  for (const Device device : {kCpu, kCuda})
    for (const ScanDirection direction : {ScanDirection::forward, ScanDirection::reversed})
      for (const std::vector<int>& lengths :
           std::vector<std::vector<int>>{{3, 2, 4}, {30, 50, 20}, {3000, 700, 1340}})
        if (is_available(device)) expect_nan_stays(device, direction, lengths);
}

/// By a matrix: cut on either side of where the whole is walked in parts of time, and no cut is.
void expect_dense_split_is_whole(Device device, double tolerance) {
  constexpr std::int64_t kLength = 700, kChannels = 3;
  const Shape sequence{2, kLength, kChannels};
  Rng rng(seed());
  const Tensor a =
      Tensor::from({kChannels, kChannels}, uniform(-0.5, 0.5)(rng, {kChannels, kChannels}), device);
  const Tensor b = Tensor::from(sequence, normal()(rng, sequence), device);
  const Tensor h0 = Tensor::from({2, kChannels}, normal()(rng, {2, kChannels}), device);
  Tensor last, carry, end;
  const std::vector<double> whole = scanned(a, b, h0, &last);
  for (const std::int64_t cut : {1, 128, 129, 250, 512}) {
    const std::vector<double> early = scanned(a, b.slice(1, 0, cut).clone(), h0, &carry);
    const std::vector<double> late = scanned(a, b.slice(1, cut, kLength).clone(), carry, &end);
    for (std::int64_t item = 0; item < 2; ++item)
      for (std::int64_t i = 0; i < kLength * kChannels; ++i) {
        const std::int64_t at = i - cut * kChannels;
        const double part = at < 0 ? early[static_cast<std::size_t>(item * cut * kChannels + i)]
                                   : late[static_cast<std::size_t>(item * (kLength - cut) * kChannels + at)];
        ASSERT_LE(std::abs(part - whole[static_cast<std::size_t>(item * kLength * kChannels + i)]), tolerance)
            << "cut at " << cut << ", item " << item << ", element " << i << ", seed " << seed();
      }
  }
}

TEST(ScanSplit, ByAMatrixIsWhole) {
  expect_dense_split_is_whole(kCpu, 0);
  if (is_available(kCuda)) expect_dense_split_is_whole(kCuda, 1e-13);
}

/// Three sequences in one row of 1,200 steps, which cuda walks in parts; the middle one is spoilt.
TEST(ScanStarts, NaNEndsWithItsSequenceByAMatrix) {
  constexpr std::int64_t kLength = 1200, kBegin = 300, kEnd = 800;
  const Shape sequence{1, kLength, 2};
  for (const Device device : {kCpu, kCuda}) {
    if (!is_available(device)) continue;
    Rng rng(seed());
    const Tensor a = Tensor::from({2, 2}, Values{0.6, -0.3, 0.2, 0.5}, device);
    Values start(kLength, 0.0), b = normal()(rng, sequence), d_h = normal()(rng, sequence);
    start[kBegin] = start[kEnd] = 1;
    const auto run = [&] {
      const Tensor flags = Tensor::from({1, kLength}, start, device),
                   b_on = Tensor::from(sequence, b, device), d_h_on = Tensor::from(sequence, d_h, device);
      Tensor h = Tensor::zeros(sequence, DType::f64, device),
             d_b = Tensor::zeros(sequence, DType::f64, device);
      ScanBackward args;
      args.a = a;
      args.b = b_on;
      args.start = flags;
      args.h = h.writable();
      args.d_h = d_h_on;
      args.d_b = {d_b.writable(), WriteMode::overwrite};
      const ScanForward& forward = args;
      Tensor room = Tensor::empty({scan_forward_workspace(forward) + scan_backward_workspace(args) + 1},
                                  DType::f64, device);
      args.workspace = {room.writable().as<void>(), room.elements() * 8};
      require(scan_forward(forward));
      require(scan_backward(args));
      return std::pair(h.values<double>(), d_b.values<double>());
    };
    const auto clean = run();
    for (std::size_t i = 2 * kBegin; i < 2 * kEnd; ++i) b[i] = d_h[i] = i % 3 == 0 ? HUGE_VAL : std::nan("");
    const auto spoilt = run();
    for (std::size_t i = 0; i < 2 * kLength; ++i) {
      if (i >= 2 * kBegin && i < 2 * kEnd) {
        ASSERT_FALSE(std::isfinite(spoilt.first[i]) || std::isfinite(spoilt.second[i]))
            << "nothing was spoilt";
      } else {
        ASSERT_EQ(clean.first[i], spoilt.first[i]) << "h, element " << i << " on " << name(device);
        ASSERT_EQ(clean.second[i], spoilt.second[i]) << "d_b, element " << i << " on " << name(device);
      }
    }
  }
}

TEST(ScanSplit, IsWholeOnCuda) {
  if (!is_available(kCuda)) GTEST_SKIP() << "no cuda device: " << cuda_backend();
  expect_split_is_whole(kCuda, 1e-13);
}

// ---- scan: decays near one

/// A scan of one item in f32 and what it has to give, by plain f64 from decays that nobody rounded.
struct NearOne {
  std::int64_t n = 1;
  std::vector<double> F;  // [n] or [n, n]: the decays less one
  static constexpr std::int64_t kLength = 16384;

  bool dense() const { return static_cast<std::int64_t>(F.size()) != n; }
  Shape decay() const { return dense() ? Shape{n, n} : Shape{n}; }
  double times(const std::vector<double>& x, std::int64_t i, bool transposed) const {
    if (!dense()) return F[static_cast<std::size_t>(i)] * x[static_cast<std::size_t>(i)];
    double sum = 0;
    for (std::int64_t k = 0; k < n; ++k)
      sum += F[static_cast<std::size_t>(transposed ? k * n + i : i * n + k)] * x[static_cast<std::size_t>(k)];
    return sum;
  }
  /// All states of x_t = (I + F) x_{t-1} + input_t, with F^T and from the last row on where it runs backwards.
  std::vector<double> walk(const std::vector<double>& input, bool backwards) const {
    std::vector<double> all(input.size()), state(static_cast<std::size_t>(n), 0.0), next(state.size());
    for (std::int64_t step = 0; step < kLength; ++step) {
      const std::int64_t row = backwards ? kLength - 1 - step : step;
      for (std::int64_t i = 0; i < n; ++i)
        next[static_cast<std::size_t>(i)] = state[static_cast<std::size_t>(i)] + times(state, i, backwards) +
                                            input[static_cast<std::size_t>(row * n + i)];
      state = next;
      std::copy(state.begin(), state.end(), all.begin() + row * n);
    }
    return all;
  }
};

/// The errors of h and d_b in f32, where a is given less one or as it is.
std::pair<double, double> error_near_one(const NearOne& scan, bool minus_one, Device device) {
  const Shape sequence{1, NearOne::kLength, scan.n};
  Rng rng(seed());
  // Of one sign: what is off grows with them.
  Values b = uniform(0, 1)(rng, sequence), d_h = uniform(0, 1)(rng, sequence), a = scan.F;
  for (Values* values : {&b, &d_h})
    for (double& value : *values) value = static_cast<double>(static_cast<float>(value));
  for (std::size_t i = 0; !minus_one && i < a.size();
       i += scan.dense() ? static_cast<std::size_t>(scan.n) + 1 : 1)
    a[i] += 1;
  const auto on = [&](const Shape& shape, const Values& values) {
    return Tensor::from(shape, values).to(DType::f32).to(device);
  };
  const Tensor a_on = on(scan.decay(), a), b_on = on(sequence, b), d_h_on = on(sequence, d_h);
  Tensor h = Tensor::zeros(sequence, DType::f32, device), d_b = Tensor::zeros(sequence, DType::f32, device);
  ScanBackward args;
  args.a = a_on;
  args.b = b_on;
  args.minus_one = minus_one;
  args.h = h.writable();
  args.d_h = d_h_on;
  args.d_b = {d_b.writable(), WriteMode::overwrite};
  const ScanForward& forward = args;
  const std::int64_t bytes = std::max(scan_forward_workspace(forward), scan_backward_workspace(args));
  Tensor room = Tensor::empty({bytes / 8 + 1}, DType::f64, device);
  args.workspace = {room.writable().as<void>(), room.elements() * 8};
  require(scan_forward(forward));
  require(scan_backward(args));
  const auto error = [&](const Tensor& got, const Values& want) {
    return relative_error(got.to(DType::f64).values<double>(), want, sequence, DType::f32, ErrorRule::slice);
  };
  return {error(h, scan.walk(b, false)), error(d_b, scan.walk(d_h, true))};
}

/// Over 16,384 steps of l = -1e-4, a rounded to f32 itself is off by more than 2e-5 in h; its distance to one is not.
TEST(ScanNearOne, DecaysLessOneKeepTheirDigits) {
  const double F = std::expm1(-1e-4);
  const NearOne constant{2, {F, std::expm1(-3e-4)}};
  const NearOne matrix{2, {F, 4e-5, -7e-5, std::expm1(-2e-4)}};
  for (const Device device : {kCpu, kCuda}) {
    if (!is_available(device)) continue;
    for (const NearOne& scan : {constant, matrix}) {
      const auto [h, d_b] = error_near_one(scan, true, device);
      EXPECT_LE(h, 1e-5) << name(scan.decay()) << " on " << name(device);
      EXPECT_LE(d_b, 1e-5) << name(scan.decay()) << " on " << name(device);
      if (device.is_cpu()) {
        EXPECT_GT(error_near_one(scan, false, device).first, 2e-5) << "the test sees nothing";
      }
    }
  }
}

#if SCANTAPE_EMULATED
/// One sequence of one channel: whoever shares the work shares time, and has to meet the others for it.
TEST(ScanSplit, SharesTimeAmongThreads) {
  constexpr std::int64_t kLength = 2000;
  const Tensor a = Tensor::full({1, kLength, 1}, 0.5, DType::f64, kCuda);
  const Tensor b = Tensor::full({1, kLength, 1}, 1, DType::f64, kCuda),
               h0 = Tensor::zeros({1, 1}, DType::f64, kCuda);
  const emulator::Statistics before = emulator::statistics();
  Tensor last;
  scanned(a, b, h0, &last);
  const emulator::Statistics after = emulator::statistics();
  EXPECT_GE(after.threads - before.threads, 32);
  EXPECT_GE((after.thread_barriers - before.thread_barriers) / (after.threads - before.threads), 5);
}
#endif

}  // namespace
}  // namespace scantape::cases
