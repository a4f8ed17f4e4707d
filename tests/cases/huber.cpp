#include "scantape/huber.h"

#include <sstream>

#include "loss.h"

namespace scantape::cases {
namespace {

HuberForward forward_arguments(double k, const Call& call) {
  auto args = loss_arguments<HuberForward>(call);
  args.k = k;
  return args;
}

/// Differences lie on both sides of the corners at k and -k.
LossForm form(double k) {
  std::ostringstream number;
  number << "k " << k;
  return {.op = "huber",
          .number = number.str(),
          .forward =
              [k](const Call& call) {
                return run(SCANTAPE_DIRECTION(huber_forward), forward_arguments(k, call), call);
              },
          .backward =
              [k](const Call& call) {
                const auto args = loss_backward_arguments<HuberBackward>(call, forward_arguments(k, call));
                return run(SCANTAPE_DIRECTION(huber_backward), args, call);
              },
          .prediction = off_corners_prediction(k),
          .target = off_corners_target(k)};
}

}  // namespace

std::vector<Case> huber_cases() {
  return loss_cases({form(1), form(0.125), form(3)});
}

}  // namespace scantape::cases
