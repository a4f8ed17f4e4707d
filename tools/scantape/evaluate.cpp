#include <fmt/format.h>

#include "commands.h"
#include "shared_options.h"
#include "train/checkpoint.h"
#include "train/score.h"

namespace scantape::cli {
namespace {

using train::Json;

struct Options {
  std::string checkpoint, data_dir, symbol;
  train::ReadOptions read;
  DeviceOptions device;
  std::int64_t batch_size = 32;
  bool json = false;
};

Json describe(market::Part part, const train::Score& score) {
  return {{"part", name(part)},
          {"windows", score.windows},
          {"positions", score.positions},
          {"loss", score.loss},
          {"baseline_loss", score.baseline_loss},
          {"skill", score.baseline_loss > 0 ? Json(1 - score.loss / score.baseline_loss) : Json()}};
}

Json evaluate(const Options& options) {
  const Device device = choose_device(options.device);
  const train::LoadedModel loaded = train::load_model(options.checkpoint, device);
  const market::Dataset data(train::load(options.data_dir, options.read), loaded.state.data, options.symbol);
  for (const std::string& sentence :
       options.json ? std::vector<std::string>() : train::sentences(data.plan().load))
    fmt::print(stderr, "{}\n", sentence);
  Json json = {{"format_version", train::kFormatVersion},
               {"checkpoint", options.checkpoint},
               {"epoch", loaded.state.epoch},
               {"symbol", data.plan().symbol},
               {"same_data", data.plan().fingerprint == loaded.state.data_fingerprint},
               {"data", train::to_json(data.plan().load)},
               {"parts", Json::array()}};
  for (const market::Part part : market::kParts) {
    const auto windows = data.scoring_windows(part);
    const train::Score score = train::score(*loaded.model, data, windows, options.batch_size);
    if (score.positions > 0) json["parts"].push_back(describe(part, score));
  }
  if (json["parts"].empty())
    throw Error(Code::corrupt_data, options.data_dir + ": no stretch is longer than the model's windows of " +
                                        std::to_string(data.sequence_length()) +
                                        " bars, so nothing can be scored");
  return json;
}

void print(const Json& json) {
  fmt::print("{}  epoch {}  {}{}\n", json["checkpoint"].get<std::string>(), json["epoch"].dump(),
             json["symbol"].get<std::string>(),
             json["same_data"].get<bool>() ? "" : "  (not the bars of training)");
  fmt::print("{:<12} {:>8} {:>10} {:>12} {:>12} {:>9}\n", "part", "windows", "positions", "loss", "zero",
             "skill");
  for (const Json& part : json["parts"])
    fmt::print("{:<12} {:>8} {:>10} {:>12.6f} {:>12.6f} {:>9}\n", part["part"].get<std::string>(),
               part["windows"].get<std::int64_t>(), part["positions"].get<std::int64_t>(),
               part["loss"].get<double>(), part["baseline_loss"].get<double>(),
               part["skill"].is_null() ? "-" : fmt::format("{:.2f}%", 100 * part["skill"].get<double>()));
  fmt::print(
      "loss: mean squared error in units of the training part's variance; zero: of predicting no change;\n"
      "skill: 1 - loss / zero. train is what the weights were fitted on; val picked the epoch that `best` "
      "is.\n");
}

void run(const Options& options) {
  if (options.batch_size < 1) throw Error(Code::invalid_argument, "--batch-size wants at least 1");
  if (options.checkpoint.empty() || options.data_dir.empty())
    throw Error(Code::invalid_argument, "--checkpoint and --data-dir want a path each");
  const Json json = evaluate(options);
  if (options.json)
    fmt::print("{}\n", train::text(json, 2));
  else
    print(json);
}

}  // namespace

void register_evaluate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("evaluate", "Score a checkpoint on market bars, part by part");
  command->footer("Example: scantape evaluate --checkpoint run/best --data-dir bars");
  auto options = std::make_shared<Options>();
  command->option_defaults()->always_capture_default();
  command->add_option("--checkpoint", options->checkpoint, "A checkpoint, or a run's directory (its best)")
      ->required();
  command->add_option("--data-dir", options->data_dir, "Directory of DBN bar files, or one file")->required();
  command->add_option("--symbol", options->symbol, "Contract; none: that of the training");
  add_options(*command, options->read);
  command->add_option("--batch-size", options->batch_size, "Windows at a time; changes no result");
  add_options(*command, options->device);
  command->add_flag("--json", options->json, "Print one JSON document and nothing else");
  command->callback([options] { run(*options); });
}

}  // namespace scantape::cli
