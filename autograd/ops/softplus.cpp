#include "scantape/softplus.h"

#include "elementwise.h"

namespace scantape::autograd {

Variable softplus(const Variable& x) {
  return elementwise("softplus", x, softplus_forward, softplus_forward_workspace, softplus_backward,
                     softplus_backward_workspace);
}

}  // namespace scantape::autograd
