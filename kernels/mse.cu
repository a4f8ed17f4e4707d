// Mean squared error: the mean of d^2 over the elements counted, its slope 2 d. Kernels, order of the sums and
// what the mask does: common/loss.cuh.

#include "scantape/mse.h"

#include "common/loss.cuh"

namespace scantape::cuda {
namespace {

struct Mse {
  static constexpr double kFactor = 2;

  __device__ double value(double d) const { return d * d; }
  template <class T>
  __device__ T slope(T d) const {
    return d;
  }
};

constexpr const char* kMissing = "mse: no CUDA kernel for this dtype";

}  // namespace

Status mse_forward(const MseForward& args, Stream stream) noexcept {
  return loss_forward(kMissing, args, Mse{}, stream);
}

Status mse_backward(const MseBackward& args, Stream stream) noexcept {
  return loss_backward(kMissing, args, Mse{}, stream);
}

std::int64_t mse_forward_workspace(const MseForward& args) noexcept {
  return loss_forward_workspace(args);
}

std::int64_t mse_backward_workspace(const MseBackward& args) noexcept {
  return loss_backward_workspace(args);
}

}  // namespace scantape::cuda
