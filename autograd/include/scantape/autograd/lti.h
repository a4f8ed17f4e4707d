#pragma once

#include "scantape/autograd/model.h"
#include "scantape/autograd/ops.h"

namespace scantape::autograd {

/// What a layer's A is: a rate for each state, or a matrix.
enum class StateMatrix : std::uint8_t { diagonal, dense };

const char* name(StateMatrix matrix) noexcept;  // "dense"

/// Sizes and options of the lti model. Every size is at least 1.
struct LtiConfig {
  std::int64_t features = 0;      ///< F, numbers an input step has
  std::int64_t hidden_dim = 256;  ///< D
  std::int64_t expand = 2;        ///< E = expand * D, the width of the layers
  std::int64_t state_dim = 16;    ///< N, states a layer
  std::int64_t num_layers = 6;
  StateMatrix state_matrix = StateMatrix::diagonal;
  DiscretizeMethod method = DiscretizeMethod::zoh;
  Activation activation = Activation::silu;
  double eps = 1e-5;  ///< of the layer norms

  std::int64_t width() const noexcept { return expand * hidden_dim; }
};

/// A linear time-invariant state space model, layers of
///   u = layer_norm(x);  h_t = A_bar h_{t-1} + B_bar u_t;  x <- x + act(C h_t + D * u_t)
/// between an input projection F -> E and a final layer norm and output projection E -> 1. A is diagonal, with a step
/// dt = softplus(delta) learned for each state, or dense, with one for the layer.
///
/// Shapes   x [B, L, F] -> [B, L, 1].
/// Dtypes   one for the whole model, f32 or f64; input of another is an error.
/// Init     A uniform in [-1, -0.5], a dense one -1/2 I and a skew part; dt log-uniform in [1e-3, 0.1]; B, C and projections normal with variance
///          1 / fan_in (output projection: a ten-thousandth of it); D = 1; biases 0. Reproducible from the seed.
/// Decay    on the weights of projections and on B and C; none on norms, biases, A, delta, D.
/// Limits   those of discretize and scan: a dense A has at most 64 states on cuda.
/// Source   Gu, Goel, Re 2021, arXiv:2111.00396; Smith, Warrington, Linderman 2023, arXiv:2208.04933.
/// Example
///   autograd::LtiConfig config;
///   config.features = 3;
///   config.hidden_dim = 4;
///   config.num_layers = 1;
///   const autograd::Lti model(config, DType::f32, kCpu, 1);
///   const Tensor x = Tensor::zeros({2, 5, 3}, DType::f32);
///   const Tensor y = model.forward(nullptr, x).value();  // inference: recorded on no tape
///   const double length = static_cast<double>(y.shape()[1]);  // length is 5
class Lti : public Model {
 public:
  Lti(const LtiConfig& config, DType dtype, Device device, std::uint64_t seed);

  const LtiConfig& config() const noexcept { return config_; }

  /// E (F + 1) + n (2 E + 2 N + 2 N E + E) + 2 E + (E + 1); dense: N^2 + 1 in place of 2 N.
  static std::int64_t parameter_count(const LtiConfig& config) noexcept;

 private:
  struct Layer {
    int norm_weight, norm_bias, A, delta, B, C, D;
  };

  Variable run(Tape* tape, const Variable& x, WriteMode mode) const override;

  LtiConfig config_;
  int input_weight_, input_bias_, norm_weight_, norm_bias_, output_weight_, output_bias_;
  std::vector<Layer> layers_;
};

}  // namespace scantape::autograd
