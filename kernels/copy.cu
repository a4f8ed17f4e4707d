// Copy, elementwise.
//
//   y = x        d_x = d_y
//
// Each row may have a stride of its own: so columns are taken out of a wider tensor, and their gradient is put back or
// added. Backward reads x too, as all elementwise ops do, though nothing depends on it: the one pass that a kernel of its
// own would save is as long as the two that are left.

#include "scantape/copy.h"

#include "common/elementwise.cuh"
#include "common/math.cuh"

namespace scantape::cuda {
namespace {

struct Copy {
  static constexpr const char* kMissing = "copy: no CUDA kernel for this dtype";
  static constexpr const char* kForwardKernel = "copy_fwd_elementwise_kernel";
  static constexpr const char* kBackwardKernel = "copy_bwd_elementwise_kernel";
  template <class T>
  __device__ static T value(T x) {
    return x;
  }
  template <class T>
  __device__ static T derivative(T) {
    return T(1);
  }
};

}  // namespace

Status copy_forward(const CopyForward& args, Stream stream) noexcept {
  return elementwise_forward<Copy>(args, stream);
}
Status copy_backward(const CopyBackward& args, Stream stream) noexcept {
  return elementwise_backward<Copy>(args, stream);
}

std::int64_t copy_forward_workspace(const CopyForward&) noexcept {
  return 0;
}
std::int64_t copy_backward_workspace(const CopyBackward&) noexcept {
  return 0;
}

}  // namespace scantape::cuda
