// One AdamW step over all parameters of a model, flat, in one launch (an optimiser, not differentiable).
//
//   g <- clip g;  m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g^2
//   p <- p - lr wd p - (lr / c1) m / (sqrt(v) / sqrt(c2) + eps),   c1 = 1 - b1^t,  c2 = 1 - b2^t
//
// lr, t, clip and skip are read from the device, where grad_norm and the caller put them: a step needs
// nothing from the host. One thread of each block forms the step's scalars in f64 and rounds them to the
// parameters' dtype; c = -expm1(t log b) keeps its digits where b^t is near 1. Decay is fma(-(lr wd), p, ..)
// from the old p: p (1 - lr wd) would round lr wd, about 1e-5, to the spacing of numbers next to 1.
//
// Bytes: reads p, g, m, v, writes p, m, v: 7 n elements. A skipped step reads only its scalars.

#include "scantape/adamw.h"

#include <limits>

#include "common/dispatch.cuh"
#include "common/math.cuh"
#include "common/reduce.cuh"

namespace scantape::cuda {
namespace {

constexpr std::int64_t kMostBlocks = 2048;

/// What the host knows of a step.
struct Settings {
  double beta1, beta2, eps, weight_decay;
  std::int64_t decayed_elements;
};

/// The step's factors, rounded to the dtype of the parameters.
template <class T>
struct Factors {
  T clip, beta1, gain1, beta2, gain2;
  T decay;   // lr wd
  T rate;    // lr / c1
  T spread;  // 1 / sqrt(c2)
  T eps;
  T skip;  // 1 where the step is skipped; of type T, so that the struct has no padding to copy unwritten
};

template <class T>
__device__ void form_factors(const Settings& settings, const double* control, T eps, Factors<T>* factors) {
  const double steps = control[kSteps], rate = control[kLearningRate];
  const double c1 = -expm1_of(steps * log_of(settings.beta1)), c2 = -expm1_of(steps * log_of(settings.beta2));
  factors->skip = control[kSkip] != 0 ? T(1) : T(0);
  factors->clip = static_cast<T>(control[kClipFactor]);
  factors->beta1 = static_cast<T>(settings.beta1);
  factors->gain1 = static_cast<T>(1 - settings.beta1);
  factors->beta2 = static_cast<T>(settings.beta2);
  factors->gain2 = static_cast<T>(1 - settings.beta2);
  factors->decay = static_cast<T>(rate * settings.weight_decay);
  factors->rate = static_cast<T>(rate / c1);
  factors->spread = static_cast<T>(1 / sqrt_of(c2));
  factors->eps = eps;
}

template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    adamw_update_elementwise_kernel(Extent extent, Settings settings, T eps, const double* control,
                                    Source<T> gradient, Source<T> old_parameter, Source<T> old_first,
                                    Source<T> old_second, Target<T> parameter, Target<T> first,
                                    Target<T> second) {
  auto& factors = shared_storage<Factors<T>>();
  if (threadIdx.x == 0) form_factors(settings, control, eps, &factors);
  __syncthreads();
  if (factors.skip != 0) return;  // the same for all threads, after the only barrier
  const Factors<T> f = factors;
  for_each_pack<T>(extent, [&](std::int64_t row, std::int64_t column, std::int64_t remaining) {
    const Pack<T> g = gradient.load(row, column, remaining);
    Pack<T> p = old_parameter.load(row, column, remaining);
    Pack<T> m = old_first.load(row, column, remaining), v = old_second.load(row, column, remaining);
#pragma unroll
    for (int i = 0; i < kPack<T>; ++i) {
      const T clipped = f.clip * g[i];
      m[i] = fma_of(f.beta1, m[i], f.gain1 * clipped);
      v[i] = fma_of(f.beta2, v[i], f.gain2 * clipped * clipped);
      const T decayed = column + i < settings.decayed_elements ? fma_of(-f.decay, p[i], p[i]) : p[i];
      p[i] = decayed - f.rate * m[i] / fma_of(sqrt_of(v[i]), f.spread, f.eps);
    }
    parameter.store(row, column, remaining, p);
    first.store(row, column, remaining, m);
    second.store(row, column, remaining, v);
  });
}

template <class T>
Status run(const AdamW& args, Stream stream) {
  const Extent extent{1, args.parameter.elements()};
  const Settings settings{args.beta1, args.beta2, args.eps, args.weight_decay, args.decayed_elements};
  // eps above 0 stays above 0 in the parameters' dtype: 0 / 0 where a gradient has always been 0 would be
  // NaN.
  const T rounded = static_cast<T>(args.eps), least = std::numeric_limits<T>::min();
  const T eps = rounded > least ? rounded : least;
  return launch("adamw_update_elementwise_kernel", adamw_update_elementwise_kernel<T>,
                grid_for(ceil_div(extent.columns, kPack<T>), kBlockThreads, kMostBlocks), dim3(kBlockThreads),
                0, stream, extent, settings, eps, args.control.as<double>(), source<T>(args.gradient),
                source<T>(args.parameter), source<T>(args.first_moment), source<T>(args.second_moment),
                target<T>(args.parameter), target<T>(args.first_moment), target<T>(args.second_moment));
}

}  // namespace

Status adamw(const AdamW& args, Stream stream) noexcept {
  return dispatch_dtype(args.parameter.dtype, "adamw: no CUDA kernel for this dtype",
                        [&](auto zero) { return run<decltype(zero)>(args, stream); });
}

std::int64_t adamw_workspace(const AdamW&) noexcept {
  return 0;
}

}  // namespace scantape::cuda
