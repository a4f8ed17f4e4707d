#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "scantape/autograd/tape.h"
#include "scantape/counters.h"
#include "scantape/version.h"
#include "train/files.h"

namespace scantape::train {
namespace {

namespace fs = std::filesystem;
using autograd::AdamWOptimizer;
using autograd::Tape;
using autograd::Variable;

constexpr std::int64_t kSkippedBeforeGivingUp = 10;
constexpr std::int64_t kStepsBetweenLooks = 10;  // at the device's counters, which makes the host wait
constexpr double kWarmupShare = 0.05;            // of all steps, unless the flag says otherwise
constexpr double kFinalRateShare = 0.01;         // of the peak

/// The output directory of a run.
class RunDirectory {
 public:
  /// A directory that holds a checkpoint is refused; what a run without one left is written over.
  explicit RunDirectory(const std::string& path) : root_(path) {
    std::error_code error;
    fs::create_directories(checkpoints(), error);
    if (error)
      throw Error(Code::invalid_argument, "--output-dir " + path + " cannot be written: " + error.message());
    for (fs::directory_iterator entry(checkpoints(), error), end; !error && entry != end;
         entry.increment(error))
      if (entry->path().extension() != ".partial")
        throw Error(Code::invalid_argument,
                    "--output-dir " + path + " holds a run already: choose another directory");
    if (error)
      throw Error(Code::invalid_argument, "--output-dir " + path + " cannot be read: " + error.message());
    for (const char* name : {"config.json", "metrics.jsonl", "train.log", "summary.json"})
      fs::remove(root_ / name, error);
  }

  fs::path log() const { return root_ / "train.log"; }
  fs::path checkpoints() const { return root_ / "checkpoints"; }

  void write_config(const TrainConfig& config, const market::Plan& plan, Device device) const {
    Json json = {{"format_version", kFormatVersion},
                 {"version", version()},
                 {"git_hash", git_hash()},
                 {"device", name(device)},
                 {"backend", device.is_cpu() ? "cpu" : cuda_backend()},
                 {"config", to_json(config)},
                 {"data_fingerprint", plan.fingerprint}};
    write_file(root_ / "config.json", text(json, 2) + "\n");
  }
  void add_metrics(const Json& line) const { append_line(root_ / "metrics.jsonl", text(line)); }
  void write_summary(const Summary& summary) const {
    write_file(root_ / "summary.json", text(to_json(summary), 2) + "\n");
  }
  void link(const char* link_name, const fs::path& checkpoint) const {
    replace_link(root_ / link_name, fs::path("checkpoints") / checkpoint.filename());
  }

 private:
  fs::path root_;
};

class Trainer {
 public:
  Trainer(const TrainConfig& config, const market::Dataset& data, Device device, Log& log)
      : config_(config),
        data_(data),
        log_(log),
        sizes_(model_config(config)),
        model_(make_model(sizes_, dtype_of(config), device, config.seed)),
        optimizer_(model_->parameters(), optimizer_options(config)),
        validation_(data.validation_windows()) {
    const std::int64_t steps_per_epoch = batches(data.plan().windows_per_epoch);
    schedule_.peak = config.learning_rate;
    schedule_.floor = kFinalRateShare * config.learning_rate;
    schedule_.total = limit(config.epochs * steps_per_epoch);
    schedule_.warmup = config.warmup_steps >= 0
                           ? std::min(config.warmup_steps, schedule_.total)
                           : std::llround(kWarmupShare * static_cast<double>(schedule_.total));
  }

