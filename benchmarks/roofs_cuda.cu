// Roofs of a GPU, in native builds only: what the emulator takes says nothing about a GPU.
//
// Both are timed by the host's clock around many enqueued pieces of work, of which each takes far longer than
// its launch, and one wait. Best of several runs.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "common/launch.cuh"
#include "roofs.h"
#include "scantape/device.h"
#include "scantape/error.h"
#include "scantape/tensor.h"

namespace scantape::bench {
namespace {

constexpr int kRuns = 5;
constexpr int kEnqueued = 10;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr int kBlockThreads = 256;
constexpr int kBlocks = 132 * 16;  // several waves on the largest GPUs of today
constexpr int kChains = 16;
constexpr int kSteps = 4096;

template <class Function>
double best_seconds(Function&& enqueue) {
  double best = INFINITY;
  for (int run = 0; run <= kRuns; ++run) {
    require(synchronize(kCuda));
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kEnqueued; ++i) require(enqueue());
    require(synchronize(kCuda));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (run > 0) best = std::min(best, seconds / kEnqueued);  // the first one loads the code
  }
  return best;
}

template <class T>
__global__ void __launch_bounds__(kBlockThreads) multiply_add_kernel(T start, T factor, T* out) {
  T chains[kChains];
#pragma unroll
  for (int i = 0; i < kChains; ++i) chains[i] = start + static_cast<T>(i);
#pragma unroll 1
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < kChains; ++i) chains[i] = fma(chains[i], factor, start);
  }
  T sum = 0;
#pragma unroll
  for (int i = 0; i < kChains; ++i) sum += chains[i];
  out[static_cast<std::int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x] = sum;
}

template <class T>
double measure_multiply_adds() {
  Tensor out = Tensor::empty({std::int64_t{kBlocks} * kBlockThreads}, dtype_of<T>, kCuda);
  T* data = out.writable().as<T>();
  const double seconds = best_seconds([&] {
    return cuda::launch("multiply_add_roof", multiply_add_kernel<T>, dim3(kBlocks), dim3(kBlockThreads), 0,
                        Stream{}, static_cast<T>(0.001), static_cast<T>(0.999), data);
  });
  return 2.0 * kChains * kSteps * kBlocks * kBlockThreads / seconds;
}

double measure_copy(std::int64_t bytes) {
  const Tensor from = Tensor::zeros({bytes / 4}, DType::f32, kCuda);
  Tensor to = Tensor::empty({bytes / 4}, DType::f32, kCuda);
  void* destination = to.writable().as<void>();
  const double seconds =
      best_seconds([&] { return copy_bytes(kCuda, destination, kCuda, from.view().data, bytes); });
  return 2.0 * static_cast<double>(bytes) / seconds;
}

const DeviceInfo* find_cuda(const std::vector<DeviceInfo>& all) {
  for (const DeviceInfo& info : all)
    if (info.device == kCuda) return &info;
  return nullptr;
}

}  // namespace

Roofs measure_cuda_roofs() {
  const std::vector<DeviceInfo> all = devices();
  const DeviceInfo* gpu = find_cuda(all);
  if (gpu == nullptr) throw Error(Code::cuda, "no GPU answers");
  const std::int64_t bytes = std::clamp(gpu->memory_bytes / 16, 64 * kMiB, 1024 * kMiB) / kMiB * kMiB;
  Roofs roofs;
  roofs.copy_bytes_per_s = measure_copy(bytes);
  roofs.copy_size = std::to_string(bytes / kMiB) + " MiB";
  roofs.multiply_adds_f32_per_s = measure_multiply_adds<float>();
  roofs.multiply_adds_f64_per_s = measure_multiply_adds<double>();
  roofs.instructions = "sm_" + std::to_string(gpu->compute_major) + std::to_string(gpu->compute_minor);
  return roofs;
}

}  // namespace scantape::bench
