#include "scantape/silu.h"

#include "elementwise.h"

namespace scantape::autograd {

Variable silu(const Variable& x) {
  return elementwise("silu", x, silu_forward, silu_forward_workspace, silu_backward, silu_backward_workspace);
}

}  // namespace scantape::autograd
