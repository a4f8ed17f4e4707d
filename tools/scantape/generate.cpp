#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "commands.h"
#include "shared_options.h"
#include "weights/mamba2_model.h"

namespace scantape::cli {
namespace {

using train::Json;

constexpr std::int64_t kMostNewTokens = 1 << 20;

struct Options {
  std::string model, tokens, dtype = "f32";
  std::int64_t max_new_tokens = 32, norm_groups = 0;
  DeviceOptions device;
  bool json = false;
};

[[noreturn]] void refuse_tokens(const std::string& text) {
  throw Error(Code::invalid_argument,
              "--tokens is " + text + ", wants ids with commas between them, as in 12,0,7");
}

/// Nothing is skipped: an id too few would be another prompt.
std::vector<std::int32_t> ids_of(const std::string& text) {
  std::vector<std::int32_t> ids;
  const char *at = text.data(), *const end = at + text.size();
  while (true) {
    std::int32_t id = 0;
    const auto [after, error] = std::from_chars(at, end, id);
    if (error != std::errc() || id < 0 || (after != end && *after != ',')) refuse_tokens(text);
    ids.push_back(id);
    if (after == end) return ids;
    at = after + 1;
  }
}

void run(const Options& options) {
  const std::vector<std::int32_t> prompt = ids_of(options.tokens);
  weights::Mamba2LoadOptions load;
  load.dtype = train::dtype_from_name(options.dtype);
  load.device = choose_device(options.device);
  load.norm_groups = options.norm_groups;
  const weights::LoadedMamba2 loaded = weights::load_mamba2(options.model, load);
  const std::vector<std::int32_t> made =
      autograd::continue_greedily(loaded.model, prompt, options.max_new_tokens);
  if (!options.json) {
    fmt::print("{}\n", fmt::join(made, ","));
    return;
  }
  const Json json = {{"format_version", 1},
                     {"model", options.model},
                     {"parameters", loaded.model.parameters().count()},
                     {"norm_groups", loaded.config.norm_groups},
                     {"device", name(load.device)},
                     {"dtype", name(load.dtype)},
                     {"prompt", prompt},
                     {"tokens", made}};
  fmt::print("{}\n", train::text(json, 2));
}

}  // namespace

void register_generate(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("generate", "Continue token ids with a public Mamba-2 language model");
  command->footer(
      "Example: scantape generate --model mamba2-130m-hf --tokens 12092,13,1533 --max-new-tokens 20\n"
      "Prints ids: text is turned into ids and back by the model's own tokenizer.");
  auto options = std::make_shared<Options>();
  command->option_defaults()->always_capture_default();
  command->add_option("--model", options->model, "Directory of config.json and model.safetensors")
      ->required();
  command->add_option("--tokens", options->tokens, "The prompt, with commas")->required();
  command
      ->add_option("--max-new-tokens", options->max_new_tokens,
                   "How many follow; each is the one with the largest logit")
      ->check(CLI::Range(std::int64_t{1}, kMostNewTokens));
  command->add_option("--dtype", options->dtype, "f32 or f64; weights are converted")
      ->check(CLI::IsMember({"f32", "f64"}));
  command
      ->add_option(
          "--norm-groups", options->norm_groups,
          "Sets of channels that the gated norm takes a mean of; 0: as the config.json's package computes "
          "(transformers: 1; mamba_ssm: as many as groups)")
      ->check(CLI::NonNegativeNumber);
  add_options(*command, options->device);
  command->add_flag("--json", options->json, "Print one JSON document and nothing else");
  command->callback([options] { run(*options); });
}

}  // namespace scantape::cli
