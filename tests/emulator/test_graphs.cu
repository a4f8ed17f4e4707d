/// Graphs: capture, fork and join, replay; and everything that a GPU refuses inside a capture. Compiled with
/// the flags of the kernels.

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

class Graphs : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess) << cudaGetErrorString(cudaPeekAtLastError());
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(other_), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(event_), cudaSuccess);
    (void)cudaGetLastError();
  }
  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    ASSERT_EQ(cudaStreamBeginCapture(stream_, mode), cudaSuccess);
  }
  /// Ends the capture and makes it ready to launch.
  cudaGraphExec_t end(std::size_t nodes) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess)
        << cudaGetErrorString(cudaPeekAtLastError());
    if (graph == nullptr) return nullptr;
    std::size_t count = 0;
    EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &count), cudaSuccess);
    EXPECT_EQ(count, nodes);
    EXPECT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    return executable;
  }
  /// The capture was spoilt: it ends with 901 and without a graph, and the stream works again.
  void expect_spoilt(const char* text) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
    EXPECT_NE(std::string(cudaGetErrorString(cudaErrorStreamCaptureInvalidated)).find(text),
              std::string::npos)
        << cudaGetErrorString(cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    (void)cudaGetLastError();
  }

  cudaStream_t stream_ = nullptr, other_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

__global__ void add_kernel(float* y, float value) {
  y[threadIdx.x] += value;  // @add
}

__global__ void multiply_kernel(const float* x, float* y, float value) {
  y[threadIdx.x] = x[threadIdx.x] * value;
}

Status add(cudaStream_t stream, float* y, float value) {
  return launch("add", add_kernel, dim3(1), dim3(32), 0, Stream{stream}, y, value);
}
Status multiply(cudaStream_t stream, const float* x, float* y, float value) {
  return launch("multiply", multiply_kernel, dim3(1), dim3(32), 0, Stream{stream}, x, y, value);
}

