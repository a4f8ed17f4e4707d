#pragma once

#include "route.h"

/// What the losses' checks share: arguments of the same names, shapes and types.
namespace scantape {

template <class Args>
void check_loss_inputs(Check& check, const Args& args) noexcept {
  check.input("prediction", args.prediction, "...");
  check.input("target", args.target, "...");
  check.optional_input("mask", args.mask, "...");
}

template <class Forward>
void check_loss_forward(Check& check, const Forward& args) noexcept {
  check_loss_inputs(check, args);
  check.output("loss", args.loss, {"", Layout::dense, DType::f64});
}

template <class Backward>
void check_loss_backward(Check& check, const Backward& args) noexcept {
  check_loss_inputs(check, args);
  check.input("d_loss", args.d_loss, {"", Layout::dense, DType::f64});
  check.gradient("d_prediction", args.d_prediction, "...");
}

}  // namespace scantape
