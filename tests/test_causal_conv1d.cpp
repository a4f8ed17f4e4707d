/// What must hold of a convolution over time whatever its numbers are: cut anywhere and carried on it is the whole, packed
/// sequences are what they are alone, steps are the long form, nothing of another sequence is touched. Bit for bit, on the
/// CPU and on cuda where there is one.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "case_tests.h"
#include "scantape/causal_conv1d.h"
#include "scantape/causal_conv1d_step.h"
#include "scantape/tensor.h"

namespace scantape {
namespace {

using Values = std::vector<double>;

struct Setting {
  Device device;
  DType dtype;
  std::int64_t taps;

  std::string text() const {
    return name(device) + " " + name(dtype) + " K=" + std::to_string(taps) + ", seed " +
           std::to_string(cases::seed());
  }
};

/// Both numbers of taps that a kernel's registers hold.
void for_each_run(bool with_16_bits, const std::function<void(const Setting&)>& body) {
  for (const Device device : {kCpu, kCuda})
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const std::int64_t taps : {1, 2, 4, 7, 16}) {
        if (!is_available(device) || (is_16_bit(dtype) && !with_16_bits)) continue;
        const Setting run{device, dtype, taps};
        SCOPED_TRACE(run.text());
        body(run);
      }
}

Tensor random(cases::Rng& rng, const Shape& shape, const Setting& run) {
  return Tensor::from(shape, cases::normal()(rng, shape), kCpu).to(run.dtype).to(run.device);
}

/// The bytes of a tensor: 0 and -0 differ, and so do no two NaN of one make.
std::vector<char> bytes_of(const Tensor& tensor) {
  const Tensor here = tensor.to(kCpu);
  const char* const data = static_cast<const char*>(here.view().data);
  return {data, data + here.elements() * size_of(here.dtype())};
}

/// What goes in, over a stretch of time, and what comes out.
struct Sequence {
  Tensor x, weight, bias, state, start, d_y;
  Tensor y, final_state, d_x, d_state;
  Activation activation = Activation::silu;

