// The lti model on every device at hand. The seven tests whose names start with test_mamba2_ are those that the
// project was founded to make pass; the R tests are regressions of the faults that kept them from passing.
#include <gtest/gtest.h>

#include <cmath>

#include "scantape/autograd/lti.h"
#include "scantape/autograd/optimizer.h"
#include "scantape/autograd/tape.h"
#include "scantape/counters.h"

namespace scantape::autograd {
namespace {

using Values = std::vector<double>;

Tensor random_tensor(const Shape& shape, std::uint64_t seed, DType dtype = DType::f64, Device device = kCpu) {
  Random random(seed);
  Values values(static_cast<std::size_t>(shape.elements()));
  for (double& value : values) value = random.normal();
  return Tensor::from(shape, values).to(dtype).to(device);
}

Values values_of(const Tensor& tensor) {
  return tensor.to(DType::f64).values<double>();
}
Values values_of(const Variable& variable) {
  return values_of(variable.value());
}

bool all_finite(const Values& values) {
  for (double value : values)
    if (!std::isfinite(value)) return false;
  return !values.empty();
}

double largest_difference(const Values& a, const Values& b) {
  double largest = a.size() == b.size() ? 0 : std::nan("");
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (!(std::abs(a[i] - b[i]) <= largest)) largest = std::abs(a[i] - b[i]);
  return largest;
}

LtiConfig config_of(std::int64_t features, std::int64_t hidden, std::int64_t state, std::int64_t expand,
                    std::int64_t layers) {
  LtiConfig config;
  config.features = features;
  config.hidden_dim = hidden;
  config.state_dim = state;
  config.expand = expand;
  config.num_layers = layers;
  return config;
}

/// The sizes of the tests; the emulator runs a thousand times slower than the CPU, so its model is narrow.
LtiConfig config_for(Device device) {
  return device.is_cpu() ? config_of(256, 256, 16, 4, 2) : config_of(12, 16, 16, 4, 2);
}

class Model : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!is_available(GetParam())) GTEST_SKIP() << "there is no device " << name(GetParam());
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, Model, testing::Values(kCpu, kCuda),
                         [](const auto& info) { return info.param.is_cpu() ? "cpu" : "cuda"; });

TEST_P(Model, test_mamba2_simple_forward_pass) {
  const LtiConfig config = config_for(GetParam());
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Lti model(config, dtype, GetParam(), 7);
    const Tensor x = random_tensor({8, 60, config.features}, 1, dtype, GetParam());
    const Variable y = model.forward(nullptr, x);
    EXPECT_EQ(y.shape(), (Shape{8, 60, 1}));
    EXPECT_EQ(y.dtype(), dtype);
    const Values values = values_of(y);
    EXPECT_TRUE(all_finite(values));
    EXPECT_EQ(values, values_of(model.forward(nullptr, x)));
    double low = values[0], high = values[0];
    for (double value : values) low = std::min(low, value), high = std::max(high, value);
    EXPECT_GT(high - low, 1e-4);
  }
}

TEST_P(Model, test_mamba2_batch_shapes) {
  const LtiConfig config = config_of(11, 8, 5, 2, 2);
  const Lti model(config, DType::f32, GetParam(), 7);
  constexpr std::int64_t L = 13;
  const Tensor x = random_tensor({32, L, config.features}, 1, DType::f32, GetParam());
  const Values all = values_of(model.forward(nullptr, x));
  for (const std::int64_t batch : {1, 2, 4, 8, 16, 32, 25}) {
    const Variable y = model.forward(nullptr, x.slice(0, 32 - batch, 32).clone());
    EXPECT_EQ(y.shape(), (Shape{batch, L, 1}));
    const Values tail(all.end() - batch * L, all.end());
    EXPECT_EQ(values_of(y), tail) << "an item's bits depend on the batch of " << batch;
  }
}

