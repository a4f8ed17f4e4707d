#include <iostream>
#include <memory>

#include "commands.h"
#include "market/synth.h"
#include "scantape/error.h"

namespace scantape::cli {

/// Adds `scantape synth` to the command line.
void register_synth(CLI::App& root) {
  auto options = std::make_shared<market::SynthOptions>();
  auto process = std::make_shared<std::string>(market::name(options->process));
  CLI::App* command =
      root.add_subcommand("synth", "Make simulated minute bars as Databento (DBN) files, and their truth");
  command->add_option("--out", options->out, "Folder to write to; it is made if need be")->required();
  command->add_option("--days", options->days, "Trading days")->capture_default_str();
  command
      ->add_option("--symbols", options->symbols,
                   "Roots, with commas: ES, NQ, 6E, ZN, CL, GC have their own ticks")
      ->delimiter(',')
      ->capture_default_str();
  command
      ->add_option("--process", *process, "ar: the next return can be known in part; random-walk: not at all")
      ->check(CLI::IsMember({"ar", "random-walk"}))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "The same seed gives the same bytes")->capture_default_str();
  command->footer("Example:\n  scantape synth --out bars --days 20 --symbols ES,6E --process ar --seed 7");
  command->callback([=] {
    options->process = market::process_from_name(*process);
    const market::SynthResult result = market::synthesize(*options);
    for (const std::string& file : result.files) std::cout << file << "\n";
    std::cout << result.truth << "\n";
    std::cerr << "synth: " << result.bars << " bars in " << result.files.size() << " files\n";
    std::cout.flush();
    if (!std::cout) throw Error(Code::io, "synth: the output cannot be written");
  });
}

}  // namespace scantape::cli
