#include "scantape/autograd/lti.h"

#include <cmath>

#include "initial.h"

namespace scantape::autograd {
namespace {

/// -1/2 I + (G - G^T) / sqrt(N), G normal: every eigenvalue has the real part -1/2, and none turns faster for more states.
std::vector<double> damped_rotations(Random& random, std::int64_t N) {
  const std::vector<double> G = normal(random, {N, N}, deviation_of(N));
  std::vector<double> A(G.size());
  for (std::int64_t i = 0; i < N; ++i)
    for (std::int64_t j = 0; j < N; ++j) {
      const auto at = static_cast<std::size_t>(i * N + j), across = static_cast<std::size_t>(j * N + i);
      A[at] = G[at] - G[across] - (i == j ? 0.5 : 0);
    }
  return A;
}

void require_sizes(const LtiConfig& config) {
  const std::pair<const char*, std::int64_t> sizes[] = {{"features", config.features},
                                                        {"hidden_dim", config.hidden_dim},
                                                        {"expand", config.expand},
                                                        {"state_dim", config.state_dim},
                                                        {"num_layers", config.num_layers}};
  for (const auto& [name, size] : sizes)
    if (size < 1)
      throw Error(Code::invalid_argument,
                  "lti: " + std::string(name) + " is " + std::to_string(size) + ", wants at least 1");
}

}  // namespace

const char* name(StateMatrix matrix) noexcept {
  switch (matrix) {
    case StateMatrix::diagonal:
      return "diagonal";
    case StateMatrix::dense:
      return "dense";
  }
  return "unknown";
}

Lti::Lti(const LtiConfig& config, DType dtype, Device device, std::uint64_t seed) : config_(config) {
  require_sizes(config);
  const std::int64_t F = config.features, E = config.width(), N = config.state_dim;
  Random random(seed);
  const auto weight = [&](const std::string& name, const Shape& shape, double scale = 1) {
    return parameters_.add(name, shape, true, normal(random, shape, scale * deviation_of(shape.back())));
  };
  const auto vector = [&](const std::string& name, std::int64_t size, double value) {
    return parameters_.add(name, {size}, false, constant(size, value));
  };

  input_weight_ = weight("input_projection.weight", {E, F});
  input_bias_ = vector("input_projection.bias", E, 0);
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    const std::string prefix = "layers." + std::to_string(i) + ".";
    Layer layer{};
    layer.norm_weight = vector(prefix + "norm.weight", E, 1);
    layer.norm_bias = vector(prefix + "norm.bias", E, 0);
    const bool dense = config.state_matrix == StateMatrix::dense;
    std::vector<double> A = dense ? damped_rotations(random, N) : constant(N, 0);
    if (!dense)
      for (double& a : A) a = random.uniform(-1, -0.5);
    std::vector<double> delta = steps_of_time(random, dense ? 1 : N);
    layer.A = parameters_.add(prefix + "A", dense ? Shape{N, N} : Shape{N}, false, std::move(A));
    layer.delta = parameters_.add(prefix + "delta", dense ? Shape{} : Shape{N}, false, std::move(delta));
    layer.B = weight(prefix + "B", {N, E});
    layer.C = weight(prefix + "C", {E, N});
    layer.D = vector(prefix + "D", E, 1);
    layers_.push_back(layer);
  }
  norm_weight_ = vector("norm.weight", E, 1);
  norm_bias_ = vector("norm.bias", E, 0);
  output_weight_ = weight("output_projection.weight", {1, E}, kOutputScale);
  output_bias_ = vector("output_projection.bias", 1, 0);
  parameters_.allocate(dtype, device);
}

Variable Lti::run(Tape* tape, const Variable& input, WriteMode mode) const {
  if (!input.present() || input.shape().rank() != 3 || input.shape().back() != config_.features)
    throw Error(Code::invalid_argument,
                "lti: x has shape " + (input.present() ? name(input.shape()) : "absent") + ", wants [B, L, " +
                    std::to_string(config_.features) + "] = [B, L, F]");
  const auto on = [&](int index) { return parameters_.on(tape, index, mode); };

  Variable x = projection(input, on(input_weight_), on(input_bias_));
  for (const Layer& layer : layers_) {
    const Variable u = layer_norm(x, on(layer.norm_weight), on(layer.norm_bias), config_.eps);
    const Discretized system =
        discretize(softplus(on(layer.delta)), on(layer.A), on(layer.B), config_.method);
    const Variable h = scan(system.A_bar, projection(u, system.B_bar)).h;
    x = state_output(projection(h, on(layer.C)), u, on(layer.D), x, config_.activation);
  }
  const Variable normed = layer_norm(x, on(norm_weight_), on(norm_bias_), config_.eps);
  return projection(normed, on(output_weight_), on(output_bias_));
}

std::int64_t Lti::parameter_count(const LtiConfig& config) noexcept {
  const std::int64_t F = config.features, E = config.width(), N = config.state_dim;
  const std::int64_t rates = config.state_matrix == StateMatrix::dense ? N * N + 1 : 2 * N;
  return E * (F + 1) + config.num_layers * (2 * E + rates + 2 * N * E + E) + 2 * E + (E + 1);
}

}  // namespace scantape::autograd
