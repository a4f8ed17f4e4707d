/// The functions of CUDA's runtime: errors, the device, memory, copies, streams, events.

#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "error.h"
#include "executor.h"
#include "launch.h"
#include "memory.h"

// What a handle points to. Streams are eager, so an event is a moment of the clock.
inline namespace scantape_emulated {
struct CUstream_st {};
struct CUevent_st {
  bool timing = true;
  bool recorded = false;
  std::chrono::steady_clock::time_point at;
};
}  // namespace scantape_emulated

namespace scantape::emulator {
namespace {

constexpr int kRuntimeVersion = CUDART_VERSION;

std::atomic<int> device_count{1}, device_count_error{0};
thread_local int current_device = 0, last_device = 0;

struct LastError {
  cudaError_t pending = cudaSuccess;  // what cudaGetLastError gives
  cudaError_t code = cudaSuccess;     // what `text` belongs to
  std::string text;
};
thread_local LastError last_error;

struct ErrorName {
  cudaError_t code;
  const char* name;
  const char* text;
};
constexpr ErrorName kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {cudaErrorInvalidHostPointer, "cudaErrorInvalidHostPointer", "invalid host pointer"},
    {cudaErrorInvalidDevicePointer, "cudaErrorInvalidDevicePointer", "invalid device pointer"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const ErrorName* find(cudaError_t code) {
  for (const ErrorName& entry : kErrors) {
    if (entry.code == code) return &entry;
  }
  return nullptr;
}

std::mutex handles_mutex;
template <class T>
std::set<T>& handles() {
  static auto* const set = new std::set<T>;  // never destroyed: late destructors of users still look here
  return *set;
}
template <class T>
bool is_live(T handle) {
  const std::lock_guard lock(handles_mutex);
  return handles<T>().count(handle) != 0;
}
template <class T>
T add_handle(T handle) {
  const std::lock_guard lock(handles_mutex);
  handles<T>().insert(handle);
  return handle;
}
template <class T>
bool remove_handle(T handle) {
  const std::lock_guard lock(handles_mutex);
  return handles<T>().erase(handle) != 0;
}

std::mutex pinned_mutex;
std::map<std::uintptr_t, std::size_t>& pinned() {
  static auto* const map = new std::map<std::uintptr_t, std::size_t>;
  return *map;
}

bool is_pinned(const void* pointer) {
  const std::lock_guard lock(pinned_mutex);
  auto it = pinned().upper_bound(reinterpret_cast<std::uintptr_t>(pointer));
  if (it == pinned().begin()) return false;
  --it;
  return reinterpret_cast<std::uintptr_t>(pointer) - it->first < it->second;
}

bool on_device(const void* pointer) {
  return DeviceMemory::instance().contains(pointer);
}

/// Empty where a side of a copy is on the kind of memory that it should be on.
std::string check_side(const char* side, const void* pointer, bool wants_device, std::size_t bytes) {
  if (pointer == nullptr) return std::string(side) + " is null";
  if (on_device(pointer) != wants_device) {
    return std::string(side) + (wants_device ? " is memory of the host, wants device memory"
                                             : " is device memory, wants memory of the host");
  }
  if (!wants_device) return "";
  const std::string problem = DeviceMemory::instance().check_range(pointer, bytes);
  return problem.empty() ? "" : std::string(side) + ": " + problem;
}

cudaError_t copy_rows(void* target, std::size_t target_pitch, const void* source, std::size_t source_pitch,
                      std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  if (width == 0 || height == 0) return cudaSuccess;
  const bool to_device = kind == cudaMemcpyDefault
                             ? on_device(target)
                             : kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDefault
                               ? on_device(source)
                               : kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) {
    return fail(cudaErrorInvalidMemcpyDirection, "copy: unknown direction " + std::to_string(kind));
  }
  std::string problem =
      check_side("copy: the target", target, to_device, (height - 1) * target_pitch + width);
  if (problem.empty()) {
    problem = check_side("copy: the source", source, from_device, (height - 1) * source_pitch + width);
  }
  if (!problem.empty()) return fail(cudaErrorInvalidValue, problem);
  const DeviceAccess access;
  for (std::size_t row = 0; row < height; ++row) {
    auto* const to = static_cast<char*>(target) + row * target_pitch;
    const auto* const from = static_cast<const char*>(source) + row * source_pitch;
    const bool overlap = to < from + width && from < to + width;
    if (overlap) return fail(cudaErrorInvalidValue, "copy: the target overlaps the source");
    std::memcpy(to, from, width);
    if (to_device && from_device) DeviceMemory::instance().copy_state(to, from, width);
    if (to_device && !from_device) DeviceMemory::instance().mark_written(to, width);
  }
  return cudaSuccess;
}

cudaError_t check_device(int device) {
  if (device >= 0 && device < device_count) return cudaSuccess;
  return fail(cudaErrorInvalidDevice, "device " + std::to_string(device) + ", the number of devices is " +
                                          std::to_string(device_count));
}

}  // namespace

cudaError_t fail(cudaError_t error, const std::string& text) {
  last_error.pending = error;
  last_error.code = error;
  last_error.text = text;
  return error;
}

bool is_stream(cudaStream_t stream) {
  return stream == nullptr || is_live(stream);
}

void note_device() {
  last_device = current_device;
}

void set_devices(int count, int error) noexcept {
  device_count = count;
  device_count_error = error;
}

int device_of_last_work() noexcept {
  return last_device;
}

}  // namespace scantape::emulator

