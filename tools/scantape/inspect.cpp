#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "commands.h"
#include "market/inspect.h"
#include "scantape/error.h"

namespace scantape::cli {
namespace {

using market::FileSummary;
using market::InspectOptions;

std::vector<std::string> files_of(const InspectOptions& options) {
  std::vector<std::string> files;
  for (const std::string& path : options.paths)
    for (std::string& file : market::find_data_files(path)) files.push_back(std::move(file));
  return files;
}

void run(const InspectOptions& options) {
  const std::vector<std::string> files = files_of(options);
  if (options.records) {
    std::cout << "number,rtype,publisher_id,instrument_id,ts_event,open,high,low,close,volume\n";
    for (const std::string& file : files) market::write_records(file, options, std::cout);
  } else {
    // Everything is read before anything is printed, so that a bad file leaves no half a document.
    std::vector<FileSummary> summaries;
    for (const std::string& file : files) summaries.push_back(market::inspect_file(file, options));
    if (options.json) {
      std::cout << market::to_json(summaries) << "\n";
    } else {
      for (const FileSummary& summary : summaries) std::cout << market::to_text(summary);
    }
  }
  std::cout.flush();
  if (!std::cout) throw Error(Code::io, "inspect: the output cannot be written");
}

}  // namespace

/// Adds `scantape inspect` to the command line.
void register_inspect(CLI::App& root) {
  auto options = std::make_shared<InspectOptions>();
  auto cadence = std::make_shared<std::string>();
  auto fragment = std::make_shared<int>(0);
  CLI::App* command = root.add_subcommand("inspect", "Show what Databento (DBN) files hold");
  command->add_option("PATH", options->paths, "DBN files, or folders of .dbn and .dbn.zst files")->required();
  command->add_flag("--json", options->json, "Print one JSON document");
  command->add_flag("--records", options->records,
                    "Print every record as CSV instead (prices in units of 1e-9)");
  command->add_option("--fragment", *fragment, "Files without metadata are records of this DBN version")
      ->check(CLI::IsMember({1, 2, 3}));
  command->add_option("--cadence", *cadence, "Bars to take where a file has several kinds")
      ->check(CLI::IsMember({"1s", "1m", "1h", "1d", "eod"}));
  command->add_flag("--allow-truncated", options->allow_truncated,
                    "Keep the whole records of a file that was cut");
  command->add_flag("--sort", options->sort, "Accept files in which the time of an instrument goes back");
  command->footer("Example:\n  scantape inspect --json data/glbx-mdp3-20240102.ohlcv-1m.dbn.zst");
  command->callback([=] {
    if (*fragment != 0) options->fragment_version = *fragment;
    if (!cadence->empty()) options->cadence = market::cadence_from_name(*cadence);
    run(*options);
  });
}

}  // namespace scantape::cli
