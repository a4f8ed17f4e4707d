// The tape's own rules: who writes a gradient, who adds to it, what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "scantape/autograd/ops.h"
#include "scantape/autograd/parameters.h"
#include "scantape/autograd/tape.h"

namespace scantape::autograd {
namespace {

using Values = std::vector<double>;

Tensor vector(const Values& values) {
  return Tensor::from({static_cast<std::int64_t>(values.size())}, values);
}

Tensor random_tensor(const Shape& shape, std::uint64_t seed) {
  Random random(seed);
  Values values(static_cast<std::size_t>(shape.elements()));
  for (double& value : values) value = random.normal();
  return Tensor::from(shape, values);
}

/// A user's op, y = k x: counts how often its backward runs.
Variable scale(const Variable& x, double k, int* runs = nullptr) {
  Values values = x.value().values<double>();
  for (double& value : values) value *= k;
  return record("scale", {&x}, {Tensor::from(x.shape(), values)}, [k, runs](BackwardPass& pass) {
    if (runs != nullptr) ++*runs;
    const ConstView d_y = pass.cotangent(0);
    const Gradient d_x = pass.gradient(0);
    for (std::int64_t i = 0; i < d_y.elements(); ++i) {
      double& target = d_x.view.as<double>()[i];
      const double value = k * d_y.as<double>()[i];
      target = d_x.mode == WriteMode::accumulate ? target + value : value;
    }
  })[0];
}

/// A user's op with two inputs, y = a + b.
Variable add(const Variable& a, const Variable& b) {
  Values values = a.value().values<double>();
  const Values other = b.value().values<double>();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += other[i];
  return record("add", {&a, &b}, {Tensor::from(a.shape(), values)}, [](BackwardPass& pass) {
    const ConstView d_y = pass.cotangent(0);
    for (int input : {0, 1}) {
      const Gradient target = pass.gradient(input);
      if (!target.wanted()) continue;
      for (std::int64_t i = 0; i < d_y.elements(); ++i) {
        double& to = target.view.as<double>()[i];
        to = (target.mode == WriteMode::accumulate ? to : 0) + d_y.as<double>()[i];
      }
    }
  })[0];
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "nothing was refused";
}

TEST(Tape, AValueUsedThreeTimesAddsUp) {
  Tape tape;
  const Variable x = tape.leaf(vector({1, -2}));
  const Variable y = add(add(scale(x, 2), scale(x, 3)), scale(x, 5));
  tape.backward({{y, vector({7, 0.5})}});
  EXPECT_EQ(tape.gradient(x).values<double>(), (Values{70, 5}));
}

TEST(Tape, ADiamondIsWalkedOnce) {
  Tape tape;
  int runs = 0;
  const Variable x = tape.leaf(vector({3}));
  const Variable top = scale(x, 2, &runs);
  const Variable y = add(scale(top, 5), scale(top, 7));
  tape.backward(y);
  EXPECT_EQ(tape.gradient(x).values<double>(), (Values{24}));
  EXPECT_EQ(runs, 1);
}

TEST(Tape, OneVariableInTwoPlacesOfAnOp) {
  Tape tape;
  const Variable x = tape.leaf(vector({3, 4}));
  tape.backward({{add(x, x), vector({1.5, -2})}});
  EXPECT_EQ(tape.gradient(x).values<double>(), (Values{3, -4}));
}

TEST(Tape, OneVariableInTwoPlacesOfALibraryOp) {
  // state_output(z, u, D, residual) with z = residual = x: d_x = g + d_out, by two writers of one buffer.
  const Tensor z = random_tensor({2, 3}, 1), u = random_tensor({2, 3}, 2), D = random_tensor({3}, 3),
               cotangent = random_tensor({2, 3}, 4);
  Tape twice, apart;
  const Variable x = twice.leaf(z);
  twice.backward({{state_output(x, Variable(u), Variable(D), x), cotangent}});
  const Variable a = apart.leaf(z), b = apart.leaf(z);
  apart.backward({{state_output(a, Variable(u), Variable(D), b), cotangent}});
  const Values got = twice.gradient(x).values<double>();
  const Values d_z = apart.gradient(a).values<double>(), d_residual = apart.gradient(b).values<double>();
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], d_z[i] + d_residual[i]);
}

