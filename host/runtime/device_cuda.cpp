#include <cuda_runtime.h>

#include <string>

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

}  // namespace scantape::runtime
