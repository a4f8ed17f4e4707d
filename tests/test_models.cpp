// What every family of models keeps, on every device at hand. The seven tests whose names start with test_mamba2_ are
// those that the project was founded to make pass.
#include <memory>
#include <tuple>

#include "model_support.h"
#include "scantape/autograd/lti.h"
#include "scantape/autograd/mamba2.h"
#include "scantape/autograd/optimizer.h"
#include "scantape/counters.h"

namespace scantape::autograd {
namespace {

struct Sizes {
  std::int64_t features, hidden, state, expand, layers;
};

std::unique_ptr<Model> make_lti(const Sizes& sizes, DType dtype, Device device, std::uint64_t seed) {
  LtiConfig config;
  config.features = sizes.features;
  config.hidden_dim = sizes.hidden;
  config.state_dim = sizes.state;
  config.expand = sizes.expand;
  config.num_layers = sizes.layers;
  return std::make_unique<Lti>(config, dtype, device, seed);
}

/// As many channels a head as leave at least two heads; chunks shorter than most sequences.
std::unique_ptr<Model> make_mamba2(const Sizes& sizes, DType dtype, Device device, std::uint64_t seed) {
  Mamba2Config config;
  config.features = sizes.features;
  config.hidden_dim = sizes.hidden;
  config.state_dim = sizes.state;
  config.expand = sizes.expand;
  config.num_layers = sizes.layers;
  config.chunk_length = 16;
  config.head_dim = 1;
  for (const std::int64_t head_dim : {2, 4, 64})
    if (config.inner_dim() % head_dim == 0 && config.inner_dim() > head_dim) config.head_dim = head_dim;
  return std::make_unique<Mamba2>(config, dtype, device, seed);
}

struct Family {
  const char* name;
  std::unique_ptr<Model> (*make)(const Sizes& sizes, DType dtype, Device device, std::uint64_t seed);
};
constexpr Family kFamilies[] = {{"lti", make_lti}, {"mamba2", make_mamba2}};

/// The emulator runs a thousand times slower than the CPU, so its model is narrow.
Sizes sizes_for(Device device) {
  return device.is_cpu() ? Sizes{256, 256, 16, 4, 2} : Sizes{12, 16, 16, 4, 2};
}

class Models : public testing::TestWithParam<std::tuple<Family, Device>> {
 protected:
  static Device device() { return std::get<1>(GetParam()); }
  static std::unique_ptr<Model> make(const Sizes& sizes, DType dtype, Device where, std::uint64_t seed) {
    return std::get<0>(GetParam()).make(sizes, dtype, where, seed);
  }
  void SetUp() override {
    if (!is_available(device())) GTEST_SKIP() << "there is no device " << name(device());
  }
};

INSTANTIATE_TEST_SUITE_P(All, Models,
                         testing::Combine(testing::ValuesIn(kFamilies), testing::Values(kCpu, kCuda)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) +
                                  (std::get<1>(info.param).is_cpu() ? "_cpu" : "_cuda");
                         });

TEST_P(Models, test_mamba2_simple_forward_pass) {
  const Sizes sizes = sizes_for(device());
  for (const DType dtype : {DType::f32, DType::f64}) {
    const auto model = make(sizes, dtype, device(), 7);
    const Tensor x = random_tensor({8, 60, sizes.features}, 1, dtype, device());
    const Variable y = model->forward(nullptr, x);
    EXPECT_EQ(y.shape(), (Shape{8, 60, 1}));
    EXPECT_EQ(y.dtype(), dtype);
    const Values values = values_of(y);
    EXPECT_TRUE(all_finite(values));
    EXPECT_EQ(values, values_of(model->forward(nullptr, x)));
    double low = values[0], high = values[0];
    for (double value : values) low = std::min(low, value), high = std::max(high, value);
    EXPECT_GT(high - low, 1e-4);
  }
}

TEST_P(Models, test_mamba2_batch_shapes) {
  const Sizes sizes{11, 8, 5, 2, 2};
  const auto model = make(sizes, DType::f32, device(), 7);
  constexpr std::int64_t L = 13;
  const Tensor x = random_tensor({32, L, sizes.features}, 1, DType::f32, device());
  const Values all = values_of(model->forward(nullptr, x));
  for (const std::int64_t batch : {1, 2, 4, 8, 16, 32, 25}) {
    const Variable y = model->forward(nullptr, x.slice(0, 32 - batch, 32).clone());
    EXPECT_EQ(y.shape(), (Shape{batch, L, 1}));
    const Values tail(all.end() - batch * L, all.end());
    EXPECT_EQ(values_of(y), tail) << "an item's bits depend on the batch of " << batch;
  }
}

TEST_P(Models, test_mamba2_cuda_device) {
  if (device().is_cpu()) GTEST_SKIP() << "compares cuda with the cpu";
  const Sizes sizes = sizes_for(kCuda);
  for (const DType dtype : {DType::f32, DType::f64}) {
    const auto on_cuda = make(sizes, dtype, kCuda, 7), on_cpu = make(sizes, dtype, kCpu, 7);
    EXPECT_EQ(values_of(on_cuda->parameters().values()), values_of(on_cpu->parameters().values()));
    EXPECT_EQ(on_cuda->parameters().device(), kCuda);
    const Tensor x = random_tensor({2, 60, sizes.features}, 1, dtype);
    const Counters before = counters();
    const Variable y = on_cuda->forward(nullptr, x.to(kCuda));
    EXPECT_GT(counters().kernel_launches, before.kernel_launches);
    EXPECT_EQ(counters().cpu_ops, before.cpu_ops) << "an op of the cuda model ran on the cpu";
    EXPECT_EQ(y.device(), kCuda);
    EXPECT_LE(largest_difference(values_of(y), values_of(on_cpu->forward(nullptr, x))),
              dtype == DType::f32 ? 1e-5 : 1e-12);
    EXPECT_THROW((void)on_cuda->forward(nullptr, x), Error) << "a cpu input into a cuda model";
  }
}

TEST_P(Models, test_mamba2_sequence_lengths) {
  const Sizes sizes{5, 4, 3, 2, 2};
  const auto model = make(sizes, DType::f64, device(), 7);
  for (const std::int64_t L : {1, 2, 10, 30, 59, 60, 61, 120, 128, 1000}) {
    Tensor x = random_tensor({2, L, sizes.features}, 1);
    const Values before = values_of(model->forward(nullptr, x.to(device())));
    EXPECT_EQ(before.size(), static_cast<std::size_t>(2 * L));
    EXPECT_TRUE(all_finite(before));
    // A change at time t leaves everything before t as it was, bit for bit, and changes t itself.
    const std::int64_t t = L / 2;
    x.mutable_data<double>()[t * sizes.features] += 0.5;
    const Values after = values_of(model->forward(nullptr, x.to(device())));
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + t, after.begin())) << "L = " << L;
    EXPECT_NE(before[static_cast<std::size_t>(t)], after[static_cast<std::size_t>(t)]) << "L = " << L;
    EXPECT_TRUE(std::equal(before.begin() + L, before.end(), after.begin() + L)) << "the other item changed";
  }
}

