#pragma once

#include <span>

#include "market/dataset.h"
#include "scantape/autograd/model.h"

namespace scantape::train {

/// One batch of windows on a device.
struct Batch {
  Tensor x;                  // [B, L, F]
  Tensor target;             // [B, L, 1]
  Tensor mask;               // [B, L, 1]
  std::int64_t counted = 0;  // positions whose mask is 1
};

Batch make_batch(const market::Dataset& data, std::span<const market::Window> windows, DType dtype,
                 Device device);

/// How a model does on windows, in units of the target scale.
struct Score {
  std::int64_t windows = 0, positions = 0;
  double loss = 0;           // mean squared error
  double baseline_loss = 0;  // of predicting zero, on the same positions
};

/// The one measure of a model on data, for validation and for evaluate. Summed in f64 in the order of the windows, so
/// it does not depend on the batch size.
Score score(const autograd::Model& model, const market::Dataset& data,
            std::span<const market::Window> windows, std::int64_t batch_size);

}  // namespace scantape::train
