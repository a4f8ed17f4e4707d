#include "scantape/adamw.h"

#include <limits>

#include "common.h"

namespace scantape::reference {

namespace {

// Formed in double, then rounded: 1 - beta and 1 - beta^t lose their digits in float.
template <class T>
struct Factors {
  T clip, beta1, one_minus_beta1, beta2, one_minus_beta2, step, root, eps, decay;

  explicit Factors(const AdamW& args) noexcept {
    const double* control = args.control.as<double>();
    const double steps = control[kSteps];
    const double c1 = -std::expm1(steps * std::log(args.beta1));
    const double c2 = -std::expm1(steps * std::log(args.beta2));
    clip = static_cast<T>(control[kClipFactor]);
    beta1 = static_cast<T>(args.beta1);
    beta2 = static_cast<T>(args.beta2);
    one_minus_beta1 = static_cast<T>(1 - args.beta1);
    one_minus_beta2 = static_cast<T>(1 - args.beta2);
    step = static_cast<T>(control[kLearningRate] / c1);
    root = static_cast<T>(1 / std::sqrt(c2));
    // Above 0 in any type: a gradient that has always been 0 must not become 0 / 0.
    eps = std::max(static_cast<T>(args.eps), std::numeric_limits<T>::min());
    decay = static_cast<T>(-(control[kLearningRate] * args.weight_decay));
  }
};

template <class T>
void update(const AdamW& args) noexcept {
  const Factors<T> f(args);
  T* parameter = args.parameter.as<T>();
  const T* gradient = args.gradient.as<T>();
  T* first = args.first_moment.as<T>();
  T* second = args.second_moment.as<T>();
  const std::int64_t elements = args.parameter.elements();
#pragma omp parallel for schedule(static) if (worth_threads(elements))
  for (std::int64_t i = 0; i < elements; ++i) {
    const T g = gradient[i] * f.clip;
    const T m = f.beta1 * first[i] + f.one_minus_beta1 * g;
    const T v = f.beta2 * second[i] + f.one_minus_beta2 * g * g;
    // fma(-lr wd, p, p) keeps a decay that p * (1 - lr wd) would round away with 1.
    const T decayed =
        i < args.decayed_elements ? std::fma(f.decay, parameter[i], parameter[i]) : parameter[i];
    first[i] = m;
    second[i] = v;
    parameter[i] = decayed - f.step * m / (std::sqrt(v) * f.root + f.eps);
  }
}

}  // namespace

Status adamw(const AdamW& args) noexcept {
  if (args.control.as<double>()[kSkip] != 0) return {};
  dispatch(args.parameter.dtype, [&](auto zero) { update<decltype(zero)>(args); });
  return {};
}

}  // namespace scantape::reference
