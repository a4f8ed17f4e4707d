// Layer normalisation over the last axis. Maths, gradient and kernels: common/norm.cuh.

#include "scantape/layer_norm.h"

#include "common/norm.cuh"

namespace scantape::cuda {

Status layer_norm_forward(const LayerNormForward& args, Stream stream) noexcept {
  return launch_norm_forward<Norm::layer>(args, stream);
}

Status layer_norm_backward(const LayerNormBackward& args, Stream stream) noexcept {
  return launch_norm_backward<Norm::layer>(args, stream);
}

std::int64_t layer_norm_forward_workspace(const LayerNormForward&) noexcept {
  return 0;
}

std::int64_t layer_norm_backward_workspace(const LayerNormBackward& args) noexcept {
  return norm_backward_workspace(args);
}

}  // namespace scantape::cuda
