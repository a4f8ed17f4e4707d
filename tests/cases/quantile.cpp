#include "scantape/quantile.h"

#include <sstream>

#include "loss.h"

namespace scantape::cases {
namespace {

QuantileForward forward_arguments(double q, const Call& call) {
  auto args = loss_arguments<QuantileForward>(call);
  args.q = q;
  return args;
}

/// Differences lie on both sides of the corner at 0.
LossForm form(double q) {
  std::ostringstream number;
  number << "q " << q;
  return {.op = "quantile",
          .number = number.str(),
          .forward =
              [q](const Call& call) {
                return run(SCANTAPE_DIRECTION(quantile_forward), forward_arguments(q, call), call);
              },
          .backward =
              [q](const Call& call) {
                const auto args = loss_backward_arguments<QuantileBackward>(call, forward_arguments(q, call));
                return run(SCANTAPE_DIRECTION(quantile_backward), args, call);
              },
          .prediction = off_corners_prediction(1),
          .target = off_corners_target(1)};
}

}  // namespace

std::vector<Case> quantile_cases() {
  return loss_cases({form(0.5), form(0.05), form(0.9)});
}

}  // namespace scantape::cases