TEST_P(Model, test_mamba2_cuda_device) {
  if (GetParam().is_cpu()) GTEST_SKIP() << "compares cuda with the cpu";
  const LtiConfig config = config_for(kCuda);
  for (const DType dtype : {DType::f32, DType::f64}) {
    Lti on_cuda(config, dtype, kCuda, 7), on_cpu(config, dtype, kCpu, 7);
    EXPECT_EQ(values_of(on_cuda.parameters().values()), values_of(on_cpu.parameters().values()));
    EXPECT_EQ(on_cuda.parameters().device(), kCuda);
    const Tensor x = random_tensor({2, 60, config.features}, 1, dtype);
    const Counters before = counters();
    const Variable y = on_cuda.forward(nullptr, x.to(kCuda));
    EXPECT_GT(counters().kernel_launches, before.kernel_launches);
    EXPECT_EQ(counters().cpu_ops, before.cpu_ops) << "an op of the cuda model ran on the cpu";
    EXPECT_EQ(y.device(), kCuda);
    EXPECT_LE(largest_difference(values_of(y), values_of(on_cpu.forward(nullptr, x))),
              dtype == DType::f32 ? 1e-5 : 1e-12);
    EXPECT_THROW((void)on_cuda.forward(nullptr, x), Error) << "a cpu input into a cuda model";
  }
}

TEST_P(Model, test_mamba2_sequence_lengths) {
  const LtiConfig config = config_of(5, 4, 3, 2, 2);
  const Lti model(config, DType::f64, GetParam(), 7);
  for (const std::int64_t L : {1, 2, 10, 30, 59, 60, 61, 120, 128, 1000}) {
    Tensor x = random_tensor({2, L, config.features}, 1);
    const Values before = values_of(model.forward(nullptr, x.to(GetParam())));
    EXPECT_EQ(before.size(), static_cast<std::size_t>(2 * L));
    EXPECT_TRUE(all_finite(before));
    // A change at time t leaves everything before t as it was, bit for bit, and changes t itself.
    const std::int64_t t = L / 2;
    x.mutable_data<double>()[t * config.features] += 0.5;
    const Values after = values_of(model.forward(nullptr, x.to(GetParam())));
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + t, after.begin())) << "L = " << L;
    EXPECT_NE(before[static_cast<std::size_t>(t)], after[static_cast<std::size_t>(t)]) << "L = " << L;
    EXPECT_TRUE(std::equal(before.begin() + L, before.end(), after.begin() + L)) << "the other item changed";
  }
}

double loss_value(const Lti& model, const Tensor& x, const Tensor& target) {
  return values_of(mse(model.forward(nullptr, x), Variable(target)))[0];
}

LtiConfig dense(LtiConfig config) {
  config.state_matrix = StateMatrix::dense;
  return config;
}

void expect_gradient_flow(const LtiConfig& config, Device device) {
  Lti model(config, DType::f64, device, 7);
  const Tensor x = random_tensor({2, 6, 5}, 1, DType::f64, device);
  const Tensor target = random_tensor({2, 6, 1}, 2, DType::f64, device);
  Parameters& parameters = model.parameters();
  // A fresh model predicts next to nothing, so its inner gradients would drown in the rounding of the loss.
  parameters.value(parameters.index("output_projection.weight")).copy_from(random_tensor({1, 8}, 4));
  Tape tape;
  tape.backward(mse(model.forward(&tape, x), Variable(target)));

  const Values start = values_of(parameters.values());
  Random random(3);
  for (std::size_t p = 0; p < parameters.entries().size(); ++p) {
    const auto& entry = parameters.entries()[p];
    const Values gradient = values_of(parameters.gradient(static_cast<int>(p)));
    EXPECT_TRUE(all_finite(gradient)) << entry.name;
    for (double g : gradient) EXPECT_NE(g, 0) << entry.name;
    // Along a random direction the loss changes as the gradient says.
    Values direction(gradient.size());
    double want = 0;
    for (std::size_t i = 0; i < direction.size(); ++i) want += gradient[i] * (direction[i] = random.normal());
    const auto at = [&](double step) {
      Values moved = start;
      for (std::size_t i = 0; i < direction.size(); ++i)
        moved[static_cast<std::size_t>(entry.offset) + i] += step * direction[i];
      parameters.values().copy_from(Tensor::from(parameters.values().shape(), moved));
      return loss_value(model, x, target);
    };
    const double h = 1e-4;
    const double got = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
    double scale = 0;
    for (double g : gradient) scale += g * g;
    EXPECT_LE(std::abs(got - want), 1e-6 * (std::abs(want) + std::sqrt(scale))) << entry.name;
    parameters.values().copy_from(Tensor::from(parameters.values().shape(), start));
  }
}

TEST_P(Model, test_mamba2_gradient_flow) {
  expect_gradient_flow(config_of(5, 4, 3, 2, 2), GetParam());
}