TEST_P(Models, test_mamba2_training_loop_simple) {
  const Device device = Models::device();
  const auto model = make({6, 8, 4, 2, 2}, DType::f32, device, 7);
  const Tensor x = random_tensor({4, 12, 6}, 1, DType::f32, device);
  const Tensor target = random_tensor({4, 12, 1}, 2, DType::f32, device);
  AdamWOptimizer optimizer(model->parameters(), {});
  optimizer.set_learning_rate(2e-2);
  const Values before = values_of(model->parameters().values());
  const int steps = device.is_cpu() ? 300 : 12;
  double first = 0, last = 0;
  for (int step = 0; step < steps; ++step) {
    Tape tape;
    const Variable loss = mse(model->forward(&tape, x), Variable(target));
    tape.backward(loss);
    optimizer.step(loss.value());
    last = values_of(loss)[0];
    ASSERT_TRUE(std::isfinite(last));
    if (step == 0) first = last;
  }
  EXPECT_EQ(optimizer.report().steps, steps);
  EXPECT_LT(last, device.is_cpu() ? 0.05 * first : first) << "the model cannot overfit one batch";
  const Values after = values_of(model->parameters().values());
  for (const auto& entry : model->parameters().entries())
    for (std::int64_t i = entry.offset; i < entry.offset + entry.shape.elements(); ++i)
      ASSERT_NE(before[static_cast<std::size_t>(i)], after[static_cast<std::size_t>(i)]) << entry.name;
}

TEST_P(Models, test_mamba2_gradient_flow) {
  expect_gradient_flow(*make({5, 4, 3, 2, 2}, DType::f64, device(), 7));
}

TEST_P(Models, test_mamba2_config_variations) {
  std::vector<Sizes> all = {{16, 16, 16, 4, 1}, {16, 16, 64, 2, 1}};
  if (device().is_cpu()) all = {{256, 256, 16, 4, 1}, {256, 256, 16, 2, 2}, {256, 256, 64, 2, 1}};
  all.push_back({1, 1, 1, 1, 1});
  all.push_back({3, 7, 5, 3, 3});
  for (const Sizes& sizes : all) {
    const auto model = make(sizes, DType::f32, device(), 7);
    EXPECT_TRUE(all_finite(
        values_of(model->forward(nullptr, random_tensor({2, 9, sizes.features}, 1, DType::f32, device())))));
  }
  for (const Sizes& wrong : std::vector<Sizes>{{0, 8, 4, 2, 1},
                                               {8, 0, 4, 2, 1},
                                               {8, 8, 0, 2, 1},
                                               {8, 8, 4, 0, 1},
                                               {8, 8, 4, 2, 0},
                                               {8, -3, 4, 2, 1}})
    EXPECT_THROW((void)make(wrong, DType::f32, device(), 7), Error);
}

}  // namespace
}  // namespace scantape::autograd
