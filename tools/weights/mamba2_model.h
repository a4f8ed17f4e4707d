#pragma once

#include <filesystem>

#include "scantape/autograd/mamba2_lm.h"
#include "weights/mamba2.h"

/// Public Mamba-2 language models as models of this library.
namespace scantape::weights {

struct Mamba2LoadOptions {
  DType dtype = DType::f32;  ///< f32 or f64; the file's tensors are converted
  Device device = kCpu;
  /// Sets of channels that the gated norms take a mean of; 0: as whoever wrote the config.json computes, which is one for
  /// transformers, whatever the groups are, and as many as groups for mamba_ssm.
  std::int64_t norm_groups = 0;
};

struct LoadedMamba2 {
  Mamba2Config config;  ///< norm_groups as it was taken
  autograd::Mamba2LM model;
};

/// Reads config.json and the weights of a directory: model.safetensors, or the files that model.safetensors.index.json
/// names. Tensors are taken over a mapping of the file, one after the other, so that beside the model no more than one is
/// there twice.
///
/// Throws Error(io) where a file is missing or cannot be read; Error(corrupt_data) where one is malformed, where tensors
/// are missing, extra or mis-shaped (all of them in one message), or where the embeddings are tied and lm_head.weight is
/// another than they are; Error(unsupported) for models that compute something else. A pytorch_model.bin is refused with
/// how to convert it.
LoadedMamba2 load_mamba2(const std::filesystem::path& directory, const Mamba2LoadOptions& options = {});

/// The same from what has been read already; `source` names it in errors.
LoadedMamba2 make_mamba2(const Mamba2Config& config, const Safetensors& file, const std::string& source,
                         const Mamba2LoadOptions& options = {});

/// The model's parameters under the names and in the shapes of transformers.
Safetensors mamba2_weights(const autograd::Mamba2LM& model);

}  // namespace scantape::weights
