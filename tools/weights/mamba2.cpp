#include "weights/mamba2.h"

#include <nlohmann/json.hpp>
#include <set>

namespace scantape::weights {
namespace {

using Json = nlohmann::json;

// Beyond these no machine's memory holds a model, and products of sizes stay far inside 64 bits.
constexpr std::int64_t kLargestSize = 1 << 28, kMostLayers = 1 << 16;

/// Python writes what JSON cannot: Infinity, -Infinity and NaN outside of texts become texts.
std::string as_json(std::string_view text) {
  std::string result;
  bool in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (in_text && text[i] == '\\' && i + 1 < text.size()) {
      result += text[i++];
    } else if (text[i] == '"') {
      in_text = !in_text;
    } else if (!in_text) {
      bool found = false;
      for (const std::string_view word : {"-Infinity", "Infinity", "NaN"})
        if (!found && text.substr(i, word.size()) == word) {
          result += '"' + std::string(word) + '"';
          i += word.size() - 1;
          found = true;
        }
      if (found) continue;
    }
    result += text[i];
  }
  return result;
}

/// Looks keys up and collects what is wrong with them.
class Reader {
 public:
  Reader(const Json& json, std::string& wrong, std::string& unsupported, std::string prefix = {})
      : json_(json), wrong_(wrong), unsupported_(unsupported), prefix_(std::move(prefix)) {}

  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }

  /// A size of at least 1. Without a value of its own it must be there.
  std::int64_t size(const char* key, std::int64_t standard = 0) {
    if (!has(key)) {
      if (standard == 0) wrong_ += "; " + prefix_ + key + " is missing";
      return standard;
    }
    const Json& value = json_[key];
    const bool fits = value.is_number_integer() && value >= 1 && value <= kLargestSize;
    if (!fits) {
      wrong_ += "; " + prefix_ + key + " is " + value.dump() + ", wants a size of at least 1";
      return 0;
    }
    return value.get<std::int64_t>();
  }

  double number(const char* key, double standard) {
    return has(key) ? to_number(key, json_[key], standard) : standard;
  }

  bool flag(const char* key, bool standard) {
    if (!has(key)) return standard;
    if (json_[key].is_boolean()) return json_[key].get<bool>();
    wrong_ += "; " + prefix_ + key + " is " + json_[key].dump() + ", wants true or false";
    return standard;
  }

  /// What is computed differently under any other value.
  void only(const char* key, const Json& supported) {
    if (has(key) && json_[key] != supported)
      unsupported_ +=
          "; " + prefix_ + key + " is " + json_[key].dump() + ", only " + supported.dump() + " is supported";
  }

  /// [min, max].
  void limits(const char* key, double* least, double* most) {
    if (!has(key)) return;
    const Json& value = json_[key];
    if (!value.is_array() || value.size() != 2) {
      wrong_ += "; " + prefix_ + key + " is " + value.dump() + ", wants two numbers";
      return;
    }
    *least = to_number(key, value[0], *least);
    *most = to_number(key, value[1], *most);
    if (!(*least >= 0 && *least <= *most))
      wrong_ +=
          "; " + prefix_ + key + " is " + value.dump() + ", wants two numbers from 0 on, the larger one last";
  }

 private:
  double to_number(const char* key, const Json& value, double standard) {
    if (value.is_number()) return value.get<double>();
    const Json word = value.is_object() && value.contains("__float__") ? value["__float__"] : value;
    if (word == "Infinity") return std::numeric_limits<double>::infinity();
    wrong_ += "; " + prefix_ + key + " holds " + value.dump() + ", wants a number";
    return standard;
  }

  const Json& json_;
  std::string &wrong_, &unsupported_;
  const std::string prefix_;
};

