/// CUDA's runtime header for machines without a GPU: the part of it that scantape uses, answered by
/// host/emulator. Names, values and meanings are CUDA's. What is missing here is not supported and fails to
/// compile.
#pragma once

// The C headers, not <cmath>: as under nvcc, abs(float) and exp(float) are then the float functions.
#include <math.h>
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#define __host__
#define __device__
#define __global__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
// As many instructions that do nothing before the kernel's entry as a block may have threads: the launch counts
// them. (An attribute is all that this place of a declaration can hold.)
// "used" keeps a kernel of one file out of the groups of functions that the linker merges with those of others.
#define SCANTAPE_EMULATED_FIRST(first, ...) (first)
#define __launch_bounds__(...)                                                               \
  __attribute__((used, patchable_function_entry(SCANTAPE_EMULATED_FIRST(__VA_ARGS__, 0) + 0, \
                                                SCANTAPE_EMULATED_FIRST(__VA_ARGS__, 0) + 0)))
#define __align__(bytes) __attribute__((aligned(bytes)))
// __shared__ is missing on purpose: kernels call shared_storage() and dynamic_shared() of common/shared.cuh.
// __noinline__ is missing because as a macro it breaks libstdc++.

#define CUDART_VERSION 12040
#define CUDART_CB

// An object file that was compiled with CUDA's own headers must not link with one compiled with these.
inline namespace scantape_emulated {

// ---- types ----

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1) : x(x_), y(y_), z(z_) {}
};

#define SCANTAPE_EMULATED_VECTORS(name, T, align2, align4)               \
  struct name##1 {                                                       \
    T x;                                                                 \
  };                                                                     \
  struct alignas(align2) name##2 {                                       \
    T x, y;                                                              \
  };                                                                     \
  struct name##3 {                                                       \
    T x, y, z;                                                           \
  };                                                                     \
  struct alignas(align4) name##4 {                                       \
    T x, y, z, w;                                                        \
  };                                                                     \
  __forceinline__ constexpr name##1 make_##name##1(T x) {                \
    return {x};                                                          \
  }                                                                      \
  __forceinline__ constexpr name##2 make_##name##2(T x, T y) {           \
    return {x, y};                                                       \
  }                                                                      \
  __forceinline__ constexpr name##3 make_##name##3(T x, T y, T z) {      \
    return {x, y, z};                                                    \
  }                                                                      \
  __forceinline__ constexpr name##4 make_##name##4(T x, T y, T z, T w) { \
    return {x, y, z, w};                                                 \
  }
SCANTAPE_EMULATED_VECTORS(char, signed char, 2, 4)
SCANTAPE_EMULATED_VECTORS(uchar, unsigned char, 2, 4)
SCANTAPE_EMULATED_VECTORS(short, short, 4, 8)
SCANTAPE_EMULATED_VECTORS(ushort, unsigned short, 4, 8)
SCANTAPE_EMULATED_VECTORS(int, int, 8, 16)
SCANTAPE_EMULATED_VECTORS(uint, unsigned int, 8, 16)
SCANTAPE_EMULATED_VECTORS(float, float, 8, 16)
#undef SCANTAPE_EMULATED_VECTORS

// The four-element forms of the 8-byte types are missing: CUDA 13 deprecates them.
struct alignas(16) double2 {
  double x, y;
};
struct alignas(16) longlong2 {
  long long x, y;
};
struct alignas(16) ulonglong2 {
  unsigned long long x, y;
};
__forceinline__ constexpr double2 make_double2(double x, double y) {
  return {x, y};
}
__forceinline__ constexpr longlong2 make_longlong2(long long x, long long y) {
  return {x, y};
}
__forceinline__ constexpr ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) {
  return {x, y};
}

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInitializationError = 3,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidPitchValue = 12,
  cudaErrorInvalidHostPointer = 16,
  cudaErrorInvalidDevicePointer = 17,
  cudaErrorInvalidMemcpyDirection = 21,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorIllegalState = 401,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorLaunchOutOfResources = 701,
  cudaErrorLaunchFailure = 719,
  cudaErrorNotSupported = 801,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureMerge = 902,
  cudaErrorStreamCaptureUnmatched = 903,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorStreamCaptureImplicit = 906,
  cudaErrorCapturedEvent = 907,
  cudaErrorStreamCaptureWrongThread = 908,
  cudaErrorUnknown = 999,
};

enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4,
};

