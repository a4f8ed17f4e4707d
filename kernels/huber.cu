// Huber loss: the mean over the elements counted of
//
//   rho(d) = d^2 / 2 where |d| <= k, else k (|d| - k / 2)        rho'(d) = d there, else k with the sign of d
//
// Both pieces have the value k^2 / 2 and the slope k at |d| = k: a d that rounds to the other side of it costs
// no more than its rounding. Kernels, order of the sums and what the mask does: common/loss.cuh.

#include "scantape/huber.h"

#include "common/loss.cuh"

namespace scantape::cuda {
namespace {

struct Huber {
  static constexpr double kFactor = 1;
  double k;

  __device__ double value(double d) const {
    const double size = d < 0 ? -d : d;
    return size <= k ? d * d / 2 : k * (size - k / 2);
  }
  /// What is no number stays none.
  template <class T>
  __device__ T slope(T d) const {
    const T bound = static_cast<T>(k);
    return d < -bound ? -bound : d > bound ? bound : d;
  }
};

constexpr const char* kMissing = "huber: no CUDA kernel for this dtype";

}  // namespace

Status huber_forward(const HuberForward& args, Stream stream) noexcept {
  return loss_forward(kMissing, args, Huber{args.k}, stream);
}

Status huber_backward(const HuberBackward& args, Stream stream) noexcept {
  return loss_backward(kMissing, args, Huber{args.k}, stream);
}

std::int64_t huber_forward_workspace(const HuberForward& args) noexcept {
  return loss_forward_workspace(args);
}

std::int64_t huber_backward_workspace(const HuberBackward& args) noexcept {
  return loss_backward_workspace(args);
}

}  // namespace scantape::cuda
