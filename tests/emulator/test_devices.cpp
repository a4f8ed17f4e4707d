/// Host code on a machine of several devices, which the emulator pretends to have: the device of the data is current
/// while work is given out, the caller's own before and after, whether the call went well or not. And what a driver
/// answers when it is asked how many devices there are.

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "scantape/projection.h"
#include "scantape/silu.h"
#include "scantape/tensor.h"
#include "scantape_emulator.h"

namespace scantape {
namespace {

constexpr int kDevices = 3;
constexpr int kOwner = 1;  // whose data the calls below work on
constexpr Device kOwners{Device::Kind::cuda, kOwner};

int current_device() {
  int device = -1;
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  return device;
}

class Devices : public testing::Test {
 protected:
  void SetUp() override { emulator::set_devices(kDevices); }
  void TearDown() override {
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    emulator::set_devices(1);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "left for a later launch to meet";
  }

  /// Whichever device is the caller's own, the call gives its work to the owner and leaves the caller's current.
  static void expect_on_owner(const char* what, const std::function<Status()>& call, Code wanted = Code::ok) {
    for (int callers = 0; callers < kDevices; ++callers) {
      SCOPED_TRACE(std::string(what) + ", called from device " + std::to_string(callers));
      ASSERT_EQ(cudaSetDevice(callers), cudaSuccess);
      ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
      ASSERT_EQ(emulator::device_of_last_work(), callers);
      const Status status = call();
      EXPECT_EQ(status.code(), wanted) << status.message();
      EXPECT_EQ(emulator::device_of_last_work(), kOwner);
      EXPECT_EQ(current_device(), callers);
    }
  }
};

Tensor filled(const Shape& shape) {
  return Tensor::full(shape, 0.5, DType::f32, kOwners);
}

TEST_F(Devices, MemoryIsThatOfTheDeviceAsked) {
  std::vector<void*> blocks;
  expect_on_owner("allocate", [&] {
    blocks.push_back(nullptr);
    return allocate(kOwners, 64, &blocks.back());
  });
  ASSERT_EQ(blocks.size(), 3U);
  std::vector<char> host(64);
  expect_on_owner("zero_bytes", [&] { return zero_bytes(kOwners, blocks[0], 64); });
  expect_on_owner("copy to the device",
                  [&] { return copy_bytes(kOwners, blocks[0], kCpu, host.data(), 64); });
  expect_on_owner("copy from the device",
                  [&] { return copy_bytes(kCpu, host.data(), kOwners, blocks[0], 64); });
  expect_on_owner("copy on the device",
                  [&] { return copy_bytes(kOwners, blocks[1], kOwners, blocks[0], 64); });
  expect_on_owner("synchronize", [&] { return synchronize(kOwners); });
  expect_on_owner("deallocate", [&] {
    deallocate(kOwners, blocks.back());
    blocks.pop_back();
    return Status();
  });
}

TEST_F(Devices, OpsRunWhereTheirTensorsAre) {
  const Tensor x = filled({4, 8}), weight = filled({5, 8});
  Tensor y = filled({4, 8}), z = filled({4, 5});
  SiluForward silu;
  silu.x = x;
  silu.y = y.writable();
  expect_on_owner("a kernel", [&] { return silu_forward(silu); });
  ProjectionForward projection;
  projection.x = x;
  projection.weight = weight;
  projection.y = z.writable();
  expect_on_owner("a matrix product", [&] { return projection_forward(projection); });
}

TEST_F(Devices, FailedCallsGiveTheDeviceBackAsWell) {
  void* none = nullptr;
  expect_on_owner(
      "no memory left", [&] { return allocate(kOwners, std::int64_t{1} << 60, &none); }, Code::out_of_memory);
  Tensor memory = filled({16});
  std::vector<char> host(64);
  expect_on_owner(
      "a copy beyond the end", [&] { return copy_bytes(kCpu, host.data(), kOwners, memory.view().data, 65); },
      Code::cuda);
  expect_on_owner(
      "a fill beyond the end", [&] { return zero_bytes(kOwners, memory.writable().as<void>(), 65); },
      Code::cuda);
  expect_on_owner(
      "no such stream", [&] { return synchronize(kOwners, Stream{host.data()}); }, Code::cuda);
  SiluForward silu;
  silu.x = memory;
  Tensor y = filled({16});
  silu.y = y.writable();
  expect_on_owner(
      "a launch that fails", [&] { return silu_forward(silu, Stream{host.data()}); }, Code::cuda);
}

TEST_F(Devices, ADeviceThatIsNotThereIsNamed) {
  ASSERT_EQ(cudaSetDevice(2), cudaSuccess);
  const Device missing{Device::Kind::cuda, kDevices};
  void* none = nullptr;
  const Tensor x = filled({16});
  SiluForward silu;
  silu.x = ConstView(x.view().data, DType::f32, missing, {16});
  silu.y = View(const_cast<void*>(x.view().data), DType::f32, missing, {16});
  for (const Status& status :
       {allocate(missing, 64, &none), zero_bytes(missing, const_cast<void*>(x.view().data), 64),
        synchronize(missing), silu_forward(silu)}) {
    EXPECT_EQ(status.code(), Code::cuda);
    EXPECT_NE(status.message().find("cudaSetDevice failed: device 3"), std::string::npos) << status.message();
    EXPECT_EQ(current_device(), 2);
  }
  EXPECT_EQ(none, nullptr);
}

TEST_F(Devices, AllAreListed) {
  const std::vector<DeviceInfo> all = devices();
  ASSERT_EQ(all.size(), 1U + kDevices);
  for (int index = 0; index < kDevices; ++index)
    EXPECT_EQ(all[static_cast<std::size_t>(index) + 1].device, (Device{Device::Kind::cuda, index}));
  EXPECT_TRUE(is_available(kOwners));
  EXPECT_FALSE(is_available(Device{Device::Kind::cuda, kDevices}));
}

// A machine without a GPU, or without its driver: no error, and nothing left behind.
TEST_F(Devices, NoneIsNoError) {
  for (const cudaError_t none : {cudaErrorNoDevice, cudaErrorInsufficientDriver}) {
    emulator::set_devices(0, none);
    EXPECT_EQ(devices().size(), 1U) << cudaGetErrorName(none);
    EXPECT_FALSE(is_available(kCuda));
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  }
  emulator::set_devices(kDevices);
}

// Whatever else the driver answers is not taken for a machine without a GPU.
TEST_F(Devices, AnErrorOfTheDriverIsTold) {
  for (const cudaError_t error :
       {cudaErrorInitializationError, cudaErrorMemoryAllocation, cudaErrorUnknown, cudaErrorNotSupported}) {
    SCOPED_TRACE(cudaGetErrorName(error));
    emulator::set_devices(kDevices, error);
    try {
      const std::size_t found = devices().size();
      ADD_FAILURE() << "no error, " << found << " devices";
    } catch (const Error& told) {
      EXPECT_EQ(told.code(), error == cudaErrorMemoryAllocation ? Code::out_of_memory : Code::cuda);
      const std::string message = told.what();
      EXPECT_EQ(message.rfind("cuda: cudaGetDeviceCount failed: ", 0), 0U) << message;
      EXPECT_NE(message.find(cudaGetErrorString(error)), std::string::npos) << message;
    }
    EXPECT_FALSE(is_available(kCuda));
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  }
  emulator::set_devices(kDevices);
}

}  // namespace
}  // namespace scantape
