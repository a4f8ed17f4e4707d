#include "train/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "train/flags.h"
#include "train/model.h"

namespace scantape::train {
namespace {

constexpr double kNanosecondsPerMinute = 60e9;
constexpr std::int64_t kLargestCount = 1LL << 31;  // of bars, windows, epochs
constexpr std::int64_t kLargestSteps = 1LL << 62;
constexpr double kLongestGap = 1e8;  // minutes, 190 years: no gap ends a stretch

void finite(const char* flag, double value, bool zero_allowed) {
  if (std::isfinite(value) && (zero_allowed ? value >= 0 : value > 0)) return;
  refuse(fmt::format("{} is {}, wants a finite number {} 0", flag, value,
                     zero_allowed ? "of at least" : "above"));
}

}  // namespace

std::string text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

void validate(const TrainConfig& config) {
  within("--sequence-length", config.sequence_length, 1, kLargestCount);
  within("--stride", config.stride, 0, kLargestCount);
  within("--burn-in", config.burn_in, -1, kLargestCount);
  within("--publisher", config.publisher, 0, UINT16_MAX);
  within("--epochs", config.epochs, 1, kLargestCount);
  within("--batch-size", config.batch_size, 1, kLargestCount);
  within("--warmup-steps", config.warmup_steps, -1, kLargestSteps);
  within("--max-steps", config.max_steps, 0, kLargestSteps);
  finite("--learning-rate", config.learning_rate, false);
  finite("--weight-decay", config.weight_decay, true);
  finite("--max-norm", config.max_norm, true);
  finite("--max-gap", config.max_gap, true);
  require_size(model_config(config));
  (void)dtype_of(config);
  (void)dataset_options(config);
}

Json to_json(const TrainConfig& config) {
  return {{"data_dir", config.data_dir},
          {"output_dir", config.output_dir},
          {"model", config.model},
          {"hidden_dim", config.hidden_dim},
          {"expand", config.expand},
          {"state_dim", config.state_dim},
          {"num_layers", config.num_layers},
          {"state_matrix", config.state_matrix},
          {"discretization", config.discretization},
          {"activation", config.activation},
          {"head_dim", config.head_dim},
          {"groups", config.groups},
          {"conv_width", config.conv_width},
          {"chunk_length", config.chunk_length},
          {"dtype", config.dtype},
          {"symbol", config.symbol},
          {"target", config.target},
          {"split", config.split},
          {"publisher", config.publisher},
          {"bad_bars", config.read.bad_bars},
          {"cadence", config.read.cadence},
          {"sort", config.read.sort},
          {"sequence_length", config.sequence_length},
          {"stride", config.stride},
          {"burn_in", config.burn_in},
          {"max_gap", config.max_gap},
          {"keep_warm_up", config.keep_warm_up},
          {"allow_truncated", config.read.allow_truncated},
          {"epochs", config.epochs},
          {"batch_size", config.batch_size},
          {"warmup_steps", config.warmup_steps},
          {"max_steps", config.max_steps},
          {"learning_rate", config.learning_rate},
          {"weight_decay", config.weight_decay},
          {"max_norm", config.max_norm},
          {"seed", config.seed}};
}

DType dtype_of(const TrainConfig& config) {
  return dtype_from_name(config.dtype);
}

DType dtype_from_name(const std::string& text) {
  return named("--dtype", text, {DType::f32, DType::f64});
}

market::DatasetOptions dataset_options(const TrainConfig& config) {
  market::DatasetOptions options;
  options.sequence_length = config.sequence_length;
  options.target = market::target_from_name(config.target);
  options.stride = config.stride;
  options.burn_in = config.burn_in;
  options.split = market::parse_split(config.split);
  options.symbol = config.symbol;
  if (config.publisher > 0) options.publisher = static_cast<std::uint16_t>(config.publisher);
  if (config.max_gap > 0)
    options.max_gap = std::llround(std::min(config.max_gap, kLongestGap) * kNanosecondsPerMinute);
  options.keep_warm_up = config.keep_warm_up;
  return options;
}

market::BarStore load(const std::string& data_dir, const ReadOptions& read) {
  market::LoadOptions options;
  if (read.bad_bars != "error" && read.bad_bars != "drop")
    refuse("--bad-bars is " + read.bad_bars + ", wants error or drop");
  options.bad_bars = read.bad_bars == "drop" ? market::BadBars::drop : market::BadBars::error;
  options.allow_truncated = read.allow_truncated;
  options.sort = read.sort;
  if (!read.cadence.empty()) options.cadence = market::cadence_from_name(read.cadence);
  return market::load_bars(market::find_data_files(data_dir), options);
}

namespace {

Json counts_json(const std::map<std::string, market::BarCount>& counts) {
  Json json = Json::object();
  for (const auto& [fault, count] : counts) json[fault] = {{"count", count.count}, {"first", count.first}};
  return json;
}

}  // namespace

Json to_json(const market::LoadReport& report) {
  Json warnings = Json::array();
  for (const market::FileReport& file : report.files)
    for (const std::string& warning : file.warnings) warnings.push_back(warning);
  return {{"files", report.files.size()},
          {"bars_read", report.bars_read},
          {"duplicates", report.duplicates},
          {"dropped", counts_json(report.dropped)},
          {"odd", counts_json(report.odd)},
          {"unmapped", report.unmapped.count},
          {"warnings", warnings}};
}

std::vector<std::string> sentences(const market::LoadReport& report) {
  std::vector<std::string> all{fmt::format("{} files, {} bars", report.files.size(), report.bars_read)};
  for (const market::FileReport& file : report.files)
    for (const std::string& warning : file.warnings) all.push_back("warning: " + warning);
  for (const auto& [fault, count] : report.dropped)
    all.push_back(fmt::format("dropped {} bars: {}, first {}", count.count, fault, count.first));
  for (const auto& [fault, count] : report.odd)
    all.push_back(fmt::format("kept {} bars: {}, first {}", count.count, fault, count.first));
  if (report.duplicates > 0)
    all.push_back(fmt::format("dropped {} bars that stand twice", report.duplicates));
  if (report.unmapped.count > 0)
    all.push_back(fmt::format("{} bars whose instrument no symbol names, first {}", report.unmapped.count,
                              report.unmapped.first));
  return all;
}

Json to_json(const market::Fitted& fitted) {
  return {
      {"features", {{"version", fitted.features.version}, {"names", fitted.features.names}}},
      {"scaler", {{"mean", fitted.scaler.mean}, {"std", fitted.scaler.std}, {"clip", fitted.scaler.clip}}},
      {"target", name(fitted.target)},
      {"target_scale", fitted.target_scale},
      {"sequence_length", fitted.sequence_length},
      {"burn_in", fitted.burn_in},
      {"max_gap_ns", fitted.max_gap},
      {"keep_warm_up", fitted.keep_warm_up},
      {"cadence", market::name(fitted.cadence)},
      {"symbol", fitted.symbol},
      {"publisher", fitted.publisher ? Json(*fitted.publisher) : Json()},
      {"cuts", fitted.cuts},
      {"data_begin", fitted.data_begin},
      {"data_end", fitted.data_end}};
}

market::Fitted fitted_from_json(const Json& json) {
  market::Fitted fitted;
  fitted.features.version = json.at("features").at("version");
  fitted.features.names = json.at("features").at("names").get<std::vector<std::string>>();
  fitted.scaler.mean = json.at("scaler").at("mean").get<std::vector<double>>();
  fitted.scaler.std = json.at("scaler").at("std").get<std::vector<double>>();
  fitted.scaler.clip = json.at("scaler").at("clip");
  fitted.target = market::target_from_name(json.at("target"));
  fitted.target_scale = json.at("target_scale");
  fitted.sequence_length = json.at("sequence_length");
  fitted.burn_in = json.at("burn_in");
  fitted.max_gap = json.at("max_gap_ns");
  fitted.keep_warm_up = json.at("keep_warm_up");
  fitted.cadence = market::cadence_from_name(json.at("cadence"));
  fitted.symbol = json.at("symbol");
  if (!json.at("publisher").is_null()) fitted.publisher = json.at("publisher").get<std::uint16_t>();
  fitted.cuts = json.at("cuts").get<std::vector<std::uint64_t>>();
  fitted.data_begin = json.at("data_begin");
  fitted.data_end = json.at("data_end");
  return fitted;
}

}  // namespace scantape::train