  Summary run(const RunDirectory& directory) {
    const Counters before = counters();
    const double start = seconds_now();
    Summary summary;
    summary.parameters = model_->parameters().count();
    for (std::int64_t epoch = 1; epoch <= config_.epochs && !finished(); ++epoch) {
      const Json metrics = train_epoch(epoch, start);
      const fs::path checkpoint =
          save_checkpoint(directory.checkpoints(), state(epoch, metrics), model_->parameters(), optimizer_);
      directory.add_metrics(metrics);
      directory.link("last", checkpoint);
      const double loss = metrics.at("val_loss");
      if (summary.epochs == 0 || loss < summary.best_val_loss) {
        directory.link("best", checkpoint);
        summary.best_val_loss = loss;
        summary.best_epoch = epoch;
      }
      summary.epochs = epoch;
      summary.val_baseline_loss = metrics.at("val_baseline_loss");
    }
    const auto report = optimizer_.report();
    summary.steps = report.steps;
    summary.skipped_steps = report.skipped;
    summary.kernel_launches = counters().kernel_launches - before.kernel_launches;
    summary.cpu_ops = counters().cpu_ops - before.cpu_ops;
    summary.seconds = seconds_now() - start;
    directory.write_summary(summary);
    return summary;
  }

 private:
  static autograd::AdamWOptions optimizer_options(const TrainConfig& config) {
    autograd::AdamWOptions options;
    options.weight_decay = config.weight_decay;
    options.max_norm = config.max_norm;
    return options;
  }

  std::int64_t batches(std::int64_t windows) const {
    return (windows + config_.batch_size - 1) / config_.batch_size;
  }
  std::int64_t limit(std::int64_t steps) const {
    return config_.max_steps > 0 ? std::min(steps, config_.max_steps) : steps;
  }
  bool finished() const { return config_.max_steps > 0 && step_ >= config_.max_steps; }

  /// One pass over the training windows, then the validation; the line of metrics.jsonl.
  Json train_epoch(std::int64_t epoch, double run_start) {
    const double start = seconds_now();
    const auto windows = data_.training_windows(static_cast<std::uint64_t>(epoch), config_.seed);
    std::vector<Tensor> losses, norms;
    std::vector<double> counts;
    std::int64_t seen = 0;
    for (std::size_t begin = 0; begin < windows.size() && !finished(); begin += size()) {
      const auto part = std::span(windows).subspan(begin, std::min(windows.size() - begin, size()));
      const Batch batch =
          make_batch(data_, part, model_->parameters().dtype(), model_->parameters().device());
      // A batch without a single label teaches nothing; its zero gradient would still move the moments.
      if (batch.counted == 0) continue;
      losses.push_back(train_step(batch));
      norms.push_back(optimizer_.control().slice(0, kGradNorm, kGradNorm + 1).clone());
      counts.push_back(static_cast<double>(batch.counted));
      seen += static_cast<std::int64_t>(part.size());
      show_progress(epoch, run_start);
    }
    look_for_divergence();
    const double train_loss = weighted_mean(losses, counts);
    const double seconds = seconds_now() - start;

    const Score validation = score(*model_, data_, validation_, config_.batch_size);
    if (!std::isfinite(validation.loss))
      throw Error(Code::corrupt_data,
                  fmt::format("training diverged: the validation loss of epoch {} is {}; lower "
                              "--learning-rate",
                              epoch, validation.loss));
    const std::int64_t skipped = optimizer_.report().skipped;
    const Json metrics = {{"epoch", epoch},
                          {"step", step_},
                          {"train_loss", train_loss},
                          {"val_loss", validation.loss},
                          {"val_baseline_loss", validation.baseline_loss},
                          {"learning_rate", schedule_.rate(step_)},
                          {"grad_norm", weighted_mean(norms, std::vector<double>(norms.size(), 1.0))},
                          {"skipped_steps", skipped},
                          {"windows_per_s", static_cast<double>(seen) / seconds},
                          {"seconds", seconds_now() - start}};
    if (skipped > 0)
      log_.line(fmt::format("{} steps skipped so far: their loss or gradient is not finite", skipped));
    log_.line(
        fmt::format("epoch {:4}  train {:.6f}  val {:.6f}  (zero {:.6f})  rate {:.2e}  {:.0f} windows/s",
                    epoch, train_loss, validation.loss, validation.baseline_loss, schedule_.rate(step_),
                    static_cast<double>(seen) / seconds));
    return metrics;
  }