TEST_P(Model, GradientFlowOfADenseStateMatrix) {
  for (const auto method : {DiscretizeMethod::zoh, DiscretizeMethod::exp_euler, DiscretizeMethod::bilinear,
                            DiscretizeMethod::euler}) {
    LtiConfig config = dense(config_of(5, 4, 3, 2, 2));
    config.method = method;
    expect_gradient_flow(config, GetParam());
  }
}

/// A dense A with nothing beside its diagonal, and one step for all states, is the diagonal model.
TEST_P(Model, ADenseDiagonalIsTheDiagonalModel) {
  const LtiConfig config = config_of(5, 4, 3, 2, 2);
  Lti diagonal(config, DType::f64, GetParam(), 7), matrix(dense(config), DType::f64, GetParam(), 8);
  for (const auto& entry : matrix.parameters().entries()) {
    Tensor to = matrix.parameters().value(matrix.parameters().index(entry.name));
    const bool is_A = entry.name.size() > 2 && entry.name.substr(entry.name.size() - 2) == ".A";
    const bool is_delta = entry.name.find(".delta") != std::string::npos;
    Tensor from = diagonal.parameters().value(diagonal.parameters().index(entry.name));
    if (is_delta) from.copy_from(Tensor::full(from.shape(), -2, DType::f64, GetParam()));
    if (is_A) {
      const Values rates = values_of(from);
      Values square(rates.size() * rates.size(), 0.0);
      for (std::size_t i = 0; i < rates.size(); ++i) square[i * rates.size() + i] = rates[i];
      to.copy_from(Tensor::from(to.shape(), square));
    } else {
      to.copy_from(is_delta ? Tensor::full({}, -2, DType::f64, GetParam()) : from);
    }
  }
  const Tensor x = random_tensor({2, 70, 5}, 1, DType::f64, GetParam());
  const Values got = values_of(matrix.forward(nullptr, x)), want = values_of(diagonal.forward(nullptr, x));
  EXPECT_TRUE(all_finite(want));
  EXPECT_LE(largest_difference(got, want), 1e-14);
  double largest = 0;
  for (const double value : want) largest = std::max(largest, std::abs(value));
  EXPECT_GT(largest, 1e-4);
}

TEST_P(Model, test_mamba2_training_loop_simple) {
  const Device device = GetParam();
  Lti model(config_of(6, 8, 4, 2, 2), DType::f32, device, 7);
  const Tensor x = random_tensor({4, 12, 6}, 1, DType::f32, device);
  const Tensor target = random_tensor({4, 12, 1}, 2, DType::f32, device);
  AdamWOptimizer optimizer(model.parameters(), {});
  optimizer.set_learning_rate(2e-2);
  const Values before = values_of(model.parameters().values());
  const int steps = device.is_cpu() ? 300 : 12;
  double first = 0, last = 0;
  for (int step = 0; step < steps; ++step) {
    Tape tape;
    const Variable loss = mse(model.forward(&tape, x), Variable(target));
    tape.backward(loss);
    optimizer.step(loss.value());
    last = values_of(loss)[0];
    ASSERT_TRUE(std::isfinite(last));
    if (step == 0) first = last;
  }
  EXPECT_EQ(optimizer.report().steps, steps);
  EXPECT_LT(last, device.is_cpu() ? 0.05 * first : first) << "the model cannot overfit one batch";
  const Values after = values_of(model.parameters().values());
  for (const auto& entry : model.parameters().entries())
    for (std::int64_t i = entry.offset; i < entry.offset + entry.shape.elements(); ++i)
      ASSERT_NE(before[static_cast<std::size_t>(i)], after[static_cast<std::size_t>(i)]) << entry.name;
}

