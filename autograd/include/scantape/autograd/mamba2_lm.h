#pragma once

#include <functional>
#include <optional>

#include "scantape/autograd/mamba2.h"

namespace scantape::autograd {

/// Sizes and options of a Mamba-2 language model.
struct Mamba2LMConfig : Mamba2BlockConfig {
  std::int64_t vocabulary = 0;  ///< V, rows of the embedding
  std::int64_t num_layers = 6;
  bool tied_embeddings = true;  ///< the output projection is the embedding
};

/// A language model of Mamba-2 blocks: layers of  x <- x + block(rms_norm(x))  between an embedding V -> D and a last
/// rms_norm and output projection D -> V, whose weight is the embedding's where these are tied: its gradient is then the
/// sum of both.
///
/// Shapes   ids [B, L] (i32) -> logits [B, L, V].
/// Dtypes   one for all parameters and logits, f32 or f64; the loss is f64.
/// Init     the embedding normal, deviation 0.02; the output projection, where it is one of its own, uniform up to
///          1 / sqrt(D); blocks as Mamba2Block. Reproducible from the seed.
/// Names    those of public weights: backbone.embeddings.weight, backbone.layers.0.norm.weight,
///          backbone.layers.0.mixer.in_proj.weight, ..., backbone.norm_f.weight, lm_head.weight.
/// Limits   those of causal_conv1d and ssd.
/// Errors   Error(invalid_argument): sizes that do not go together, ids of another shape, dtype or device; and, on the CPU,
///          an id outside 0 to V - 1. On cuda such an id makes the logits of its sequence NaN from there on.
/// Source   Dao, Gu 2024, arXiv:2405.21060.
/// Example
///   #include <cmath>
///   #include "scantape/autograd/tape.h"
///   autograd::Mamba2LMConfig sizes;
///   sizes.vocabulary = 7;
///   sizes.hidden_dim = 4;
///   sizes.head_dim = 4;
///   sizes.num_layers = 1;
///   autograd::Mamba2LM model(sizes, DType::f64, kCpu, 1);
///   const Tensor ids = Tensor::from({1, 3}, std::vector<std::int32_t>{5, 0, 6});
///   const Tensor next = Tensor::from({1, 3}, std::vector<std::int32_t>{0, 6, -100});
///   autograd::Tape tape;
///   const autograd::Variable loss = model.loss(&tape, ids, next);
///   tape.backward(loss);
///   const double about_log_7 = std::round(loss.value().values<double>()[0]);  // about_log_7 is 2
///   autograd::Mamba2LM::State state;
///   const Tensor logits = model.next_logits(&state, ids);
///   const double V = static_cast<double>(logits.shape()[1]);  // V is 7
class Mamba2LM {
 public:
  using State = Mamba2State;

  Mamba2LM(const Mamba2LMConfig& config, DType dtype, Device device, std::uint64_t seed);
  /// With nothing drawn: for weights that are read from a file into parameters().
  Mamba2LM(const Mamba2LMConfig& config, DType dtype, Device device);

  const Mamba2LMConfig& config() const noexcept { return config_; }
  Parameters& parameters() noexcept { return parameters_; }
  const Parameters& parameters() const noexcept { return parameters_; }

  /// The logits at each step, of what comes after it. Recorded on `tape` for training, on none for inference; the bits are
  /// the same. `mode` is that of the parameters' gradients. start [B, L], of the model's dtype: a new sequence begins where
  /// it is not 0.
  Variable forward(Tape* tape, const Tensor& ids, WriteMode mode = WriteMode::overwrite,
                   const Tensor& start = {}) const;

  /// The same with parameters of one's own: `on` gives the variable that takes the place of parameters().value(index).
  using On = std::function<Variable(int index)>;
  Variable forward_on(const On& on, const Tensor& ids, const Tensor& start = {}) const;

  /// Cross entropy of those logits against targets [B, L] (i32), averaged over the steps whose target is not ignore_index.
  /// A target is the token that should follow: whoever trains on a text shifts it by one.
  Variable loss(Tape* tape, const Tensor& ids, const Tensor& targets, std::int32_t ignore_index = -100,
                WriteMode mode = WriteMode::overwrite, const Tensor& start = {}) const;

  /// The next piece, of any length, of sequences that have come as far as `state`, which goes on with them, or stays as it
  /// is where something fails.
  Tensor forward_from(State* state, const Tensor& ids) const;
  /// The same, but the logits [B, V] of the last step alone: those of a long prompt would not fit.
  Tensor next_logits(State* state, const Tensor& ids) const;

  /// V D + n (block + D) + D, and V D once more where the embeddings are not tied.
  static std::int64_t parameter_count(const Mamba2LMConfig& config) noexcept;

 private:
  struct Layer {
    int norm_weight;
    Mamba2Block block;
  };
  Mamba2LM(std::optional<Random> random, const Mamba2LMConfig& config, DType dtype, Device device);

  void require_ids(const Tensor& ids) const;
  /// What the layers make of the tokens, and the weight that turns it into logits.
  struct Hidden {
    Variable last, head;
  };
  Hidden hidden(const On& on, const Tensor& ids, State* state, const Tensor& start) const;
  Variable carried(State* state, const Tensor& ids) const;  // what the layers make of a piece
  On constants() const {
    return [this](int index) { return Variable(parameters_.value(index)); };
  }

  Mamba2LMConfig config_;
  Parameters parameters_;
  int embedding_, norm_, head_;  // the head's is the embedding's where they are tied
  std::vector<Layer> layers_;
};

/// The `count` tokens that follow a prompt, each the one with the largest logit (the first of those where several are):
/// the prompt in one piece, then step by step. Throws Error(invalid_argument) for an empty prompt or an id outside of the
/// vocabulary, Error(corrupt_data) where a logit is no number.
std::vector<std::int32_t> continue_greedily(const Mamba2LM& model, const std::vector<std::int32_t>& prompt,
                                            std::int64_t count);

}  // namespace scantape::autograd
