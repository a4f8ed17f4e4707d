#include "scantape/causal_conv1d.h"

#include "in_f32.h"
#include "timed.h"

namespace scantape::reference {

namespace {

/// Channels that one walk through time takes; all its scratch is on the stack.
constexpr std::int64_t kTile = 64;

struct Sizes {
  std::int64_t batch, length, channels, taps;

  explicit Sizes(const CausalConv1dForward& args) noexcept
      : batch(args.x.shape[0]),
        length(args.x.shape[1]),
        channels(args.x.shape[2]),
        taps(args.weight.shape[1]) {}
  std::int64_t tiles() const noexcept { return (channels + kTile - 1) / kTile; }
  bool worth_threads() const noexcept { return reference::worth_threads(batch * length * channels); }
};

template <class T>
using Row = std::array<T, kTile>;

/// What one item's walk over channels begin..end-1 reads. Rows of X are named by their time from 0 on; those of the
/// state come before. Sums of terms are kept in the data's type, each rounded: what is carried over a cut in time goes on
/// as it would have without it.
template <class T>
class Tile {
 public:
  Tile(const CausalConv1dForward& args, std::int64_t item, std::int64_t tile) noexcept
      : size(args),
        item(item),
        begin(tile * kTile),
        end(std::min(begin + kTile, size.channels)),
        silu_(args.activation == Activation::silu),
        x_(args.x),
        state_(args.initial_state),
        start_(args.start),
        bias_(args.bias.as<T>()) {
    const T* weight = args.weight.as<T>();
    for (std::int64_t lag = 0; lag < size.taps; ++lag)
      for (std::int64_t c = begin; c < end; ++c)
        weights_[lag][at(c)] = weight[c * size.taps + size.taps - 1 - lag];
  }

  const Sizes size;
  const std::int64_t item, begin, end;

  std::size_t at(std::int64_t channel) const noexcept { return static_cast<std::size_t>(channel - begin); }
  std::size_t width() const noexcept { return static_cast<std::size_t>(end - begin); }
  /// Of the input `lag` steps back.
  const Row<T>& weight(std::int64_t lag) const noexcept { return weights_[lag]; }
  bool starts(std::int64_t t) const noexcept { return t >= 0 && start_.at(item * size.length + t); }

  /// X_t; null where the state is absent.
  const T* input(std::int64_t t) const noexcept {
    return t >= 0 ? x_[item * size.length + t] : state_[item * (size.taps - 1) + size.taps - 1 + t];
  }
  /// How many inputs, from X_t on backwards, step t sees: those of its own sequence, at most K.
  std::int64_t seen(std::int64_t t) const noexcept {
    std::int64_t count = 1;
    while (count < size.taps && !starts(t - count + 1)) ++count;
    return count;
  }
  /// What stands before the activation. What is not seen counts as zeros: what a cut carries on is no different.
  void sum(std::int64_t t, std::int64_t seen, Row<T>& p) const noexcept {
    const Row<T> zeros{};
    for (std::int64_t c = begin; c < end; ++c) p[at(c)] = bias_ != nullptr ? bias_[c] : T(0);
    for (std::int64_t lag = 0; lag < size.taps; ++lag) {
      const T* from = lag < seen ? input(t - lag) : nullptr;
      const T* terms = from != nullptr ? from + begin : zeros.data();
      const Row<T>& w = weights_[lag];
#pragma omp simd
      for (std::size_t i = 0; i < width(); ++i) p[i] += w[i] * terms[i];
    }
  }
  T value(T p) const noexcept {
    return silu_ ? silu(p) : p;
  }
  T derivative(T p) const noexcept {
    return silu_ ? silu_derivative(p) : T(1);
  }

