#include "scantape/copy.h"

#include "elementwise.h"

namespace scantape::autograd {

Variable copy(const Variable& x) {
  return elementwise("copy", x, copy_forward, copy_forward_workspace, copy_backward, copy_backward_workspace);
}

}  // namespace scantape::autograd
