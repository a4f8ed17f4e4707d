#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "market/dataset.h"
#include "scantape/view.h"

namespace scantape::train {

using Json = nlohmann::ordered_json;

/// How files of bars are read.
struct ReadOptions {
  std::string bad_bars = "error", cadence;  // no cadence: the only one in the files
  bool allow_truncated = false, sort = false;
};

/// Reads the DBN files of a directory, or one file. Throws Error naming the flag, the file or the bar that is wrong.
market::BarStore load(const std::string& data_dir, const ReadOptions& options);

/// Everything that a training run depends on besides the bars and the build. The members carry the names of the flags.
struct TrainConfig {
  std::string data_dir, output_dir;

  std::string model = "lti";
  std::int64_t hidden_dim = 256, expand = 2, state_dim = 16, num_layers = 6;
  std::string state_matrix = "diagonal", discretization = "zoh", activation = "silu";  // of lti
  std::int64_t head_dim = 64, groups = 1, conv_width = 4, chunk_length = 64;           // of mamba2
  std::string dtype = "f32";

  std::string symbol, target = "seq_return", split = "80/20";
  std::int64_t publisher = 0;  // 0: the only one
  std::int64_t sequence_length = 60, stride = 0, burn_in = -1;
  double max_gap = 0;  // minutes; 0: 30, or four intervals of slower bars
  bool keep_warm_up = false;
  ReadOptions read;

  std::int64_t epochs = 200, batch_size = 32, warmup_steps = -1, max_steps = 0;
  double learning_rate = 1e-3, weight_decay = 0.01, max_norm = 1;
  std::uint64_t seed = 1;
};

/// Throws Error(invalid_argument) naming the flag, its value and what it wants.
void validate(const TrainConfig& config);

Json to_json(const TrainConfig& config);

/// A document as text; bytes that are no UTF-8 (in a path, say) are replaced. No indent: one line.
std::string text(const Json& json, int indent = -1);

/// What reading the files met: files, bars_read, duplicates, dropped, odd, unmapped, warnings; and as sentences.
Json to_json(const market::LoadReport& report);
std::vector<std::string> sentences(const market::LoadReport& report);

/// The parts of the program that a config speaks of.
DType dtype_of(const TrainConfig& config);
market::DatasetOptions dataset_options(const TrainConfig& config);

DType dtype_from_name(const std::string& name);

/// What the data taught besides the weights: features, scaler, target scale, cuts.
Json to_json(const market::Fitted& fitted);
market::Fitted fitted_from_json(const Json& json);

}  // namespace scantape::train