 private:
  const bool silu_;
  const RowsOf<const T> x_, state_;
  const Starts<T> start_;
  const T* bias_;
  Row<T> weights_[kMostConvTaps];
};

template <class T>
void forward_tile(const CausalConv1dForward& args, const Tile<T>& tile) noexcept {
  const Sizes& size = tile.size;
  const RowsOf<T> y(args.y), final_state(args.final_state);
  std::int64_t seen = size.taps;
  for (std::int64_t t = 0; t < size.length; ++t) {
    seen = tile.starts(t) ? 1 : std::min(seen + 1, size.taps);
    Row<T> p;
    tile.sum(t, seen, p);
    T* to = y[tile.item * size.length + t];
    for (std::int64_t c = tile.begin; c < tile.end; ++c) to[c] = tile.value(p[tile.at(c)]);
  }
  if (!final_state) return;
  // Oldest first: of one step in place, each row is read before it is written.
  for (std::int64_t row = 0; row < size.taps - 1; ++row) {
    const std::int64_t lag = size.taps - 2 - row;
    const T* from = lag < seen ? tile.input(size.length - 1 - lag) : nullptr;
    T* to = final_state[tile.item * (size.taps - 1) + row];
    for (std::int64_t c = tile.begin; c < tile.end; ++c) to[c] = from != nullptr ? from[c] : T(0);
  }
}

/// The cotangents g of what stands before the activation, of the last K steps walked over.
template <class T>
class Cotangents {
 public:
  Row<T>& at(std::int64_t t) noexcept { return rows_[t % kMostConvTaps]; }
  const Row<T>& at(std::int64_t t) const noexcept { return rows_[t % kMostConvTaps]; }