  /// `d_final_state` may be absent.
  void run(const Tensor& d_final_state = {}) {
    const Shape carried{x.shape()[0], weight.shape()[1] - 1, x.shape()[2]};
    y = Tensor::empty(x.shape(), x.dtype(), x.device());
    final_state = Tensor::empty(carried, x.dtype(), x.device());
    d_x = Tensor::empty(x.shape(), x.dtype(), x.device());
    d_state = Tensor::empty(carried, x.dtype(), x.device());
    CausalConv1dBackward args;
    args.x = x;
    args.weight = weight;
    args.bias = bias;
    args.initial_state = state;
    args.start = start;
    args.activation = activation;
    args.y = y.writable();
    args.final_state = final_state.writable();
    require(causal_conv1d_forward(args));
    args.d_y = d_y;
    args.d_final_state = d_final_state;
    args.d_x = {d_x.writable(), WriteMode::overwrite};
    args.d_initial_state = {d_state.writable(), WriteMode::overwrite};
    require(causal_conv1d_backward(args));
    require(synchronize(x.device()));
  }
  /// Steps begin..end-1 alone; the state comes from elsewhere.
  Sequence part(std::int64_t begin, std::int64_t end) const {
    Sequence result = *this;
    const auto cut = [&](const Tensor& whole) { return whole.slice(1, begin, end).clone(); };
    result.x = cut(x);
    result.d_y = cut(d_y);
    if (start.present()) result.start = cut(start);
    return result;
  }
};

Sequence make_sequence(const Setting& run, std::int64_t length, bool starts) {
  cases::Rng rng(cases::seed());
  constexpr std::int64_t kItems = 2, kChannels = 5;
  Sequence whole;
  whole.x = random(rng, {kItems, length, kChannels}, run);
  whole.weight = random(rng, {kChannels, run.taps}, run);
  whole.bias = random(rng, {kChannels}, run);
  whole.state = random(rng, {kItems, run.taps - 1, kChannels}, run);
  whole.d_y = random(rng, {kItems, length, kChannels}, run);
  if (!starts) return whole;
  Values flags(static_cast<std::size_t>(kItems * length));
  for (double& flag : flags) flag = rng.uniform(0, 1) < 0.15 ? 1 : 0;
  whole.start = Tensor::from({kItems, length}, flags, kCpu).to(run.dtype).to(run.device);
  return whole;
}

void expect_same(const Tensor& got, const Tensor& want, const char* what) {
  EXPECT_EQ(got.shape(), want.shape()) << what;
  EXPECT_TRUE(bytes_of(got.clone()) == bytes_of(want.clone())) << what << " has other bits";
}

TEST(CausalConv1d, CutAnywhereAndCarriedOnIsTheWhole) {
  for_each_run(false, [](const Setting& run) {
    for (const bool starts : {false, true}) {
      constexpr std::int64_t kLength = 70;
      Sequence whole = make_sequence(run, kLength, starts);
      cases::Rng rng(cases::seed() + 1);
      const Tensor d_final = random(rng, whole.state.shape(), run);
      whole.run(d_final);
      for (const std::int64_t cut : {1, 2, 15, 31, 32, 33, 64, 69}) {
        SCOPED_TRACE("cut at " + std::to_string(cut) + (starts ? ", starts" : ""));
        Sequence first = whole.part(0, cut), second = whole.part(cut, kLength);
        first.run();
        second.state = first.final_state;
        second.run(d_final);
        first.run(second.d_state);
        expect_same(first.y, whole.y.slice(1, 0, cut), "y before the cut");
        expect_same(second.y, whole.y.slice(1, cut, kLength), "y after the cut");
        expect_same(second.final_state, whole.final_state, "final_state");
        expect_same(first.d_x, whole.d_x.slice(1, 0, cut), "d_x before the cut");
        expect_same(second.d_x, whole.d_x.slice(1, cut, kLength), "d_x after the cut");
        expect_same(first.d_state, whole.d_state, "d_initial_state");
      }
    }
  });
}

/// The gradient of a state of 16 bits is rounded where time is cut; values are not.
TEST(CausalConv1d, CutAnywhereIsTheWholeIn16Bits) {
  for_each_run(true, [](const Setting& run) {
    if (!is_16_bit(run.dtype)) return;
    Sequence whole = make_sequence(run, 40, true);
    whole.run();
    for (const std::int64_t cut : {1, 31, 32, 39}) {
      Sequence first = whole.part(0, cut), second = whole.part(cut, 40);
      first.run();
      second.state = first.final_state;
      second.run();
      expect_same(first.y, whole.y.slice(1, 0, cut), "y before the cut");
      expect_same(second.y, whole.y.slice(1, cut, 40), "y after the cut");
      expect_same(second.final_state, whole.final_state, "final_state");
    }
  });
}

TEST(CausalConv1d, PackedSequencesAreWhatTheyAreAlone) {
  for_each_run(true, [](const Setting& run) {
    const std::vector<std::int64_t> begins = {0, 1, 2, 9, 30, 34, 50};
    constexpr std::int64_t kLength = 51;
    Sequence whole = make_sequence(run, kLength, false);
    Values flags(static_cast<std::size_t>(whole.x.shape()[0] * kLength), 0.0);
    for (const std::int64_t item : {0, 1})
      for (const std::int64_t begin : begins)
        flags[static_cast<std::size_t>(item * kLength + begin)] = begin % 2 == 0 ? 1 : -3;
    whole.start = Tensor::from({2, kLength}, flags, kCpu).to(run.dtype).to(run.device);
    whole.run();
    for (std::size_t i = 0; i < begins.size(); ++i) {
      const std::int64_t begin = begins[i], end = i + 1 < begins.size() ? begins[i + 1] : kLength;
      SCOPED_TRACE("sequence at " + std::to_string(begin));
      Sequence alone = whole.part(begin, end);
      alone.start = alone.state = Tensor();
      alone.run();
      expect_same(alone.y, whole.y.slice(1, begin, end), "y");
      expect_same(alone.d_x, whole.d_x.slice(1, begin, end), "d_x");
      if (end == kLength) expect_same(alone.final_state, whole.final_state, "final_state");
    }
    for (const double value : whole.d_state.to(kCpu).to(DType::f64).values<double>())
      EXPECT_EQ(value, 0) << "the first step starts: nothing reaches the state";
  });
}

/// NaN and infinity in one sequence leave the others' values and gradients with the bits that they had.
TEST(CausalConv1d, NaNEndsWithItsSequence) {
  for_each_run(true, [](const Setting& run) {
    constexpr std::int64_t kLength = 48, kBegin = 20, kEnd = 29;
    Sequence clean = make_sequence(run, kLength, false);
    Values flags(static_cast<std::size_t>(2 * kLength), 0.0);
    for (const std::int64_t item : {0, 1})
      for (const std::int64_t t : {kBegin, kEnd}) flags[static_cast<std::size_t>(item * kLength + t)] = 1;
    clean.start = Tensor::from({2, kLength}, flags, kCpu).to(run.dtype).to(run.device);
    clean.run();
    for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
      Sequence spoilt = clean;
      const auto spoil = [&](const Tensor& tensor) {
        Values values = tensor.to(kCpu).to(DType::f64).values<double>();
        const std::int64_t channels = tensor.shape()[2];
        for (std::int64_t item = 0; item < 2; ++item)
          for (std::int64_t i = kBegin * channels; i < kEnd * channels; ++i)
            values[static_cast<std::size_t>(item * kLength * channels + i)] = bad;
        return Tensor::from(tensor.shape(), values, kCpu).to(run.dtype).to(run.device);
      };
      spoilt.x = spoil(clean.x);
      spoilt.d_y = spoil(clean.d_y);
      spoilt.run();
      for (const auto& [begin, end] : {std::pair(std::int64_t{0}, kBegin), std::pair(kEnd, kLength)}) {
        expect_same(spoilt.y.slice(1, begin, end), clean.y.slice(1, begin, end), "y");
        expect_same(spoilt.d_x.slice(1, begin, end), clean.d_x.slice(1, begin, end), "d_x");
      }
      expect_same(spoilt.d_state, clean.d_state, "d_initial_state");
      expect_same(spoilt.final_state, clean.final_state, "final_state");
    }
  });
}

