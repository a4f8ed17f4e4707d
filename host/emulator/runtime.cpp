/// The functions of CUDA's runtime but for streams and what is built on them (stream.cpp): errors, the device,
/// memory, copies.

#include <cuda_runtime.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "error.h"
#include "executor.h"
#include "launch.h"
#include "memory.h"
#include "source_line.h"
#include "stream.h"

/// Who called this function of the API.
#define SCANTAPE_CALLER \
  reinterpret_cast<std::uintptr_t>(__builtin_extract_return_addr(__builtin_return_address(0)))

inline namespace scantape_emulated {
struct CUmemPoolHandle_st {
  std::uint64_t release_threshold = 0;
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
    {cudaErrorIllegalState, "cudaErrorIllegalState", "the object's state does not permit the operation"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const ErrorName* find(cudaError_t code) {
  for (const ErrorName& entry : kErrors) {
    if (entry.code == code) return &entry;
  }
  return nullptr;
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

std::string text_of_place(std::uintptr_t place) {
  return to_text(source_lines(place));
}

/// A part of memory by rows.
struct Rows {
  char* start = nullptr;
  std::size_t pitch = 0, width = 0, height = 0;
  bool on_device = false;

  std::size_t extent() const { return (height - 1) * pitch + width; }
};

/// Of the bytes; tells a buffer that was changed from one that was not.
std::uint64_t fingerprint(const Rows& rows) {
  std::uint64_t hash = 0x9e3779b97f4a7c15u;
  for (std::size_t row = 0; row < rows.height; ++row) {
    const char* const start = rows.start + row * rows.pitch;
    for (std::size_t i = 0; i < rows.width; i += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, start + i, rows.width - i < 8 ? rows.width - i : 8);
      hash = (hash ^ word) * 0xff51afd7ed558ccdu;
      hash ^= hash >> 32;
    }
  }
  return hash;
}

void poison(const Rows& rows) {
  for (std::size_t row = 0; row < rows.height; ++row)
    std::memset(rows.start + row * rows.pitch, kNeverWrittenByte, rows.width);
}

std::string check_ranges(const Rows& target, const Rows& source) {
  const std::string problem = check_side("copy: the target", target.start, target.on_device, target.extent());
  return problem.empty() ? check_side("copy: the source", source.start, source.on_device, source.extent())
                         : problem;
}

cudaError_t run_copy(const Moment& moment, const Rows& target, const Rows& source) {
  // Again: what was there when the copy was given may have been freed since.
  std::string problem = check_ranges(target, source);
  if (!problem.empty()) return fail(cudaErrorInvalidValue, problem);
  if (source.on_device) {
    problem = touch(moment, source.start, source.pitch, source.width, source.height, false);
    if (!problem.empty())
      return fail(FaultKind::stream_order,
                  "a copy given at " + text_of_place(moment.place) + " reads " + problem);
  }
  if (target.on_device) {
    problem = touch(moment, target.start, target.pitch, target.width, target.height, true);
    if (!problem.empty())
      return fail(FaultKind::stream_order,
                  "a copy given at " + text_of_place(moment.place) + " writes " + problem);
  }
  DeviceMemory& memory = DeviceMemory::instance();
  const DeviceAccess access;
  for (std::size_t row = 0; row < target.height; ++row) {
    char* const to = target.start + row * target.pitch;
    const char* const from = source.start + row * source.pitch;
    const bool overlap = to < from + source.width && from < to + source.width;
    if (overlap) return fail(cudaErrorInvalidValue, "copy: the target overlaps the source");
    std::memcpy(to, from, source.width);
    if (target.on_device && source.on_device) memory.copy_state(to, from, source.width);
    if (target.on_device && !source.on_device) memory.mark_written(to, source.width);
  }
  return cudaSuccess;
}

/// A copy whose host side is somebody's to change between giving and running: that is what is looked for.
void watch_host(Operation& operation, const Rows& target, const Rows& source) {
  const auto before = std::make_shared<std::uint64_t>(0);
  const bool to_host = !target.on_device;
  const Rows& watched = to_host ? target : source;
  operation.host = watched.start;
  operation.host_bytes = watched.extent();
  operation.prepare = [=] {
    if (to_host) poison(watched);
    *before = fingerprint(watched);
    return cudaSuccess;
  };
  operation.run = [=](const Moment& moment) {
    if (fingerprint(watched) != *before) {
      return fail(FaultKind::host_buffer,
                  "the host changed the " + std::string(to_host ? "target" : "source") + " of a copy of " +
                      std::to_string(watched.width * watched.height) + " bytes " + (to_host ? "from" : "to") +
                      " the device before the copy ran; it was given at " + text_of_place(moment.place) +
                      ", and nobody waited for it");
    }
    return run_copy(moment, target, source);
  };
}

cudaError_t give_copy(Rows target, Rows source, cudaMemcpyKind kind, cudaStream_t stream, bool watched,
                      std::uintptr_t place) {
  note_device();
  if (target.width == 0 || target.height == 0) return cudaSuccess;
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) {
    return fail(cudaErrorInvalidMemcpyDirection, "copy: unknown direction " + std::to_string(kind));
  }
  target.on_device = kind == cudaMemcpyDefault
                         ? on_device(target.start)
                         : kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  source.on_device = kind == cudaMemcpyDefault
                         ? on_device(source.start)
                         : kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const std::string problem = check_ranges(target, source);
  if (!problem.empty()) return fail(cudaErrorInvalidValue, problem);
  Operation operation;
  operation.place = place;
  operation.run = [=](const Moment& moment) { return run_copy(moment, target, source); };
  if (watched && !(target.on_device && source.on_device)) watch_host(operation, target, source);
  return enqueue(stream, std::move(operation));
}

char* bytes_of(const void* pointer) {
  return static_cast<char*>(const_cast<void*>(pointer));
}

cudaError_t give_fill(const Rows& target, int value, cudaStream_t stream, std::uintptr_t place) {
  note_device();
  if (target.width == 0 || target.height == 0) return cudaSuccess;
  const std::string problem = check_side("memset: the target", target.start, true, target.extent());
  if (!problem.empty()) return fail(cudaErrorInvalidValue, problem);
  Operation operation;
  operation.place = place;
  operation.run = [=](const Moment& moment) {
    std::string late = check_side("memset: the target", target.start, true, target.extent());
    if (!late.empty()) return fail(cudaErrorInvalidValue, late);
    late = touch(moment, target.start, target.pitch, target.width, target.height, true);
    if (!late.empty())
      return fail(FaultKind::stream_order,
                  "a memset given at " + text_of_place(moment.place) + " writes " + late);
    const DeviceAccess access;
    for (std::size_t row = 0; row < target.height; ++row) {
      std::memset(target.start + row * target.pitch, value, target.width);
      DeviceMemory::instance().mark_written(target.start + row * target.pitch, target.width);
    }
    return cudaSuccess;
  };
  return enqueue(stream, std::move(operation));
}

// Freed memory that waits for its stream: beyond this the host waits, as it would for a pool that is used up.
constexpr std::size_t kLeavingLimit = std::size_t{64} << 20;
std::size_t leaving_bytes = 0;  // guarded by device_mutex

cudaError_t release(const Moment& moment, void* pointer, std::size_t bytes) {
  leaving_bytes -= bytes;
  const std::string unordered = touch(moment, pointer, bytes, bytes, 1, true);
  const std::string problem = DeviceMemory::instance().release(pointer);
  if (!unordered.empty())
    return fail(FaultKind::stream_order,
                "cudaFreeAsync at " + text_of_place(moment.place) + " frees " + unordered);
  return problem.empty() ? cudaSuccess : fail(cudaErrorInvalidValue, "cudaFreeAsync: " + problem);
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

cudaError_t check_guards() {
  const std::string damage = DeviceMemory::instance().check_guards();
  return damage.empty() ? cudaSuccess : fail(cudaErrorIllegalAddress, damage);
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
  if (const cudaError_t error = wait_for_device(); error != cudaSuccess) return error;
  return check_guards();
}

namespace {

void* allocate(std::size_t bytes) {
  void* const result = DeviceMemory::instance().allocate(bytes);
  if (result != nullptr) return result;
  drain();  // what is on its way may free enough
  return DeviceMemory::instance().allocate(bytes);
}

cudaError_t no_room(const char* what, std::size_t bytes) {
  return fail(cudaErrorMemoryAllocation, std::string(what) + ": no room for " + std::to_string(bytes) +
                                             " bytes besides the " +
                                             std::to_string(DeviceMemory::instance().used_bytes()) +
                                             " in use of " + std::to_string(kDeviceBytes));
}

}  // namespace

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  const std::lock_guard lock(device_mutex());
  if (pointer == nullptr) return fail(cudaErrorInvalidValue, "cudaMalloc: the pointer's place is null");
  if (const cudaError_t error = refuse_in_capture("cudaMalloc"); error != cudaSuccess) return error;
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  *pointer = allocate(bytes);
  return *pointer == nullptr ? no_room("cudaMalloc", bytes) : cudaSuccess;
}

cudaError_t cudaFree(void* pointer) {
  const std::lock_guard lock(device_mutex());
  if (pointer == nullptr) return cudaSuccess;
  if (const cudaError_t error = refuse_in_capture("cudaFree"); error != cudaSuccess) return error;
  const cudaError_t waited = wait_for_device();
  const std::string earlier = waited == cudaSuccess ? "" : cudaGetErrorString(waited);
  const std::string problem = DeviceMemory::instance().release(pointer);
  if (!problem.empty()) return fail(cudaErrorInvalidValue, "cudaFree: " + problem);
  return waited == cudaSuccess ? cudaSuccess : fail(waited, earlier);
}

cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t stream) {
  const std::lock_guard lock(device_mutex());
  note_device();
  if (pointer == nullptr) return fail(cudaErrorInvalidValue, "cudaMallocAsync: the pointer's place is null");
  *pointer = nullptr;
  if (!is_stream(stream)) return fail(cudaErrorInvalidResourceHandle, "cudaMallocAsync: not a live stream");
  if (const cudaError_t error = refuse_captured(stream, "cudaMallocAsync"); error != cudaSuccess)
    return error;
  if (bytes == 0) return cudaSuccess;
  void* const result = allocate(bytes);
  if (result == nullptr) return no_room("cudaMallocAsync", bytes);
  if (several_streams()) {
    DeviceMemory::instance().promise(result);
    Operation operation;
    operation.in_any_case = true;
    operation.place = SCANTAPE_CALLER;
    operation.run = [=](const Moment& moment) {
      DeviceMemory::instance().keep_promise(result);
      (void)touch(moment, result, bytes, bytes, 1, true);
      return cudaSuccess;
    };
    if (const cudaError_t error = enqueue(stream, std::move(operation)); error != cudaSuccess) {
      (void)DeviceMemory::instance().release(result);
      return error;
    }
  }
  *pointer = result;
  return cudaSuccess;
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  const std::lock_guard lock(device_mutex());
  if (!is_stream(stream)) return fail(cudaErrorInvalidResourceHandle, "cudaFreeAsync: not a live stream");
  if (pointer == nullptr) return cudaSuccess;
  if (const cudaError_t error = refuse_captured(stream, "cudaFreeAsync"); error != cudaSuccess) return error;
  DeviceMemory& memory = DeviceMemory::instance();
  const std::size_t bytes = memory.contains(pointer) ? memory.size_of(pointer) : 0;
  if (bytes == 0 || !memory.begin_release(pointer)) {
    return fail(cudaErrorInvalidValue,
                "cudaFreeAsync: " +
                    std::string(bytes == 0 ? "not the start of a live allocation: " : "freed twice: ") +
                    memory.describe(reinterpret_cast<std::uintptr_t>(pointer)));
  }
  leaving_bytes += bytes;
  Operation operation;
  operation.in_any_case = true;
  operation.place = SCANTAPE_CALLER;
  operation.run = [=](const Moment& moment) { return release(moment, pointer, bytes); };
  const cudaError_t error = enqueue(stream, std::move(operation));
  if (error != cudaSuccess || leaving_bytes < kLeavingLimit) return error;
  return run_stream(stream);
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  static CUmemPoolHandle_st instance;
  if (pool == nullptr) return fail(cudaErrorInvalidValue, "cudaDeviceGetDefaultMemPool: the place is null");
  if (const cudaError_t error = check_device(device); error != cudaSuccess) return error;
  *pool = &instance;
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (pool == nullptr || value == nullptr || attribute != cudaMemPoolAttrReleaseThreshold)
    return fail(cudaErrorInvalidValue, "cudaMemPoolSetAttribute: only the release threshold is emulated");
  const std::lock_guard lock(device_mutex());
  std::memcpy(&pool->release_threshold, value, sizeof(pool->release_threshold));
  return cudaSuccess;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (pool == nullptr || value == nullptr || attribute != cudaMemPoolAttrReleaseThreshold)
    return fail(cudaErrorInvalidValue, "cudaMemPoolGetAttribute: only the release threshold is emulated");
  const std::lock_guard lock(device_mutex());
  std::memcpy(value, &pool->release_threshold, sizeof(pool->release_threshold));
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** pointer, std::size_t bytes, unsigned int flags) {
  if (pointer == nullptr || flags != cudaHostAllocDefault) {
    return fail(cudaErrorInvalidValue, "cudaMallocHost: the pointer's place is null, or there are flags");
  }
  if (const cudaError_t error = refuse_in_capture("cudaMallocHost"); error != cudaSuccess) return error;
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
  if (const cudaError_t error = refuse_in_capture("cudaFreeHost"); error != cudaSuccess) return error;
  if (const cudaError_t error = wait_for_device(); error != cudaSuccess) return error;
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
  return give_copy({bytes_of(target), bytes, bytes, 1}, {bytes_of(source), bytes, bytes, 1}, kind, stream,
                   true, SCANTAPE_CALLER);
}

cudaError_t cudaMemcpy(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind) {
  const std::lock_guard lock(device_mutex());
  if (const cudaError_t error = refuse_in_capture("cudaMemcpy"); error != cudaSuccess) return error;
  const cudaError_t error =
      give_copy({bytes_of(target), bytes, bytes, 1}, {bytes_of(source), bytes, bytes, 1}, kind, nullptr,
                false, SCANTAPE_CALLER);
  return error == cudaSuccess ? wait_for_stream(nullptr) : error;
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
  return give_copy({bytes_of(target), target_pitch, width, height},
                   {bytes_of(source), source_pitch, width, height}, kind, stream, true, SCANTAPE_CALLER);
}

cudaError_t cudaMemsetAsync(void* target, int value, std::size_t bytes, cudaStream_t stream) {
  return give_fill({bytes_of(target), bytes, bytes, 1}, value, stream, SCANTAPE_CALLER);
}

cudaError_t cudaMemset(void* target, int value, std::size_t bytes) {
  return give_fill({bytes_of(target), bytes, bytes, 1}, value, nullptr, SCANTAPE_CALLER);
}

cudaError_t cudaMemset2DAsync(void* target, std::size_t pitch, int value, std::size_t width,
                              std::size_t height, cudaStream_t stream) {
  if (width > pitch) {
    return fail(cudaErrorInvalidPitchValue, "cudaMemset2DAsync: a row of " + std::to_string(width) +
                                                " bytes is wider than the pitch of " + std::to_string(pitch));
  }
  return give_fill({bytes_of(target), pitch, width, height}, value, stream, SCANTAPE_CALLER);
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
  result.maxThreadsPerBlock = launch_bound(kernel);
  result.ptxVersion = result.binaryVersion = 80;
  const std::size_t opted_in = opted_in_shared(kernel);
  result.maxDynamicSharedSizeBytes = static_cast<int>(opted_in > 0 ? opted_in : kStaticSharedBytes);
  *attributes = result;
  return cudaSuccess;
}

}  // namespace scantape_emulated
