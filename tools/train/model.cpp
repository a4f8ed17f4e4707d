#include "train/model.h"

#include <cmath>

#include "train/flags.h"

namespace scantape::train {
namespace {

using autograd::LtiConfig;
using autograd::Mamba2Config;
using autograd::StateMatrix;

constexpr std::int64_t kLargestSize = 1 << 20;  // of a dimension
constexpr double kMostParameters = 1e11;

void within_all(std::initializer_list<std::pair<const char*, std::int64_t>> sizes) {
  for (const auto& [name, size] : sizes) within(name, size, 1, kLargestSize);
}

/// By floating point: the exact count may not fit.
void require_parameters(double parameters) {
  if (!(parameters <= kMostParameters))
    refuse(
        fmt::format("a model of {:.1e} parameters is too large: lower --hidden-dim, --expand, --state-dim or "
                    "--num-layers",
                    parameters));
}

/// Flags of another family than the one that is asked for would be of no effect.
template <class T>
void require_default(const char* flag, const T& value, T TrainConfig::*member, const char* family) {
  if (value != TrainConfig().*member)
    refuse(std::string(flag) + " is of no effect: it belongs to --model " + family);
}

// ---- lti ------------------------------------------------------------------------------------------------------------

DiscretizeMethod method_from_name(const std::string& text) {
  return named("--discretization", text,
               {DiscretizeMethod::zoh, DiscretizeMethod::exp_euler, DiscretizeMethod::bilinear,
                DiscretizeMethod::euler});
}

StateMatrix state_matrix_from_name(const std::string& text) {
  for (const StateMatrix matrix : {StateMatrix::diagonal, StateMatrix::dense})
    if (text == name(matrix)) return matrix;
  refuse(fmt::format("--state-matrix is {}, wants one of diagonal, dense", text));
}

Activation activation_from_name(const std::string& text) {
  return named("--activation", text, {Activation::silu, Activation::none});
}

LtiConfig lti_config(const TrainConfig& config) {
  require_default("--head-dim", config.head_dim, &TrainConfig::head_dim, "mamba2");
  require_default("--groups", config.groups, &TrainConfig::groups, "mamba2");
  require_default("--conv-width", config.conv_width, &TrainConfig::conv_width, "mamba2");
  require_default("--chunk-length", config.chunk_length, &TrainConfig::chunk_length, "mamba2");
  LtiConfig lti;
  lti.features = market::kFeatureCount;
  lti.hidden_dim = config.hidden_dim;
  lti.expand = config.expand;
  lti.state_dim = config.state_dim;
  lti.num_layers = config.num_layers;
  lti.state_matrix = state_matrix_from_name(config.state_matrix);
  lti.method = method_from_name(config.discretization);
  lti.activation = activation_from_name(config.activation);
  return lti;
}

void require_size_of(const LtiConfig& config) {
  within_all({{"features", config.features},
              {"hidden_dim", config.hidden_dim},
              {"expand", config.expand},
              {"state_dim", config.state_dim},
              {"num_layers", config.num_layers}});
  const double E = static_cast<double>(config.expand) * static_cast<double>(config.hidden_dim),
               N = static_cast<double>(config.state_dim);
  require_parameters(E * static_cast<double>(config.features) +
                     static_cast<double>(config.num_layers) *
                         (E * (2 * N + 3) + (config.state_matrix == StateMatrix::dense ? N * N : 0)));
}

std::unique_ptr<autograd::Model> make(const LtiConfig& config, DType dtype, Device device,
                                      std::uint64_t seed) {
  return std::make_unique<autograd::Lti>(config, dtype, device, seed);
}

std::int64_t count(const LtiConfig& config) {
  return autograd::Lti::parameter_count(config);
}

/// Input, x, and for each layer u, z, x, v, h, statistics; then what backward needs beside them.
std::int64_t kept(const LtiConfig& config) {
  const std::int64_t E = config.width(), N = config.state_dim;
  return config.features + E + config.num_layers * (3 * E + 2 * N + 3) + 5 * E;
}

Json describe(const LtiConfig& config) {
  return {{"family", "lti"},
          {"features", config.features},
          {"hidden_dim", config.hidden_dim},
          {"expand", config.expand},
          {"state_dim", config.state_dim},
          {"num_layers", config.num_layers},
          {"state_matrix", name(config.state_matrix)},
          {"discretization", name(config.method)},
          {"activation", name(config.activation)},
          {"eps", config.eps}};
}

LtiConfig lti_from_json(const Json& json) {
  LtiConfig config;
  config.features = json.at("features");
  config.hidden_dim = json.at("hidden_dim");
  config.expand = json.at("expand");
  config.state_dim = json.at("state_dim");
  config.num_layers = json.at("num_layers");
  config.state_matrix =
      state_matrix_from_name(json.value("state_matrix", "diagonal"));  // older ones have none
  config.method = method_from_name(json.at("discretization"));
  config.activation = activation_from_name(json.at("activation"));
  config.eps = json.at("eps");
  return config;
}

// ---- mamba2 ---------------------------------------------------------------------------------------------------------

Mamba2Config mamba2_config(const TrainConfig& config) {
  require_default("--state-matrix", config.state_matrix, &TrainConfig::state_matrix, "lti");
  require_default("--discretization", config.discretization, &TrainConfig::discretization, "lti");
  require_default("--activation", config.activation, &TrainConfig::activation, "lti");
  within_all({{"--head-dim", config.head_dim}, {"--groups", config.groups}});
  within("--conv-width", config.conv_width, 1, kMostConvTaps);
  within("--chunk-length", config.chunk_length, 0, kMostSsdChunkLength);
  Mamba2Config mamba2;
  mamba2.features = market::kFeatureCount;
  mamba2.hidden_dim = config.hidden_dim;
  mamba2.expand = config.expand;
  mamba2.state_dim = config.state_dim;
  mamba2.num_layers = config.num_layers;
  mamba2.head_dim = config.head_dim;
  mamba2.groups = config.groups;
  mamba2.conv_width = config.conv_width;
  mamba2.chunk_length = config.chunk_length;
  const std::int64_t inner = mamba2.inner_dim();
  if (inner % mamba2.head_dim != 0)
    refuse(fmt::format("--head-dim is {}, wants a divisor of --expand * --hidden-dim, {}", mamba2.head_dim,
                       inner));
  if (mamba2.heads() % mamba2.groups != 0)
    refuse(fmt::format("--groups is {}, wants a divisor of the number of heads, {}", mamba2.groups,
                       mamba2.heads()));
  return mamba2;
}

void require_size_of(const Mamba2Config& config) {
  within_all({{"features", config.features},
              {"hidden_dim", config.hidden_dim},
              {"expand", config.expand},
              {"state_dim", config.state_dim},
              {"num_layers", config.num_layers},
              {"head_dim", config.head_dim},
              {"groups", config.groups},
              {"conv_width", config.conv_width}});
  const double D = static_cast<double>(config.hidden_dim), inner = static_cast<double>(config.expand) * D,
               mixed = inner + 2 * static_cast<double>(config.groups) * static_cast<double>(config.state_dim);
  require_parameters(D * static_cast<double>(config.features) +
                     static_cast<double>(config.num_layers) *
                         (D * (2 * inner + mixed) + mixed * static_cast<double>(config.conv_width)));
}

std::unique_ptr<autograd::Model> make(const Mamba2Config& config, DType dtype, Device device,
                                      std::uint64_t seed) {
  return std::make_unique<autograd::Mamba2>(config, dtype, device, seed);
}

std::int64_t count(const Mamba2Config& config) {
  return autograd::Mamba2::parameter_count(config);
}

/// Input, and for each layer the stream, its normed form, what in_proj, convolution, ssd and norm give, and the states
/// that ssd keeps; then what backward needs beside them.
std::int64_t kept(const Mamba2Config& config) {
  const std::int64_t D = config.hidden_dim, inner = config.inner_dim(), wide = config.projected_dim(),
                     states =
                         config.chunk_length > 0 ? inner * config.state_dim / config.chunk_length + 1 : inner;
  return config.features + 2 * D +
         config.num_layers * (3 * D + wide + config.conv_dim() + 2 * inner + states) + 2 * wide + 3 * inner;
}

Json describe(const Mamba2Config& config) {
  return {{"family", "mamba2"},
          {"features", config.features},
          {"hidden_dim", config.hidden_dim},
          {"expand", config.expand},
          {"state_dim", config.state_dim},
          {"num_layers", config.num_layers},
          {"head_dim", config.head_dim},
          {"groups", config.groups},
          {"conv_width", config.conv_width},
          {"chunk_length", config.chunk_length},
          {"eps", config.eps}};
}

Mamba2Config mamba2_from_json(const Json& json) {
  Mamba2Config config;
  config.features = json.at("features");
  config.hidden_dim = json.at("hidden_dim");
  config.expand = json.at("expand");
  config.state_dim = json.at("state_dim");
  config.num_layers = json.at("num_layers");
  config.head_dim = json.at("head_dim");
  config.groups = json.at("groups");
  config.conv_width = json.at("conv_width");
  config.chunk_length = json.at("chunk_length");
  config.eps = json.at("eps");
  return config;
}

// ---- all families ---------------------------------------------------------------------------------------------------

struct Family {
  const char* name;
  ModelConfig (*from_flags)(const TrainConfig&);
  ModelConfig (*from_json)(const Json&);
};

constexpr Family kFamilies[] = {
    {"lti", [](const TrainConfig& config) -> ModelConfig { return lti_config(config); },
     [](const Json& json) -> ModelConfig { return lti_from_json(json); }},
    {"mamba2", [](const TrainConfig& config) -> ModelConfig { return mamba2_config(config); },
     [](const Json& json) -> ModelConfig { return mamba2_from_json(json); }},
};

std::string all_names() {
  std::string names;
  for (const Family& family : kFamilies) names += (names.empty() ? "" : ", ") + std::string(family.name);
  return names;
}

const Family* find_family(const std::string& name) {
  for (const Family& family : kFamilies)
    if (name == family.name) return &family;
  return nullptr;
}

}  // namespace

std::vector<std::string> model_families() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.name);
  return names;
}

