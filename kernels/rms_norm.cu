// Root mean square normalisation over the last axis. Maths, gradient and kernels: common/norm.cuh.

#include "scantape/rms_norm.h"

#include "common/norm.cuh"

namespace scantape::cuda {

Status rms_norm_forward(const RmsNormForward& args, Stream stream) noexcept {
  return launch_norm_forward<Norm::rms>(args, stream);
}

Status rms_norm_backward(const RmsNormBackward& args, Stream stream) noexcept {
  return launch_norm_backward<Norm::rms>(args, stream);
}

std::int64_t rms_norm_forward_workspace(const RmsNormForward&) noexcept {
  return 0;
}

std::int64_t rms_norm_backward_workspace(const RmsNormBackward& args) noexcept {
  return norm_backward_workspace(args);
}

}  // namespace scantape::cuda