inline namespace scantape_emulated {

using namespace scantape::emulator;  // NOLINT: the API below is the face of what is above

const char* cudaGetErrorString(cudaError_t error) {
  if (error != cudaSuccess && last_error.code == error && !last_error.text.empty())
    return last_error.text.c_str();
  const ErrorName* const entry = find(error);
  return entry == nullptr ? "unrecognized error code" : entry->text;
}

const char* cudaGetErrorName(cudaError_t error) {
  const ErrorName* const entry = find(error);
  return entry == nullptr ? "unrecognized error code" : entry->name;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error.pending;
  last_error.pending = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() {
  return last_error.pending;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return fail(cudaErrorInvalidValue, "version is null");
  *version = kRuntimeVersion;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  return cudaRuntimeGetVersion(version);
}

cudaError_t cudaGetDeviceCount(int* count) {
  if (count == nullptr) return fail(cudaErrorInvalidValue, "count is null");
  *count = 0;
  if (!DeviceMemory::instance().available())
    return fail(cudaErrorNoDevice, "the system refused the address space of the emulated device");
  if (const int error = device_count_error; error != 0) return fail(static_cast<cudaError_t>(error), "");
  *count = device_count;
  return *count > 0 ? cudaSuccess : fail(cudaErrorNoDevice, "");
}

cudaError_t cudaSetDevice(int device) {
  const cudaError_t error = check_device(device);
  if (error == cudaSuccess) current_device = device;
  return error;
}

cudaError_t cudaGetDevice(int* device) {
  if (device == nullptr) return fail(cudaErrorInvalidValue, "device is null");
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (properties == nullptr) return fail(cudaErrorInvalidValue, "properties is null");
  if (const cudaError_t error = check_device(device); error != cudaSuccess) return error;
  cudaDeviceProp result{};
  std::snprintf(result.name, sizeof(result.name), "scantape emulator (sm_80)");
  result.totalGlobalMem = kDeviceBytes;
  result.sharedMemPerBlock = kStaticSharedBytes;
  result.regsPerBlock = 65536;
  result.warpSize = kWarpLanes;
  result.maxThreadsPerBlock = kMaxThreads;
  result.maxThreadsDim[0] = result.maxThreadsDim[1] = kMaxThreads;
  result.maxThreadsDim[2] = 64;
  result.maxGridSize[0] = 2147483647;
  result.maxGridSize[1] = result.maxGridSize[2] = 65535;
  result.major = 8;
  result.minor = 0;
  result.multiProcessorCount = 4;  // small, so that loops over the grid go round
  result.l2CacheSize = 1 << 20;
  result.maxThreadsPerMultiProcessor = 2048;
  result.maxBlocksPerMultiProcessor = 32;
  result.memoryBusWidth = 64;
  result.sharedMemPerMultiprocessor = 164 * 1024;
  result.sharedMemPerBlockOptin = kSharedOptInBytes;
  *properties = result;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties{};
  if (value == nullptr) return fail(cudaErrorInvalidValue, "value is null");
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, device); error != cudaSuccess)
    return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = properties.maxThreadsPerBlock;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(properties.sharedMemPerBlock);
      return cudaSuccess;
    case cudaDevAttrWarpSize:
      *value = properties.warpSize;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      return cudaSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = properties.maxThreadsPerMultiProcessor;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(properties.sharedMemPerMultiprocessor);
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(properties.sharedMemPerBlockOptin);
      return cudaSuccess;
  }
  return fail(cudaErrorInvalidValue, "device attribute " + std::to_string(attribute) + " is not emulated");
}