enum cudaMemoryType {
  cudaMemoryTypeUnregistered = 0,
  cudaMemoryTypeHost = 1,
  cudaMemoryTypeDevice = 2,
  cudaMemoryTypeManaged = 3,
};

enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};

enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
using cudaGraph_t = struct CUgraph_st*;
using cudaGraphExec_t = struct CUgraphExec_st*;
using cudaGraphNode_t = struct CUgraphNode_st*;
using cudaMemPool_t = struct CUmemPoolHandle_st*;

enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2,
};

enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone = 0,
  cudaStreamCaptureStatusActive = 1,
  cudaStreamCaptureStatusInvalidated = 2,
};

enum cudaMemPoolAttr {
  cudaMemPoolAttrReleaseThreshold = 4,
};

inline constexpr unsigned int cudaStreamDefault = 0, cudaStreamNonBlocking = 1;
inline constexpr unsigned int cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2;
inline constexpr unsigned int cudaHostAllocDefault = 0;

struct cudaDeviceProp {
  char name[256];
  std::size_t totalGlobalMem;
  std::size_t sharedMemPerBlock;
  int regsPerBlock;
  int warpSize;
  int maxThreadsPerBlock;
  int maxThreadsDim[3];
  int maxGridSize[3];
  int major, minor;
  int multiProcessorCount;
  int l2CacheSize;
  int maxThreadsPerMultiProcessor;
  int maxBlocksPerMultiProcessor;
  int memoryBusWidth;
  std::size_t sharedMemPerMultiprocessor;
  std::size_t sharedMemPerBlockOptin;
};

struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
  void* devicePointer;
  void* hostPointer;
};

struct cudaFuncAttributes {
  std::size_t sharedSizeBytes;
  std::size_t constSizeBytes;
  std::size_t localSizeBytes;
  int maxThreadsPerBlock;
  int numRegs;
  int ptxVersion;
  int binaryVersion;
  int cacheModeCA;
  int maxDynamicSharedSizeBytes;
};

struct cudaLaunchAttribute;  // no attribute is supported

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned int numAttrs;
};

// ---- the runtime's functions ----

/// Where the emulator knows more about the failure than its code says, e.g. the race that it found, this is
/// that text. It is good until the same thread's next failure.
const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceSynchronize();

cudaError_t cudaMalloc(void** pointer, std::size_t bytes);
cudaError_t cudaFree(void* pointer);
cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream);
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
cudaError_t cudaMallocHost(void** pointer, std::size_t bytes, unsigned int flags = cudaHostAllocDefault);
cudaError_t cudaFreeHost(void* pointer);
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer);

cudaError_t cudaMemcpy(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemcpy2DAsync(void* target, std::size_t target_pitch, const void* source,
                              std::size_t source_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void* target, int value, std::size_t bytes);
cudaError_t cudaMemsetAsync(void* target, int value, std::size_t bytes, cudaStream_t stream = nullptr);
cudaError_t cudaMemset2DAsync(void* target, std::size_t pitch, int value, std::size_t width,
                              std::size_t height, cudaStream_t stream = nullptr);

cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags = 0);

cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel);

template <class T>
cudaError_t cudaMalloc(T** pointer, std::size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(pointer), bytes);
}
template <class T>
cudaError_t cudaMallocAsync(T** pointer, std::size_t bytes, cudaStream_t stream) {
  return cudaMallocAsync(reinterpret_cast<void**>(pointer), bytes, stream);
}
template <class T>
cudaError_t cudaMallocHost(T** pointer, std::size_t bytes, unsigned int flags = cudaHostAllocDefault) {
  return cudaMallocHost(reinterpret_cast<void**>(pointer), bytes, flags);
}
template <class... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <class... P>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(P...)) {
  return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}

// ---- launch ----

namespace emulator_detail {

/// A kernel with its arguments, ready to be run by each thread.
struct KernelCall {
  const void* kernel;
  void (*run)(const void* kernel, const void* arguments);
  const void* arguments;
  std::size_t argument_bytes;
};
cudaError_t launch(const cudaLaunchConfig_t* config, const KernelCall& call);

template <class... P>
void run_kernel(const void* kernel, const void* arguments) {
  auto function = reinterpret_cast<void (*)(P...)>(reinterpret_cast<std::uintptr_t>(kernel));
  std::apply(function, *static_cast<const std::tuple<P...>*>(arguments));
}

}  // namespace emulator_detail

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... arguments) {
  static_assert(sizeof...(P) == sizeof...(A), "a kernel gets as many arguments as it has parameters");
  static_assert((std::is_trivially_copyable_v<P> && ...), "arguments of kernels are copied byte by byte");
  static_assert((std::size_t{0} + ... + sizeof(P)) <= 4096, "a kernel takes 4 KiB of arguments at most");
  const std::tuple<P...> values(std::forward<A>(arguments)...);
  return emulator_detail::launch(config, {reinterpret_cast<const void*>(kernel),
                                          &emulator_detail::run_kernel<P...>, &values, sizeof(values)});
}

