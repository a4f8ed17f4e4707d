// What is the mamba2 model's own; test_models.cpp has what all models keep.
#include "model_support.h"
#include "scantape/autograd/gradcheck.h"
#include "scantape/autograd/mamba2.h"

namespace scantape::autograd {
namespace {

Mamba2Config small_config() {
  Mamba2Config config;
  config.features = 5;
  config.hidden_dim = 6;
  config.head_dim = 3;
  config.state_dim = 4;
  config.conv_width = 3;
  config.chunk_length = 4;
  config.num_layers = 2;
  return config;
}

TEST(Mamba2, ParameterCountByTheClosedFormula) {
  Mamba2Config config;
  config.features = 256;
  constexpr std::int64_t kLayers = 2443344,
                         kEnds = 256 * 257 + 2 * 256 + 257;  // six layers; projections, last norm
  EXPECT_EQ(Mamba2::parameter_count(config), kLayers + kEnds);
  EXPECT_EQ(Mamba2(config, DType::f32, kCpu, 1).parameters().count(), kLayers + kEnds);
  const Mamba2Config small = small_config();
  EXPECT_EQ(Mamba2(small, DType::f32, kCpu, 1).parameters().count(), Mamba2::parameter_count(small));
}

/// The block as a function of its input and of every parameter.
TEST(Mamba2, BlockPassesGradcheckInEveryForm) {
  for (const bool chunked : {true, false})
    for (const bool norm_first : {true, false})
      for (const std::int64_t groups : {1, 2}) {
        Mamba2BlockConfig config = small_config();
        config.groups = groups;
        config.norm_before_gate = norm_first;
        if (!chunked) config.chunk_length = 0;
        Random random(3);
        Parameters parameters;
        const Mamba2Block block(config, "", 1, parameters, random);
        parameters.allocate(DType::f64, kCpu);
        std::vector<Tensor> inputs = {random_tensor({2, 7, config.hidden_dim}, 1)};
        for (std::size_t i = 0; i < parameters.entries().size(); ++i)
          inputs.push_back(parameters.value(static_cast<int>(i)).clone());
        const auto report = gradcheck(
            [&](const std::vector<Variable>& in) {
              const auto on = [&](int index) { return in[static_cast<std::size_t>(index) + 1]; };
              return std::vector<Variable>{block.forward(on, in[0])};
            },
            inputs);
        EXPECT_TRUE(report.pass()) << report.text();
        EXPECT_EQ(report.rows.size(), 9U);
      }
}

/// A sequence in pieces, single steps among them, is the whole; a state kept on the way may be gone back to.
TEST(Mamba2, PiecesCarriedOnAreTheWhole) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const double tolerance = dtype == DType::f64 ? 1e-12 : 1e-5;
    const Mamba2 model(small_config(), dtype, kCpu, 7);
    constexpr std::int64_t kLength = 23;
    const Tensor x = random_tensor({2, kLength, 5}, 1, dtype);
    const Values whole = values_of(model.forward(nullptr, x));
    double scale = 0;
    for (const double value : whole) scale = std::max(scale, std::abs(value));
    Mamba2::State state, kept;
    const auto expect_piece = [&](std::int64_t begin, std::int64_t end) {
      const Values piece = values_of(model.forward_from(&state, x.slice(1, begin, end).clone()));
      for (std::int64_t item = 0; item < 2; ++item)
        for (std::int64_t t = begin; t < end; ++t) {
          const double got = piece[static_cast<std::size_t>(item * (end - begin) + t - begin)];
          const double want = whole[static_cast<std::size_t>(item * kLength + t)];
          EXPECT_TRUE(std::abs(got - want) <= tolerance * scale)
              << "step " << t << ": " << got << " for " << want;
        }
    };
    expect_piece(0, 1);
    expect_piece(1, 9);
    kept = state;
    for (std::int64_t t = 9; t < kLength; ++t) expect_piece(t, t + 1);
    state = kept;
    expect_piece(9, kLength);
  }
}

TEST(Mamba2, ChunksAndStepsAreTheSameModel) {
  Mamba2Config chunked = small_config(), sequential = small_config();
  sequential.chunk_length = 0;
  const Tensor x = random_tensor({2, 19, 5}, 1);
  const Values a = values_of(Mamba2(chunked, DType::f64, kCpu, 7).forward(nullptr, x)),
               b = values_of(Mamba2(sequential, DType::f64, kCpu, 7).forward(nullptr, x));
  EXPECT_LE(largest_difference(a, b), 1e-13);
}

void expect_refused(const Mamba2Config& config, const std::string& wanted) {
  try {
    (void)Mamba2(config, DType::f32, kCpu, 1);
    ADD_FAILURE() << "taken: wanted " << wanted;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(wanted), std::string::npos) << error.what();
  }
}

TEST(Mamba2, SizesThatDoNotGoTogetherAreNamed) {
  Mamba2Config config = small_config();
  config.head_dim = 5;
  expect_refused(config, "head_dim is 5, wants a divisor of expand * hidden_dim, 12");
  config = small_config();
  config.groups = 3;
  expect_refused(config, "groups is 3, wants a divisor of the number of heads, 4");
  config = small_config();
  config.conv_width = 0;
  expect_refused(config, "conv_width is 0, wants at least 1");
}

/// A token between s and t changes what y_t makes of x_s: the model selects. Nothing linear and time-invariant could.
TEST(Mamba2, WhatLiesBetweenChangesWhatIsRemembered) {
  Mamba2BlockConfig config = small_config();
  Random random(3);
  Parameters parameters;
  const Mamba2Block block(config, "", 1, parameters, random);
  parameters.allocate(DType::f64, kCpu);
  constexpr std::int64_t kLength = 12, kFrom = 1, kTo = 10;
  const auto slope = [&](double between) {
    Tensor u = random_tensor({1, kLength, config.hidden_dim}, 1);
    u.mutable_data<double>()[5 * config.hidden_dim] += between;
    Tape tape;
    const Variable input = tape.leaf(u);
    const Variable out = block.forward([&](int index) { return Variable(parameters.value(index)); }, input);
    Tensor cotangent = Tensor::zeros(out.shape(), DType::f64);
    cotangent.mutable_data<double>()[kTo * config.hidden_dim] = 1;
    tape.backward({{out, cotangent}});
    return tape.gradient(input).values<double>()[kFrom * config.hidden_dim];
  };
  EXPECT_NE(slope(0), 0);
  EXPECT_GT(std::abs(slope(1) - slope(0)), 1e-3 * std::abs(slope(0)));
}

}  // namespace
}  // namespace scantape::autograd