cudaError_t cudaDeviceSynchronize() {
  const std::string damage = DeviceMemory::instance().check_guards();
  if (!damage.empty()) return fail(cudaErrorIllegalAddress, damage);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  if (pointer == nullptr) return fail(cudaErrorInvalidValue, "cudaMalloc: the pointer's place is null");
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  void* const result = DeviceMemory::instance().allocate(bytes);
  if (result == nullptr) {
    return fail(cudaErrorMemoryAllocation, "cudaMalloc: no room for " + std::to_string(bytes) +
                                               " bytes besides the " +
                                               std::to_string(DeviceMemory::instance().used_bytes()) +
                                               " in use of " + std::to_string(kDeviceBytes));
  }
  *pointer = result;
  return cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  const std::string problem = DeviceMemory::instance().release(pointer);
  return problem.empty() ? cudaSuccess : fail(cudaErrorInvalidValue, "cudaFree: " + problem);
}

cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t stream) {
  return enqueue(stream, [&] { return cudaMalloc(pointer, bytes); });
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return enqueue(stream, [&] { return cudaFree(pointer); });
}

cudaError_t cudaMallocHost(void** pointer, std::size_t bytes, unsigned int flags) {
  if (pointer == nullptr || flags != cudaHostAllocDefault) {
    return fail(cudaErrorInvalidValue, "cudaMallocHost: the pointer's place is null, or there are flags");
  }
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (bytes > PTRDIFF_MAX - 256) return fail(cudaErrorMemoryAllocation, "cudaMallocHost: no room");
  void* const result = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (result == nullptr) return fail(cudaErrorMemoryAllocation, "cudaMallocHost: no room");
  const std::lock_guard lock(pinned_mutex);
  pinned()[reinterpret_cast<std::uintptr_t>(result)] = bytes;
  *pointer = result;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  {
    const std::lock_guard lock(pinned_mutex);
    if (pinned().erase(reinterpret_cast<std::uintptr_t>(pointer)) == 0) {
      return fail(cudaErrorInvalidValue, "cudaFreeHost: this did not come from cudaMallocHost, or was freed");
    }
  }
  std::free(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  if (free_bytes == nullptr || total_bytes == nullptr)
    return fail(cudaErrorInvalidValue, "cudaMemGetInfo: null");
  *total_bytes = kDeviceBytes;
  *free_bytes = kDeviceBytes - DeviceMemory::instance().used_bytes();
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  if (attributes == nullptr)
    return fail(cudaErrorInvalidValue, "cudaPointerGetAttributes: attributes is null");
  *attributes = {cudaMemoryTypeUnregistered, -1, nullptr, nullptr};
  auto* const address = const_cast<void*>(pointer);
  if (on_device(pointer) && DeviceMemory::instance().check_range(pointer, 1).empty()) {
    *attributes = {cudaMemoryTypeDevice, 0, address, nullptr};
  } else if (is_pinned(pointer)) {
    *attributes = {cudaMemoryTypeHost, 0, nullptr, address};
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return enqueue(stream, [&] { return copy_rows(target, bytes, source, bytes, bytes, 1, kind); });
}

cudaError_t cudaMemcpy(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(target, source, bytes, kind, nullptr);
}

cudaError_t cudaMemcpy2DAsync(void* target, std::size_t target_pitch, const void* source,
                              std::size_t source_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  if (width > target_pitch || width > source_pitch) {
    return fail(cudaErrorInvalidPitchValue, "cudaMemcpy2DAsync: a row of " + std::to_string(width) +
                                                " bytes is wider than the pitch of " +
                                                std::to_string(target_pitch) + " or " +
                                                std::to_string(source_pitch));
  }
  return enqueue(stream,
                 [&] { return copy_rows(target, target_pitch, source, source_pitch, width, height, kind); });
}

cudaError_t cudaMemsetAsync(void* target, int value, std::size_t bytes, cudaStream_t stream) {
  return enqueue(stream, [&] {
    if (bytes == 0) return cudaSuccess;
    const std::string problem = check_side("memset: the target", target, true, bytes);
    if (!problem.empty()) return fail(cudaErrorInvalidValue, problem);
    const DeviceAccess access;
    std::memset(target, value, bytes);
    DeviceMemory::instance().mark_written(target, bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaMemset(void* target, int value, std::size_t bytes) {
  return cudaMemsetAsync(target, value, bytes, nullptr);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  if (stream == nullptr || flags > cudaStreamNonBlocking) {
    return fail(cudaErrorInvalidValue,
                "cudaStreamCreate: the stream's place is null, or the flags are unknown");
  }
  *stream = add_handle(new CUstream_st);
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (!remove_handle(stream))
    return fail(cudaErrorInvalidResourceHandle, "cudaStreamDestroy: not a live stream");
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return enqueue(stream, [] { return cudaDeviceSynchronize(); });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return enqueue(stream, [] { return cudaSuccess; });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  if (flags != 0) return fail(cudaErrorInvalidValue, "cudaStreamWaitEvent: flags are not emulated");
  if (!is_live(event)) return fail(cudaErrorInvalidResourceHandle, "cudaStreamWaitEvent: not a live event");
  return enqueue(stream, [] { return cudaSuccess; });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  if (event == nullptr || (flags & ~(cudaEventBlockingSync | cudaEventDisableTiming)) != 0) {
    return fail(cudaErrorInvalidValue,
                "cudaEventCreate: the event's place is null, or the flags are unknown");
  }
  auto* const made = new CUevent_st;
  made->timing = (flags & cudaEventDisableTiming) == 0;
  *event = add_handle(made);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (!remove_handle(event))
    return fail(cudaErrorInvalidResourceHandle, "cudaEventDestroy: not a live event");
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (!is_live(event)) return fail(cudaErrorInvalidResourceHandle, "cudaEventRecord: not a live event");
  return enqueue(stream, [&] {
    event->at = std::chrono::steady_clock::now();
    event->recorded = true;
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (!is_live(event)) return fail(cudaErrorInvalidResourceHandle, "cudaEventQuery: not a live event");
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return cudaEventQuery(event);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  if (milliseconds == nullptr)
    return fail(cudaErrorInvalidValue, "cudaEventElapsedTime: milliseconds is null");
  for (const cudaEvent_t event : {start, end}) {
    if (!is_live(event) || !event->timing || !event->recorded) {
      return fail(cudaErrorInvalidResourceHandle,
                  "cudaEventElapsedTime: an event was not recorded, or without timing");
    }
  }
  *milliseconds = std::chrono::duration<float, std::milli>(end->at - start->at).count();
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (kernel == nullptr)
    return fail(cudaErrorInvalidDeviceFunction, "cudaFuncSetAttribute: the kernel is null");
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;  // a hint
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) {
    return fail(cudaErrorInvalidValue, "cudaFuncSetAttribute: this attribute is not emulated");
  }
  if (value < 0 || static_cast<std::size_t>(value) > kSharedOptInBytes) {
    return fail(cudaErrorInvalidValue, "cudaFuncSetAttribute: " + std::to_string(value) +
                                           " bytes of dynamic shared memory, the device has " +
                                           std::to_string(kSharedOptInBytes));
  }
  opt_in_shared(kernel, static_cast<std::size_t>(value));
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  if (attributes == nullptr || kernel == nullptr) {
    return fail(cudaErrorInvalidValue, "cudaFuncGetAttributes: attributes or kernel is null");
  }
  cudaFuncAttributes result{};
  result.maxThreadsPerBlock = kMaxThreads;
  result.ptxVersion = result.binaryVersion = 80;
  const std::size_t opted_in = opted_in_shared(kernel);
  result.maxDynamicSharedSizeBytes = static_cast<int>(opted_in > 0 ? opted_in : kStaticSharedBytes);
  *attributes = result;
  return cudaSuccess;
}

}  // namespace scantape_emulated
