#include "scantape/huber.h"

#include "loss.h"

namespace scantape::autograd {

Variable huber(const Variable& prediction, const Variable& target, double k, const Variable& mask) {
  return record_loss("huber", huber_forward, huber_forward_workspace, huber_backward,
                     huber_backward_workspace, prediction, target, mask,
                     [k](HuberForward& args) { args.k = k; });
}

}  // namespace scantape::autograd