ModelConfig model_config(const TrainConfig& config) {
  const Family* const family = find_family(config.model);
  if (family == nullptr) refuse("--model is " + config.model + ", wants one of " + all_names());
  within_all({{"--hidden-dim", config.hidden_dim},
              {"--expand", config.expand},
              {"--state-dim", config.state_dim},
              {"--num-layers", config.num_layers}});
  return family->from_flags(config);
}

void require_size(const ModelConfig& config) {
  std::visit([](const auto& family) { require_size_of(family); }, config);
}

std::unique_ptr<autograd::Model> make_model(const ModelConfig& config, DType dtype, Device device,
                                            std::uint64_t seed) {
  return std::visit([&](const auto& family) { return make(family, dtype, device, seed); }, config);
}

std::int64_t parameter_count(const ModelConfig& config) {
  return std::visit([](const auto& family) { return count(family); }, config);
}

std::int64_t numbers_per_position(const ModelConfig& config) {
  return std::visit([](const auto& family) { return kept(family); }, config);
}

Json to_json(const ModelConfig& config, DType dtype) {
  Json json = std::visit([](const auto& family) { return describe(family); }, config);
  json["dtype"] = name(dtype);
  return json;
}

ModelConfig model_config_from_json(const Json& json) {
  const std::string name = json.at("family");
  const Family* const family = find_family(name);
  if (family == nullptr)
    throw Error(Code::corrupt_data,
                "the checkpoint holds a model of the family " + name + ", wants one of " + all_names());
  return family->from_json(json);
}

}  // namespace scantape::train
