// Roofs of the CPU. Both loops run on the threads that the ops use. The best of several runs counts: a roof
// is what the machine can do when nothing disturbs it.

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "roofs.h"

namespace scantape::bench {
namespace {

constexpr double kSeconds = 0.5;  // spent on each rate
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

template <class Function>
double best_seconds(Function&& function) {
  double best = INFINITY;
  for (double spent = 0; spent < kSeconds;) {
    const auto begin = std::chrono::steady_clock::now();
    function();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best = std::min(best, seconds);
    spent += seconds;
  }
  return best;
}

/// Four times the last cache, so that nothing of one run is found there by the next.
std::int64_t copy_size() {
  const std::int64_t cache = std::max<std::int64_t>(0, sysconf(_SC_LEVEL3_CACHE_SIZE));
  return std::clamp(4 * cache, 256 * kMiB, 1024 * kMiB);
}

double measure_copy(std::int64_t bytes) {
  const std::unique_ptr<char[]> from(new char[static_cast<std::size_t>(bytes)]);
  const std::unique_ptr<char[]> to(new char[static_cast<std::size_t>(bytes)]);
  const auto each_thread = [&](auto&& work) {
#pragma omp parallel
    {
      const std::int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
      const std::int64_t begin = bytes * thread / threads, end = bytes * (thread + 1) / threads;
      work(begin, static_cast<std::size_t>(end - begin));
    }
  };
  // Pages come to be near the thread that uses them.
  each_thread([&](std::int64_t begin, std::size_t size) {
    std::memset(from.get() + begin, 1, size);
    std::memset(to.get() + begin, 2, size);
  });
  const double seconds = best_seconds([&] {
    each_thread([&](std::int64_t begin, std::size_t size) {
      std::memcpy(to.get() + begin, from.get() + begin, size);
    });
  });
  return 2.0 * static_cast<double>(bytes) / seconds;
}

// The multiply-add loops: kChains chains of dependent operations, enough to fill two units of up to 5 cycles.
constexpr int kChains = 12;
constexpr std::int64_t kSteps = 500'000;

/// One thread's loop: runs, and returns the operations done. `sink` keeps the compiler from dropping them.
using Loop = double (*)(double* sink);

#if defined(__x86_64__)

#define SCANTAPE_MULTIPLY_ADD_LOOP(function, features, Vector, Element, set1, fmadd)                   \
  __attribute__((target(features))) double function(double* sink) {                                    \
    Vector chains[kChains];                                                                            \
    const Vector factor = set1(static_cast<Element>(0.999)), term = set1(static_cast<Element>(0.001)); \
    for (Vector & chain : chains) chain = set1(static_cast<Element>(*sink));                           \
    for (std::int64_t step = 0; step < kSteps; ++step)                                                 \
      for (Vector & chain : chains) chain = fmadd(chain, factor, term);                                \
    Element values[sizeof(Vector) / sizeof(Element)];                                                  \
    for (const Vector& chain : chains) {                                                               \
      std::memcpy(values, &chain, sizeof chain);                                                       \
      *sink += static_cast<double>(values[0]);                                                         \
    }                                                                                                  \
    return 2.0 * kChains * static_cast<double>(kSteps) *                                               \
           static_cast<double>(sizeof(Vector) / sizeof(Element));                                      \
  }                                                                                                    \
  static_assert(true, "a semicolon follows")

SCANTAPE_MULTIPLY_ADD_LOOP(avx512_f32, "avx512f", __m512, float, _mm512_set1_ps, _mm512_fmadd_ps);
SCANTAPE_MULTIPLY_ADD_LOOP(avx512_f64, "avx512f", __m512d, double, _mm512_set1_pd, _mm512_fmadd_pd);
SCANTAPE_MULTIPLY_ADD_LOOP(fma_f32, "avx2,fma", __m256, float, _mm256_set1_ps, _mm256_fmadd_ps);
SCANTAPE_MULTIPLY_ADD_LOOP(fma_f64, "avx2,fma", __m256d, double, _mm256_set1_pd, _mm256_fmadd_pd);

#endif

/// For processors without a loop above: as wide as the compiler makes it, a multiplication and an addition.
template <class T>
double portable(double* sink) {
  constexpr int kWidth = 64;
  std::array<T, kWidth> chains;
  chains.fill(static_cast<T>(*sink));
  for (std::int64_t step = 0; step < kSteps; ++step)
    for (T& chain : chains) chain = chain * static_cast<T>(0.999) + static_cast<T>(0.001);
  for (T chain : chains) *sink += static_cast<double>(chain);
  return 2.0 * kWidth * static_cast<double>(kSteps);
}

struct Loops {
  Loop f32, f64;
  const char* instructions;
};

Loops choose_loops() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {avx512_f32, avx512_f64, "avx512f"};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {fma_f32, fma_f64, "avx2, fma"};
#endif
  return {portable<float>, portable<double>, "those of the build"};
}

double measure_multiply_adds(Loop loop) {
  double operations = 0, sunk = 0;
  const double seconds = best_seconds([&] {
    double done = 0;
#pragma omp parallel reduction(+ : done, sunk)
    {
      double sink = 1;
      done += loop(&sink);
      sunk += sink;
    }
    operations = done;
  });
  return std::isfinite(sunk) ? operations / seconds : NAN;
}

}  // namespace

Roofs better_of(const Roofs& a, const Roofs& b) {
  Roofs roofs = a;
  roofs.copy_bytes_per_s = std::max(a.copy_bytes_per_s, b.copy_bytes_per_s);
  roofs.multiply_adds_f32_per_s = std::max(a.multiply_adds_f32_per_s, b.multiply_adds_f32_per_s);
  roofs.multiply_adds_f64_per_s = std::max(a.multiply_adds_f64_per_s, b.multiply_adds_f64_per_s);
  return roofs;
}

Roofs measure_cpu_roofs() {
  const Loops loops = choose_loops();
  const std::int64_t bytes = copy_size();
  Roofs roofs;
  roofs.copy_bytes_per_s = measure_copy(bytes);
  roofs.copy_size = std::to_string(bytes / kMiB) + " MiB";
  roofs.multiply_adds_f32_per_s = measure_multiply_adds(loops.f32);
  roofs.multiply_adds_f64_per_s = measure_multiply_adds(loops.f64);
  roofs.instructions = loops.instructions;
  return roofs;
}

}  // namespace scantape::bench
