/// Faults in time: streams are queues that run when somebody waits for them, and what is not ordered is named.
/// Launches do not block here. Compiled with the flags of the kernels.

#include <cmath>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace scantape {
constexpr const char* kPlantedFile = __FILE__;
}
#include "planted.h"
#include "scantape/device.h"

namespace scantape {
namespace {

class LazyStreams : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_FALSE(emulator::blocking());
    ASSERT_EQ(cudaStreamCreateWithFlags(&first_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&second_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess) << cudaGetErrorString(cudaPeekAtLastError());
    EXPECT_EQ(cudaStreamDestroy(first_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(second_), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(event_), cudaSuccess);
    (void)cudaGetLastError();
  }
  /// What was given to `earlier` comes before what is given to `later` from now on.
  void order(cudaStream_t earlier, cudaStream_t later) {
    EXPECT_EQ(cudaEventRecord(event_, earlier), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(later, event_, 0), cudaSuccess);
  }

  cudaStream_t first_ = nullptr, second_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

/// Tests of what the access call-backs see; the address sanitizer's build has none.
class WatchedStreams : public LazyStreams {
 protected:
  void SetUp() override {
    LazyStreams::SetUp();
    if (!emulator::checks_accesses()) GTEST_SKIP() << "accesses are not checked beside the address sanitizer";
  }
};

constexpr cudaMemcpyKind kToDevice = cudaMemcpyHostToDevice, kToHost = cudaMemcpyDeviceToHost;
constexpr cudaMemcpyKind kOnDevice = cudaMemcpyDeviceToDevice;

std::int64_t launches() {
  return emulator::statistics().launches;
}

void expect_failed(cudaError_t error, FaultKind kind, const std::string& words) {
  EXPECT_EQ(error, cudaErrorLaunchFailure);
  const Fault& fault = emulator::last_fault();
  ASSERT_EQ(fault.kind, kind) << emulator::name(fault.kind) << ": " << cudaGetErrorString(error);
  EXPECT_NE(fault.text.find(words), std::string::npos) << fault.text;
  EXPECT_EQ(std::string(cudaGetErrorString(error)), fault.text);
}

std::string at_mark(const std::string& mark) {
  return "test_streams.cu:" + std::to_string(line_of(mark));
}

__global__ void set_kernel(float* y, float value) {
  y[threadIdx.x] = value;  // @set.write
}

__global__ void copy_kernel(const float* x, float* y) {
  y[threadIdx.x] = x[threadIdx.x];  // @copy.read
}

__global__ void add_kernel(float* y, float value) {
  y[threadIdx.x] += value;
}

Status set(cudaStream_t stream, float* y, float value) {
  return launch("set", set_kernel, dim3(1), dim3(32), 0, Stream{stream}, y, value);  // @set.launch
}
Status copy(cudaStream_t stream, const float* x, float* y) {
  return launch("copy", copy_kernel, dim3(1), dim3(32), 0, Stream{stream}, x, y);
}
Status add(cudaStream_t stream, float* y, float value) {
  return launch("add", add_kernel, dim3(1), dim3(32), 0, Stream{stream}, y, value);
}

// ---- laziness ----

TEST_F(LazyStreams, NothingRunsBeforeSomebodyWaits) {
  const Buffer<float> x(32, 0.0f), y(32, 0.0f);
  const std::int64_t before = launches();
  ASSERT_TRUE(add(first_, x.get(), 1).ok());
  ASSERT_TRUE(add(second_, y.get(), 1).ok());
  EXPECT_EQ(launches(), before);
  ASSERT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_EQ(launches(), before + 1) << "the other stream was not waited for";
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(launches(), before + 2);
  EXPECT_EQ(x.read()[31], 1.0f);
  EXPECT_EQ(y.read()[31], 1.0f);
}

TEST_F(LazyStreams, ArgumentsAreCopiedByTheLaunch) {
  const Buffer<float> x(32);
  float value = 3;
  ASSERT_TRUE(set(first_, x.get(), value).ok());
  value = 4;
  ASSERT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_EQ(x.read()[0], 3.0f);
}

TEST_F(LazyStreams, WaitingForAnEventRunsWhatComesBeforeItAndNoMore) {
  const Buffer<float> x(32, 0.0f);
  const std::int64_t before = launches();
  ASSERT_TRUE(add(first_, x.get(), 1).ok());
  ASSERT_EQ(cudaEventRecord(event_, first_), cudaSuccess);
  ASSERT_TRUE(add(first_, x.get(), 1).ok());
  ASSERT_EQ(cudaEventSynchronize(event_), cudaSuccess);
  EXPECT_EQ(launches(), before + 1);
}

TEST_F(LazyStreams, WhoAsksAgainAndAgainGetsAnAnswer) {
  const Buffer<float> x(32, 0.0f);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(add(first_, x.get(), 1).ok());
  ASSERT_EQ(cudaEventRecord(event_, first_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "not ready is no error";
  EXPECT_EQ(cudaStreamQuery(first_), cudaErrorNotReady);
  int asked = 2;
  while (cudaStreamQuery(first_) == cudaErrorNotReady) ASSERT_LT(++asked, 100);
  EXPECT_EQ(cudaEventQuery(event_), cudaSuccess);
  EXPECT_EQ(x.read()[0], 5.0f);
}

TEST_F(LazyStreams, TheHostWaitsWhenAThousandOperationsAreOnTheirWay) {
  const Buffer<float> x(32, 0.0f);
  const std::int64_t before = launches();
  for (int i = 0; i < 1500; ++i) ASSERT_TRUE(add(first_, x.get(), 1).ok());
  EXPECT_GT(launches(), before + 400);
  EXPECT_LT(launches(), before + 1500);
  ASSERT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_EQ(x.read()[7], 1500.0f);
}

TEST_F(LazyStreams, BlockingLaunchesRunAtOnce) {
  const Buffer<float> x(32, 0.0f);
  const std::int64_t before = launches();
  emulator::set_blocking(true);
  EXPECT_TRUE(add(first_, x.get(), 1).ok());
  emulator::set_blocking(false);
  EXPECT_EQ(launches(), before + 1);
}

// ---- copies and the host's memory ----

TEST_F(LazyStreams, ReadingWithoutAWaitGivesNotANumber) {
  const Buffer<float> x(32, 2.0f);
  float* host = nullptr;
  ASSERT_EQ(cudaMallocHost(&host, 128), cudaSuccess);
  for (int i = 0; i < 32; ++i) host[i] = 7;
  ASSERT_EQ(cudaMemcpyAsync(host, x.get(), 128, kToHost, first_), cudaSuccess);
  for (int i = 0; i < 32; ++i) EXPECT_TRUE(std::isnan(host[i])) << "planted: nobody waited";
  ASSERT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_EQ(host[31], 2.0f);
  EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
}

TEST_F(LazyStreams, ASourceThatTheHostChangesTooEarlyIsNamed) {
  const Buffer<float> x(32, 0.0f);
  std::vector<float> host(32, 1.0f);
  ASSERT_EQ(cudaMemcpyAsync(x.get(), host.data(), 128, kToDevice, first_), cudaSuccess);  // @host.source
  host[5] = 2;
  const cudaError_t error = cudaStreamSynchronize(first_);
  expect_failed(error, FaultKind::host_buffer, "the host changed the source of a copy of 128 bytes");
  expect_failed(error, FaultKind::host_buffer, at_mark("host.source"));
  // In the right order it is left alone.
  ASSERT_EQ(cudaMemcpyAsync(x.get(), host.data(), 128, kToDevice, first_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  host[5] = 3;
  EXPECT_EQ(x.read()[5], 2.0f);
}

TEST_F(LazyStreams, ATargetThatTheHostChangesTooEarlyIsNamed) {
  const Buffer<float> x(32, 0.0f);
  std::vector<float> host(32);
  ASSERT_EQ(cudaMemcpyAsync(host.data(), x.get(), 128, kToHost, first_), cudaSuccess);  // @host.target
  host[5] = 2;
  const cudaError_t error = cudaStreamSynchronize(first_);
  expect_failed(error, FaultKind::host_buffer, "the host changed the target of a copy of 128 bytes");
  expect_failed(error, FaultKind::host_buffer, at_mark("host.target"));
}

TEST_F(LazyStreams, CopiesThroughOneHostBufferKeepTheirOrder) {
  const Buffer<float> x(32, 1.0f), y(32, 0.0f);
  std::vector<float> host(32, 5.0f);
  ASSERT_EQ(cudaMemcpyAsync(y.get(), host.data(), 128, kToDevice, first_), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(host.data(), x.get(), 128, kToHost, first_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_EQ(y.read()[3], 5.0f);
  EXPECT_EQ(host[3], 1.0f);
}

TEST_F(LazyStreams, FillsOfRows) {
  const Buffer<float> x(12, 1.0f);
  ASSERT_EQ(cudaMemset2DAsync(x.get(), 16, 0, 8, 3, first_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_EQ(x.read(), (std::vector<float>{0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1}));
  EXPECT_EQ(cudaMemset2DAsync(x.get(), 4, 0, 8, 3, first_), cudaErrorInvalidPitchValue);
  EXPECT_EQ(cudaMemset2DAsync(x.get(), 16, 0, 8, 4, first_), cudaErrorInvalidValue);
}

// ---- order between streams ----

TEST_F(WatchedStreams, ReadOfWhatAnotherStreamWritesWithoutAnEvent) {
  const Buffer<float> x(32, 0.0f), y(32, 0.0f);
  ASSERT_TRUE(set(first_, x.get(), 1).ok());
  ASSERT_TRUE(copy(second_, x.get(), y.get()).ok());
  // Whichever is waited for first: the order is missing.
  ASSERT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  cudaError_t error = cudaStreamSynchronize(second_);
  expect_failed(error, FaultKind::stream_order, at_mark("copy.read"));
  expect_failed(error, FaultKind::stream_order, at_mark("set.write"));
  expect_site(emulator::last_fault().here, "copy.read", {0, 0, 0}, {0, 0, 0});
  expect_site(emulator::last_fault().other, "set.write", {0, 0, 0}, {0, 0, 0});

  ASSERT_TRUE(set(first_, x.get(), 1).ok());
  ASSERT_TRUE(copy(second_, x.get(), y.get()).ok());
  ASSERT_EQ(cudaStreamSynchronize(second_), cudaSuccess);
  error = cudaStreamSynchronize(first_);
  expect_failed(error, FaultKind::stream_order, at_mark("set.write"));
  expect_site(emulator::last_fault().other, "copy.read", {0, 0, 0}, {0, 0, 0});
}

TEST_F(LazyStreams, AnEventOrdersStreams) {
  const Buffer<float> x(32, 0.0f), y(32, 0.0f);
  for (int round = 1; round <= 3; ++round) {
    ASSERT_TRUE(set(first_, x.get(), static_cast<float>(round)).ok());
    order(first_, second_);
    ASSERT_TRUE(copy(second_, x.get(), y.get()).ok());
    order(second_, first_);
  }
  ASSERT_EQ(cudaStreamSynchronize(second_), cudaSuccess);
  EXPECT_EQ(y.read()[9], 3.0f);
}

TEST_F(WatchedStreams, AnEventOrdersOnlyWhatCameBeforeIt) {
  const Buffer<float> x(32, 0.0f), y(32, 0.0f);
  ASSERT_TRUE(set(first_, y.get(), 1).ok());
  order(first_, second_);
  ASSERT_TRUE(set(first_, x.get(), 1).ok());
  ASSERT_TRUE(copy(second_, x.get(), y.get()).ok());
  expect_failed(cudaDeviceSynchronize(), FaultKind::stream_order, at_mark("copy.read"));
}

TEST_F(LazyStreams, AWaitOfTheHostOrdersWhatIsGivenLater) {
  const Buffer<float> x(32, 0.0f), y(32, 0.0f);
  ASSERT_TRUE(set(first_, x.get(), 4).ok());
  ASSERT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  ASSERT_TRUE(copy(second_, x.get(), y.get()).ok());
  ASSERT_EQ(cudaStreamSynchronize(second_), cudaSuccess);
  EXPECT_EQ(y.read()[0], 4.0f);
}

TEST_F(WatchedStreams, CopiesFillsAndKernelsOfTwoStreams) {
  const Buffer<float> x(32, 0.0f), y(32, 1.0f);
  ASSERT_TRUE(set(first_, x.get(), 1).ok());
  ASSERT_EQ(cudaMemcpyAsync(y.get(), x.get(), 128, kOnDevice, second_), cudaSuccess);  // @order.copy
  cudaError_t error = cudaDeviceSynchronize();
  expect_failed(error, FaultKind::stream_order, at_mark("order.copy"));
  expect_failed(error, FaultKind::stream_order, at_mark("set.write"));

  ASSERT_EQ(cudaMemsetAsync(x.get(), 0, 128, second_), cudaSuccess);  // @order.fill
  ASSERT_TRUE(set(first_, x.get(), 1).ok());
  error = cudaDeviceSynchronize();
  expect_failed(error, FaultKind::stream_order, at_mark("order.fill"));
  expect_failed(error, FaultKind::stream_order, at_mark("set.write"));

  // Two that read disturb nobody.
  const Buffer<float> z(32, 0.0f);
  ASSERT_TRUE(copy(first_, x.get(), y.get()).ok());
  ASSERT_TRUE(copy(second_, x.get(), z.get()).ok());
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(LazyStreams, TheDefaultStreamIsOrderedWithBlockingStreams) {
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  const Buffer<float> x(32, 0.0f), y(32, 0.0f);
  ASSERT_TRUE(set(blocking, x.get(), 1).ok());
  ASSERT_TRUE(copy(nullptr, x.get(), y.get()).ok());
  ASSERT_TRUE(add(blocking, y.get(), 1).ok());
  ASSERT_EQ(cudaStreamSynchronize(blocking), cudaSuccess);
  EXPECT_EQ(y.read()[2], 2.0f);
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

TEST_F(WatchedStreams, TheDefaultStreamIsNotOrderedWithOthers) {
  const Buffer<float> x(32, 0.0f), y(32, 0.0f);
  ASSERT_TRUE(set(nullptr, x.get(), 1).ok());
  ASSERT_TRUE(copy(first_, x.get(), y.get()).ok());
  expect_failed(cudaDeviceSynchronize(), FaultKind::stream_order, at_mark("copy.read"));
}

// ---- memory in the order of streams ----

TEST_F(LazyStreams, MemoryInTheOrderOfOneStream) {
  const Buffer<float> y(32, 0.0f);
  float* data = nullptr;
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(cudaMallocAsync(&data, 128, first_), cudaSuccess);
    ASSERT_TRUE(set(first_, data, static_cast<float>(round)).ok());
    ASSERT_TRUE(copy(first_, data, y.get()).ok());
    ASSERT_EQ(cudaFreeAsync(data, first_), cudaSuccess);
  }
  ASSERT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_EQ(y.read()[0], 2.0f);
}

TEST_F(WatchedStreams, UseOfMemoryThatAnotherStreamIsToAllocate) {
  float* data = nullptr;
  ASSERT_EQ(cudaMallocAsync(&data, 128, first_), cudaSuccess);
  ASSERT_TRUE(set(second_, data, 1).ok());
  expect_failed(cudaStreamSynchronize(second_), FaultKind::stream_order,
                "which another stream is to allocate and has not come to");
  EXPECT_EQ(cudaFree(data), cudaSuccess);

  // Also where the allocation happens to come first.
  ASSERT_EQ(cudaMallocAsync(&data, 128, first_), cudaSuccess);
  ASSERT_TRUE(set(second_, data, 1).ok());
  ASSERT_EQ(cudaStreamQuery(first_), cudaSuccess);
  ASSERT_TRUE(set(second_, data, 1).ok());
  EXPECT_EQ(cudaStreamSynchronize(second_), cudaErrorLaunchFailure);
  EXPECT_EQ(emulator::last_fault().kind, FaultKind::stream_order);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(WatchedStreams, UseAfterAFreeInTheStream) {
  float* data = nullptr;
  ASSERT_EQ(cudaMallocAsync(&data, 128, first_), cudaSuccess);
  ASSERT_EQ(cudaFreeAsync(data, first_), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(data, first_), cudaErrorInvalidValue);
  EXPECT_NE(std::string(cudaGetErrorString(cudaErrorInvalidValue)).find("freed twice"), std::string::npos);
  ASSERT_TRUE(set(first_, data, 1).ok());
  const cudaError_t error = cudaStreamSynchronize(first_);
  EXPECT_EQ(error, cudaErrorLaunchFailure);
  EXPECT_EQ(emulator::last_fault().kind, FaultKind::use_after_free);
  expect_site(emulator::last_fault().here, "set.write", {0, 0, 0}, {0, 0, 0});
  const std::string text = emulator::last_fault().text;
  EXPECT_NE(text.find("; launched at "), std::string::npos) << text;
  EXPECT_NE(text.find(at_mark("set.launch")), std::string::npos) << text;
  ASSERT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_EQ(emulator::last_fault().kind, FaultKind::none);
}

TEST_F(WatchedStreams, FreeWhileAnotherStreamMayStillUseIt) {
  float* data = nullptr;
  ASSERT_EQ(cudaMallocAsync(&data, 128, first_), cudaSuccess);
  order(first_, second_);
  ASSERT_TRUE(set(second_, data, 1).ok());
  ASSERT_EQ(cudaFreeAsync(data, first_), cudaSuccess);  // @order.free
  ASSERT_EQ(cudaStreamSynchronize(second_), cudaSuccess);
  const cudaError_t error = cudaStreamSynchronize(first_);
  expect_failed(error, FaultKind::stream_order, "cudaFreeAsync at");
  expect_failed(error, FaultKind::stream_order, at_mark("order.free"));
  expect_failed(error, FaultKind::stream_order, at_mark("set.write"));
}

TEST_F(LazyStreams, AFreeOfTheDeviceWaitsForEverything) {
  const std::int64_t before = launches();
  float* data = nullptr;
  ASSERT_EQ(cudaMalloc(&data, 128), cudaSuccess);
  ASSERT_TRUE(set(first_, data, 1).ok());
  EXPECT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(launches(), before + 1);
}

TEST_F(LazyStreams, FreedMemoryThatWaitsIsBounded) {
  std::size_t free_before = 0, free_after = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free_before, &total), cudaSuccess);
  for (int round = 0; round < 6; ++round) {
    float* data = nullptr;
    ASSERT_EQ(cudaMallocAsync(&data, std::size_t{16} << 20, nullptr), cudaSuccess) << round;
    ASSERT_EQ(cudaFreeAsync(data, nullptr), cudaSuccess);
  }
  ASSERT_EQ(cudaMemGetInfo(&free_after, &total), cudaSuccess);
  EXPECT_LT(free_before - free_after, std::size_t{64} << 20);
}

// ---- what is destroyed early, and failures ----

TEST_F(LazyStreams, ADestroyedStreamStillDoesItsWork) {
  const Buffer<float> x(32, 0.0f), y(32, 0.0f);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_TRUE(set(stream, x.get(), 6).ok());
  order(stream, first_);
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_FALSE(set(stream, x.get(), 7).ok());
  EXPECT_EQ(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
  ASSERT_TRUE(copy(first_, x.get(), y.get()).ok());
  ASSERT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_EQ(y.read()[0], 6.0f);

  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_TRUE(set(stream, x.get(), 8).ok());
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(x.read()[0], 8.0f);
}

TEST_F(LazyStreams, ADestroyedEventStillOrders) {
  const Buffer<float> x(32, 0.0f), y(32, 0.0f);
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  ASSERT_TRUE(set(first_, x.get(), 6).ok());
  ASSERT_EQ(cudaEventRecord(event, first_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(second_, event, 0), cudaSuccess);
  ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
  ASSERT_TRUE(copy(second_, x.get(), y.get()).ok());
  ASSERT_EQ(cudaStreamSynchronize(second_), cudaSuccess);
  EXPECT_EQ(y.read()[0], 6.0f);
}

TEST_F(LazyStreams, TimeBetweenEvents) {
  cudaEvent_t start = nullptr, end = nullptr;
  ASSERT_EQ(cudaEventCreate(&start), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&end), cudaSuccess);
  const Buffer<float> x(32, 0.0f);
  ASSERT_EQ(cudaEventRecord(start, first_), cudaSuccess);
  ASSERT_TRUE(add(first_, x.get(), 1).ok());
  ASSERT_EQ(cudaEventRecord(end, first_), cudaSuccess);
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaErrorNotReady);
  ASSERT_EQ(cudaEventSynchronize(end), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaSuccess);
  EXPECT_GE(milliseconds, 0.0f);
  EXPECT_EQ(cudaEventDestroy(start), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(end), cudaSuccess);
}

__global__ void throwing_kernel() {
  throw std::runtime_error("planted");
}

TEST_F(LazyStreams, AFailureIsToldToWhoeverWaitsAndNothingAfterItRuns) {
  const Buffer<float> x(32, 0.0f), y(32, 0.0f);
  ASSERT_TRUE(launch("throwing", throwing_kernel, dim3(1), dim3(1), 0, Stream{first_}).ok());
  ASSERT_TRUE(add(first_, x.get(), 1).ok());
  ASSERT_TRUE(add(second_, y.get(), 1).ok());
  EXPECT_EQ(cudaStreamSynchronize(first_), cudaErrorLaunchFailure);
  EXPECT_EQ(emulator::last_fault().kind, FaultKind::exception);
  EXPECT_EQ(cudaStreamSynchronize(second_), cudaErrorLaunchFailure) << "its work was dropped";
  EXPECT_NE(std::string(cudaGetErrorString(cudaErrorLaunchFailure)).find("dropped after an earlier failure"),
            std::string::npos);
  EXPECT_EQ(x.read()[0], 0.0f);
  EXPECT_EQ(y.read()[0], 0.0f);
  ASSERT_TRUE(add(second_, y.get(), 1).ok());
  EXPECT_EQ(cudaStreamSynchronize(second_), cudaSuccess);
  EXPECT_EQ(y.read()[0], 1.0f);
}

TEST_F(LazyStreams, TheLibraryTellsALateFault) {
  ASSERT_TRUE(launch("throwing", throwing_kernel, dim3(1), dim3(1), 0, Stream{}).ok());
  const Status status = synchronize(kCuda);
  EXPECT_EQ(status.code(), Code::cuda);
  EXPECT_NE(status.message().find("exception: an exception left the kernel: planted"), std::string::npos)
      << status.message();
  EXPECT_TRUE(synchronize(kCuda).ok());
}

TEST_F(LazyStreams, HostThreadsShareTheDevice) {
  std::vector<std::thread> threads;
  std::vector<float> results(4);
  for (std::size_t number = 0; number < results.size(); ++number) {
    threads.emplace_back([number, &results] {
      cudaStream_t stream = nullptr;
      EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
      const Buffer<float> x(32, 0.0f);
      for (int round = 0; round < 200; ++round) {
        EXPECT_TRUE(add(stream, x.get(), static_cast<float>(number)).ok());
        if (round % 20 != 0) continue;
        EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      }
      EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      results[number] = x.read()[5];
      EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t number = 0; number < results.size(); ++number)
    EXPECT_EQ(results[number], 200.0f * static_cast<float>(number));
}

}  // namespace
}  // namespace scantape
