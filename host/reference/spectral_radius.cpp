#include "scantape/spectral_radius.h"

#include <limits>
#include <utility>

#include "dense.h"

namespace scantape::reference {

namespace {

constexpr int kSquarings = 14;  // 2 m = 2^14

/// Scales x to a Frobenius norm of 1 and gives the logarithm of what it was; minus infinity, and x as it is, for zeros.
/// Divided by the sum of its |elements| first: then neither a square nor their sum leaves the type's range.
double normalise(Matrix<double>& x) noexcept {
  const double size = sum(x.elements(), [&](std::int64_t i) { return std::abs(x.data()[i]); });
  if (size == 0) return -std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < x.elements(); ++i) x.data()[i] /= size;
  const double norm = std::sqrt(inner(x, x));
  for (std::int64_t i = 0; i < x.elements(); ++i) x.data()[i] /= norm;
  return std::log(size) + std::log(norm);
}

/// With P^k scaled to norm 1 and c_k the norm of its square, log |P^2k| = 2 log |P^k| + log c_k. Divided by the powers,
/// l_k = log |P^(2^k)| / 2^k, it is a sum of ever smaller terms, and radius = exp(2 l_14 - l_13).
double radius(Matrix<double> x) {
  double log_norm = normalise(x), share = 1, last = 0;
  for (int k = 0; k < kSquarings && std::isfinite(log_norm); ++k) {
    x = product(x, x);
    share /= 2;
    last = share * normalise(x);
    log_norm += last;
  }
  return log_norm == -std::numeric_limits<double>::infinity() ? 0 : std::exp(log_norm + last);
}

}  // namespace

Status spectral_radius(const SpectralRadius& args) noexcept {
  return run("spectral_radius", [&] {
    dispatch(args.A_bar.dtype, [&](auto zero) {
      using T = decltype(zero);
      Matrix<double> x(args.A_bar.shape[0]);
      for (std::int64_t i = 0; i < x.elements(); ++i) x.data()[i] = args.A_bar.as<T>()[i];
      *args.radius.as<T>() = static_cast<T>(radius(std::move(x)));
    });
  });
}

}  // namespace scantape::reference
