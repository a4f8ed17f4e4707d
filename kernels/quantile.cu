// Quantile (pinball) loss: the mean over the elements counted of
//
//   rho(d) = -q d where d < 0, else (1 - q) d        rho'(d) = -q where d < 0, 1 - q where d > 0, 0 at d = 0
//
// The sign of d is right in any precision: prediction - target rounds to 0 only where the two are equal.
// Kernels, order of the sums and what the mask does: common/loss.cuh.

#include "scantape/quantile.h"

#include "common/loss.cuh"

namespace scantape::cuda {
namespace {

struct Quantile {
  static constexpr double kFactor = 1;
  double q;

  __device__ double value(double d) const { return d < 0 ? -q * d : (1 - q) * d; }
  /// At 0 the slope is 0; what is no number stays none.
  template <class T>
  __device__ T slope(T d) const {
    return d < T(0) ? static_cast<T>(-q) : d > T(0) ? static_cast<T>(1 - q) : d;
  }
};

constexpr const char* kMissing = "quantile: no CUDA kernel for this dtype";

}  // namespace

Status quantile_forward(const QuantileForward& args, Stream stream) noexcept {
  return loss_forward(kMissing, args, Quantile{args.q}, stream);
}

Status quantile_backward(const QuantileBackward& args, Stream stream) noexcept {
  return loss_backward(kMissing, args, Quantile{args.q}, stream);
}

std::int64_t quantile_forward_workspace(const QuantileForward& args) noexcept {
  return loss_forward_workspace(args);
}

std::int64_t quantile_backward_workspace(const QuantileBackward& args) noexcept {
  return loss_backward_workspace(args);
}

}  // namespace scantape::cuda
