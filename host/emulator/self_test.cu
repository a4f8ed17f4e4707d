/// The emulator's test of itself: a program that relies on it runs this first. It stands among the kernels in
/// the build, with their flags, because flags are what can go wrong: link-time optimisation, for one, drops
/// the access call-backs without a word.

#include <string>

#include "common/launch.cuh"
#include "common/shared.cuh"
#include "scantape_emulator.h"

namespace scantape::emulator {
namespace {

constexpr int kThreads = 64;

struct Row {
  float values[kThreads];
};

/// Each thread hands its value to its neighbour through shared memory. The memory is cleared first, so that
/// without the second barrier there is a race and nothing else, whatever the order of the threads.
template <bool kHasBarrier>
__global__ void pass_on_kernel(const float* x, float* y) {
  Row& row = cuda::shared_storage<Row>();
  const unsigned t = threadIdx.x;
  row.values[t] = 0.0f;
  __syncthreads();
  row.values[t] = x[t];
  if (kHasBarrier) __syncthreads();
  y[t] = row.values[(t + 1) % kThreads];
}

__global__ void half_a_barrier_kernel(float* y) {
  if (threadIdx.x % 2 == 0) __syncthreads();
  y[threadIdx.x] = 1.0f;
}

std::string expect(const char* what, const Status& status, FaultKind wanted) {
  const Fault& fault = last_fault();
  if (!status.ok() && fault.kind == FaultKind::none) return "the emulator's self-test: " + status.message();
  if (fault.kind == wanted && status.ok() == (wanted == FaultKind::none)) return "";
  return std::string("the emulator's self-test: ") + what + " gave \"" + name(fault.kind) + "\", wants \"" +
         name(wanted) + "\"; " + status.message();
}

std::string runtime_failure() {
  return std::string("the emulator's self-test: ") + cudaGetErrorString(cudaPeekAtLastError());
}

std::string run(float* x, float* y) {
  float values[kThreads], results[kThreads];
  for (int i = 0; i < kThreads; ++i) values[i] = static_cast<float>(i) + 0.5f;
  if (cudaMemcpy(x, values, sizeof(values), cudaMemcpyHostToDevice) != cudaSuccess) return runtime_failure();

  Status status = cuda::launch("pass_on", pass_on_kernel<true>, dim3(1), dim3(kThreads), 0, {}, x, y);
  std::string problem = expect("a right kernel", status, FaultKind::none);
  if (!problem.empty()) return problem;
  if (cudaMemcpy(results, y, sizeof(results), cudaMemcpyDeviceToHost) != cudaSuccess)
    return runtime_failure();
  for (int i = 0; i < kThreads; ++i) {
    if (!(results[i] == values[(i + 1) % kThreads]))
      return "the emulator's self-test: a right kernel gave a wrong value";
  }

  status = cuda::launch("pass_on", pass_on_kernel<false>, dim3(1), dim3(kThreads), 0, {}, x, y);
  problem = checks_accesses() ? expect("a planted race", status, FaultKind::race) : "";
  if (!problem.empty()) {
    return problem +
           " (were the kernels compiled without -fsanitize=thread, or with link-time optimisation?)";
  }

  status = cuda::launch("half_a_barrier", half_a_barrier_kernel, dim3(1), dim3(kThreads), 0, {}, y);
  return expect("a barrier that half the threads reach", status, FaultKind::divergence);
}

}  // namespace

std::string self_test() {
  const bool before = blocking();
  set_blocking(true);
  float *x = nullptr, *y = nullptr;
  std::string problem;
  if (cudaMalloc(&x, kThreads * sizeof(float)) != cudaSuccess ||
      cudaMalloc(&y, kThreads * sizeof(float)) != cudaSuccess) {
    problem = runtime_failure();
  } else {
    problem = run(x, y);
  }
  (void)cudaFree(x);
  (void)cudaFree(y);
  (void)cudaGetLastError();
  set_blocking(before);
  return problem;
}

}  // namespace scantape::emulator
