#pragma once

#include "scantape/op.h"
#include "scantape/step_control.h"

namespace scantape {

/// One AdamW step over all parameters of a model, in one launch (an optimiser, not differentiable):
///   m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g^2;  p <- p - lr wd p - (lr / c1) m / (sqrt(v) / sqrt(c2) + eps),
/// g the gradient times kClipFactor, t = kSteps (grad_norm has counted this step already), c1 = 1 - b1^t, c2 = 1 - b2^t.
/// Does nothing where kSkip is set.
///
/// Shapes   parameter, gradient, first_moment, second_moment [n], flat;  control [kStepControls]. The first
///          `decayed_elements` of n have weight decay, the rest has none.
/// Dtypes   f32 or f64, the four equal;  control f64.
/// Accuracy lr/c1, 1/sqrt(c2), 1-b1, 1-b2 formed in f64, then rounded; decay by fma from the old parameter.
/// Memory   contiguous; the four do not overlap. No workspace.
/// Async    enqueues on `stream`; does not synchronise or allocate. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap, betas outside [0, 1), eps <= 0, decay < 0), cuda.
/// Source   Loshchilov, Hutter 2019, arXiv:1711.05101.
/// Example
///   std::vector<double> controls(kStepControls);
///   controls[kLearningRate] = 0.1;
///   controls[kSteps] = 1;  // this step, counted by grad_norm
///   controls[kClipFactor] = 1;
///   const Tensor control = Tensor::from({kStepControls}, controls);
///   const Tensor gradient = Tensor::from({2}, std::vector<double>{3, -4});
///   Tensor parameter = Tensor::full({2}, 1, DType::f64);
///   Tensor first = Tensor::zeros({2}, DType::f64), second = Tensor::zeros({2}, DType::f64);
///   AdamW args;
///   args.parameter = parameter.writable();
///   args.gradient = gradient;
///   args.first_moment = first.writable();
///   args.second_moment = second.writable();
///   args.control = control;
///   require(adamw(args));  // parameter is 0.9, 1.1
struct AdamW {
  View parameter;
  ConstView gradient;
  View first_moment, second_moment;
  ConstView control;
  std::int64_t decayed_elements = 0;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
  Workspace workspace;
};

SCANTAPE_DECLARE_OP(adamw, AdamW);

}  // namespace scantape
