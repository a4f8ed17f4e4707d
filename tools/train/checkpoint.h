#pragma once

#include <filesystem>
#include <memory>

#include "scantape/autograd/optimizer.h"
#include "train/model.h"

namespace scantape::train {

inline constexpr int kFormatVersion = 1;

/// What a checkpoint's state.json says beside the tensors.
struct CheckpointState {
  ModelConfig model;
  DType dtype = DType::f32;
  market::Fitted data;
  std::string data_fingerprint;
  std::int64_t epoch = 0, step = 0;
  std::uint64_t seed = 0;
  Json metrics;  // the line of metrics.jsonl of this epoch
};

/// Writes DIR/epoch-NNNN/{model.safetensors, optimizer.safetensors, state.json} beside, syncs it, then renames it into
/// place: whoever looks sees a whole checkpoint or none. Returns its path. Throws Error(io), e.g. on a full disk, and
/// leaves what was there before as it was.
std::filesystem::path save_checkpoint(const std::filesystem::path& directory, const CheckpointState& state,
                                      const autograd::Parameters& parameters,
                                      autograd::AdamWOptimizer& optimizer);

struct LoadedModel {
  CheckpointState state;
  std::unique_ptr<autograd::Model> model;
};

/// Reads a checkpoint's model onto a device. `path` is a checkpoint or a run's directory (then its `best`). Throws
/// Error(io) where it is none, Error(corrupt_data) naming the file and what in it is wrong: every missing, extra or
/// mis-shaped tensor in one message.
LoadedModel load_model(const std::filesystem::path& path, Device device);

}  // namespace scantape::train
