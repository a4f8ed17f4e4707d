#pragma once

#include "scantape/op.h"

namespace scantape {

/// The most rows of a matrix on cuda, where one block of threads holds it.
inline constexpr std::int64_t kMostSpectralRowsOnCuda = 64;

/// Spectral radius of a matrix: the largest |eigenvalue| (a utility, not differentiable). A recurrence
/// h_t = A_bar h_{t-1} + v_t stays bounded where it is below 1.
///   radius = (|A_bar^{2 m}| / |A_bar^m|)^{1/m},  m = 2^13,  Frobenius norms,
/// by squaring and scaling back, so that nothing overflows and a Jordan block's growth with m cancels.
///
/// Shapes   A_bar [N, N];  radius [] (one element).
/// Dtypes   f32 or f64, equal.
/// Accuracy in f64. A factor of c^(1/m) around the truth, c the condition of the dominant eigenvectors: 6e-4 for c = 100,
///          next to nothing where one eigenvalue dominates. A nilpotent matrix gives 0, and so does a Jordan block of more
///          than about 90 rows, whose powers spread beyond f64; one that is not finite gives NaN or infinity.
/// Memory   contiguous. CUDA: workspace of one N x N matrix. CPU: such matrices are allocated.
/// Async    enqueues on `stream`; does not synchronise or allocate (cuda). Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap), unsupported (cuda with N > 64), out_of_memory (cpu),
///          cuda.
/// Source   Gelfand 1941: radius = lim |A^k|^{1/k}.
/// Example
///   const Tensor A_bar = Tensor::from({2, 2}, std::vector<double>{0, 0.5, -0.5, 0});
///   Tensor radius = Tensor::empty({}, DType::f64);
///   SpectralRadius args;
///   args.A_bar = A_bar;
///   args.radius = radius.writable();
///   require(spectral_radius(args));  // radius is 0.5
struct SpectralRadius {
  ConstView A_bar;
  View radius;
  Workspace workspace;
};

SCANTAPE_DECLARE_OP(spectral_radius, SpectralRadius);

}  // namespace scantape
