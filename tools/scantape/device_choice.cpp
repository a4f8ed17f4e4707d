#include "device_choice.h"

#include "scantape/error.h"

namespace scantape::cli {

Device choose_device(const std::string& device, bool use_gpu) {
  const bool native = std::string(cuda_backend()) == "native";
  if (use_gpu && device == "cpu")
    throw Error(Code::invalid_argument, "--use-gpu and --device cpu contradict each other: leave one of them out");
  if (use_gpu && !(native && is_available(kCuda)))
    throw Error(Code::cuda, std::string("--use-gpu: there is no GPU here (cuda is ") + cuda_backend() +
                                " in this build); leave the flag out to train on the cpu");
  if (device == "cuda") {
    if (!is_available(kCuda))
      throw Error(Code::cuda, std::string("--device cuda: there is none here (cuda is ") + cuda_backend() + " in this build)");
    return kCuda;
  }
  return device != "cpu" && native && is_available(kCuda) ? kCuda : kCpu;
}

}  // namespace scantape::cli
