#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cases/runner.h"
#include "commands.h"

namespace scantape::cli {
namespace {

using nlohmann::ordered_json;

struct Options {
  cases::Selection selection;
  std::string device;
  bool json = false;
};

ordered_json describe(const cases::Row& row) {
  return {{"op", row.op},
          {"case", row.case_name},
          {"variant", row.variant},
          {"device", row.device},
          {"backend", row.backend},
          {"dtype", row.dtype},
          {"argument", row.argument},
          {"max_rel_err", row.max_rel_err},
          {"tolerance", row.tolerance},
          {"launches", row.launches},
          {"pass", row.pass},
          {"message", row.message}};
}

void print(const cases::Row& row) {
  fmt::print("{:<4} {:<14} {:<9} {:<4} {:<14} error {:8.1e} of {:7.1e}  {}{}{}\n", row.pass ? "ok" : "FAIL",
             row.op, row.backend, row.dtype, row.argument, row.max_rel_err, row.tolerance, row.case_name,
             row.message.empty() ? "" : ": ", row.message);
}

void run(const Options& options) {
  cases::Selection selection = options.selection;
  if (options.device == "cpu") selection.device = kCpu;
  if (options.device == "cuda") selection.device = kCuda;
  ordered_json rows = ordered_json::array();
  std::int64_t failed = 0, total = 0;
  cases::gradcheck(selection, [&](const cases::Row& row) {
    ++total;
    failed += row.pass ? 0 : 1;
    if (options.json)
      rows.push_back(describe(row));
    else
      print(row);
  });
  if (options.json)
    fmt::print("{}\n", ordered_json{{"format_version", 1}, {"rows", rows}}.dump(1));
  else
    fmt::print("{} of {} rows passed\n", total - failed, total);
  if (failed > 0) throw CheckFailed(fmt::format("{} of {} rows failed", failed, total));
}

}  // namespace

void register_gradcheck(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("gradcheck", "Check every op's gradients: finite differences, then each device");
  command->footer("Example: scantape gradcheck --op layer_norm --device cpu --json");
  auto options = std::make_shared<Options>();
  command->add_option("--op", options->selection.op, "One op alone (see scantape ops)")
      ->check(CLI::Validator([](const std::string& op) { return op.empty() ? "wants a name" : ""; }, "NAME"));
  command->add_option("--case", options->selection.case_name, "Only cases whose name contains this");
  command
      ->add_option("--device", options->device,
                   "One device alone; else the cpu and, where there is one, cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command->add_option("--seed", options->selection.seed, "Of the values and cotangents")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--json", options->json, "Print one JSON document and nothing else");
  command->callback([options] { run(*options); });
}

}  // namespace scantape::cli
