#include "scantape/grad_norm.h"

#include "common.h"

namespace scantape::reference {

namespace {

template <class T>
double norm_of(const ConstView& gradient) noexcept {
  const T* g = gradient.as<T>();
  return std::sqrt(sum(gradient.elements(), [&](std::int64_t i) { return double(g[i]) * double(g[i]); }));
}

double clip_factor(double norm, double max_norm) noexcept {
  if (!(max_norm > 0) || !std::isfinite(max_norm)) return 1;
  const double factor = max_norm / (norm + 1e-6);
  return factor < 1 ? factor : 1;
}

}  // namespace

Status grad_norm(const GradNorm& args) noexcept {
  double* control = args.control.as<double>();
  double norm = 0;
  dispatch(args.gradient.dtype, [&](auto zero) { norm = norm_of<decltype(zero)>(args.gradient); });
  const bool skip = !std::isfinite(norm) || (args.loss.present && !std::isfinite(*args.loss.as<double>()));
  control[kGradNorm] = norm;
  control[kClipFactor] = clip_factor(norm, control[kMaxNorm]);
  control[kSkip] = skip ? 1 : 0;
  control[kSteps] += skip ? 0 : 1;
  control[kSkipped] += skip ? 1 : 0;
  control[kSkippedInARow] = skip ? control[kSkippedInARow] + 1 : 0;
  return {};
}

}  // namespace scantape::reference