 private:
  Row<T> rows_[kMostConvTaps];
};

/// d_X_t, terms of the latest step first, so that a cut in time, which hands on what the later steps gave, changes no
/// order. `reach` steps from t on belong to its sequence.
template <class T>
void input_gradient(const CausalConv1dBackward& args, const Tile<T>& tile, const Cotangents<T>& g,
                    std::int64_t t, std::int64_t reach, Row<T>& d) noexcept {
  const Sizes& size = tile.size;
  const RowsOf<const T> d_final_state(args.d_final_state);
  const std::int64_t row = t - (size.length - (size.taps - 1));  // of the final state
  const bool kept = d_final_state && row >= 0 && t + reach == size.length;
  for (std::int64_t c = tile.begin; c < tile.end; ++c)
    d[tile.at(c)] = kept ? d_final_state[tile.item * (size.taps - 1) + row][c] : T(0);
  for (std::int64_t lag = reach - 1; args.d_y.present && lag >= std::max<std::int64_t>(0, -t); --lag) {
    const Row<T>& later = g.at(t + lag);
    const Row<T>& w = tile.weight(lag);
#pragma omp simd
    for (std::size_t i = 0; i < tile.width(); ++i) d[i] += w[i] * later[i];
  }
}

/// Sums of one walk: d_weight by lag, then d_bias.
using Sums = std::array<std::array<double, kTile>, kMostConvTaps + 1>;

template <class T>
void add_to_sums(const Tile<T>& tile, std::int64_t t, std::int64_t seen, const Row<T>& g,
                 Sums& sums) noexcept {
  for (std::int64_t lag = 0; lag < seen; ++lag) {
    const T* x = tile.input(t - lag);
    for (std::int64_t c = tile.begin; x != nullptr && c < tile.end; ++c)
      sums[static_cast<std::size_t>(lag)][tile.at(c)] += double(g[tile.at(c)]) * x[c];
  }
  for (std::int64_t c = tile.begin; c < tile.end; ++c) sums[kMostConvTaps][tile.at(c)] += g[tile.at(c)];
}

/// Backwards through time, then through the state. `sums` is null where no gradient of a parameter is wanted.
template <class T>
void backward_tile(const CausalConv1dBackward& args, const Tile<T>& tile, Sums* sums) noexcept {
  const Sizes& size = tile.size;
  const RowsOf<const T> d_y(args.d_y);
  const Target<T> d_x(args.d_x), d_state(args.d_initial_state);
  Cotangents<T> g;
  Row<T> d{};
  const auto gradient = [&](std::int64_t c) { return d[tile.at(c)]; };
  std::int64_t reach = 0;
  for (std::int64_t t = size.length - 1; t >= 0; --t) {
    const std::int64_t row = tile.item * size.length + t, seen = tile.seen(t);
    if (d_y) {
      Row<T> p{}, &now = g.at(t);
      tile.sum(t, seen, p);
      for (std::int64_t c = tile.begin; c < tile.end; ++c)
        now[tile.at(c)] = d_y[row][c] * tile.derivative(p[tile.at(c)]);
      if (sums != nullptr) add_to_sums(tile, t, seen, now, *sums);
    }
    reach = std::min(reach + 1, size.taps);
    if (d_x) {
      input_gradient(args, tile, g, t, reach, d);
      d_x.write(row, tile.begin, tile.end, gradient);
    }
    if (tile.starts(t)) reach = 0;
  }
  for (std::int64_t t = -1; d_state && t > -size.taps; --t) {
    reach = std::min(reach + 1, size.taps);
    input_gradient(args, tile, g, t, reach, d);
    d_state.write(tile.item * (size.taps - 1) + size.taps - 1 + t, tile.begin, tile.end, gradient);
  }
}

/// Calls body(tile, its index) for every tile of every item. Bits do not depend on who does which.
template <class T, class Body>
void for_each_tile(const CausalConv1dForward& args, const Body& body) noexcept {
  const Sizes size(args);
  const std::int64_t tiles = size.tiles();
#pragma omp parallel for schedule(static) if (size.worth_threads())
  for (std::int64_t i = 0; i < size.batch * tiles; ++i) body(Tile<T>(args, i / tiles, i % tiles), i);
}

template <class T>
void backward(const CausalConv1dBackward& args) {
  const Sizes size(args);
  const Target<T> d_weight(args.d_weight), d_bias(args.d_bias);
  const bool summed = d_weight || d_bias;
  std::vector<Sums> sums(static_cast<std::size_t>(summed ? size.batch * size.tiles() : 0));
  for_each_tile<T>(args, [&](const Tile<T>& tile, std::int64_t i) {
    backward_tile(args, tile, summed ? &sums[static_cast<std::size_t>(i)] : nullptr);
  });
  const auto total = [&](std::size_t which, std::int64_t channel) {
    double result = 0;
    for (std::int64_t item = 0; item < size.batch; ++item)
      result += sums[static_cast<std::size_t>(item * size.tiles() + channel / kTile)][which]
                    [static_cast<std::size_t>(channel % kTile)];
    return static_cast<T>(result);
  };
  for (std::int64_t c = 0; summed && c < size.channels; ++c) {
    for (std::int64_t lag = 0; d_weight && lag < size.taps; ++lag)
      d_weight.write_one(c * size.taps + size.taps - 1 - lag, total(static_cast<std::size_t>(lag), c));
    if (d_bias) d_bias.write_one(c, total(kMostConvTaps, c));
  }
}

}  // namespace

Status causal_conv1d_forward(const CausalConv1dForward& args) noexcept {
  if (is_16_bit(args.x.dtype)) return in_f32("causal_conv1d", args, causal_conv1d_forward);
  dispatch(args.x.dtype, [&](auto zero) {
    for_each_tile<decltype(zero)>(args, [&](const auto& tile, std::int64_t) { forward_tile(args, tile); });
  });
  return {};
}

Status causal_conv1d_backward(const CausalConv1dBackward& args) noexcept {
  if (is_16_bit(args.x.dtype)) return in_f32("causal_conv1d_backward", args, causal_conv1d_backward);
  return run("causal_conv1d_backward",
             [&] { dispatch(args.x.dtype, [&](auto zero) { backward<decltype(zero)>(args); }); });
}

}  // namespace scantape::reference
