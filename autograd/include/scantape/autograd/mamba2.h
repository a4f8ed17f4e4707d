#pragma once

#include "scantape/autograd/model.h"
#include "scantape/autograd/ops.h"

namespace scantape::autograd {

/// Sizes and options of a Mamba-2 block. Every size is at least 1.
struct Mamba2BlockConfig {
  std::int64_t hidden_dim = 256;   ///< D, the width of the residual stream
  std::int64_t expand = 2;         ///< the block is expand * D wide inside
  std::int64_t state_dim = 16;     ///< N, numbers that a channel of a head remembers
  std::int64_t head_dim = 64;      ///< P, channels that decay together; divides expand * D
  std::int64_t groups = 1;         ///< G, sets of B and C; divides the heads
  std::int64_t conv_width = 4;     ///< K, taps of the convolution, at most 16
  std::int64_t chunk_length = 64;  ///< steps that ssd takes at a time; 0: step by step
  std::int64_t norm_groups =
      0;  ///< sets of channels that the gated norm takes a mean of; 0: as many as groups
  bool norm_before_gate = false;
  double dt_min = 0, dt_max = std::numeric_limits<double>::infinity();
  double eps = 1e-5;

  std::int64_t inner_dim() const noexcept { return expand * hidden_dim; }
  std::int64_t heads() const noexcept { return inner_dim() / head_dim; }
  std::int64_t conv_dim() const noexcept { return inner_dim() + 2 * groups * state_dim; }
  std::int64_t projected_dim() const noexcept { return inner_dim() + conv_dim() + heads(); }
};

/// What a block remembers between two pieces of a sequence. A value: copying the tensors' handles shares them, and a
/// forward makes new ones, so that any state may be kept, copied (Tensor::clone) and gone back to.
struct Mamba2BlockState {
  Tensor conv;  ///< [B, K - 1, conv_dim], the last inputs of the convolution; absent where K is 1
  Tensor ssm;   ///< [B, H, P, N]
};

/// The mixer of Mamba-2:
///   z, xBC, dt = split(in_proj(u));  x, B, C = split(silu(conv1d(xBC)));  dt = clamp(softplus(dt + dt_bias))
///   y = ssd(x, dt, A = -exp(A_log), B, C, D);  out = out_proj(norm(y * silu(z)))
///
/// Shapes   u [B, L, D] -> [B, L, D]. One path for whole sequences, pieces of them and single steps.
/// Init     A uniform in [1, 16], as A_log; dt log-uniform in [1e-3, 0.1]; D = 1; projections and taps uniform up to
///          1 / sqrt(fan_in), out_proj divided by sqrt(num_layers). Reproducible from the seed.
/// Decay    on projections and taps; none on A_log, D, dt_bias, norm and bias.
/// Source   Dao, Gu 2024, arXiv:2405.21060.
/// Example
///   autograd::Mamba2BlockConfig config;
///   config.hidden_dim = 4;
///   config.head_dim = 4;
///   autograd::Random random(1);
///   autograd::Parameters parameters;
///   const autograd::Mamba2Block block(config, "", 1, parameters, random);
///   parameters.allocate(DType::f64, kCpu);
///   const Tensor u = Tensor::zeros({2, 3, 4}, DType::f64);
///   const auto on = [&](int index) { return parameters.on(nullptr, index); };
///   const double length = static_cast<double>(block.forward(on, u).shape()[1]);  // length is 3
class Mamba2Block {
 public:
  /// Adds its parameters, named with the prefix, and fills them; without `random` drawn ones are left at zero, for
  /// weights that are read from a file.
  Mamba2Block(const Mamba2BlockConfig& config, const std::string& prefix, std::int64_t num_layers,
              Parameters& parameters, Random& random)
      : Mamba2Block(config, prefix, num_layers, parameters, &random) {}
  Mamba2Block(const Mamba2BlockConfig& config, const std::string& prefix, std::int64_t num_layers,
              Parameters& parameters, Random* random);

  /// `on` gives a parameter's variable. With a `state` the sequence goes on from there, and the state is replaced.
  template <class On>
  Variable forward(const On& on, const Variable& u, Mamba2BlockState* state = nullptr,
                   const Tensor& start = {}) const {
    return run({on(in_proj_), on(conv_weight_), on(conv_bias_), on(dt_bias_), on(A_log_), on(D_), on(norm_),
                on(out_proj_)},
               u, state, start);
  }

  /// D projected_dim + conv_dim (K + 1) + 3 H + inner_dim (the norm) + inner_dim D.
  static std::int64_t parameter_count(const Mamba2BlockConfig& config) noexcept;

 private:
  struct Weights {
    Variable in_proj, conv_weight, conv_bias, dt_bias, A_log, D, norm, out_proj;
  };
  Variable run(const Weights& weights, const Variable& u, Mamba2BlockState* state, const Tensor& start) const;

  Mamba2BlockConfig config_;
  int in_proj_, conv_weight_, conv_bias_, dt_bias_, A_log_, D_, norm_, out_proj_;
};

/// What a model of such blocks remembers: of each layer; empty before the first step.
using Mamba2State = std::vector<Mamba2BlockState>;

/// Sizes and options of the mamba2 model of features.
struct Mamba2Config : Mamba2BlockConfig {
  std::int64_t features = 0;  ///< F, numbers an input step has
  std::int64_t num_layers = 6;
};

/// A selective state space model of features: layers of  x <- x + block(layer_norm(x))  between an input projection
/// F -> D and a final layer norm and output projection D -> 1.
///
/// Shapes   x [B, L, F] -> [B, L, 1].
/// Dtypes   one for the whole model, f32 or f64; input of another is an error.
/// Limits   those of causal_conv1d and ssd.
/// Source   Dao, Gu 2024, arXiv:2405.21060.
/// Example
///   autograd::Mamba2Config sizes;
///   sizes.features = 3;
///   sizes.hidden_dim = 4;
///   sizes.head_dim = 4;
///   sizes.num_layers = 1;
///   const autograd::Mamba2 model(sizes, DType::f32, kCpu, 1);
///   const Tensor x = Tensor::zeros({2, 5, 3}, DType::f32);
///   const Tensor y = model.forward(nullptr, x).value();
///   const double steps = static_cast<double>(y.shape()[1]);  // steps is 5
class Mamba2 : public Model {
 public:
  using State = Mamba2State;

  Mamba2(const Mamba2Config& config, DType dtype, Device device, std::uint64_t seed);

  const Mamba2Config& config() const noexcept { return config_; }

  /// The next piece of sequences that have come as far as `state`, which goes on with them.
  Variable forward_from(State* state, const Variable& x) const {
    return layers(nullptr, x, WriteMode::overwrite, state);
  }

  /// D (F + 1) + n (block + 2 D) + 2 D + (D + 1).
  static std::int64_t parameter_count(const Mamba2Config& config) noexcept;

 private:
  struct Layer {
    int norm_weight, norm_bias;
    Mamba2Block block;
  };

  Variable run(Tape* tape, const Variable& x, WriteMode mode) const override {
    return layers(tape, x, mode, nullptr);
  }
  Variable layers(Tape* tape, const Variable& x, WriteMode mode, State* state) const;

  Mamba2Config config_;
  int input_weight_, input_bias_, norm_weight_, norm_bias_, output_weight_, output_bias_;
  std::vector<Layer> layers_;
};

}  // namespace scantape::autograd
