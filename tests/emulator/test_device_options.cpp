/// Which device a command takes, by what the driver answers: none there is an answer, a failure is an error to be told.

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "scantape/error.h"
#include "scantape/shared_options.h"
#include "scantape_emulator.h"

namespace scantape {
namespace {

class DeviceOptions : public testing::Test {
 protected:
  void TearDown() override { emulator::set_devices(1); }

  static std::string refusal(const cli::DeviceOptions& options, const char* backend = "emulated") {
    try {
      cli::choose_device(options, backend);
    } catch (const Error& told) {
      EXPECT_EQ(told.code(), Code::cuda) << told.what();
      return told.what();
    }
    return "no error";
  }
};

TEST_F(DeviceOptions, EmulatorOnlyWhereAskedFor) {
  EXPECT_EQ(cli::choose_device({"auto", false, 0}), kCpu);
  EXPECT_EQ(cli::choose_device({"cpu", false, 0}), kCpu);
  EXPECT_EQ(cli::choose_device({"cuda", false, 0}), kCuda);
  EXPECT_NE(refusal({"auto", true, 0}).find("there is no GPU here (cuda is emulated"), std::string::npos);
}

TEST_F(DeviceOptions, AMissingDeviceIsNamed) {
  emulator::set_devices(0, cudaErrorNoDevice);
  EXPECT_NE(refusal({"cuda", false, 0}).find("--device cuda: there is none here"), std::string::npos);
  EXPECT_EQ(cli::choose_device({"auto", false, 0}), kCpu);
}

// The emulator plays the GPU of a native build.
TEST_F(DeviceOptions, AGpuIsTakenWhereThereIsOne) {
  EXPECT_EQ(cli::choose_device({"auto", false, 0}, "native"), kCuda);
  EXPECT_EQ(cli::choose_device({"auto", true, 0}, "native"), kCuda);
  EXPECT_EQ(cli::choose_device({"cpu", false, 0}, "native"), kCpu);
  emulator::set_devices(0, cudaErrorNoDevice);
  EXPECT_EQ(cli::choose_device({"auto", false, 0}, "native"), kCpu);
  EXPECT_NE(refusal({"auto", true, 0}, "native").find("there is no GPU here (cuda is native"),
            std::string::npos);
}

TEST_F(DeviceOptions, AFailingDriverIsNotAMissingDevice) {
  emulator::set_devices(1, cudaErrorUnknown);
  const std::vector<std::pair<cli::DeviceOptions, const char*>> asking = {{{"cuda", false, 0}, "emulated"},
                                                                          {{"cuda", false, 0}, "native"},
                                                                          {{"auto", false, 0}, "native"},
                                                                          {{"auto", true, 0}, "native"}};
  for (const auto& [options, backend] : asking) {
    SCOPED_TRACE(options.device + (options.use_gpu ? " --use-gpu, " : ", ") + backend);
    const std::string told = refusal(options, backend);
    EXPECT_NE(told.find("cudaGetDeviceCount failed: "), std::string::npos) << told;
    EXPECT_EQ(told.find("there is no"), std::string::npos) << told;
  }
  EXPECT_EQ(cli::choose_device({"cpu", false, 0}, "native"), kCpu) << "the cpu needs no driver";
}

}  // namespace
}  // namespace scantape
