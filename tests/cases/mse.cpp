#include "scantape/mse.h"

#include "loss.h"

namespace scantape::cases {
namespace {

Status forward(const Call& call) {
  return run(SCANTAPE_DIRECTION(mse_forward), loss_arguments<MseForward>(call), call);
}

Status backward(const Call& call) {
  const auto args = loss_backward_arguments<MseBackward>(call, loss_arguments<MseForward>(call));
  return run(SCANTAPE_DIRECTION(mse_backward), args, call);
}

}  // namespace

std::vector<Case> mse_cases() {
  return loss_cases({{.op = "mse", .forward = forward, .backward = backward}});
}

}  // namespace scantape::cases
