// AdamW over a model's parameters, clipping, skipping, the schedule.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "scantape/autograd/optimizer.h"
#include "scantape/autograd/tape.h"

namespace scantape::autograd {
namespace {

using Values = std::vector<double>;

class Optimizer : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!is_available(GetParam())) GTEST_SKIP() << "there is no device " << name(GetParam());
    parameters_.add("weight", {2}, true, {1, -2});
    parameters_.add("bias", {1}, false, {3});
    parameters_.allocate(DType::f64, GetParam());
  }
  void set_gradients(double g0, double g1, double g2) {
    parameters_.gradient(0).copy_from(Tensor::from({2}, Values{g0, g1}));
    parameters_.gradient(1).copy_from(Tensor::from({1}, Values{g2}));
  }
  Values value(int index) const { return parameters_.value(index).values<double>(); }

  Parameters parameters_;
};

INSTANTIATE_TEST_SUITE_P(Devices, Optimizer, testing::Values(kCpu, kCuda),
                         [](const auto& info) { return info.param.is_cpu() ? "cpu" : "cuda"; });

TEST_P(Optimizer, FirstStepByHand) {
  // At step 1 both corrected moments are g and g^2: the step is lr * sign(g), with decay on the weight alone.
  AdamWOptions options;
  options.max_norm = 0;
  options.weight_decay = 0.1;
  AdamWOptimizer optimizer(parameters_, options);
  optimizer.set_learning_rate(0.01);
  set_gradients(0.3, -0.4, 1.2);
  optimizer.step();
  EXPECT_NEAR(value(0)[0], 1 - 0.01 * 0.1 * 1 - 0.01, 1e-9);
  EXPECT_NEAR(value(0)[1], -2 + 0.01 * 0.1 * 2 + 0.01, 1e-9);
  EXPECT_NEAR(value(1)[0], 3 - 0.01, 1e-9);
  const auto report = optimizer.report();
  EXPECT_EQ(report.steps, 1);
  EXPECT_NEAR(report.grad_norm, 1.3, 1e-12);
  EXPECT_EQ(report.clip_factor, 1);
}

TEST_P(Optimizer, ClipsByTheNormOverAllParameters) {
  AdamWOptimizer optimizer(parameters_, {});
  optimizer.set_learning_rate(0.01);
  set_gradients(3, 0, 4);
  optimizer.step();
  EXPECT_NEAR(optimizer.report().clip_factor, 1 / (5 + 1e-6), 1e-12);
  // The first moment holds (1 - beta1) of the clipped gradient.
  const Values moment = parameters_.part(optimizer.first_moment(), 0).values<double>();
  EXPECT_NEAR(moment[0], 0.1 * 3 / (5 + 1e-6), 1e-12);
}

TEST_P(Optimizer, SkipsWhatIsNotFiniteAndCountsIt) {
  AdamWOptimizer optimizer(parameters_, {});
  optimizer.set_learning_rate(0.01);
  const Tensor good = Tensor::full({}, 1.0, DType::f64, GetParam());
  set_gradients(0.1, std::nan(""), 0.1);
  optimizer.step(good);
  EXPECT_EQ(value(0), (Values{1, -2}));
  EXPECT_EQ(parameters_.first_not_finite(), "weight");
  set_gradients(0.1, 0.1, std::numeric_limits<double>::infinity());
  optimizer.step(good);
  EXPECT_EQ(parameters_.first_not_finite(), "bias");
  set_gradients(0.1, 0.1, 0.1);
  optimizer.step(Tensor::full({}, std::nan(""), DType::f64, GetParam()));
  auto report = optimizer.report();
  EXPECT_EQ(report.steps, 0);
  EXPECT_EQ(report.skipped, 3);
  EXPECT_EQ(report.skipped_in_a_row, 3);
  EXPECT_TRUE(report.skip);
  EXPECT_EQ(value(0), (Values{1, -2}));
  optimizer.step(good);
  report = optimizer.report();
  EXPECT_EQ(report.steps, 1);
  EXPECT_EQ(report.skipped, 3);
  EXPECT_EQ(report.skipped_in_a_row, 0);
  EXPECT_NE(value(0), (Values{1, -2}));
}

TEST_P(Optimizer, RefusesARateThatIsNoRate) {
  AdamWOptimizer optimizer(parameters_, {});
  for (double rate : {std::nan(""), std::numeric_limits<double>::infinity(), -1e-3})
    EXPECT_THROW(optimizer.set_learning_rate(rate), Error);
}

TEST(Parameters, LaysOutDecayedOnesFirst) {
  Parameters parameters;
  parameters.add("bias", {3}, false, {1, 2, 3});
  parameters.add("weight", {2, 3}, true, {4, 5, 6, 7, 8, 9});
  EXPECT_THROW(parameters.add("bias", {1}, false, {1}), Error);
  EXPECT_THROW(parameters.add("other", {2}, false, {1}), Error);
  parameters.allocate(DType::f32, kCpu);
  EXPECT_EQ(parameters.count(), 9);
  EXPECT_EQ(parameters.entries()[1].offset, 0);
  EXPECT_EQ(parameters.decayed_elements(), parameters.entries()[0].offset);
  EXPECT_EQ(parameters.value(1).values<float>(), (std::vector<float>{4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(parameters.value(0).values<float>(), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(parameters.index("weight"), 1);
  EXPECT_THROW((void)parameters.index("none"), Error);
  EXPECT_THROW(parameters.add("late", {1}, false, {1}), Error);
}

TEST(Random, IsTheSameEverywhereAndNormal) {
  Random random(1);
  EXPECT_EQ(random.bits(), 0x910a2dec89025cc1U);
  double sum = 0, squares = 0;
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    const double value = random.normal();
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.02);
  EXPECT_NEAR(squares / kCount, 1, 0.02);
}

TEST(CosineSchedule, WarmsUpThenFalls) {
  const CosineSchedule schedule{1e-3, 1e-5, 10, 110};
  EXPECT_DOUBLE_EQ(schedule.rate(1), 1e-4);
  EXPECT_DOUBLE_EQ(schedule.rate(10), 1e-3);
  EXPECT_NEAR(schedule.rate(60), (1e-3 + 1e-5) / 2, 1e-15);
  EXPECT_NEAR(schedule.rate(110), 1e-5, 1e-18);
  EXPECT_EQ(schedule.rate(111), 1e-5);
  const CosineSchedule no_warmup{1e-3, 0, 0, 4};
  EXPECT_GT(no_warmup.rate(1), no_warmup.rate(2));
}

}  // namespace
}  // namespace scantape::autograd
