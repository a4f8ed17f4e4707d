#pragma once

#include <CLI/CLI.hpp>
#include <stdexcept>

/// The subcommands of the program, one file each. A callback writes results to stdout and messages to stderr, and
/// throws: scantape::Error, whose code decides the exit code, or CheckFailed.
namespace scantape::cli {

enum ExitCode : int { kDone = 0, kCheckFailed = 1, kWrongUsage = 2, kBadInput = 3, kSystem = 4 };

/// A check that ran and did not pass: exit code 1, nothing more to say.
struct CheckFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void register_info(CLI::App& app);
void register_ops(CLI::App& app);
void register_gradcheck(CLI::App& app);
void register_inspect(CLI::App& app);
void register_synth(CLI::App& app);
void register_train(CLI::App& app);
void register_evaluate(CLI::App& app);
void register_generate(CLI::App& app);

}  // namespace scantape::cli