// ---- what a thread knows about itself ----

extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;
inline constexpr int warpSize = 32;

// ---- barriers, shuffles, votes ----
// --------------------------------------------------------------------------------- Each takes the source
// line it stands on: that is the identity under which threads must meet.

#define SCANTAPE_EMULATED_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

void __syncthreads(SCANTAPE_EMULATED_PLACE);
int __syncthreads_or(int predicate, SCANTAPE_EMULATED_PLACE);
int __syncthreads_and(int predicate, SCANTAPE_EMULATED_PLACE);
int __syncthreads_count(int predicate, SCANTAPE_EMULATED_PLACE);
void __syncwarp(unsigned int mask = 0xffffffffu, SCANTAPE_EMULATED_PLACE);
unsigned int __ballot_sync(unsigned int mask, int predicate, SCANTAPE_EMULATED_PLACE);
int __any_sync(unsigned int mask, int predicate, SCANTAPE_EMULATED_PLACE);
int __all_sync(unsigned int mask, int predicate, SCANTAPE_EMULATED_PLACE);

namespace emulator_detail {

enum class Shuffle : int { index, up, down, exclusive_or };
std::uint64_t shuffle(Shuffle kind, unsigned int mask, std::uint64_t bits, unsigned int operand, int width,
                      const char* file, int line);

template <class T>
__forceinline__ T shuffle_value(Shuffle kind, unsigned int mask, T value, unsigned int operand, int width,
                                const char* file, int line) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "CUDA shuffles 4 or 8 bytes");
  std::uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  bits = shuffle(kind, mask, bits, operand, width, file, line);
  __builtin_memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace emulator_detail

#define SCANTAPE_EMULATED_SHUFFLES(T)                                                                      \
  __forceinline__ T __shfl_sync(unsigned int mask, T value, int source, int width = warpSize,              \
                                SCANTAPE_EMULATED_PLACE) {                                                 \
    return emulator_detail::shuffle_value(emulator_detail::Shuffle::index, mask, value,                    \
                                          static_cast<unsigned int>(source), width, file, line);           \
  }                                                                                                        \
  __forceinline__ T __shfl_up_sync(unsigned int mask, T value, unsigned int delta, int width = warpSize,   \
                                   SCANTAPE_EMULATED_PLACE) {                                              \
    return emulator_detail::shuffle_value(emulator_detail::Shuffle::up, mask, value, delta, width, file,   \
                                          line);                                                           \
  }                                                                                                        \
  __forceinline__ T __shfl_down_sync(unsigned int mask, T value, unsigned int delta, int width = warpSize, \
                                     SCANTAPE_EMULATED_PLACE) {                                            \
    return emulator_detail::shuffle_value(emulator_detail::Shuffle::down, mask, value, delta, width, file, \
                                          line);                                                           \
  }                                                                                                        \
  __forceinline__ T __shfl_xor_sync(unsigned int mask, T value, int lane_mask, int width = warpSize,       \
                                    SCANTAPE_EMULATED_PLACE) {                                             \
    return emulator_detail::shuffle_value(emulator_detail::Shuffle::exclusive_or, mask, value,             \
                                          static_cast<unsigned int>(lane_mask), width, file, line);        \
  }
SCANTAPE_EMULATED_SHUFFLES(int)
SCANTAPE_EMULATED_SHUFFLES(unsigned int)
SCANTAPE_EMULATED_SHUFFLES(long)
SCANTAPE_EMULATED_SHUFFLES(unsigned long)
SCANTAPE_EMULATED_SHUFFLES(long long)
SCANTAPE_EMULATED_SHUFFLES(unsigned long long)
SCANTAPE_EMULATED_SHUFFLES(float)
SCANTAPE_EMULATED_SHUFFLES(double)
#undef SCANTAPE_EMULATED_SHUFFLES
#undef SCANTAPE_EMULATED_PLACE