TEST(Tape, HalfTheOutputsUnused) {
  // Only the final state of the scan is used, then only h: each alone, and both, are sums of the two.
  const Tensor a = random_tensor({3}, 1), b = random_tensor({2, 4, 3}, 2);
  const Tensor d_h = random_tensor({2, 4, 3}, 3), d_final = random_tensor({2, 3}, 4);
  const auto gradient = [&](bool use_h, bool use_final) {
    Tape tape;
    const Variable input = tape.leaf(b);
    const Scanned scanned = scan(Variable(a), input);
    std::vector<Tape::Seed> seeds;
    if (use_h) seeds.push_back({scanned.h, d_h});
    if (use_final) seeds.push_back({scanned.final_state, d_final});
    tape.backward(seeds);
    return tape.gradient(input).values<double>();
  };
  const Values h = gradient(true, false), final_state = gradient(false, true), both = gradient(true, true);
  for (std::size_t i = 0; i < both.size(); ++i) {
    EXPECT_NE(h[i], 0);
    EXPECT_NE(final_state[i], 0);
    EXPECT_NEAR(both[i], h[i] + final_state[i], 1e-14);
  }
}

TEST(Tape, WhatNoGradientReachesIsNotRun) {
  Tape tape;
  int used = 0, unused = 0;
  const Variable x = tape.leaf(vector({2}));
  const Variable y = scale(x, 3, &used);
  (void)scale(y, 5, &unused);
  const Variable untouched = tape.leaf(vector({1, 1}));
  tape.backward(y);
  EXPECT_EQ(used, 1);
  EXPECT_EQ(unused, 0);
  EXPECT_EQ(tape.gradient(x).values<double>(), (Values{3}));
  EXPECT_EQ(tape.gradient(untouched).values<double>(), (Values{0, 0}));
}

TEST(Tape, ALeafThatNoGradientReachesIsZeroedInItsTarget) {
  Tape tape;
  const Tensor overwritten = vector({std::nan("")}), added_to = vector({8});
  const Variable x = tape.leaf(vector({2}));
  (void)tape.leaf(vector({2}), overwritten);
  (void)tape.leaf(vector({2}), added_to, WriteMode::accumulate);
  tape.backward(scale(x, 3));
  EXPECT_EQ(overwritten.values<double>(), (Values{0}));
  EXPECT_EQ(added_to.values<double>(), (Values{8}));
}

TEST(Tape, LeavesOverwriteOrAccumulate) {
  for (const WriteMode mode : {WriteMode::overwrite, WriteMode::accumulate}) {
    const Tensor gradient = vector({mode == WriteMode::overwrite ? std::nan("") : 100});
    for (int step = 0; step < 2; ++step) {
      Tape tape;
      const Variable x = tape.leaf(vector({2}), gradient, mode);
      tape.backward(add(scale(x, 3), scale(x, 4)));
    }
    EXPECT_EQ(gradient.values<double>()[0], mode == WriteMode::overwrite ? 7 : 114);
  }
}

TEST(Tape, TenThousandNodes) {
  Tape tape;
  const Variable x = tape.leaf(vector({1}));
  Variable y = x;
  for (int i = 0; i < 10000; ++i) y = scale(y, i % 2 == 0 ? 2 : 0.5);
  EXPECT_EQ(tape.nodes(), 10000);
  tape.backward(y);
  EXPECT_EQ(tape.gradient(x).values<double>(), (Values{1}));
}

TEST(Tape, RetainAllowsASecondRunWithTheSameBits) {
  Tape tape;
  const Variable x = tape.leaf(random_tensor({2, 3}, 1));
  const Variable y = silu(softplus(x));
  const Tensor cotangent = random_tensor({2, 3}, 2);
  tape.backward({{y, cotangent}}, true);
  const Values first = tape.gradient(x).values<double>();
  tape.backward({{y, cotangent}}, false);
  EXPECT_EQ(tape.gradient(x).values<double>(), first);
  EXPECT_NE(refusal([&] { tape.backward({{y, cotangent}}); }).find("retain"), std::string::npos);
}