  /// Returns the loss, still on the device: nothing waits for it here.
  Tensor train_step(const Batch& batch) {
    ++step_;
    optimizer_.set_learning_rate(schedule_.rate(step_));
    Tape tape;
    const Variable loss =
        autograd::mse(model_->forward(&tape, batch.x), Variable(batch.target), Variable(batch.mask));
    tape.backward(loss);
    optimizer_.step(loss.value());
    if (step_ % kStepsBetweenLooks == 0) look_for_divergence();
    return loss.value();
  }

  void look_for_divergence() const {
    const auto report = optimizer_.report();
    if (report.skipped_in_a_row < kSkippedBeforeGivingUp) return;
    const std::string parameter = model_->parameters().first_not_finite();
    throw Error(
        Code::corrupt_data,
        fmt::format("training diverged: the last {} steps were skipped, because {}; lower --learning-rate",
                    report.skipped_in_a_row,
                    parameter.empty() ? "their loss is not finite"
                                      : "the gradient of " + parameter + " is not finite"));
  }

  /// Steps that were skipped, because their loss or gradient is not finite, stand out of the mean.
  static double weighted_mean(const std::vector<Tensor>& scalars, const std::vector<double>& weights) {
    double sum = 0, weight = 0;
    for (std::size_t i = 0; i < scalars.size(); ++i) {
      const double value = scalars[i].values<double>()[0];
      if (!std::isfinite(value)) continue;
      sum += weights[i] * value;
      weight += weights[i];
    }
    return weight > 0 ? sum / weight : 0;
  }

  void show_progress(std::int64_t epoch, double run_start) {
    const double elapsed = seconds_now() - run_start;
    const double left = elapsed / static_cast<double>(step_) * static_cast<double>(schedule_.total - step_);
    log_.progress(fmt::format("epoch {}  step {} of {}  {:.1f} steps/s  {} left", epoch, step_,
                              schedule_.total, static_cast<double>(step_) / elapsed, duration_text(left)));
  }

  CheckpointState state(std::int64_t epoch, const Json& metrics) const {
    return {sizes_,         model_->parameters().dtype(),
            data_.fitted(), data_.plan().fingerprint,
            epoch,          step_,
            config_.seed,   metrics};
  }

  std::size_t size() const { return static_cast<std::size_t>(config_.batch_size); }