/// Steps one after the other, the state moved on in its own memory, give the long form's bits; so do their gradients.
TEST(CausalConv1d, StepsAreTheLongForm) {
  for_each_run(true, [](const Setting& run) {
    constexpr std::int64_t kLength = 19;
    Sequence whole = make_sequence(run, kLength, false);
    whole.run();
    Tensor state = whole.state.clone();
    std::vector<Tensor> states;
    for (std::int64_t t = 0; t < kLength; ++t) {
      states.push_back(state.clone());
      const Shape row{whole.x.shape()[0], whole.x.shape()[2]};
      const Tensor x = whole.x.slice(1, t, t + 1).clone().reshape(row);
      Tensor y = Tensor::empty(row, run.dtype, run.device);
      CausalConv1dStepForward args;
      args.x = x;
      args.state = state;
      args.weight = whole.weight;
      args.bias = whole.bias;
      args.y = y.writable();
      args.new_state = state.writable();
      require(causal_conv1d_step_forward(args));
      require(synchronize(run.device));
      EXPECT_TRUE(bytes_of(y) == bytes_of(whole.y.slice(1, t, t + 1).clone())) << "step " << t;
    }
    expect_same(state, whole.final_state, "the last state");

    if (is_16_bit(run.dtype)) return;  // gradients of states are rounded in each step
    Tensor d_state = Tensor::zeros(state.shape(), run.dtype, run.device);
    for (std::int64_t t = kLength - 1; t >= 0; --t) {
      const Shape row{whole.x.shape()[0], whole.x.shape()[2]};
      const Tensor x = whole.x.slice(1, t, t + 1).clone().reshape(row);
      const Tensor d_y = whole.d_y.slice(1, t, t + 1).clone().reshape(row), d_new_state = d_state.clone();
      Tensor d_x = Tensor::empty(row, run.dtype, run.device);
      CausalConv1dStepBackward args;
      args.x = x;
      args.state = states[static_cast<std::size_t>(t)];
      args.weight = whole.weight;
      args.bias = whole.bias;
      args.d_y = d_y;
      if (t < kLength - 1) args.d_new_state = d_new_state;
      args.d_x = {d_x.writable(), WriteMode::overwrite};
      args.d_state = {d_state.writable(), WriteMode::overwrite};
      require(causal_conv1d_step_backward(args));
      require(synchronize(run.device));
      EXPECT_TRUE(bytes_of(d_x) == bytes_of(whole.d_x.slice(1, t, t + 1).clone())) << "d_x of step " << t;
    }
    expect_same(d_state, whole.d_state, "d_initial_state");
  });
}

