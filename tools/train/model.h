#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "scantape/autograd/lti.h"
#include "scantape/autograd/mamba2.h"
#include "train/config.h"

namespace scantape::train {

/// The sizes and options of a model, of whichever family it is. A family is a struct here and its line in model.cpp.
using ModelConfig = std::variant<autograd::LtiConfig, autograd::Mamba2Config>;

/// What --model may say.
std::vector<std::string> model_families();

/// Throws Error(invalid_argument) naming the flag that is wrong, or that belongs to another family.
ModelConfig model_config(const TrainConfig& config);

/// Throws Error(invalid_argument) where a size is below 1 or the model would be larger than any machine's memory.
void require_size(const ModelConfig& config);

std::unique_ptr<autograd::Model> make_model(const ModelConfig& config, DType dtype, Device device,
                                            std::uint64_t seed);
std::int64_t parameter_count(const ModelConfig& config);
/// Numbers that a training step keeps for each position of a batch.
std::int64_t numbers_per_position(const ModelConfig& config);

/// Sizes and options as a checkpoint stores them, and back: throws Error(corrupt_data) where the family is unknown.
Json to_json(const ModelConfig& config, DType dtype);
ModelConfig model_config_from_json(const Json& json);

}  // namespace scantape::train
