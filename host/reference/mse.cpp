#include "scantape/mse.h"

#include "loss.h"

namespace scantape::reference {

namespace {

struct Penalty {
  double value(double d) const noexcept { return d * d; }
  double slope(double d) const noexcept { return 2 * d; }
};

}  // namespace

Status mse_forward(const MseForward& args) noexcept {
  return loss_forward(args, Penalty{});
}

Status mse_backward(const MseBackward& args) noexcept {
  return loss_backward(args, Penalty{});
}

}  // namespace scantape::reference