TEST_P(Model, test_mamba2_config_variations) {
  std::vector<LtiConfig> configs;
  if (GetParam().is_cpu()) {
    configs = {config_of(256, 256, 16, 4, 1), config_of(256, 256, 16, 2, 2), config_of(256, 256, 64, 2, 1)};
  } else {
    configs = {config_of(16, 16, 16, 4, 1), config_of(16, 16, 64, 2, 1)};
  }
  configs.push_back(config_of(1, 1, 1, 1, 1));
  configs.push_back(config_of(3, 7, 5, 3, 3));
  for (std::size_t i = configs.size(); i-- > 0;) configs.push_back(dense(configs[i]));
  for (LtiConfig& config : configs) {
    for (const auto method : {DiscretizeMethod::zoh, DiscretizeMethod::exp_euler, DiscretizeMethod::bilinear,
                              DiscretizeMethod::euler}) {
      config.method = method;
      const Lti model(config, DType::f32, GetParam(), 7);
      EXPECT_EQ(model.parameters().count(), Lti::parameter_count(config));
      EXPECT_TRUE(all_finite(values_of(
          model.forward(nullptr, random_tensor({2, 9, config.features}, 1, DType::f32, GetParam())))));
    }
  }
  for (const LtiConfig& wrong :
       {config_of(0, 8, 4, 2, 1), config_of(8, 0, 4, 2, 1), config_of(8, 8, 0, 2, 1),
        config_of(8, 8, 4, 0, 1), config_of(8, 8, 4, 2, 0), config_of(8, -3, 4, 2, 1)})
    EXPECT_THROW(Lti(wrong, DType::f32, GetParam(), 7), Error);
}

TEST(Lti, ParameterCountByTheClosedFormula) {
  EXPECT_EQ(Lti::parameter_count(config_of(256, 256, 16, 2, 6)), 240833);
  EXPECT_EQ(Lti::parameter_count(dense(config_of(256, 256, 16, 2, 6))), 242183);
}

TEST(Lti, StartsStableWithScaledWeights) {
  // Decays inside the unit circle and weights of variance 1 / fan_in: six layers neither explode nor vanish.
  for (const LtiConfig& config : {config_of(20, 128, 16, 2, 6), dense(config_of(20, 128, 16, 2, 6))}) {
    const Lti model(config, DType::f64, kCpu, 7);
    const Values y = values_of(model.forward(nullptr, random_tensor({2, 200, 20}, 1)));
    double sum = 0;
    for (double value : y) sum += value * value;
    const double rms = std::sqrt(sum / static_cast<double>(y.size()));
    EXPECT_GT(rms, 1e-3);
    EXPECT_LT(rms, 0.1);
  }
}

TEST(R5, TrainingAndInferenceAreOnePath) {
  const LtiConfig config = config_of(7, 8, 4, 2, 3);
  for (const std::int64_t batch : {1, 2, 32}) {
    const Lti model(config, DType::f32, kCpu, 7);
    const Tensor x = random_tensor({batch, 60, 7}, 1, DType::f32);
    Tape tape;
    const Variable trained = model.forward(&tape, x), inferred = model.forward(nullptr, x);
    EXPECT_TRUE(trained.recorded());
    EXPECT_EQ(values_of(trained), values_of(inferred));
  }
}

TEST(R8, InputWithoutABatchDimensionIsRefused) {
  const Lti model(config_of(256, 4, 3, 2, 1), DType::f32, kCpu, 7);
  try {
    (void)model.forward(nullptr, random_tensor({60, 256}, 1, DType::f32));
    FAIL() << "a rank 2 input was taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("[60, 256], wants [B, L, 256]"), std::string::npos)
        << error.what();
  }
}

TEST(R10, BatchedTrainingIsTheMeanOfItsItems) {
  Lti model(config_of(5, 4, 3, 2, 2), DType::f64, kCpu, 7);
  const Tensor x = random_tensor({8, 10, 5}, 1), target = random_tensor({8, 10, 1}, 2);
  const auto step = [&](std::int64_t begin, std::int64_t end, Values* gradient) {
    Tape tape;
    const Variable loss =
        mse(model.forward(&tape, x.slice(0, begin, end)), Variable(target.slice(0, begin, end)));
    tape.backward(loss);
    *gradient = values_of(model.parameters().gradients());
    return values_of(loss)[0];
  };
  Values whole;
  const double loss = step(0, 8, &whole);
  double mean = 0;
  Values mean_gradient(whole.size(), 0.0), gradient;
  for (int i = 0; i < 8; ++i) {
    mean += step(i, i + 1, &gradient) / 8;
    for (std::size_t k = 0; k < gradient.size(); ++k) mean_gradient[k] += gradient[k] / 8;
  }
  EXPECT_NEAR(loss, mean, 1e-13);
  EXPECT_LE(largest_difference(whole, mean_gradient), 1e-13);
}

