#pragma once

#include "case.h"
#include "scantape/step_control.h"

namespace scantape::cases {

/// The scalars that steer an optimiser step, by name.
struct Control {
  double learning_rate = 1e-3, max_norm = 0, steps = 0, skipped = 0, skipped_in_a_row = 0, norm = 0,
         clip_factor = 1, skip = 0;

  Values values() const {
    Values list(kStepControls, 0.0);
    list[kLearningRate] = learning_rate;
    list[kMaxNorm] = max_norm;
    list[kSteps] = steps;
    list[kSkipped] = skipped;
    list[kSkippedInARow] = skipped_in_a_row;
    list[kGradNorm] = norm;
    list[kClipFactor] = clip_factor;
    list[kSkip] = skip;
    return list;
  }
  Fill fill() const {
    return [list = values()](Rng&, const Shape&) { return list; };
  }
};

}  // namespace scantape::cases
