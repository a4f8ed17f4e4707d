#pragma once

#include <string>

#include "scantape/device.h"

namespace scantape::cli {

/// The device that `--device auto|cpu|cuda` and `--use-gpu` ask for. `auto` takes a GPU where there is one, else the
/// CPU, and never the emulator; `--use-gpu` wants a GPU. Throws Error: invalid_argument where the flags contradict each
/// other, cuda where the device is not there.
Device choose_device(const std::string& device, bool use_gpu);

}  // namespace scantape::cli
