// What is the lti model's own, on every device at hand; test_models.cpp has what all models keep. The R tests are
// regressions of the faults that kept the project's first seven tests from passing.
#include "model_support.h"
#include "scantape/autograd/lti.h"
#include "scantape/autograd/optimizer.h"
#include "scantape/autograd/tape.h"
#include "scantape/counters.h"

namespace scantape::autograd {
namespace {

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

class LtiOn : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!is_available(GetParam())) GTEST_SKIP() << "there is no device " << name(GetParam());
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, LtiOn, testing::Values(kCpu, kCuda),
                         [](const auto& info) { return info.param.is_cpu() ? "cpu" : "cuda"; });

LtiConfig dense(LtiConfig config) {
  config.state_matrix = StateMatrix::dense;
  return config;
}

TEST_P(LtiOn, GradientFlowOfADenseStateMatrix) {
  for (const auto method : {DiscretizeMethod::zoh, DiscretizeMethod::exp_euler, DiscretizeMethod::bilinear,
                            DiscretizeMethod::euler}) {
    LtiConfig config = dense(config_of(5, 4, 3, 2, 2));
    config.method = method;
    Lti model(config, DType::f64, GetParam(), 7);
    expect_gradient_flow(model);
  }
}

/// A dense A with nothing beside its diagonal, and one step for all states, is the diagonal model.
TEST_P(LtiOn, ADenseDiagonalIsTheDiagonalModel) {
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

TEST_P(LtiOn, EveryMethodAndBothKindsOfMatrix) {
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
