#pragma once

namespace scantape {

/// The scalars that steer one optimiser step. They live on the device as a tensor [kStepControls] of f64, so that a
/// whole training step runs, and can be captured, without reading anything back.
enum StepControl : int {
  kLearningRate,   ///< set by the caller before the step
  kMaxNorm,        ///< set by the caller: gradients are clipped to this norm; 0 or inf: no clipping
  kSteps,          ///< steps performed so far; grad_norm adds 1 unless the step is skipped
  kSkipped,        ///< steps skipped so far because the loss or a gradient was not finite
  kSkippedInARow,  ///< of these, the latest without a performed step between
  kGradNorm,       ///< norm over all gradients, before clipping (grad_norm)
  kClipFactor,     ///< min(1, max_norm / (norm + 1e-6)) (grad_norm)
  kSkip,           ///< 1 where this step is skipped, else 0 (grad_norm)
  kStepControls,
};

}  // namespace scantape