TEST(R11, MixedDtypesAreRefusedByName) {
  const Lti model(config_of(5, 4, 3, 2, 1), DType::f64, kCpu, 7);
  try {
    (void)model.forward(nullptr, random_tensor({1, 6, 5}, 1, DType::f32));
    FAIL() << "f32 data went into an f64 model";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("f32"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("f64"), std::string::npos) << error.what();
  }
}

TEST(R12, LossOfTwoShapesIsRefused) {
  const Tensor prediction = random_tensor({4, 60, 1}, 1), target = random_tensor({4, 1, 256}, 2);
  try {
    (void)mse(Variable(prediction), Variable(target));
    FAIL() << "shapes were broadcast";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("[4, 60, 1]"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("[4, 1, 256]"), std::string::npos) << error.what();
  }
}

TEST(R13, ImpulseResponseIsThatOfTheSystem) {
  // y_k = C A_bar^k B_bar, so A takes part; and the output changes when A changes.
  constexpr int N = 3, E = 4, L = 12;
  const Tensor A = Tensor::from({N}, Values{-0.5, -0.7, -1.0}), dt = Tensor::from({N}, Values{0.1, 0.5, 1.5});
  const Tensor B = random_tensor({N, E}, 1), C = random_tensor({E, N}, 2);
  Tensor x = Tensor::zeros({1, L, E}, DType::f64);
  x.mutable_data<double>()[2] = 1;  // channel 2 at time 0
  const auto response = [&](const Tensor& poles) {
    const Discretized system = discretize(dt, poles, B);
    return values_of(projection(scan(system.A_bar, projection(x, system.B_bar)).h, C));
  };
  const Values y = response(A), a = A.values<double>(), d = dt.values<double>(), b = B.values<double>(),
               c = C.values<double>();
  for (int k = 0; k < L; ++k)
    for (int e = 0; e < E; ++e) {
      double want = 0;
      for (int n = 0; n < N; ++n) {
        const auto at = [](int row, int column, int width) {
          return static_cast<std::size_t>(row * width + column);
        };
        const double pole = a[static_cast<std::size_t>(n)], step = d[static_cast<std::size_t>(n)];
        want += c[at(e, n, N)] * std::exp(k * step * pole) * std::expm1(step * pole) / pole * b[at(n, 2, E)];
      }
      EXPECT_NEAR(y[static_cast<std::size_t>(k * E + e)], want, 1e-14);
    }
  EXPECT_GT(largest_difference(y, response(Tensor::from({N}, Values{-0.4, -0.7, -1.0}))), 1e-4);
}

/// The model as its definition reads, by plain loops over one item of the batch; parameters by name.
class Definition {
 public:
  explicit Definition(const Lti& model) : model_(model) {}

  Values operator()(Values x, std::int64_t length) const {  // [L, F] to [L]
    const LtiConfig& config = model_.config();
    x = affine(x, "input_projection");
    for (std::int64_t i = 0; i < config.num_layers; ++i) x = layer(x, length, "layers." + std::to_string(i));
    return affine(normed(x, "norm"), "output_projection");
  }

 private:
  Values of(const std::string& name) const {
    const Parameters& parameters = model_.parameters();
    return values_of(parameters.value(parameters.index(name)));
  }

  static Values mapped(const Values& x, const Values& matrix, std::size_t in) {
    const std::size_t out = matrix.size() / in;
    Values y(x.size() / in * out, 0.0);
    for (std::size_t i = 0; i < y.size(); ++i)
      for (std::size_t k = 0; k < in; ++k) y[i] += x[i / out * in + k] * matrix[i % out * in + k];
    return y;
  }

  Values affine(const Values& x, const std::string& name) const {
    const Values weight = of(name + ".weight"), bias = of(name + ".bias");
    Values y = mapped(x, weight, weight.size() / bias.size());
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += bias[i % bias.size()];
    return y;
  }

  Values normed(const Values& x, const std::string& name) const {
    const Values weight = of(name + ".weight"), bias = of(name + ".bias");
    const std::size_t width = weight.size();
    Values y(x.size());
    for (std::size_t row = 0; row < x.size(); row += width) {
      double mean = 0, variance = 0;
      for (std::size_t c = 0; c < width; ++c) mean += x[row + c] / static_cast<double>(width);
      for (std::size_t c = 0; c < width; ++c)
        variance += (x[row + c] - mean) * (x[row + c] - mean) / static_cast<double>(width);
      for (std::size_t c = 0; c < width; ++c)
        y[row + c] = (x[row + c] - mean) / std::sqrt(variance + model_.config().eps) * weight[c] + bias[c];
    }
    return y;
  }

