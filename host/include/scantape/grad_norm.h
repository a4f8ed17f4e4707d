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
struct GradNorm {
  ConstView gradient, loss;
  View control;
  Workspace workspace;
};

SCANTAPE_DECLARE_OP(grad_norm, GradNorm);

}  // namespace scantape
