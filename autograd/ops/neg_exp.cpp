#include "scantape/neg_exp.h"

#include "elementwise.h"

namespace scantape::autograd {

Variable neg_exp(const Variable& x) {
  return elementwise("neg_exp", x, neg_exp_forward, neg_exp_forward_workspace, neg_exp_backward,
                     neg_exp_backward_workspace);
}

}  // namespace scantape::autograd
