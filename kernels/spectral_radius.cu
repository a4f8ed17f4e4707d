// Spectral radius of a matrix P of up to 64 rows (not differentiable):
//
//   radius = (|P^{2 m}| / |P^m|)^{1/m},  m = 2^13,  Frobenius norms
//
// P^(2^k) by squaring. Each power is scaled to norm 1 first, and the logarithm of its norm kept, divided by the
// power: with c_k the norm of the k-th square of a matrix of norm 1,
//
//   l_0 = log |P|,  l_{k+1} = l_k + log c_k / 2^{k+1},      radius = exp(2 l_14 - l_13) = exp(l_14 + log c_13 / 2^14)
//
// a sum of ever smaller terms, so nothing overflows. Zeros, now or after some squarings, give 0; what is not finite
// stays so.
//
// All of it is f64, whatever the matrix is: where eigenvalues coincide, elements of a power differ by as much as
// binomials of m over n, and the small ones, which decide, would leave f32's range.
//
// One block (common/dense.cuh); 14 products. Bytes: one matrix.

#include "scantape/spectral_radius.h"

#include "common/dense.cuh"
#include "common/dispatch.cuh"

namespace scantape::cuda {
namespace {

using namespace dense;

static_assert(kMostSpectralRowsOnCuda == kMost);
constexpr int kSquarings = 14;

struct Cells {
  Panels<double> panels;
  BlockSum<double, kBlockThreads> sum;
};

/// Scales x to norm 1, element by element, and gives the logarithm of its norm; `zero` says that there is nothing to
/// scale. Divided by the sum of its |elements| first: then no square leaves the type's range.
__device__ double normalise(double* x, int n, BlockSum<double, kBlockThreads>& cells, bool& zero) {
  const double size = sum_owned(n, cells, [&](int i, int j) { return abs_of(x[i * n + j]); });
  zero = size == 0;
  if (zero) return 0;
  const double square = sum_owned(n, cells, [&](int i, int j) {
    const double value = x[i * n + j] / size;
    return value * value;
  });
  const double norm = sqrt_of(square);
  for_each_owned(n, [&](int, int, int i, int j) { x[i * n + j] = x[i * n + j] / size / norm; });
  return log_of(size) + log_of(norm);
}

template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    spectral_radius_block_kernel(int n, const T* P, double* x, T* radius) {
  auto& cells = shared_storage<Cells>();
  for_each_owned(n, [&](int, int, int i, int j) { x[i * n + j] = P[i * n + j]; });
  bool zero = false;
  double log_norm = normalise(x, n, cells.sum, zero), share = 1, last = 0;
  for (int k = 0; k < kSquarings && !zero; ++k) {
    const Tile<double> tile = product(plain<double>(x), plain<double>(x), n, cells.panels);
    for_each_owned(n, [&](int r, int c, int i, int j) { x[i * n + j] = tile.at[r][c]; });
    share *= 0.5;
    last = share * normalise(x, n, cells.sum, zero);
    log_norm += last;
  }
  if (threadIdx.x == 0) *radius = zero ? T(0) : static_cast<T>(exp_of(log_norm + last));
}

}  // namespace

Status spectral_radius(const SpectralRadius& args, Stream stream) noexcept {
  return dispatch_dtype(args.A_bar.dtype, "spectral_radius: no CUDA kernel for this dtype", [&](auto value) {
    using T = decltype(value);
    return launch("spectral_radius_block_kernel", spectral_radius_block_kernel<T>, dim3(1),
                  dim3(kBlockThreads), 0, stream, static_cast<int>(args.A_bar.shape[0]), args.A_bar.as<T>(),
                  static_cast<double*>(args.workspace.data), args.radius.as<T>());
  });
}

std::int64_t spectral_radius_workspace(const SpectralRadius& args) noexcept {
  return args.A_bar.elements() * static_cast<std::int64_t>(sizeof(double));
}

}  // namespace scantape::cuda
