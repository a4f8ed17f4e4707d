#include "scantape/huber.h"

#include "loss.h"

namespace scantape::reference {

namespace {

struct Penalty {
  double k;
  double value(double d) const noexcept { return std::abs(d) <= k ? d * d / 2 : k * (std::abs(d) - k / 2); }
  // What is no number stays none.
  double slope(double d) const noexcept { return d < -k ? -k : d > k ? k : d; }
};

}  // namespace

Status huber_forward(const HuberForward& args) noexcept {
  return loss_forward(args, Penalty{args.k});
}

Status huber_backward(const HuberBackward& args) noexcept {
  return loss_backward(args, Penalty{args.k});
}

}  // namespace scantape::reference
