#include "weights/mamba2_model.h"

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "train/files.h"

namespace scantape::weights {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kConfig = "config.json";
constexpr const char* kWhole = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kPyTorch = "pytorch_model.bin";

[[noreturn]] void corrupt(const std::string& source, const std::string& what) {
  throw Error(Code::corrupt_data, source + " " + what);
}

/// Which file holds which tensor, by the index. Files lie beside it: a path to somewhere else is not followed.
std::map<std::string, std::string> places_of(const std::string& source) {
  Json index;
  try {
    index = Json::parse(train::read_file(source));
  } catch (const Json::exception& error) {
    corrupt(source, std::string("is no JSON: ") + error.what());
  }
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    corrupt(source, "has no weight_map");
  std::map<std::string, std::string> places;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
      corrupt(source, "gives tensor " + tensor + " the file " + file.dump() +
                          ", wants the name of one in the same directory");
    places[tensor] = name;
  }
  return places;
}

/// All tensors of all files, as if they were in one. Each must be where the index says.
Safetensors read_sharded(const fs::path& directory) {
  const std::string source = (directory / kIndex).string();
  std::map<std::string, std::string> left = places_of(source);
  std::set<std::string> files;
  for (const auto& [tensor, file] : left) files.insert(file);
  Safetensors all;
  std::string misplaced;
  for (const std::string& file : files)
    for (NamedTensor& named : read_safetensors(directory / file).tensors) {
      const auto place = left.find(named.name);
      if (place == left.end() || place->second != file)
        misplaced += "; " + file + " holds " + named.name;
      else
        left.erase(place);
      all.tensors.push_back(std::move(named));
    }
  for (const auto& [tensor, file] : left) misplaced += "; " + tensor + " is not in " + file;
  if (!misplaced.empty()) corrupt(source, "does not say the same as its files" + misplaced);
  return all;
}

Safetensors read_weights(const fs::path& directory) {
  if (fs::exists(directory / kWhole)) return read_safetensors(directory / kWhole);
  if (fs::exists(directory / kIndex)) return read_sharded(directory);
  // Its reader says what a PyTorch file is refused for, and how to convert it.
  if (fs::exists(directory / kPyTorch)) return read_safetensors(directory / kPyTorch);
  throw Error(Code::io, directory.string() + " holds no weights: neither " + kWhole + " nor " + kIndex);
}

autograd::Mamba2LMConfig sizes_of(const Mamba2Config& config) {
  autograd::Mamba2LMConfig sizes;
  sizes.vocabulary = config.vocabulary;
  sizes.num_layers = config.num_layers;
  sizes.tied_embeddings = config.tied_embeddings;
  sizes.hidden_dim = config.hidden_dim;
  sizes.expand = config.expand;
  sizes.state_dim = config.state_dim;
  sizes.head_dim = config.head_dim;
  sizes.groups = config.groups;
  sizes.conv_width = config.conv_width;
  // A longer chunk is none of the model's: where sums are cut changes roundings alone.
  sizes.chunk_length = std::min(config.chunk_length, kMostSsdChunkLength);
  sizes.norm_groups = config.norm_groups;
  sizes.norm_before_gate = config.norm_before_gate;
  sizes.dt_min = config.dt_min;
  sizes.dt_max = config.dt_max;
  sizes.eps = config.eps;
  return sizes;
}

/// Weights have one name each here: the convolution's lose their middle axis of one.
void take(autograd::Parameters& parameters, int index, const Tensor& tensor, DType dtype) {
  Tensor value = parameters.value(index);
  value.copy_from(tensor.to(dtype).reshape(value.shape()));
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.elements() == b.elements() &&
         std::memcmp(a.view().data, b.view().data,
                     static_cast<std::size_t>(a.elements() * size_of(a.dtype()))) == 0;
}

}  // namespace

LoadedMamba2 make_mamba2(const Mamba2Config& read, const Safetensors& file, const std::string& source,
                         const Mamba2LoadOptions& options) {
  Mamba2Config config = read;
  if (options.norm_groups < 0 || (options.norm_groups > 0 && config.inner_dim() % options.norm_groups != 0))
    throw Error(Code::invalid_argument, "norm_groups is " + std::to_string(options.norm_groups) +
                                            ", wants 0 or a divisor of the inner dimension, " +
                                            std::to_string(config.inner_dim()));
  if (config.conv_width > kMostConvTaps)
    throw Error(Code::unsupported, source + ": a convolution of " + std::to_string(config.conv_width) +
                                       " taps, at most " + std::to_string(kMostConvTaps) + " are supported");
  if (options.norm_groups > 0) config.norm_groups = options.norm_groups;

  const std::vector<WantedTensor> wanted = mamba2_tensors(config);
  const std::vector<const Tensor*> found = match_tensors(file, wanted, source);
  if (config.tied_embeddings && found.back() != nullptr && !same_bytes(*found.front(), *found.back()))
    corrupt(
        source,
        "holds an lm_head.weight that differs from the embeddings, and its config says that they are tied");

  LoadedMamba2 loaded{config, autograd::Mamba2LM(sizes_of(config), options.dtype, options.device)};
  autograd::Parameters& parameters = loaded.model.parameters();
  // Both lists have one order; a tied head is in the file's alone.
  for (std::size_t i = 0; i < parameters.entries().size(); ++i)
    take(parameters, static_cast<int>(i), *found[i], options.dtype);
  return loaded;
}

LoadedMamba2 load_mamba2(const fs::path& directory, const Mamba2LoadOptions& options) {
  if (!fs::is_directory(directory)) throw Error(Code::io, directory.string() + " is no directory of a model");
  const fs::path path = directory / kConfig;
  if (!fs::exists(path)) throw Error(Code::io, directory.string() + " holds no " + kConfig);
  const Mamba2Config config = parse_mamba2_config(train::read_file(path), path.string());
  return make_mamba2(config, read_weights(directory), directory.string(), options);
}

Safetensors mamba2_weights(const autograd::Mamba2LM& model) {
  Safetensors file;
  file.metadata["format"] = "pt";  // which transformers wants to see
  const autograd::Parameters& parameters = model.parameters();
  for (std::size_t i = 0; i < parameters.entries().size(); ++i) {
    const std::string& name = parameters.entries()[i].name;
    Tensor value = parameters.value(static_cast<int>(i));
    const Shape& shape = value.shape();
    if (name.ends_with(".conv1d.weight")) value = value.reshape({shape[0], 1, shape[1]});
    file.tensors.push_back({name, value});
  }
  return file;
}

}  // namespace scantape::weights