Mamba2Config hugging_face(Reader& read, std::string& wrong) {
  Mamba2Config config;
  config.source = Mamba2Source::hugging_face;
  config.vocabulary = read.size("vocab_size");
  config.hidden_dim = read.size("hidden_size");
  config.num_layers = read.size("num_hidden_layers");
  config.state_dim = read.size("state_size");
  config.expand = read.size("expand");
  config.conv_width = read.size("conv_kernel");
  config.head_dim = read.size("head_dim");
  config.groups = read.size("n_groups");
  config.chunk_length = read.size("chunk_size", config.chunk_length);
  // Older files say norm_before_gate, which transformers has never read: the gate comes first there.
  config.eps = read.number("layer_norm_epsilon", config.eps);
  config.residual_in_f32 = read.flag("residual_in_fp32", true);
  config.tied_embeddings = read.flag("tie_word_embeddings", false);
  read.limits("time_step_limit", &config.dt_min, &config.dt_max);
  const std::int64_t heads = read.size("num_heads");
  if (wrong.empty() && heads * config.head_dim != config.inner_dim())
    wrong += "; num_heads " + std::to_string(heads) + " times head_dim " + std::to_string(config.head_dim) +
             " is not expand times hidden_size, " + std::to_string(config.inner_dim());
  read.only("model_type", "mamba2");
  read.only("hidden_act", "silu");
  read.only("use_bias", false);
  read.only("use_conv_bias", true);
  read.only("rms_norm", true);
  return config;
}

Mamba2Config state_spaces(const Json& json, Reader& read, std::string& wrong, std::string& unsupported) {
  Mamba2Config config;
  config.source = Mamba2Source::state_spaces;
  config.hidden_dim = read.size("d_model");
  config.num_layers = read.size("n_layer");
  config.residual_in_f32 = read.flag("residual_in_fp32", true);
  config.tied_embeddings = read.flag("tie_embeddings", true);
  // The table is padded to a multiple.
  const std::int64_t words = read.size("vocab_size"), multiple = read.size("pad_vocab_size_multiple", 8);
  config.vocabulary = multiple < 1 ? words : (words + multiple - 1) / multiple * multiple;
  read.only("rms_norm", true);
  read.only("d_intermediate", 0);
  read.only("attn_layer_idx", Json::array());

  const Json none = Json::object();
  const bool given = json.contains("ssm_cfg") && json["ssm_cfg"].is_object();
  const Json& inner = given ? json["ssm_cfg"] : none;
  Reader mixer(inner, wrong, unsupported, "ssm_cfg.");
  if (!mixer.has("layer"))
    unsupported += "; ssm_cfg.layer is missing, which means Mamba1: only \"Mamba2\" is supported";
  mixer.only("layer", "Mamba2");
  config.state_dim = mixer.size("d_state", config.state_dim);
  config.conv_width = mixer.size("d_conv", config.conv_width);
  config.expand = mixer.size("expand", config.expand);
  config.head_dim = mixer.size("headdim", config.head_dim);
  config.groups = config.norm_groups = mixer.size("ngroups", config.groups);
  config.chunk_length = mixer.size("chunk_size", config.chunk_length);
  config.norm_before_gate = mixer.flag("norm_before_gate", false);
  mixer.limits("dt_limit", &config.dt_min, &config.dt_max);
  mixer.only("rmsnorm", true);
  mixer.only("bias", false);
  mixer.only("conv_bias", true);
  mixer.only("D_has_hdim", false);
  mixer.only("activation", "swish");
  mixer.only("learnable_init_states", false);
  if (mixer.has("d_ssm"))
    unsupported += "; ssm_cfg.d_ssm is given: an MLP beside the state space is not supported";
  return config;
}

void check_sizes(const Mamba2Config& config, std::string& wrong) {
  if (config.inner_dim() % config.head_dim != 0)
    wrong += "; the head dimension " + std::to_string(config.head_dim) + " does not divide the inner one, " +
             std::to_string(config.inner_dim());
  else if (config.heads() % config.groups != 0)
    wrong += "; " + std::to_string(config.groups) + " groups do not divide " +
             std::to_string(config.heads()) + " heads";
  if (config.num_layers > kMostLayers) wrong += "; " + std::to_string(config.num_layers) + " layers";
  if (!(config.eps > 0 && config.eps < 1)) wrong += "; the epsilon of the norms is not between 0 and 1";
}

}  // namespace

