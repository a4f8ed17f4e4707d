#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "scantape/device.h"
#include "train/config.h"

/// Options that several subcommands have.
namespace scantape::cli {

struct DeviceOptions {
  std::string device = "auto";
  bool use_gpu = false;
  int threads = 0;
};

void add_options(CLI::App& command, DeviceOptions& options);
void add_options(CLI::App& command, train::ReadOptions& options);

/// Sets the number of threads and returns the device that is asked for. `auto` takes a GPU where there is one, else the
/// CPU, and never the emulator; `--use-gpu` wants a GPU. `backend` is what `cuda` is in this build. Throws Error:
/// invalid_argument where the flags contradict each other, cuda where the device is not there, and the driver's own
/// error where that fails.
Device choose_device(const DeviceOptions& options, std::string_view backend = cuda_backend());

}  // namespace scantape::cli
