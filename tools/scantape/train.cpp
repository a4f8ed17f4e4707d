#include <fmt/format.h>

#include "commands.h"
#include "shared_options.h"
#include "train/model.h"
#include "train/trainer.h"

namespace scantape::cli {
namespace {

struct Options {
  train::TrainConfig config;
  DeviceOptions device;
  bool dry_run = false, json = false;
};

void print_plan(const train::Json& plan) {
  const auto counts = [](const train::Json& windows) {
    return fmt::format("{} ({} train, {} validation, {} test, {} purged)", windows["total"].dump(),
                       windows["train"].dump(), windows["validation"].dump(), windows["test"].dump(),
                       windows["purged"].dump());
  };
  fmt::print("bars        {} of {} ({})\n", plan["bars"].dump(), plan["symbol"].get<std::string>(),
             plan["symbol_reason"].get<std::string>());
  fmt::print("stretches   {}\n", plan["stretches"].dump());
  fmt::print("windows     {}\n", counts(plan["windows"]));
  fmt::print("            {} had no warm-up been dropped\n", counts(plan["windows_with_warm_up"]));
  fmt::print("an epoch    {} training windows; validation scores {} positions\n",
             plan["windows_per_epoch"].dump(), plan["validation_positions"].dump());
  for (const auto& cut : plan["cuts"])
    fmt::print("split at    {} UTC\n", train::time_text(cut.get<std::uint64_t>()));
  fmt::print("parameters  {}\n", plan["parameters"].dump());
  fmt::print("memory      {} bytes\n", plan["memory_bytes"]["total"].dump());
}

void run(const Options& options) {
  if (options.config.data_dir.empty())
    throw Error(Code::invalid_argument, "--data-dir is empty, wants a directory or a file");
  validate(options.config);
  if (!options.dry_run && options.config.output_dir.empty())
    throw Error(Code::invalid_argument, "--output-dir is missing: train wants a directory to write to");
  const Device device = choose_device(options.device);
  const market::Dataset data(train::load(options.config.data_dir, options.config.read),
                             train::dataset_options(options.config));
  if (options.dry_run) {
    // stdout holds the plan; what reading met goes beside it.
    if (!options.json)
      for (const std::string& sentence : train::sentences(data.plan().load))
        fmt::print(stderr, "{}\n", sentence);
    const train::Json plan = train::plan_json(options.config, data);
    if (options.json)
      fmt::print("{}\n", train::text(plan, 2));
    else
      print_plan(plan);
    return;
  }
  train::Log log(options.json);
  const train::Summary summary = train::train(options.config, data, device, log);
  if (options.json)
    fmt::print("{}\n", train::text(to_json(summary), 2));
  else
    fmt::print("{}\n", options.config.output_dir);
}

void add_all_options(CLI::App& command, const std::shared_ptr<Options>& options) {
  train::TrainConfig& config = options->config;
  // Taken literally, and shown in --help as they stand in the struct.
  command.option_defaults()->always_capture_default();
  command.add_option("--data-dir", config.data_dir, "Directory of DBN bar files, or one file")->required();
  command.add_option("--output-dir", config.output_dir, "Where the run is written; made if it is not there");
  command.add_option("--model", config.model, "Model family")->check(CLI::IsMember(train::model_families()));
  command.add_option("--hidden-dim", config.hidden_dim, "D, the model's base width");
  command.add_option("--expand", config.expand, "Layers are expand * hidden-dim wide inside");
  command.add_option("--state-dim", config.state_dim, "N, states a layer");
  command.add_option("--state-matrix", config.state_matrix,
                     "lti: A of a layer, diagonal or dense (cuda: N at most 64)");
  command.add_option("--num-layers", config.num_layers, "Layers");
  command.add_option("--discretization", config.discretization, "lti: zoh, exp_euler, bilinear or euler");
  command.add_option("--activation", config.activation, "lti: silu or none");
  command.add_option("--head-dim", config.head_dim, "mamba2: channels that decay together");
  command.add_option("--groups", config.groups, "mamba2: sets of B and C");
  command.add_option("--conv-width", config.conv_width, "mamba2: taps of the convolution, at most 16");
  command.add_option("--chunk-length", config.chunk_length,
                     "mamba2: steps that ssd takes at a time; 0: step by step");
  command.add_option("--dtype", config.dtype, "f32 or f64");
  command.add_option("--symbol", config.symbol, "Contract; none: the most volume in the training part");
  command.add_option("--publisher", config.publisher,
                     "Where several give bars of one contract; 0: the only one");
  command.add_option("--target", config.target, "seq_return (every position) or next_return (the last)");
  command.add_option("--sequence-length", config.sequence_length, "Bars a window");
  command.add_option("--stride", config.stride, "Between training windows; 0: each bar once an epoch");
  command.add_option("--split", config.split, "Percentages of train/validation or train/validation/test");
  command.add_option("--burn-in", config.burn_in, "Positions that validation does not score; -1: a quarter");
  command.add_option("--max-gap", config.max_gap, "Minutes between bars that end a stretch; 0: 30");
  command.add_flag("--keep-warm-up", config.keep_warm_up,
                   "Use bars whose rolling features are not whole yet");
  command.add_option("--epochs", config.epochs, "Passes over the training part");
  command.add_option("--batch-size", config.batch_size, "Windows a step");
  command.add_option("--learning-rate", config.learning_rate, "Peak of the schedule");
  command.add_option("--warmup-steps", config.warmup_steps,
                     "Steps of linear warm-up; -1: a twentieth of all");
  command.add_option("--max-steps", config.max_steps, "Stop after so many steps; 0: never");
  command.add_option("--weight-decay", config.weight_decay, "Of AdamW");
  command.add_option("--max-norm", config.max_norm, "Gradients are clipped to it; 0: never");
  command.add_option("--seed", config.seed, "Of weights and window order")->check(CLI::NonNegativeNumber);
  add_options(command, config.read);
  add_options(command, options->device);
  command.add_flag("--dry-run", options->dry_run, "Say what would be trained on what, write nothing");
  command.add_flag("--json", options->json, "Print one JSON document to stdout and nothing else");
}

}  // namespace

void register_train(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Train a model on market bars");
  command->footer(
      "Example: scantape train --data-dir bars --output-dir run --epochs 3\n"
      "Leaves config.json, metrics.jsonl, train.log, checkpoints/, best, last, summary.json in "
      "--output-dir.");
  auto options = std::make_shared<Options>();
  add_all_options(*command, options);
  command->callback([options] { run(*options); });
}

}  // namespace scantape::cli
