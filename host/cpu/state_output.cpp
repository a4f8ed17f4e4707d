#include "cpu/state_output.h"

#include "cpu/exponential.h"
#include "reference/common.h"

// The library's exponential is a call for each element and takes most of this op's time: here it is the one of
// cpu/exponential.h.

namespace scantape::cpu {

namespace {

using reference::RowsOf;
using reference::Target;

/// sigmoid(z) = near^2 share and 1 - sigmoid(z) = far^2 share, as the reference has them. Factors are chosen
/// rather than results: a choice between two results becomes a branch.
struct Sigmoid {
  float near, far, share;

  SCANTAPE_INLINE explicit Sigmoid(float z) noexcept {
    const float half = exp_below_zero(-0.5F * __builtin_fabsf(z));
    near = z >= 0 ? 1.0F : half;
    far = z >= 0 ? half : 1.0F;
    share = 1.0F / (1.0F + half * half);
  }
};

SCANTAPE_INLINE float silu(float z) noexcept {
  const Sigmoid s(z);
  return (z * s.near) * (s.near * s.share);
}

SCANTAPE_INLINE float silu_derivative(float z) noexcept {
  const Sigmoid s(z);
  return (s.near * (1.0F + z * (s.far * s.far * s.share))) * (s.near * s.share);
}

/// One row of elements: out = residual + silu(z + D u). `out` may be z or residual.
SCANTAPE_CLONES void gated_row(std::int64_t count, const float* z, const float* u, const float* D,
                               const float* residual, float* out) noexcept {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) out[i] = residual[i] + silu(z[i] + D[i] * u[i]);
}

/// g = d_out * silu'(z + D u).
SCANTAPE_CLONES void gated_gradient_row(std::int64_t count, const float* z, const float* u, const float* D,
                                        const float* d_out, float* g) noexcept {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) g[i] = d_out[i] * silu_derivative(z[i] + D[i] * u[i]);
}

SCANTAPE_CLONES void add_products(std::int64_t count, const float* a, const float* b, double* sums) noexcept {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) sums[i] += double(a[i]) * double(b[i]);
}

bool has_vectors(const StateOutputForward& args) noexcept {
  return args.z.dtype == DType::f32 && args.activation == Activation::silu;
}

void backward(const StateOutputBackward& args) {
  // d_D is summed by blocks of this many rows, then over the blocks: one order whatever the threads.
  constexpr std::int64_t kBlock = 64;
  const Rows rows = reference::rows_of(args.z);
  const std::int64_t blocks = (rows.count + kBlock - 1) / kBlock;
  const auto width = static_cast<std::size_t>(rows.length);
  const RowsOf<const float> z(args.z), u(args.u), d_out(args.d_out);
  const Target<float> d_z(args.d_z), d_u(args.d_u), d_residual(args.d_residual), d_D(args.d_D);
  const float* D = args.D.as<float>();
  std::vector<float> gradients(width * static_cast<std::size_t>(blocks));
  std::vector<double> sums(d_D ? gradients.size() : 0);
#pragma omp parallel for schedule(static) if (reference::worth_threads(rows.count * rows.length))
  for (std::int64_t block = 0; block < blocks; ++block) {
    float* const g = gradients.data() + block * rows.length;
    for (std::int64_t row = block * kBlock; row < std::min((block + 1) * kBlock, rows.count); ++row) {
      gated_gradient_row(rows.length, z[row], u[row], D, d_out[row], g);
      d_z.write(row, rows.length, [&](std::int64_t i) { return g[i]; });
      d_u.write(row, rows.length, [&](std::int64_t i) { return g[i] * D[i]; });
      d_residual.write(row, rows.length, [&, from = d_out[row]](std::int64_t i) { return from[i]; });
      if (d_D) add_products(rows.length, g, u[row], sums.data() + block * rows.length);
    }
  }
  for (std::int64_t block = 1; d_D && block < blocks; ++block) {
    for (std::size_t i = 0; i < width; ++i) sums[i] += sums[static_cast<std::size_t>(block) * width + i];
  }
  d_D.write(0, rows.length, [&](std::int64_t i) {
    return blocks > 0 ? static_cast<float>(sums[static_cast<std::size_t>(i)]) : 0.0F;
  });
}

}  // namespace

Status state_output_forward(const StateOutputForward& args) noexcept {
  if (!has_vectors(args)) return reference::state_output_forward(args);
  const Rows rows = reference::rows_of(args.z);
  const RowsOf<const float> z(args.z), u(args.u), residual(args.residual);
  const RowsOf<float> out(args.out);
#pragma omp parallel for schedule(static) if (reference::worth_threads(rows.count * rows.length))
  for (std::int64_t row = 0; row < rows.count; ++row) {
    gated_row(rows.length, z[row], u[row], args.D.as<float>(), residual[row], out[row]);
  }
  return {};
}

Status state_output_backward(const StateOutputBackward& args) noexcept {
  if (!has_vectors(args)) return reference::state_output_backward(args);
  return reference::run("state_output_backward", [&] { backward(args); });
}

}  // namespace scantape::cpu
