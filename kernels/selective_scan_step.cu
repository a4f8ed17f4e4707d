// One step of a selective scan: the kernels of selective_scan.cu over a sequence of length 1, with the state given as the
// initial one and the next as the final one, and so with their bits. A thread reads its states, moves and writes them:
// next_state may be the memory of state. Forward moves 2 B E N numbers and little else.

#include "scantape/selective_scan_step.h"

#include "common/one_step.h"

namespace scantape::cuda {

Status selective_scan_step_forward(const SelectiveScanStepForward& args, Stream stream) noexcept {
  return cuda::selective_scan_forward(as_sequence(args), stream);
}

Status selective_scan_step_backward(const SelectiveScanStepBackward& args, Stream stream) noexcept {
  return cuda::selective_scan_backward(as_sequence(args), stream);
}

std::int64_t selective_scan_step_forward_workspace(const SelectiveScanStepForward& args) noexcept {
  return cuda::selective_scan_forward_workspace(as_sequence(args));
}

std::int64_t selective_scan_step_backward_workspace(const SelectiveScanStepBackward& args) noexcept {
  return cuda::selective_scan_backward_workspace(as_sequence(args));
}

}  // namespace scantape::cuda