Mamba2Config parse_mamba2_config(std::string_view text, const std::string& source) {
  Json json;
  try {
    json = Json::parse(as_json(text));
  } catch (const Json::exception& error) {
    throw Error(Code::corrupt_data, source + " is no JSON: " + error.what());
  }
  if (!json.is_object()) throw Error(Code::corrupt_data, source + " is no JSON object");
  std::string wrong, unsupported;
  Reader read(json, wrong, unsupported);
  if (!json.contains("hidden_size") && !json.contains("d_model"))
    throw Error(
        Code::corrupt_data,
        source +
            " has neither hidden_size (transformers) nor d_model (mamba_ssm): not the config of a Mamba-2");
  const Mamba2Config config =
      json.contains("hidden_size") ? hugging_face(read, wrong) : state_spaces(json, read, wrong, unsupported);
  if (!unsupported.empty()) throw Error(Code::unsupported, source + unsupported + wrong);
  if (wrong.empty()) check_sizes(config, wrong);
  if (!wrong.empty()) throw Error(Code::corrupt_data, source + wrong);
  return config;
}

std::vector<WantedTensor> mamba2_tensors(const Mamba2Config& config) {
  const std::int64_t D = config.hidden_dim, E = config.inner_dim(), H = config.heads(), C = config.conv_dim();
  const bool of_hugging_face = config.source == Mamba2Source::hugging_face;
  const char* const singular = "backbone.embedding.weight";
  const char* const plural = "backbone.embeddings.weight";
  std::vector<WantedTensor> wanted = {
      {of_hugging_face ? plural : singular, {config.vocabulary, D}, of_hugging_face ? singular : plural}};
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    const std::string layer = "backbone.layers." + std::to_string(i) + ".", mixer = layer + "mixer.";
    wanted.push_back({layer + "norm.weight", {D}});
    wanted.push_back({mixer + "in_proj.weight", {config.projected_dim(), D}});
    wanted.push_back({mixer + "conv1d.weight", {C, 1, config.conv_width}});
    wanted.push_back({mixer + "conv1d.bias", {C}});
    wanted.push_back({mixer + "dt_bias", {H}});
    wanted.push_back({mixer + "A_log", {H}});
    wanted.push_back({mixer + "D", {H}});
    wanted.push_back({mixer + "norm.weight", {E}});
    wanted.push_back({mixer + "out_proj.weight", {D, E}});
  }
  wanted.push_back({"backbone.norm_f.weight", {D}});
  wanted.push_back({"lm_head.weight", {config.vocabulary, D}, "", config.tied_embeddings});
  return wanted;
}

std::vector<const Tensor*> match_tensors(const Safetensors& file, const std::vector<WantedTensor>& wanted,
                                         const std::string& source) {
  std::map<std::string_view, const Tensor*> left;
  for (const NamedTensor& named : file.tensors) left[named.name] = &named.tensor;
  std::string missing, wrong, extra;
  std::vector<const Tensor*> found;
  for (const WantedTensor& want : wanted) {
    auto at = left.find(want.name);
    if (at == left.end() && !want.other_name.empty()) at = left.find(want.other_name);
    found.push_back(at == left.end() ? nullptr : at->second);
    if (at == left.end()) {
      if (!want.optional) missing += "; " + want.name + " " + name(want.shape) + " is missing";
      continue;
    }
    const Tensor& tensor = *at->second;
    if (tensor.shape() != want.shape)
      wrong += "; " + std::string(at->first) + " has shape " + name(tensor.shape()) + ", wants " +
               name(want.shape);
    if (tensor.dtype() == DType::i32)
      wrong += "; " + std::string(at->first) + " is i32, wants floating point numbers";
    left.erase(at);
  }
  for (const NamedTensor& named : file.tensors)
    if (left.count(named.name) != 0)
      extra += "; " + named.name + " " + name(named.tensor.shape()) + " is none of the model's";
  if (!missing.empty() || !wrong.empty() || !extra.empty())
    throw Error(Code::corrupt_data, source + missing + wrong + extra);
  return found;
}

}  // namespace scantape::weights