TEST(Tape, SavedValuesMustNotChange) {
  Tensor value = random_tensor({2, 3}, 1);
  Tape tape;
  const Variable y = softplus(silu(tape.leaf(value)));
  value.mutable_data<double>()[0] = 1;
  const auto backward = [&] { tape.backward({{y, random_tensor({2, 3}, 2)}}); };
  const std::string message = refusal(backward);
  EXPECT_NE(message.find("silu: x was changed in place"), std::string::npos) << message;
  // softplus has run and released what it saved: there is no second run.
  EXPECT_NE(refusal(backward).find("has run already"), std::string::npos);
}

TEST(Tape, RefusesWhatIsWrong) {
  Tape tape, other;
  const Variable x = tape.leaf(vector({1, 2})), y = other.leaf(vector({1, 2}));
  EXPECT_NE(refusal([&] { add(x, y); }).find("add: its inputs are recorded on two tapes"), std::string::npos);
  EXPECT_NE(refusal([&] { record("step", {&x}, {vector({1})}, nullptr); }).find("step: has no backward"),
            std::string::npos);
  EXPECT_NE(refusal([&] { tape.backward(x); }).find("one element, got [2]"), std::string::npos);
  EXPECT_NE(refusal([&] {
              tape.backward({{x, vector({1, 2, 3})}});
            }).find("[3] f64 on cpu, wants [2]"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              tape.backward({{Variable(vector({1})), vector({1})}});
            }).find("not recorded"),
            std::string::npos);
  EXPECT_NE(refusal([&] {
              tape.backward({{y, vector({1, 2})}});
            }).find("not recorded on this tape"),
            std::string::npos);
  EXPECT_NE(refusal([&] { tape.backward(std::vector<Tape::Seed>{}); }).find("at least one"),
            std::string::npos);
  EXPECT_NE(refusal([&] { (void)tape.gradient(x); }).find("before backward"), std::string::npos);
  EXPECT_NE(refusal([&] {
              (void)tape.leaf(vector({1}), vector({1, 2}));
            }).find("gradient of a leaf"),
            std::string::npos);
  EXPECT_NE(refusal([&] { (void)mse(x, x); }).find("must be constants"), std::string::npos);
}

TEST(Tape, AGradientThatABackwardForgetsIsAnError) {
  Tape tape;
  const Variable x = tape.leaf(vector({1}));
  const Variable y = record("forgetful", {&x}, {vector({1})}, [](BackwardPass&) {})[0];
  EXPECT_NE(refusal([&] { tape.backward(y); }).find("forgetful: its backward gives no gradient for input 0"),
            std::string::npos);
}

TEST(Tape, ConstantsRecordNothingAndGiveTheSameBits) {
  Tape tape;
  const Tensor x = random_tensor({3, 5}, 1), weight = random_tensor({4, 5}, 2), bias = random_tensor({4}, 3);
  const Variable recorded = projection(tape.leaf(x), tape.leaf(weight), tape.leaf(bias));
  const Variable plain = projection(x, weight, bias);
  EXPECT_TRUE(recorded.recorded());
  EXPECT_FALSE(plain.recorded());
  EXPECT_EQ(tape.nodes(), 1);
  EXPECT_EQ(recorded.value().values<double>(), plain.value().values<double>());
}

TEST(Tape, WrongShapesAreWordedByTheOp) {
  EXPECT_NE(refusal([] {
              layer_norm(random_tensor({2, 3, 8}, 1), random_tensor({4}, 2), random_tensor({8}, 3));
            }).find("layer_norm: weight has shape [4], wants [8]"),
            std::string::npos);
}

TEST(Tape, TwoThreadsWithTwoTapesGiveTheBitsOfOne) {
  const auto step = [](Values* result) {
    Tape tape;
    const Variable x = tape.leaf(random_tensor({2, 7, 5}, 1));
    const Variable a = tape.leaf(random_tensor({5}, 2));
    const Variable y = silu(scan(a, x).h);
    tape.backward({{y, random_tensor({2, 7, 5}, 3)}});
    *result = tape.gradient(a).values<double>();
  };
  Values alone, first, second;
  step(&alone);
  std::thread one(step, &first), two(step, &second);
  one.join();
  two.join();
  EXPECT_EQ(first, alone);
  EXPECT_EQ(second, alone);
}

}  // namespace
}  // namespace scantape::autograd
