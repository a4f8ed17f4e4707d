// One step of a causal depthwise convolution: causal_conv1d over a sequence of one step, by its kernels, so that the bits
// are the same. Each thread reads all of its channel's state before it writes the new one: both may be the same memory.
//
// Bytes: forward reads x and the state, writes y and the new state; backward the same of the cotangents, and both again.

#include "scantape/causal_conv1d_step.h"

#include "common/one_step.h"

namespace scantape::cuda {

Status causal_conv1d_step_forward(const CausalConv1dStepForward& args, Stream stream) noexcept {
  return cuda::causal_conv1d_forward(as_sequence(args), stream);
}
Status causal_conv1d_step_backward(const CausalConv1dStepBackward& args, Stream stream) noexcept {
  return cuda::causal_conv1d_backward(as_sequence(args), stream);
}

std::int64_t causal_conv1d_step_forward_workspace(const CausalConv1dStepForward& args) noexcept {
  return cuda::causal_conv1d_forward_workspace(as_sequence(args));
}
std::int64_t causal_conv1d_step_backward_workspace(const CausalConv1dStepBackward& args) noexcept {
  return cuda::causal_conv1d_backward_workspace(as_sequence(args));
}

}  // namespace scantape::cuda
