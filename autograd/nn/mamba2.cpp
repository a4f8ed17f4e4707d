#include "scantape/autograd/mamba2.h"

#include <cmath>

#include "initial.h"
#include "mamba2_layers.h"

namespace scantape::autograd {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(Code::invalid_argument, "mamba2: " + message);
}

void require_sizes(const Mamba2BlockConfig& config) {
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"hidden_dim", config.hidden_dim}, {"expand", config.expand}, {"state_dim", config.state_dim},
      {"head_dim", config.head_dim},     {"groups", config.groups}, {"conv_width", config.conv_width}};
  for (const auto& [name, size] : sizes)
    if (size < 1) refuse(std::string(name) + " is " + std::to_string(size) + ", wants at least 1");
  const auto divides = [](const char* part, std::int64_t size, const char* whole, std::int64_t of) {
    if (of % size != 0)
      refuse(std::string(part) + " is " + std::to_string(size) + ", wants a divisor of " + whole + ", " +
             std::to_string(of));
  };
  divides("head_dim", config.head_dim, "expand * hidden_dim", config.inner_dim());
  divides("groups", config.groups, "the number of heads", config.heads());
  if (config.norm_groups < 0) refuse("norm_groups is below 0");
  if (config.norm_groups > 0)
    divides("norm_groups", config.norm_groups, "expand * hidden_dim", config.inner_dim());
}

double limit_of(std::int64_t fan_in) {
  return 1 / std::sqrt(static_cast<double>(fan_in));
}

}  // namespace

Mamba2Block::Mamba2Block(const Mamba2BlockConfig& config, const std::string& prefix, std::int64_t num_layers,
                         Parameters& parameters, Random* random)
    : config_(config) {
  require_sizes(config);
  const std::int64_t D = config.hidden_dim, H = config.heads(), K = config.conv_width;
  const auto drawn = [&](const char* name, const Shape& shape, bool decay, const auto& draw) {
    return random != nullptr ? parameters.add(prefix + name, shape, decay, draw(*random))
                             : parameters.add(prefix + name, shape, decay);
  };
  const auto spread = [&](const char* name, const Shape& shape, bool decay, double limit) {
    return drawn(name, shape, decay, [&](Random& from) { return uniform(from, shape, -limit, limit); });
  };
  in_proj_ = spread("in_proj.weight", {config.projected_dim(), D}, true, limit_of(D));
  conv_weight_ = spread("conv1d.weight", {config.conv_dim(), K}, true, limit_of(K));
  conv_bias_ = spread("conv1d.bias", {config.conv_dim()}, false, limit_of(K));
  dt_bias_ = drawn("dt_bias", {H}, false, [&](Random& from) { return steps_of_time(from, H); });
  A_log_ = drawn("A_log", {H}, false, [&](Random& from) {
    std::vector<double> values = uniform(from, {H}, 1, 16);
    for (double& value : values) value = std::log(value);
    return values;
  });
  D_ = parameters.add(prefix + "D", {H}, false, constant(H, 1));
  norm_ =
      parameters.add(prefix + "norm.weight", {config.inner_dim()}, false, constant(config.inner_dim(), 1));
  out_proj_ = spread("out_proj.weight", {D, config.inner_dim()}, true,
                     limit_of(config.inner_dim()) / std::sqrt(static_cast<double>(num_layers)));
}

Variable Mamba2Block::run(const Weights& weights, const Variable& u, Mamba2BlockState* state,
                          const Tensor& start) const {
  const std::int64_t H = config_.heads(), P = config_.head_dim, G = config_.groups, N = config_.state_dim;
  const auto projected =
      split(projection(u, weights.in_proj), {{config_.inner_dim()}, {config_.conv_dim()}, {H}});
  const Variable &z = projected[0], &xBC = projected[1], &dt = projected[2];

  CausalConv1dOptions conv_options;
  conv_options.start = start;
  const Variable conv_state = state ? Variable(state->conv) : Variable();
  const Convolved convolved =
      causal_conv1d(xBC, weights.conv_weight, weights.conv_bias, conv_state, conv_options);
  const auto parts = split(convolved.y, {{H, P}, {G, N}, {G, N}});

  SsdInputs inputs;
  inputs.x = parts[0];
  inputs.B = parts[1];
  inputs.C = parts[2];
  inputs.dt = dt;
  inputs.A = neg_exp(weights.A_log);
  inputs.D = weights.D;
  inputs.dt_bias = weights.dt_bias;
  if (state) inputs.initial_state = state->ssm;
  SsdOptions ssd_options;
  ssd_options.dt_softplus = true;
  ssd_options.dt_min = config_.dt_min;
  ssd_options.dt_max = config_.dt_max;
  ssd_options.chunk_length = config_.chunk_length;
  ssd_options.start = start;
  const SsdOutputs mixed = ssd(inputs, ssd_options);
  if (state) *state = {convolved.final_state.value(), mixed.final_state.value()};

  GatedRmsNormOptions norm_options;
  norm_options.groups = config_.norm_groups > 0 ? config_.norm_groups : G;
  norm_options.norm_before_gate = config_.norm_before_gate;
  norm_options.eps = config_.eps;
  const Variable y = reshape(mixed.out, {u.shape()[0], u.shape()[1], config_.inner_dim()});
  return projection(gated_rms_norm(y, z, weights.norm, norm_options), weights.out_proj);
}

