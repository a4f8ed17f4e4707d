// Negative exponential, elementwise.
//
//   y = -exp(x)        d_x = -d_y exp(x)
//
// Forward saves nothing beside x.

#include "scantape/neg_exp.h"

#include "common/elementwise.cuh"
#include "common/math.cuh"

namespace scantape::cuda {
namespace {

struct NegExp {
  static constexpr const char* kMissing = "neg_exp: no CUDA kernel for this dtype";
  static constexpr const char* kForwardKernel = "neg_exp_fwd_elementwise_kernel";
  static constexpr const char* kBackwardKernel = "neg_exp_bwd_elementwise_kernel";
  template <class T>
  __device__ static T value(T x) {
    return -exp_of(x);
  }
  template <class T>
  __device__ static T derivative(T x) {
    return -exp_of(x);
  }
};

}  // namespace

Status neg_exp_forward(const NegExpForward& args, Stream stream) noexcept {
  return elementwise_forward<NegExp>(args, stream);
}
Status neg_exp_backward(const NegExpBackward& args, Stream stream) noexcept {
  return elementwise_backward<NegExp>(args, stream);
}

std::int64_t neg_exp_forward_workspace(const NegExpForward&) noexcept {
  return 0;
}
std::int64_t neg_exp_backward_workspace(const NegExpBackward&) noexcept {
  return 0;
}

}  // namespace scantape::cuda
