#include "scantape/quantile.h"

#include "loss.h"

namespace scantape::reference {

namespace {

struct Penalty {
  double q;
  double value(double d) const noexcept { return d < 0 ? -q * d : (1 - q) * d; }
  // At 0 the slope is 0; what is no number stays none.
  double slope(double d) const noexcept { return d < 0 ? -q : d > 0 ? 1 - q : d; }
};

}  // namespace

Status quantile_forward(const QuantileForward& args) noexcept {
  return loss_forward(args, Penalty{args.q});
}

Status quantile_backward(const QuantileBackward& args) noexcept {
  return loss_backward(args, Penalty{args.q});
}

}  // namespace scantape::reference