TEST_F(Graphs, CaptureRunsNothingAndReplayRunsItEachTime) {
  const Buffer<float> x(32, 1.0f), y(32, 0.0f);
  const std::int64_t before = emulator::statistics().launches;
  begin();
  float value = 1;
  ASSERT_TRUE(add(stream_, x.get(), value).ok());
  ASSERT_TRUE(multiply(stream_, x.get(), y.get(), 10).ok());
  ASSERT_EQ(cudaMemsetAsync(x.get(), 0, 4, stream_), cudaSuccess);
  value = 100;  // arguments are the capture's
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  EXPECT_EQ(cudaStreamIsCapturing(stream_, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  const cudaGraphExec_t graph = end(3);
  EXPECT_EQ(cudaStreamIsCapturing(stream_, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(emulator::statistics().launches, before);
  for (int round = 1; round <= 3; ++round) {
    ASSERT_EQ(cudaGraphLaunch(graph, stream_), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(y.read()[5], 10.0f * static_cast<float>(1 + round));
    EXPECT_EQ(y.read()[0], round == 1 ? 20.0f : 10.0f);
  }
  EXPECT_EQ(emulator::statistics().launches, before + 6);
  EXPECT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(graph, stream_), cudaErrorInvalidResourceHandle);
}

TEST_F(Graphs, ReplaysKeepTheirOrderAndMayOutliveTheGraph) {
  const Buffer<float> x(32, 0.0f);
  begin();
  ASSERT_TRUE(add(stream_, x.get(), 1).ok());
  const cudaGraphExec_t graph = end(1);
  for (int round = 0; round < 4; ++round)
    ASSERT_EQ(cudaGraphLaunch(graph, round % 2 == 0 ? stream_ : other_), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(other_), cudaSuccess);
  EXPECT_EQ(x.read()[0], 4.0f) << "a graph does not overtake itself";
}

TEST_F(Graphs, ForkAndJoin) {
  const Buffer<float> x(32, 1.0f), y(32, 0.0f), z(32, 0.0f);
  cudaEvent_t joined = nullptr;
  ASSERT_EQ(cudaEventCreate(&joined), cudaSuccess);
  begin();
  ASSERT_TRUE(add(stream_, x.get(), 1).ok());
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaSuccess);
  ASSERT_TRUE(multiply(stream_, x.get(), y.get(), 2).ok());
  ASSERT_TRUE(multiply(other_, x.get(), z.get(), 3).ok());
  ASSERT_EQ(cudaEventRecord(joined, other_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(stream_, joined, 0), cudaSuccess);
  ASSERT_TRUE(multiply(stream_, z.get(), y.get(), 1).ok());
  const cudaGraphExec_t graph = end(4);
  for (int round = 1; round <= 3; ++round) {
    ASSERT_EQ(cudaGraphLaunch(graph, stream_), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess) << cudaGetErrorString(cudaPeekAtLastError());
    EXPECT_EQ(y.read()[1], 3.0f * static_cast<float>(1 + round));
  }
  // The forked stream is its own again.
  ASSERT_TRUE(add(other_, x.get(), 1).ok());
  ASSERT_EQ(cudaStreamSynchronize(other_), cudaSuccess);
  EXPECT_EQ(x.read()[0], 5.0f);
  EXPECT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(joined), cudaSuccess);
}

TEST_F(Graphs, BranchesThatTouchTheSameMemoryAreNamed) {
  if (!emulator::checks_accesses()) GTEST_SKIP() << "accesses are not checked beside the address sanitizer";
  const Buffer<float> x(32, 1.0f);
  cudaEvent_t joined = nullptr;
  ASSERT_EQ(cudaEventCreate(&joined), cudaSuccess);
  begin();
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaSuccess);
  ASSERT_TRUE(add(stream_, x.get(), 2).ok());
  ASSERT_TRUE(add(other_, x.get(), 3).ok());
  ASSERT_EQ(cudaEventRecord(joined, other_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(stream_, joined, 0), cudaSuccess);
  const cudaGraphExec_t graph = end(2);
  ASSERT_EQ(cudaGraphLaunch(graph, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorLaunchFailure);
  EXPECT_EQ(emulator::last_fault().kind, FaultKind::stream_order);
  expect_site(emulator::last_fault().here, "add", {0, 0, 0}, {0, 0, 0});
  expect_site(emulator::last_fault().other, "add", {0, 0, 0}, {0, 0, 0});
  EXPECT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(joined), cudaSuccess);
}

TEST_F(Graphs, CopiesFromTheHostReadWhatIsThereAtEachReplay) {
  const Buffer<float> x(32, 0.0f);
  float* host = nullptr;
  ASSERT_EQ(cudaMallocHost(&host, 4), cudaSuccess);
  begin();
  ASSERT_EQ(cudaMemcpyAsync(x.get(), host, 4, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  const cudaGraphExec_t graph = end(1);
  for (const float value : {3.0f, 4.0f}) {
    *host = value;
    ASSERT_EQ(cudaGraphLaunch(graph, stream_), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    EXPECT_EQ(x.read()[0], value);
  }
  ASSERT_EQ(cudaGraphLaunch(graph, stream_), cudaSuccess);
  *host = 5;
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorLaunchFailure);
  EXPECT_EQ(emulator::last_fault().kind, FaultKind::host_buffer);
  EXPECT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
}

// ---- what is not permitted inside a capture ----

TEST_F(Graphs, AllocationInsideACapture) {
  void* data = nullptr;
  begin();
  EXPECT_EQ(cudaMalloc(&data, 128), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(static_cast<int>(cudaGetLastError()), 900);
  EXPECT_EQ(data, nullptr);
  const Status status =
      launch("add", add_kernel, dim3(1), dim3(1), 0, Stream{stream_}, static_cast<float*>(data), 1.0f);
  EXPECT_NE(status.message().find("the capture was spoilt before: cudaMalloc was called"), std::string::npos)
      << status.message();
  expect_spoilt("cudaMalloc was called");

  begin();
  EXPECT_EQ(cudaMallocAsync(&data, 128, stream_), cudaErrorStreamCaptureUnsupported);
  expect_spoilt("cudaMallocAsync was called");
  begin();
  EXPECT_EQ(cudaMallocHost(&data, 128), cudaErrorStreamCaptureUnsupported);
  expect_spoilt("cudaMallocHost was called");

  ASSERT_EQ(cudaMalloc(&data, 128), cudaSuccess);
  begin();
  EXPECT_EQ(cudaFree(data), cudaErrorStreamCaptureUnsupported);
  expect_spoilt("cudaFree was called");
  begin();
  EXPECT_EQ(cudaFreeAsync(data, stream_), cudaErrorStreamCaptureUnsupported);
  expect_spoilt("cudaFreeAsync was called");
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(Graphs, WaitingInsideACapture) {
  begin();
  EXPECT_EQ(static_cast<int>(cudaStreamSynchronize(stream_)), 900);
  expect_spoilt("somebody waited");
  begin();
  EXPECT_EQ(static_cast<int>(cudaDeviceSynchronize()), 900);
  expect_spoilt("somebody waited");
  begin();
  EXPECT_EQ(static_cast<int>(cudaStreamQuery(stream_)), 900);
  expect_spoilt("cudaStreamQuery");
  begin();
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event_), cudaErrorCapturedEvent);
  expect_spoilt("an event of it was waited for");
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaErrorCapturedEvent);
  float value = 0;
  const Buffer<float> x(1, 0.0f);
  begin();
  EXPECT_EQ(static_cast<int>(cudaMemcpy(&value, x.get(), 4, cudaMemcpyDeviceToHost)), 900);
  expect_spoilt("cudaMemcpy was called");
}

TEST_F(Graphs, TheLibrarysOwnCallsFailInsideACapture) {
  void* data = nullptr;
  float value = 1;
  const Buffer<float> x(1, 0.0f);
  begin();
  const Status status = copy_bytes(kCpu, &value, kCuda, x.get(), 4, Stream{stream_});
  EXPECT_NE(status.message().find("cannot be waited for while it is captured"), std::string::npos)
      << status.message();
  expect_spoilt("somebody waited");
  begin();
  EXPECT_FALSE(synchronize(kCuda, Stream{stream_}).ok());
  expect_spoilt("somebody waited");
  (void)data;
}

TEST_F(Graphs, TheModeSaysWhoseCallsCount) {
  const auto allocate_elsewhere = [] {
    cudaError_t error = cudaSuccess;
    std::thread([&error] {
      void* data = nullptr;
      error = cudaMalloc(&data, 128);
      (void)cudaGetLastError();
    }).join();
    return error;
  };
  begin(cudaStreamCaptureModeGlobal);
  EXPECT_EQ(allocate_elsewhere(), cudaErrorStreamCaptureUnsupported);
  expect_spoilt("cudaMalloc was called");
  begin(cudaStreamCaptureModeThreadLocal);
  void* data = nullptr;
  std::thread([&data] { EXPECT_EQ(cudaMalloc(&data, 128), cudaSuccess); }).join();
  EXPECT_EQ(cudaGraphExecDestroy(end(0)), cudaSuccess);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
  begin(cudaStreamCaptureModeRelaxed);
  EXPECT_EQ(cudaMalloc(&data, 128), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(end(0)), cudaSuccess);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
}

TEST_F(Graphs, StreamsThatCannotBeCaptured) {
  EXPECT_EQ(static_cast<int>(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal)), 900);
  begin();
  EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaErrorIllegalState);
  EXPECT_EQ(cudaGraphExecDestroy(end(0)), cudaSuccess);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorIllegalState);

  // Work of the default stream is ordered with blocking streams: one of those cannot be captured beside it.
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  const Buffer<float> x(32, 0.0f);
  ASSERT_EQ(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_FALSE(add(nullptr, x.get(), 1).ok());
  EXPECT_EQ(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
  // Beside one that is not blocking it runs as ever, and is not captured.
  begin(cudaStreamCaptureModeThreadLocal);
  EXPECT_TRUE(add(nullptr, x.get(), 1).ok());
  EXPECT_EQ(cudaGraphExecDestroy(end(0)), cudaSuccess);
  EXPECT_EQ(x.read()[0], 1.0f);
}

TEST_F(Graphs, ForksThatGoWrong) {
  const Buffer<float> x(32, 0.0f), y(32, 0.0f);
  cudaGraph_t graph = nullptr;
  // Not joined.
  begin();
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaSuccess);
  ASSERT_TRUE(add(other_, x.get(), 1).ok());
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(graph, nullptr);
  // Ended on the wrong stream.
  begin();
  ASSERT_EQ(cudaEventRecord(event_, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaSuccess);
  EXPECT_EQ(cudaStreamEndCapture(other_, &graph), cudaErrorStreamCaptureUnmatched);
  expect_spoilt("ended on another stream");
  // Ended by the wrong thread.
  begin();
  std::thread([&] {
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureWrongThread);
  }).join();
  EXPECT_EQ(cudaGraphExecDestroy(end(0)), cudaSuccess);
  // An event from outside.
  ASSERT_EQ(cudaEventRecord(event_, other_), cudaSuccess);
  begin();
  EXPECT_EQ(cudaStreamWaitEvent(stream_, event_, 0), cudaErrorStreamCaptureIsolation);
  expect_spoilt("an event from outside");
  // Two captures.
  begin();
  ASSERT_EQ(cudaStreamBeginCapture(other_, cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event_, other_), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream_, event_, 0), cudaErrorStreamCaptureMerge);
  expect_spoilt("another capture");
  EXPECT_EQ(cudaStreamEndCapture(other_, &graph), cudaErrorStreamCaptureInvalidated);
  (void)cudaGetLastError();
}

TEST_F(Graphs, AStreamIsDestroyedWhileItIsCaptured) {
  begin();
  ASSERT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  const Buffer<float> x(32, 0.0f);
  EXPECT_TRUE(add(stream_, x.get(), 1).ok());
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
}

TEST_F(Graphs, AFaultInAReplayIsNamed) {
  if (!emulator::checks_accesses()) GTEST_SKIP() << "accesses are not checked beside the address sanitizer";
  float* data = nullptr;
  ASSERT_EQ(cudaMalloc(&data, 128), cudaSuccess);
  ASSERT_EQ(cudaMemset(data, 0, 128), cudaSuccess);
  begin();
  ASSERT_TRUE(add(stream_, data, 1).ok());
  const cudaGraphExec_t graph = end(1);
  ASSERT_EQ(cudaFree(data), cudaSuccess);  // planted: the graph still points to it
  ASSERT_EQ(cudaGraphLaunch(graph, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorLaunchFailure);
  EXPECT_EQ(emulator::last_fault().kind, FaultKind::use_after_free);
  expect_site(emulator::last_fault().here, "add", {0, 0, 0}, {0, 0, 0});
  EXPECT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
}

}  // namespace
}  // namespace scantape
