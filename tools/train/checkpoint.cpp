#include "train/checkpoint.h"

#include <fmt/format.h>

#include <system_error>

#include "scantape/version.h"
#include "train/files.h"
#include "weights/safetensors.h"

namespace scantape::train {
namespace {

namespace fs = std::filesystem;
using autograd::Parameters;

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kStateFile = "state.json";

Safetensors model_tensors(const Parameters& parameters) {
  Safetensors contents;
  contents.metadata["format_version"] = std::to_string(kFormatVersion);
  for (std::size_t i = 0; i < parameters.entries().size(); ++i)
    contents.tensors.push_back({parameters.entries()[i].name, parameters.value(static_cast<int>(i))});
  return contents;
}

Safetensors optimizer_tensors(const Parameters& parameters, autograd::AdamWOptimizer& optimizer) {
  Safetensors contents;
  contents.metadata["format_version"] = std::to_string(kFormatVersion);
  const auto add = [&](const std::string& prefix, const Tensor& flat) {
    for (std::size_t i = 0; i < parameters.entries().size(); ++i)
      contents.tensors.push_back(
          {prefix + parameters.entries()[i].name, parameters.part(flat, static_cast<int>(i))});
  };
  add("first_moment.", optimizer.first_moment());
  add("second_moment.", optimizer.second_moment());
  contents.tensors.push_back({"control", optimizer.control()});
  return contents;
}

Json state_json(const CheckpointState& state) {
  return {{"format_version", kFormatVersion},
          {"version", version()},
          {"git_hash", git_hash()},
          {"epoch", state.epoch},
          {"step", state.step},
          {"seed", state.seed},
          {"model", to_json(state.model, state.dtype)},
          {"data", to_json(state.data)},
          {"data_fingerprint", state.data_fingerprint},
          {"metrics", state.metrics}};
}

CheckpointState read_state(const fs::path& path) {
  const std::string contents = read_file(path);
  try {
    const Json json = Json::parse(contents);
    if (json.at("format_version") != kFormatVersion)
      throw Error(Code::corrupt_data, fmt::format("format_version is {}, this build reads {}",
                                                  json.at("format_version").dump(), kFormatVersion));
    CheckpointState state;
    state.model = model_config_from_json(json.at("model"));
    require_size(state.model);
    state.dtype = dtype_from_name(json.at("model").at("dtype"));
    state.data = fitted_from_json(json.at("data"));
    state.data_fingerprint = json.at("data_fingerprint");
    state.epoch = json.at("epoch");
    state.step = json.at("step");
    state.seed = json.at("seed");
    state.metrics = json.at("metrics");
    return state;
  } catch (const Json::exception& error) {
    throw Error(Code::corrupt_data, path.string() + " is not the state of a checkpoint: " + error.what());
  } catch (const Error& error) {
    // What is wrong usage in a flag is a corrupt file here.
    throw Error(Code::corrupt_data, path.string() + ": " + error.what());
  }
}

void load_parameters(const fs::path& path, Parameters& parameters) {
  const Safetensors contents = read_safetensors(path);
  std::string wrong;
  std::vector<bool> found(parameters.entries().size(), false);
  for (const auto& [name, tensor] : contents.tensors) {
    bool known = false;
    for (std::size_t i = 0; i < found.size() && !known; ++i) {
      if (parameters.entries()[i].name != name) continue;
      known = found[i] = true;
      Tensor target = parameters.value(static_cast<int>(i));
      if (tensor.shape() != target.shape() || tensor.dtype() != target.dtype())
        wrong += fmt::format("; {} is {} {}, wants {} {}", name, scantape::name(tensor.dtype()),
                             scantape::name(tensor.shape()), scantape::name(target.dtype()),
                             scantape::name(target.shape()));
      else
        target.copy_from(tensor);
    }
    if (!known) wrong += "; " + name + " is none of the model's";
  }
  for (std::size_t i = 0; i < found.size(); ++i)
    if (!found[i]) wrong += "; " + parameters.entries()[i].name + " is missing";
  if (!wrong.empty()) throw Error(Code::corrupt_data, path.string() + wrong);
}

}  // namespace

fs::path save_checkpoint(const fs::path& directory, const CheckpointState& state,
                         const Parameters& parameters, autograd::AdamWOptimizer& optimizer) {
  const std::string name = fmt::format("epoch-{:04}", state.epoch);
  const fs::path partial = directory / (name + ".partial"), final_path = directory / name;
  std::error_code error;
  try {
    fs::remove_all(partial);
    fs::create_directories(partial);
    write_safetensors(partial / kModelFile, model_tensors(parameters));
    write_safetensors(partial / kOptimizerFile, optimizer_tensors(parameters, optimizer));
    write_file(partial / kStateFile, text(state_json(state), 2) + "\n");
    sync_directory(partial);
    fs::rename(partial, final_path);
    sync_directory(directory);
  } catch (const fs::filesystem_error& failed) {
    fs::remove_all(partial, error);
    throw Error(Code::io, std::string("saving a checkpoint failed: ") + failed.what());
  } catch (...) {
    fs::remove_all(partial, error);
    throw;
  }
  return final_path;
}

LoadedModel load_model(const fs::path& path, Device device) {
  std::error_code error;
  const fs::path directory = fs::exists(path / kStateFile, error) ? path : path / "best";
  if (!fs::exists(directory / kStateFile, error))
    throw Error(Code::io, "--checkpoint " + path.string() + " holds no checkpoint: wants a directory with " +
                              kStateFile + ", or a run's directory with best" +
                              (error ? ": " + error.message() : ""));
  LoadedModel loaded{read_state(directory / kStateFile), nullptr};
  // The file tells how many parameters there are before memory is taken for as many as the state claims.
  const fs::path model = directory / kModelFile;
  const std::uintmax_t bytes = fs::file_size(model, error);
  if (error) throw Error(Code::io, model.string() + ": " + error.message());
  const auto wanted =
      static_cast<std::uintmax_t>(parameter_count(loaded.state.model) * size_of(loaded.state.dtype));
  if (wanted > bytes)
    throw Error(Code::corrupt_data, fmt::format("{} has {} bytes, its model wants {} for parameters alone",
                                                model.string(), bytes, wanted));
  loaded.model = make_model(loaded.state.model, loaded.state.dtype, device, 0);
  load_parameters(model, loaded.model->parameters());
  return loaded;
}

}  // namespace scantape::train
