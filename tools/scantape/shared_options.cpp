#include "shared_options.h"

#include <omp.h>

#include "scantape/error.h"

namespace scantape::cli {
namespace {

constexpr int kMostThreads = 4096;

// Asks the driver itself: a driver that fails is an error of its own and never passes for a machine without a GPU.
bool has_cuda_device() {
  for (const DeviceInfo& known : devices())
    if (known.device == kCuda) return true;
  return false;
}

}  // namespace

void add_options(CLI::App& command, DeviceOptions& options) {
  command.add_option("--device", options.device, "auto: a GPU where there is one, else the cpu")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  command.add_flag("--use-gpu", options.use_gpu, "Insist on a GPU");
  command.add_option("--threads", options.threads, "On the cpu; 0: as many as there are cores")
      ->check(CLI::Range(0, kMostThreads));
}

void add_options(CLI::App& command, train::ReadOptions& options) {
  command.add_option("--bad-bars", options.bad_bars, "error or drop");
  command.add_option("--cadence", options.cadence, "Of the bars to take, where the files hold several")
      ->check(CLI::IsMember({"1s", "1m", "1h", "1d", "eod"}));
  command.add_flag("--sort", options.sort, "Accept files in which an instrument's time goes back");
  command.add_flag("--allow-truncated", options.allow_truncated,
                   "Take the whole records of a truncated file");
}

Device choose_device(const DeviceOptions& options, std::string_view backend) {
  if (options.threads > 0) omp_set_num_threads(options.threads);
  if (options.use_gpu && options.device == "cpu")
    throw Error(Code::invalid_argument,
                "--use-gpu and --device cpu contradict each other: leave one of them out");
  if (options.device == "cpu") return kCpu;

  const bool native = backend == "native";
  if (!native && !options.use_gpu && options.device == "auto") return kCpu;
  const bool found = (native || !options.use_gpu) && has_cuda_device();
  const std::string missing = "(cuda is " + std::string(backend) + " in this build)";
  if (!found && options.use_gpu)
    throw Error(Code::cuda,
                "--use-gpu: there is no GPU here " + missing + "; leave the flag out to train on the cpu");
  if (!found && options.device == "cuda")
    throw Error(Code::cuda, "--device cuda: there is none here " + missing);
  return found ? kCuda : kCpu;
}

}  // namespace scantape::cli
