// SiLU, elementwise.
//
//   y = x s,  s = sigmoid(x)        d_x = d_y * s (1 + x (1 - s))
//
// since s' = s (1 - s). The sigmoid comes from exp(-|x|/2), which never overflows: y goes to x on the right
// and to 0 on the left, and is never NaN for finite x. 1 - s is formed without a subtraction. Forward saves
// nothing beside x; y is not enough, because x s is not monotonic and two x give the same y.

#include "scantape/silu.h"

#include "common/elementwise.cuh"
#include "common/math.cuh"

namespace scantape::cuda {
namespace {

struct Silu {
  static constexpr const char* kMissing = "silu: no CUDA kernel for this dtype";
  static constexpr const char* kForwardKernel = "silu_fwd_elementwise_kernel";
  static constexpr const char* kBackwardKernel = "silu_bwd_elementwise_kernel";
  template <class T>
  __device__ static T value(T x) {
    return silu(x);
  }
  template <class T>
  __device__ static T derivative(T x) {
    return silu_derivative(x);
  }
};

}  // namespace

Status silu_forward(const SiluForward& args, Stream stream) noexcept {
  return elementwise_forward<Silu>(args, stream);
}
Status silu_backward(const SiluBackward& args, Stream stream) noexcept {
  return elementwise_backward<Silu>(args, stream);
}

std::int64_t silu_forward_workspace(const SiluForward&) noexcept {
  return 0;
}
std::int64_t silu_backward_workspace(const SiluBackward&) noexcept {
  return 0;
}

}  // namespace scantape::cuda
