#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "weights/safetensors.h"

/// Public Mamba-2 language models: what their config.json says, and which tensors belong to it.
namespace scantape::weights {

/// Whose config.json it is: that of transformers' Mamba2ForCausalLM or that of the mamba_ssm package.
enum class Mamba2Source : std::uint8_t { hugging_face, state_spaces };

/// The sizes and options of a Mamba-2 language model, under one set of names.
struct Mamba2Config {
  Mamba2Source source = Mamba2Source::hugging_face;
  std::int64_t vocabulary = 0;  ///< rows of the embedding, padding included
  std::int64_t hidden_dim = 0;  ///< D
  std::int64_t num_layers = 0;
  std::int64_t expand = 2;       ///< the mixer is expand * D wide inside
  std::int64_t state_dim = 128;  ///< N
  std::int64_t head_dim = 64;    ///< P
  std::int64_t groups = 1;       ///< G
  std::int64_t conv_width = 4;   ///< K
  std::int64_t chunk_length = 256;
  /// Sets of channels that the gated norm takes a mean of: mamba_ssm norms each group by itself, transformers all channels
  /// together, whatever the groups are. For a model of several groups that was trained elsewhere and converted for
  /// transformers the first is right: set it to `groups` then.
  std::int64_t norm_groups = 1;
  bool norm_before_gate = false;
  double dt_min = 0, dt_max = std::numeric_limits<double>::infinity();
  double eps = 1e-5;
  bool residual_in_f32 = true;
  bool tied_embeddings = true;  ///< the output projection is the embedding

  std::int64_t inner_dim() const noexcept { return expand * hidden_dim; }
  std::int64_t heads() const noexcept { return inner_dim() / head_dim; }
  std::int64_t conv_dim() const noexcept { return inner_dim() + 2 * groups * state_dim; }
  std::int64_t projected_dim() const noexcept { return inner_dim() + conv_dim() + heads(); }
};

/// Reads either kind of config.json; which it is follows from its keys. Infinity, which Python writes there and JSON does
/// not have, is taken. Throws Error(corrupt_data) naming `source` and everything that is wrong at once: keys that are
/// missing or no number, sizes that do not fit each other; Error(unsupported) for a model of another family, and for
/// options that change what is computed and are not supported here.
Mamba2Config parse_mamba2_config(std::string_view text, const std::string& source);

/// A tensor that a model wants.
struct WantedTensor {
  std::string name;
  Shape shape;
  std::string other_name = {};  ///< under which it may stand as well
  bool optional = false;
};

/// All tensors of a model, in the order: embedding, the layers one after the other (norm, in_proj, conv weight and bias,
/// dt_bias, A_log, D, norm of the mixer, out_proj), the last norm, lm_head (optional where the embeddings are tied).
std::vector<WantedTensor> mamba2_tensors(const Mamba2Config& config);

/// The file's tensors in the order of `wanted`, null for optional ones that are not there. Throws Error(corrupt_data) that
/// lists every missing, extra and mis-shaped tensor, and every one that holds no floating point numbers.
std::vector<const Tensor*> match_tensors(const Safetensors& file, const std::vector<WantedTensor>& wanted,
                                         const std::string& source);

}  // namespace scantape::weights
