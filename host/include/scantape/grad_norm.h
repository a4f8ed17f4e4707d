#pragma once

#include "scantape/op.h"
#include "scantape/step_control.h"

namespace scantape {

/// Norm of all gradients of a model and what follows from it for the optimiser's step (a utility, not differentiable).
/// Writes kGradNorm, kClipFactor, kSkip and counts up kSteps or kSkipped, kSkippedInARow. The step is skipped where the
/// norm or the loss is not finite.
///
/// Shapes   gradient [n]: all gradients in one flat tensor, padding zero;  loss [] (optional);  control [kStepControls].
/// Dtypes   gradient f32 or f64;  loss and control f64.
/// Accuracy summed in f64 in one fixed order: no overflow for f32 gradients.
/// Memory   contiguous. CUDA: workspace for partial sums.
/// Async    enqueues on `stream`; does not synchronise or allocate. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap), cuda.
/// Example
///   const Tensor gradient = Tensor::from({2}, std::vector<double>{3, -4});
///   std::vector<double> controls(kStepControls);
///   controls[kLearningRate] = 0.1;
///   controls[kMaxNorm] = 1;
///   Tensor control = Tensor::from({kStepControls}, controls);
///   GradNorm args;
///   args.gradient = gradient;
///   args.control = control.writable();
///   require(grad_norm(args));
///   const double norm = control.values<double>()[kGradNorm];      // norm is 5
///   const double factor = control.values<double>()[kClipFactor];  // factor is 0.2
struct GradNorm {
  ConstView gradient, loss;
  View control;
  Workspace workspace;
};

SCANTAPE_DECLARE_OP(grad_norm, GradNorm);

}  // namespace scantape