  Values layer(const Values& x, std::int64_t length, const std::string& name) const {
    const Values A = of(name + ".A"), delta = of(name + ".delta"), B = of(name + ".B"), D = of(name + ".D");
    const std::size_t states = A.size(), width = D.size();
    const Values u = normed(x, name + ".norm");
    const Values input = mapped(u, B, width);  // [L, N], not yet scaled by the step
    Values h(input.size());
    for (std::size_t t = 0; t < static_cast<std::size_t>(length); ++t)
      for (std::size_t n = 0; n < states; ++n) {
        const double dt = std::log1p(std::exp(delta[n])), pole = std::exp(dt * A[n]);
        const double before = t > 0 ? h[(t - 1) * states + n] : 0;
        h[t * states + n] = pole * before + (pole - 1) / A[n] * input[t * states + n];
      }
    Values out = mapped(h, of(name + ".C"), states);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double p = out[i] + D[i % width] * u[i];
      out[i] = x[i] + (model_.config().activation == Activation::silu ? p / (1 + std::exp(-p)) : p);
    }
    return out;
  }

  const Lti& model_;
};

TEST(Lti, IsItsDefinition) {
  constexpr std::int64_t B = 2, L = 7, F = 3;
  for (const Activation activation : {Activation::silu, Activation::none}) {
    LtiConfig config = config_of(F, 4, 3, 2, 2);
    config.activation = activation;
    Lti model(config, DType::f64, kCpu, 3);
    // Norms, biases and skips that are neither 0 nor 1; poles and steps stay what they were made.
    Random random(11);
    for (std::size_t i = 0; i < model.parameters().entries().size(); ++i) {
      const std::string& name = model.parameters().entries()[i].name;
      if (name.find(".A") != std::string::npos || name.find(".delta") != std::string::npos) continue;
      Tensor value = model.parameters().value(static_cast<int>(i));
      for (std::int64_t e = 0; e < value.elements(); ++e)
        value.mutable_data<double>()[e] += 0.3 * random.normal();
    }
    const Tensor x = random_tensor({B, L, F}, 5);
    const Values y = values_of(model.forward(nullptr, x)), in = values_of(x);
    const Definition definition(model);
    for (std::int64_t b = 0; b < B; ++b) {
      const Values want = definition(Values(in.begin() + b * L * F, in.begin() + (b + 1) * L * F), L);
      EXPECT_LE(largest_difference(Values(y.begin() + b * L, y.begin() + (b + 1) * L), want), 1e-12);
    }
  }
}

TEST(R14, TheScanIsNotItsInput) {
  const Tensor v = random_tensor({1, 5, 2}, 1), a = Tensor::from({2}, Values{0.5, 0.9});
  const Values h = values_of(scan(a, v).h), in = v.values<double>();
  for (std::size_t t = 0; t < 5; ++t)
    for (std::size_t c = 0; c < 2; ++c) {
      const double previous = t == 0 ? 0 : h[(t - 1) * 2 + c];
      EXPECT_NEAR(h[t * 2 + c], (c == 0 ? 0.5 : 0.9) * previous + in[t * 2 + c], 1e-15);
    }
  EXPECT_GT(largest_difference(h, in), 0.1);
}

TEST(R15, EachMatrixHasOneLayout) {
  // B maps the layer's width to the states, C back, whatever the widths are: [N, E] and [E, N].
  for (const std::int64_t expand : {1, 2, 4}) {
    const LtiConfig config = config_of(6, 5, 3, expand, 1);
    const Lti model(config, DType::f32, kCpu, 7);
    const auto shape = [&](const std::string& name) {
      return model.parameters().entries()[static_cast<std::size_t>(model.parameters().index(name))].shape;
    };
    EXPECT_EQ(shape("layers.0.B"), (Shape{3, 5 * expand}));
    EXPECT_EQ(shape("layers.0.C"), (Shape{5 * expand, 3}));
    EXPECT_EQ(shape("input_projection.weight"), (Shape{5 * expand, 6}));
    EXPECT_EQ(shape("output_projection.weight"), (Shape{1, 5 * expand}));
  }
}

}  // namespace
}  // namespace scantape::autograd