/// Padding on the right never changes the left, and a change of the future never the past.
TEST(CausalConv1d, TheFutureDoesNotChangeThePast) {
  for_each_run(true, [](const Setting& run) {
    Sequence whole = make_sequence(run, 50, false);
    whole.run();
    Sequence longer = make_sequence(run, 50, false);
    cases::Rng rng(cases::seed() + 2);
    const Tensor other = random(rng, whole.x.shape(), run);
    Values values = whole.x.to(kCpu).to(DType::f64).values<double>();
    const Values changed = other.to(kCpu).to(DType::f64).values<double>();
    constexpr std::int64_t kFrom = 23;
    for (std::int64_t i = 0; i < whole.x.elements(); ++i)
      if (i / whole.x.shape()[2] % 50 >= kFrom)
        values[static_cast<std::size_t>(i)] = changed[static_cast<std::size_t>(i)];
    longer.x = Tensor::from(whole.x.shape(), values, kCpu).to(run.dtype).to(run.device);
    longer.run();
    expect_same(longer.y.slice(1, 0, kFrom), whole.y.slice(1, 0, kFrom), "y");
    EXPECT_FALSE(bytes_of(longer.y) == bytes_of(whole.y));
  });
}

/// x and y as slices of the channels of a wider projection.
TEST(CausalConv1d, TakesChannelsOfAWiderTensor) {
  for_each_run(true, [](const Setting& run) {
    Sequence whole = make_sequence(run, 37, true);
    whole.run();
    const std::int64_t channels = whole.x.shape()[2], wide = channels + 8;
    cases::Rng rng(cases::seed() + 3);
    const Shape wider{2, 37, wide};
    Values values = random(rng, wider, run).to(kCpu).to(DType::f64).values<double>();
    const Values x = whole.x.to(kCpu).to(DType::f64).values<double>();
    for (std::int64_t row = 0; row < 2 * 37; ++row)
      for (std::int64_t c = 0; c < channels; ++c)
        values[static_cast<std::size_t>(row * wide + 3 + c)] =
            x[static_cast<std::size_t>(row * channels + c)];
    Sequence sliced = whole;
    const Tensor projection = Tensor::from(wider, values, kCpu).to(run.dtype).to(run.device);
    sliced.x = projection.slice(2, 3, 3 + channels);
    sliced.run();
    expect_same(sliced.y, whole.y, "y");
    expect_same(sliced.d_x, whole.d_x, "d_x");
    expect_same(sliced.d_state, whole.d_state, "d_initial_state");
  });
}

}  // namespace
}  // namespace scantape