std::int64_t Mamba2Block::parameter_count(const Mamba2BlockConfig& config) noexcept {
  const std::int64_t D = config.hidden_dim, inner = config.inner_dim();
  return D * config.projected_dim() + config.conv_dim() * (config.conv_width + 1) + 3 * config.heads() +
         inner + inner * D;
}

Mamba2::Mamba2(const Mamba2Config& config, DType dtype, Device device, std::uint64_t seed) : config_(config) {
  if (config.features < 1 || config.num_layers < 1)
    refuse("features is " + std::to_string(config.features) + " and num_layers " +
           std::to_string(config.num_layers) + ", want at least 1");
  require_sizes(config);
  const std::int64_t F = config.features, D = config.hidden_dim;
  Random random(seed);
  const auto weight = [&](const std::string& name, const Shape& shape, double scale = 1) {
    return parameters_.add(name, shape, true, normal(random, shape, scale * deviation_of(shape.back())));
  };
  const auto vector = [&](const std::string& name, std::int64_t size, double value) {
    return parameters_.add(name, {size}, false, constant(size, value));
  };

  input_weight_ = weight("input_projection.weight", {D, F});
  input_bias_ = vector("input_projection.bias", D, 0);
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    const std::string prefix = "layers." + std::to_string(i) + ".";
    const int norm_weight = vector(prefix + "norm.weight", D, 1),
              norm_bias = vector(prefix + "norm.bias", D, 0);
    layers_.push_back({norm_weight, norm_bias,
                       Mamba2Block(config, prefix + "mixer.", config.num_layers, parameters_, random)});
  }
  norm_weight_ = vector("norm.weight", D, 1);
  norm_bias_ = vector("norm.bias", D, 0);
  output_weight_ = weight("output_projection.weight", {1, D}, kOutputScale);
  output_bias_ = vector("output_projection.bias", 1, 0);
  parameters_.allocate(dtype, device);
}

Variable Mamba2::layers(Tape* tape, const Variable& input, WriteMode mode, State* state) const {
  if (!input.present() || input.shape().rank() != 3 || input.shape().back() != config_.features)
    refuse("x has shape " + (input.present() ? name(input.shape()) : "absent") + ", wants [B, L, " +
           std::to_string(config_.features) + "] = [B, L, F]");
  const auto on = [&](int index) { return parameters_.on(tape, index, mode); };

  const Variable stream = projection(input, on(input_weight_), on(input_bias_));
  const Variable last = through_layers(
      stream, layers_, state,
      [&](std::size_t i, const Variable& x, const Variable& residual) {
        const bool inside = i < layers_.size();
        const Variable weight = on(inside ? layers_[i].norm_weight : norm_weight_);
        const Variable bias = on(inside ? layers_[i].norm_bias : norm_bias_);
        return residual_layer_norm(x, residual, weight, bias, config_.eps);
      },
      [&](const Layer& layer, const Variable& u, Mamba2BlockState* remembered) {
        return layer.block.forward(on, u, remembered);
      });
  return projection(last, on(output_weight_), on(output_bias_));
}

std::int64_t Mamba2::parameter_count(const Mamba2Config& config) noexcept {
  const std::int64_t F = config.features, D = config.hidden_dim;
  return D * (F + 1) + config.num_layers * (Mamba2Block::parameter_count(config) + 2 * D) + 2 * D + (D + 1);
}

}  // namespace scantape::autograd