// ---- arithmetic ----

template <class T>
__forceinline__ T __ldg(const T* address) {
  return *address;
}

#define SCANTAPE_EMULATED_MIN_MAX(T)          \
  __forceinline__ constexpr T min(T a, T b) { \
    return b < a ? b : a;                     \
  }                                           \
  __forceinline__ constexpr T max(T a, T b) { \
    return a < b ? b : a;                     \
  }
SCANTAPE_EMULATED_MIN_MAX(int)
SCANTAPE_EMULATED_MIN_MAX(unsigned int)
SCANTAPE_EMULATED_MIN_MAX(long)
SCANTAPE_EMULATED_MIN_MAX(unsigned long)
SCANTAPE_EMULATED_MIN_MAX(long long)
SCANTAPE_EMULATED_MIN_MAX(unsigned long long)
#undef SCANTAPE_EMULATED_MIN_MAX
__forceinline__ float min(float a, float b) {
  return ::fminf(a, b);
}
__forceinline__ float max(float a, float b) {
  return ::fmaxf(a, b);
}
__forceinline__ double min(double a, double b) {
  return ::fmin(a, b);
}
__forceinline__ double max(double a, double b) {
  return ::fmax(a, b);
}

__forceinline__ int __float_as_int(float value) {
  return __builtin_bit_cast(int, value);
}
__forceinline__ unsigned int __float_as_uint(float value) {
  return __builtin_bit_cast(unsigned int, value);
}
__forceinline__ float __int_as_float(int bits) {
  return __builtin_bit_cast(float, bits);
}
__forceinline__ float __uint_as_float(unsigned int bits) {
  return __builtin_bit_cast(float, bits);
}
__forceinline__ long long __double_as_longlong(double value) {
  return __builtin_bit_cast(long long, value);
}
__forceinline__ double __longlong_as_double(long long bits) {
  return __builtin_bit_cast(double, bits);
}
__forceinline__ int __popc(unsigned int bits) {
  return __builtin_popcount(bits);
}
__forceinline__ int __popcll(unsigned long long bits) {
  return __builtin_popcountll(bits);
}
__forceinline__ int __clz(int bits) {
  return bits == 0 ? 32 : __builtin_clz(static_cast<unsigned int>(bits));
}
__forceinline__ int __ffs(int bits) {
  return __builtin_ffs(bits);
}

// The host's math.h declares functions of these names, which nobody defines: kernels are not to meet them.
#define __expf emulated_expf
#define __logf emulated_logf

// Approximations are worse here than on a GPU, so that an error budget that holds here holds there.
namespace emulator_detail {
/// Moves a finite, normal value by `ulps` units of its last place, up or down as its bits have it.
__forceinline__ float spoil(float value, int ulps) {
  const unsigned int bits = __float_as_uint(value);
  const unsigned int exponent = bits & 0x7f800000u;
  if (exponent == 0x7f800000u || exponent <= 0x00800000u || exponent >= 0x7f000000u) return value;
  const unsigned int hash = bits * 2654435761u;
  return __uint_as_float(hash & 0x80000000u ? bits + static_cast<unsigned int>(ulps)
                                            : bits - static_cast<unsigned int>(ulps));
}
}  // namespace emulator_detail
__forceinline__ float rsqrtf(float x) {
  return emulator_detail::spoil(1.0f / ::sqrtf(x), 2);
}
__forceinline__ double rsqrt(double x) {
  return 1.0 / ::sqrt(x);
}
__forceinline__ float rsqrt(float x) {
  return rsqrtf(x);
}
__forceinline__ float __expf(float x) {
  return emulator_detail::spoil(::exp2f(x * 1.44269504f), 2);
}
__forceinline__ float __logf(float x) {
  // Absolute error up to 2^-21.41 near 1, a few units of the last place elsewhere.
  const float result = emulator_detail::spoil(::log2f(x) * 0.69314718f, 2);
  if (!(x > 0.5f && x < 2.0f)) return result;
  return result + (__float_as_uint(x) & 1u ? 3.5e-7f : -3.5e-7f);
}
__forceinline__ float __fdividef(float x, float y) {
  const float magnitude = ::fabsf(y);
  if (magnitude > 8.507059e37f && magnitude <= 3.4028235e38f)
    return ::isinf(x) ? __uint_as_float(0x7fc00000u) : 0.0f;
  return emulator_detail::spoil(x / y, 2);
}

}  // namespace scantape_emulated
