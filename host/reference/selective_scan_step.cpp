#include "scantape/selective_scan_step.h"

#include "common/one_step.h"

namespace scantape::reference {

Status selective_scan_step_forward(const SelectiveScanStepForward& args) noexcept {
  return reference::selective_scan_forward(as_sequence(args));
}

Status selective_scan_step_backward(const SelectiveScanStepBackward& args) noexcept {
  return reference::selective_scan_backward(as_sequence(args));
}

}  // namespace scantape::reference
