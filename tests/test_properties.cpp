/// What must hold whatever the numbers are: write modes, the same bytes every time and wherever an item
/// stands, zero in and zero out, outputs over inputs, guard bands. On the CPU, by its reference, and on cuda
/// where there is one.

#include "case_tests.h"
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

class Threads : public CaseTest {};

bool fits(const Case& c) {
  std::int64_t most = 0;
  for (const Input& input : c.inputs) most = std::max(most, input.shape.elements());
  for (const Output& output : c.outputs) most = std::max(most, output.shape.elements());
  return most <= kMostElements;
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

TEST(ScanSplit, IsWholeOnCuda) {
  if (!is_available(kCuda)) GTEST_SKIP() << "no cuda device: " << cuda_backend();
  expect_split_is_whole(kCuda, 1e-13);
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
