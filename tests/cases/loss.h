#pragma once

#include <string>
#include <vector>

#include "case.h"

namespace scantape::cases {

/// One loss at one value of its number.
struct LossForm {
  std::string op;
  std::string number{};  ///< "k 2", part of the case's name; empty where the loss has none
  std::function<Status(const Call&)> forward, backward;
  Fill prediction = normal(), target = normal();
};

/// The cases of a loss: `forms` share out the large list. Masks of every kind, also one that hides NaN and infinity.
std::vector<Case> loss_cases(const std::vector<LossForm>& forms);

/// Predictions and targets whose difference stays a quarter of `unit` away from every multiple of it, on both sides of
/// the multiples around 0: penalties with corners there are smooth on them.
Fill off_corners_prediction(double unit);
Fill off_corners_target(double unit);

template <class Forward>
Forward loss_arguments(const Call& call) {
  Forward args;
  args.prediction = call.input("prediction");
  args.target = call.input("target");
  args.mask = call.input("mask");
  args.loss = call.output("loss");
  return args;
}

template <class Backward, class Forward>
Backward loss_backward_arguments(const Call& call, const Forward& forward) {
  Backward args;
  static_cast<Forward&>(args) = forward;
  args.loss = View();  // not read
  args.d_loss = call.cotangent("loss");
  args.d_prediction = call.gradient("prediction");
  return args;
}

}  // namespace scantape::cases