  const TrainConfig& config_;
  const market::Dataset& data_;
  Log& log_;
  ModelConfig sizes_;
  std::unique_ptr<autograd::Model> model_;
  AdamWOptimizer optimizer_;
  std::vector<market::Window> validation_;
  autograd::CosineSchedule schedule_;
  std::int64_t step_ = 0;
};

void log_start(const TrainConfig& config, const market::Dataset& data, Device device, Log& log) {
  const market::Plan& plan = data.plan();
  log.line(fmt::format("scantape {} ({})", version(), git_hash()));
  log.line(fmt::format("device {} ({})", name(device), device.is_cpu() ? "cpu" : cuda_backend()));
  if (!device.is_cpu() && std::string(cuda_backend()) == "emulated")
    log.line(
        "cuda is the emulator here: the kernels' own source on the CPU, made to find faults, not to be fast");
  for (const std::string& sentence : sentences(plan.load)) log.line(sentence);
  log.line(fmt::format("{} contracts; {} ({}): {} bars, {} stretches", plan.contracts.size(), plan.symbol,
                       plan.symbol_reason, plan.bars, plan.stretches));
  log.line(
      fmt::format("windows of {} at stride {}: {}, {} train, {} validation, {} test, {} purged; {} an epoch",
                  plan.sequence_length, plan.stride, plan.counts.windows, plan.counts.train,
                  plan.counts.validation, plan.counts.test, plan.counts.purged, plan.windows_per_epoch));
  for (const std::uint64_t cut : plan.cuts) log.line("split at " + time_text(cut) + " UTC");
  log.line(fmt::format("model {}: {} parameters, {}", config.model, parameter_count(model_config(config)),
                       config.dtype));
}

Json counts_json(const market::WindowCounts& counts) {
  return {{"total", counts.windows},
          {"train", counts.train},
          {"validation", counts.validation},
          {"test", counts.test},
          {"purged", counts.purged}};
}

}  // namespace

MemoryEstimate memory_estimate(const TrainConfig& config, const market::Dataset& data) {
  const ModelConfig model = model_config(config);
  const std::int64_t size = size_of(dtype_of(config)), F = market::kFeatureCount;
  MemoryEstimate estimate;
  // Features, target, mask, log return, stamp, close, contract.
  estimate.data = data.rows() * (4 * F + 4 + 4 + 8 + 8 + 8 + 4);
  estimate.parameters = 4 * parameter_count(model) * size;
  estimate.activations = config.batch_size * config.sequence_length * numbers_per_position(model) * size;
  return estimate;
}

Json plan_json(const TrainConfig& config, const market::Dataset& data) {
  const market::Plan& plan = data.plan();
  const MemoryEstimate memory = memory_estimate(config, data);
  Json contracts = Json::array();
  for (const auto& contract : plan.contracts)
    contracts.push_back({{"symbol", contract.symbol},
                         {"instrument_id", contract.instrument_id},
                         {"publisher_id", contract.publisher_id},
                         {"bars", contract.bars},
                         {"first_ts", contract.first_ts},
                         {"last_ts", contract.last_ts},
                         {"training_volume", contract.training_volume},
                         {"chosen", contract.chosen}});
  Json json = {{"format_version", kFormatVersion}};
  json.update(to_json(plan.load));
  json.update(Json{{"contracts", contracts},
                   {"symbol", plan.symbol},
                   {"symbol_reason", plan.symbol_reason},
                   {"bars", plan.bars},
                   {"stretches", plan.stretches},
                   {"warm_up_bars", plan.warm_up_bars},
                   {"missing_labels", plan.missing_labels},
                   {"sequence_length", plan.sequence_length},
                   {"stride", plan.stride},
                   {"windows", counts_json(plan.counts)},
                   {"windows_with_warm_up", counts_json(plan.counts_with_warm_up)},
                   {"cuts", plan.cuts},
                   {"windows_per_epoch", plan.windows_per_epoch},
                   {"validation_windows", plan.validation_windows},
                   {"validation_positions", plan.validation_positions},
                   {"target_scale", plan.target_scale},
                   {"features", market::feature_schema().names},
                   {"model", to_json(model_config(config), dtype_of(config))},
                   {"parameters", parameter_count(model_config(config))},
                   {"memory_bytes",
                    {{"data", memory.data},
                     {"parameters", memory.parameters},
                     {"activations", memory.activations},
                     {"total", memory.data + memory.parameters + memory.activations}}},
                   {"data_fingerprint", plan.fingerprint}});
  return json;
}

Json to_json(const Summary& summary) {
  return {{"format_version", kFormatVersion},
          {"epochs", summary.epochs},
          {"steps", summary.steps},
          {"skipped_steps", summary.skipped_steps},
          {"parameters", summary.parameters},
          {"best_epoch", summary.best_epoch},
          {"best_val_loss", summary.best_val_loss},
          {"val_baseline_loss", summary.val_baseline_loss},
          {"kernel_launches", summary.kernel_launches},
          {"cpu_ops", summary.cpu_ops},
          {"seconds", summary.seconds}};
}

Summary train(const TrainConfig& config, const market::Dataset& data, Device device, Log& log) {
  validate(config);
  // The model first: one that does not fit leaves no directory behind.
  Trainer trainer(config, data, device, log);
  const RunDirectory directory(config.output_dir);
  log.open(directory.log());
  try {
    directory.write_config(config, data.plan(), device);
    log_start(config, data, device, log);
    const Summary summary = trainer.run(directory);
    log.line(fmt::format(
        "done: {} epochs, {} steps in {}; best validation loss {:.6f} (epoch {}), zero predictor {:.6f}",
        summary.epochs, summary.steps, duration_text(summary.seconds), summary.best_val_loss,
        summary.best_epoch, summary.val_baseline_loss));
    return summary;
  } catch (const std::exception& error) {
    log.note(std::string("ended: ") + error.what());
    throw;
  }
}

}  // namespace scantape::train
