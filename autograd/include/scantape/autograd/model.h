#pragma once

#include "scantape/autograd/parameters.h"
#include "scantape/autograd/variable.h"

namespace scantape::autograd {

/// A model of sequences, as training and scoring know it: what it has learned, and the one way to run it.
/// Example
///   #include "scantape/autograd/lti.h"
///   autograd::LtiConfig sizes;
///   sizes.features = 3;
///   sizes.hidden_dim = 4;
///   const autograd::Lti lti(sizes, DType::f32, kCpu, 1);
///   const autograd::Model& model = lti;  // of whichever family
///   const Tensor x = Tensor::zeros({2, 5, 3}, DType::f32);
///   const Tensor y = model.forward(nullptr, x).value();
///   const double outputs = static_cast<double>(y.shape()[2]);  // outputs is 1
class Model {
 public:
  virtual ~Model() = default;

  Parameters& parameters() noexcept { return parameters_; }
  const Parameters& parameters() const noexcept { return parameters_; }

  /// x [B, L, F] -> [B, L, 1]: a prediction at each step, from that step and those before it. Recorded on `tape` for
  /// training, on none for inference; the bits are the same. `mode` is that of the parameters' gradients.
  /// Errors   Error(invalid_argument) where x has another shape, dtype or device than the model wants.
  Variable forward(Tape* tape, const Variable& x, WriteMode mode = WriteMode::overwrite) const {
    return run(tape, x, mode);
  }

 protected:
  Model() = default;
  Model(Model&&) = default;
  Model& operator=(Model&&) = default;

  Parameters parameters_;

 private:
  virtual Variable run(Tape* tape, const Variable& x, WriteMode mode) const = 0;
};

}  // namespace scantape::autograd
