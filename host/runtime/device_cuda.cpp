#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "common/write_bytes.h"
#include "runtime/cuda_device.h"
#include "scantape/error.h"

namespace scantape::runtime {
namespace {

Status failure(const char* what, cudaError_t error) noexcept {
  // Out of memory leaves the device usable, so the sticky "last error" is cleared here and never met by a later launch.
  (void)cudaGetLastError();
  const Code code = error == cudaErrorMemoryAllocation ? Code::out_of_memory : Code::cuda;
  try {
    return Status::fail(code, std::string("cuda: ") + what + " failed: " + cudaGetErrorString(error));
  } catch (...) {
    return Status::fail(code, what);
  }
}

Status check(const char* what, cudaError_t error) noexcept {
  return error == cudaSuccess ? Status() : failure(what, error);
}

cudaStream_t native(Stream stream) noexcept {
  return static_cast<cudaStream_t>(stream.handle);
}

/// Once for each device: memory that was freed stays in the pool. By default each synchronisation would give it back to
/// the system, and the next step would ask for it again.
Status keep_freed_memory(int index) noexcept {
  static std::atomic<std::uint64_t> kept{0};
  const std::uint64_t bit = std::uint64_t{1} << (index % 64);
  if ((kept.load(std::memory_order_relaxed) & bit) != 0) return {};
  cudaMemPool_t pool = nullptr;
  SCANTAPE_TRY(check("cudaDeviceGetDefaultMemPool", cudaDeviceGetDefaultMemPool(&pool, index)));
  std::uint64_t threshold = UINT64_MAX;
  SCANTAPE_TRY(check("cudaMemPoolSetAttribute",
                     cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold)));
  if (index < 64) kept.fetch_or(bit, std::memory_order_relaxed);
  return {};
}

}  // namespace

CurrentDevice::CurrentDevice(int index) noexcept {
  int current = 0;
  status_ = check("cudaGetDevice", cudaGetDevice(&current));
  if (!status_.ok() || current == index) return;
  status_ = check("cudaSetDevice", cudaSetDevice(index));
  if (status_.ok()) callers_ = current;
}

CurrentDevice::~CurrentDevice() {
  if (callers_ >= 0) (void)cudaSetDevice(callers_);  // it was current before
}

std::vector<DeviceInfo> cuda_devices() {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted == cudaErrorNoDevice || counted == cudaErrorInsufficientDriver) {
    (void)cudaGetLastError();  // a machine without a GPU, or without its driver
    return {};
  }
  require(check("cudaGetDeviceCount", counted));
  std::vector<DeviceInfo> found;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    require(check("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, index)));
    found.push_back({{Device::Kind::cuda, index},
                     properties.name,
                     static_cast<std::int64_t>(properties.totalGlobalMem),
                     properties.major,
                     properties.minor});
  }
  return found;
}

Status cuda_allocate(int index, std::int64_t bytes, void** data) noexcept {
  const CurrentDevice current(index);
  SCANTAPE_TRY(current.status());
  SCANTAPE_TRY(keep_freed_memory(index));
  const cudaError_t error = cudaMallocAsync(data, static_cast<std::size_t>(bytes), nullptr);
  if (error == cudaSuccess) return {};
  try {
    return failure(("allocating " + std::to_string(bytes) + " bytes").c_str(), error);
  } catch (...) {
    return failure("allocating", error);
  }
}

void cuda_deallocate(int index, void* data) noexcept {
  // Nothing can be done about a failure here; a broken device shows at the next call that can report it.
  const CurrentDevice current(index);
  if (current.status().ok()) (void)cudaFreeAsync(data, nullptr);
}

Status cuda_copy(Device to, void* destination, Device from, const void* source, std::int64_t bytes,
                 Stream stream) noexcept {
  const CurrentDevice current(to.is_cpu() ? from.index : to.index);
  SCANTAPE_TRY(current.status());
  // A few bytes go along with a launch: nobody waits, and the caller's memory is free at once.
  if (from.is_cpu() && bytes <= cuda::kWriteBytesLimit)
    return cuda::write_bytes(destination, source, bytes, stream);
  const bool host_involved = to.is_cpu() || from.is_cpu();
  const cudaMemcpyKind kind = !host_involved ? cudaMemcpyDeviceToDevice
                              : to.is_cpu()  ? cudaMemcpyDeviceToHost
                                             : cudaMemcpyHostToDevice;
  SCANTAPE_TRY(check("cudaMemcpyAsync", cudaMemcpyAsync(destination, source, static_cast<std::size_t>(bytes),
                                                        kind, native(stream))));
  return host_involved ? check("a copy or the work before it", cudaStreamSynchronize(native(stream)))
                       : Status();
}

Status cuda_zero(int index, void* data, std::int64_t bytes, Stream stream) noexcept {
  const CurrentDevice current(index);
  SCANTAPE_TRY(current.status());
  return check("cudaMemsetAsync", cudaMemsetAsync(data, 0, static_cast<std::size_t>(bytes), native(stream)));
}

Status cuda_synchronize(int index, Stream stream) noexcept {
  const CurrentDevice current(index);
  SCANTAPE_TRY(current.status());
  return check("work on the device", cudaStreamSynchronize(native(stream)));
}

Status cuda_begin_capture(int index, CudaGraph& graph) noexcept {
  const CurrentDevice current(index);
  SCANTAPE_TRY(current.status());
  cudaStream_t stream = nullptr;
  // Not ordered with the default stream, which therefore can be used meanwhile.
  SCANTAPE_TRY(check("making a stream", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)));
  graph.stream.handle = stream;
  return check("beginning a capture", cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

Status cuda_end_capture(int index, CudaGraph& graph) noexcept {
  const CurrentDevice current(index);
  SCANTAPE_TRY(current.status());
  cudaGraph_t captured = nullptr;
  SCANTAPE_TRY(check("a capture", cudaStreamEndCapture(native(graph.stream), &captured)));
  std::size_t nodes = 0;
  cudaGraphExec_t executable = nullptr;
  Status status = check("counting the nodes of a graph", cudaGraphGetNodes(captured, nullptr, &nodes));
  if (status.ok()) status = check("cudaGraphInstantiate", cudaGraphInstantiate(&executable, captured, 0));
  (void)cudaGraphDestroy(captured);
  graph.executable = executable;
  graph.nodes = static_cast<std::int64_t>(nodes);
  return status;
}

Status cuda_launch_graph(int index, const CudaGraph& graph, Stream stream) noexcept {
  const CurrentDevice current(index);
  SCANTAPE_TRY(current.status());
  return check("cudaGraphLaunch",
               cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph.executable), native(stream)));
}

void cuda_destroy_graph(int index, CudaGraph& graph) noexcept {
  const CurrentDevice current(index);
  if (!current.status().ok()) return;
  if (graph.executable != nullptr) (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph.executable));
  if (graph.stream.handle != nullptr) (void)cudaStreamDestroy(native(graph.stream));
  graph = {};
}

}  // namespace scantape::runtime
