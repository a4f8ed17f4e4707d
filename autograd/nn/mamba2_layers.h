#pragma once

#include "scantape/autograd/mamba2.h"

/// What models of Mamba-2 blocks share: the residual stream through the layers, and the state beside it.
namespace scantape::autograd {

/// A state before its first step becomes one of so many layers; one of another model is refused.
inline void require_layers(Mamba2State* state, std::size_t layers) {
  if (state == nullptr) return;
  if (state->empty()) state->resize(layers);
  if (state->size() != layers)
    throw Error(Code::invalid_argument, "mamba2: the state is of " + std::to_string(state->size()) +
                                            " layers, wants " + std::to_string(layers));
}

/// stream <- stream + mix(layer, norm(i, stream)) for layer i = 0, 1, ..., then norm(layers.size(), stream), which is
/// returned. A norm gets what the layer before it added (absent before the first) and the stream without that, so that
/// the sum and its norm are one pass: norm(i, x, residual) gives Normed{y, r}.
template <class Layers, class Norm, class Mix>
Variable through_layers(Variable stream, const Layers& layers, Mamba2State* state, const Norm& norm,
                        const Mix& mix) {
  require_layers(state, layers.size());
  Variable added;
  const auto normed = [&](std::size_t i) {
    const Normed result = added.present() ? norm(i, added, stream) : norm(i, stream, Variable());
    if (added.present()) stream = result.r;
    return result.y;
  };
  for (std::size_t i = 0; i < layers.size(); ++i)
    added = mix(layers[i], normed(i), state != nullptr ? &(*state)[i] : nullptr);
  return normed(layers.size());
}

}  // namespace scantape::autograd
