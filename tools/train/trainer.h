#pragma once

#include <filesystem>

#include "train/checkpoint.h"
#include "train/config.h"
#include "train/log.h"
#include "train/score.h"

namespace scantape::train {

/// What a run would do: the document of `train --dry-run --json`.
Json plan_json(const TrainConfig& config, const market::Dataset& data);

/// Bytes that training takes: columns of the data, parameters with gradients and moments, one batch's activations.
struct MemoryEstimate {
  std::int64_t data = 0, parameters = 0, activations = 0;
};
MemoryEstimate memory_estimate(const TrainConfig& config, const market::Dataset& data);

struct Summary {
  std::int64_t epochs = 0, steps = 0, skipped_steps = 0, parameters = 0;
  std::int64_t best_epoch = 0;
  double best_val_loss = 0, val_baseline_loss = 0;
  std::int64_t kernel_launches = 0, cpu_ops = 0;  // of the training and validation
  double seconds = 0;
};
Json to_json(const Summary& summary);

/// Trains on `device` and leaves in config.output_dir: config.json, metrics.jsonl, train.log, checkpoints/epoch-NNNN,
/// best and last (links to checkpoints), summary.json. The directory is made; one that holds a run already is refused.
/// The weights depend on config, data and build alone: not on threads, time or what else runs.
/// Throws Error: invalid_argument (config, directory), io (disk), unsupported or cuda (device), corrupt_data where
/// training diverges: the message names the first parameter that is not finite.
Summary train(const TrainConfig& config, const market::Dataset& data, Device device, Log& log);

}  // namespace scantape::train
