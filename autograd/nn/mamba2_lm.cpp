#include "scantape/autograd/mamba2_lm.h"

#include <cmath>

#include "initial.h"
#include "mamba2_layers.h"

namespace scantape::autograd {
namespace {

constexpr double kEmbeddingDeviation = 0.02;

[[noreturn]] void refuse(const std::string& message) {
  throw Error(Code::invalid_argument, "mamba2_lm: " + message);
}

std::string describe(const Tensor& tensor) {
  if (!tensor.present()) return "absent";
  return name(tensor.shape()) + " " + name(tensor.dtype()) + " on " + name(tensor.device());
}

/// The first of the largest. One that is no number means that the model is broken, whatever the others are.
std::int32_t largest(const Tensor& logits) {
  const std::vector<double> values = logits.to(kCpu).to(DType::f64).values<double>();
  std::size_t best = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i]))
      throw Error(Code::corrupt_data, "mamba2_lm: the logit of token " + std::to_string(i) + " is no number");
    if (values[i] > values[best]) best = i;
  }
  return static_cast<std::int32_t>(best);
}

}  // namespace

Mamba2LM::Mamba2LM(const Mamba2LMConfig& config, DType dtype, Device device, std::uint64_t seed)
    : Mamba2LM(Random(seed), config, dtype, device) {}

Mamba2LM::Mamba2LM(const Mamba2LMConfig& config, DType dtype, Device device)
    : Mamba2LM(std::nullopt, config, dtype, device) {}

Mamba2LM::Mamba2LM(std::optional<Random> random, const Mamba2LMConfig& config, DType dtype, Device device)
    : config_(config) {
  if (config.vocabulary < 1 || config.num_layers < 1)
    refuse("vocabulary is " + std::to_string(config.vocabulary) + " and num_layers " +
           std::to_string(config.num_layers) + ", want at least 1");
  if (config.hidden_dim < 1)
    refuse("hidden_dim is " + std::to_string(config.hidden_dim) + ", wants at least 1");
  const std::int64_t V = config.vocabulary, D = config.hidden_dim;
  const auto table = [&](const char* name, const auto& draw) {
    return random ? parameters_.add(name, {V, D}, true, draw(*random)) : parameters_.add(name, {V, D}, true);
  };
  const auto norm = [&](const std::string& name) {
    return parameters_.add(name, {D}, false, constant(D, 1));
  };

  embedding_ = table("backbone.embeddings.weight", [&](Random& from) {
    return normal(from, {V, D}, kEmbeddingDeviation);
  });
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    const std::string prefix = "backbone.layers." + std::to_string(i) + ".";
    const int norm_weight = norm(prefix + "norm.weight");
    layers_.push_back({norm_weight, Mamba2Block(config, prefix + "mixer.", config.num_layers, parameters_,
                                                random ? &*random : nullptr)});
  }
  norm_ = norm("backbone.norm_f.weight");
  head_ = config.tied_embeddings ? embedding_ : table("lm_head.weight", [&](Random& from) {
    return uniform(from, {V, D}, -deviation_of(D), deviation_of(D));
  });
  parameters_.allocate(dtype, device);
}

void Mamba2LM::require_ids(const Tensor& ids) const {
  if (ids.present() && ids.shape().rank() == 2 && ids.elements() > 0 && ids.dtype() == DType::i32 &&
      ids.device() == parameters_.device())
    return;
  refuse("ids are " + describe(ids) + ", want [B, L] i32 on " + name(parameters_.device()) +
         " with at least one token");
}

Mamba2LM::Hidden Mamba2LM::hidden(const On& on, const Tensor& ids, State* state, const Tensor& start) const {
  require_ids(ids);
  // One variable for both uses of a tied table, so that the tape adds their gradients.
  const Variable table = on(embedding_), head = head_ == embedding_ ? table : on(head_);
  const Variable last = through_layers(
      embedding(ids, table), layers_, state,
      [&](std::size_t i, const Variable& x, const Variable& residual) {
        const Variable weight = on(i < layers_.size() ? layers_[i].norm_weight : norm_);
        return residual_rms_norm(x, residual, weight, {}, config_.eps);
      },
      [&](const Layer& layer, const Variable& u, Mamba2BlockState* remembered) {
        return layer.block.forward(on, u, remembered, start);
      });
  return {last, head};
}

Variable Mamba2LM::forward(Tape* tape, const Tensor& ids, WriteMode mode, const Tensor& start) const {
  return forward_on([&](int index) { return parameters_.on(tape, index, mode); }, ids, start);
}

Variable Mamba2LM::forward_on(const On& on, const Tensor& ids, const Tensor& start) const {
  const Hidden found = hidden(on, ids, nullptr, start);
  return projection(found.last, found.head);
}

Variable Mamba2LM::loss(Tape* tape, const Tensor& ids, const Tensor& targets, std::int32_t ignore_index,
                        WriteMode mode, const Tensor& start) const {
  return cross_entropy(forward(tape, ids, mode, start), targets, ignore_index);
}

Variable Mamba2LM::carried(State* state, const Tensor& ids) const {
  if (state == nullptr) return hidden(constants(), ids, nullptr, {}).last;
  State next = *state;
  const Variable last = hidden(constants(), ids, &next, {}).last;
  *state = std::move(next);
  return last;
}

Tensor Mamba2LM::forward_from(State* state, const Tensor& ids) const {
  return projection(carried(state, ids), parameters_.value(head_)).value();
}

Tensor Mamba2LM::next_logits(State* state, const Tensor& ids) const {
  const Variable all = carried(state, ids);
  const std::int64_t B = ids.shape()[0], L = ids.shape()[1];
  const Tensor last = all.value().slice(1, L - 1, L).clone().reshape({B, config_.hidden_dim});
  return projection(last, parameters_.value(head_)).value();
}

std::int64_t Mamba2LM::parameter_count(const Mamba2LMConfig& config) noexcept {
  const std::int64_t D = config.hidden_dim, table = config.vocabulary * D;
  return table + config.num_layers * (Mamba2Block::parameter_count(config) + D) + D +
         (config.tied_embeddings ? 0 : table);
}

std::vector<std::int32_t> continue_greedily(const Mamba2LM& model, const std::vector<std::int32_t>& prompt,
                                            std::int64_t count) {
  if (prompt.empty()) refuse("the prompt is empty, wants at least one token");
  for (const std::int32_t id : prompt)
    if (id < 0 || id >= model.config().vocabulary)
      refuse("token " + std::to_string(id) + " is not in the vocabulary, wants 0 to " +
             std::to_string(model.config().vocabulary - 1));
  Mamba2LM::State state;
  std::vector<std::int32_t> piece = prompt, tokens;
  while (static_cast<std::int64_t>(tokens.size()) < count) {
    const Tensor ids =
        Tensor::from({1, static_cast<std::int64_t>(piece.size())}, piece, model.parameters().device());
    piece = {largest(model.next_logits(&state, ids))};
    tokens.push_back(piece[0]);
  }
  return tokens;
}

}  // namespace scantape::autograd
