// Causal depthwise convolution over time, a few taps a channel, with the inputs before the first step as a state:
//
//   p_t = bias + sum over lags j = 0..K-1 of w_j X_{t-j},   y_t = act(p_t)
//
// w_j = weight[K - 1 - j], X_t = x_t for t >= 0 (times from 0 on here), X_{-1}, X_{-2}, ... the state's rows from the last
// one backwards. A start at s hides all X before s from the steps from s on: they count as zeros, selected, so that what a
// cut in time carries on in final_state, where they are zeros too, gives the same bits.
//
// Gradient. g_t = d_y_t act'(p_t), p_t formed again. X_t meets step t + j with w_j as long as no start lies in
// t+1..t+j; let reach_t be the number of such steps from t on, t itself included, at most K and not beyond the last:
//
//   d_X_t = sum over j < reach_t (and t + j >= 0) of w_j g_{t+j} + [no start after t] d_final_state's row of X_t
//   d_w_j = sum over b, t of g_t X_{t-j} where step t sees it,   d_bias = sum over b, t of g_t
//
// reach_t = min(reach_{t+1} + 1, K), and 1 where step t + 1 starts: one walk backwards has it. d_X begins with what the
// final state's cotangent brings and adds its terms from the latest step to the earliest, each by one fma. Terms that are not there
// are left out. So a cut in time, over which the terms of later steps come as d_final_state, changes neither their
// order nor a rounding.
//
// One idea: a thread walks one channel over kSteps steps and holds the last K inputs, and backwards the next K of g, in
// registers. Threads of a warp are neighbours in the channels, so accesses are whole lines in any type and at any
// stride. Before its own steps a thread reads K - 1 inputs of its neighbour, backwards it forms the neighbour's first K - 1
// values of g again: these come from a cache. Registers hold 4 taps or 16, whichever is enough for K.
//
// Sums over b and t: over its steps in the thread, then the block, one row of partial sums a block in the workspace, which
// a second launch adds in order.
//
// Bytes: forward reads x, writes y: 2 n elements; backward reads x and d_y, writes d_x: 3 n.

#include "scantape/causal_conv1d.h"

#include "common/dispatch.cuh"
#include "common/math.cuh"
#include "common/reduce.cuh"

namespace scantape::cuda {
namespace {

constexpr std::int64_t kSteps = 32;  // of one thread
constexpr int kFewTaps = 4;
constexpr std::int64_t kMostPartialRows = 256;

/// Stretches of kSteps steps of all items are numbered through; each is walked by one thread a channel.
struct ConvSize {
  std::int64_t length, channels, stretches, all_stretches;
  int taps;

  __device__ std::int64_t state_rows() const { return taps - 1; }
};

/// Steps first..last-1 of one item.
struct Stretch {
  std::int64_t item, first, last;

  __device__ Stretch(const ConvSize& size, std::int64_t number)
      : item(number / size.stretches), first(number % size.stretches * kSteps), last(first + kSteps) {
    if (last > size.length) last = size.length;
  }
};

template <class T>
struct ConvInputs {
  Source<T> x, weight, bias, initial_state;
  const T* start;
  bool silu;

  /// X_t of a channel; zero before all that there is.
  __device__ Compute<T> input(const ConvSize& size, std::int64_t item, std::int64_t t,
                              std::int64_t channel) const {
    if (t >= 0) return x.at(item * size.length + t, channel);
    const std::int64_t row = size.state_rows() + t;
    return initial_state.present() && row >= 0 ? initial_state.at(item * size.state_rows() + row, channel)
                                               : Compute<T>(0);
  }
  __device__ bool starts(const ConvSize& size, std::int64_t item, std::int64_t t) const {
    return start != nullptr && t >= 0 && loaded_from(start + item * size.length + t) != Compute<T>(0);
  }
};

/// A channel's taps by lag, its bias and the activation.
template <class S, int kTaps>
struct Taps {
  using T = Compute<S>;
  T w[kTaps];
  T bias;
  bool silu;

  __device__ Taps(const ConvInputs<S>& from, int taps, std::int64_t channel)
      : bias(from.bias.present() ? from.bias.at(0, channel) : T(0)), silu(from.silu) {
#pragma unroll
    for (int j = 0; j < kTaps; ++j) w[j] = j < taps ? from.weight.at(channel, taps - 1 - j) : T(0);
  }

  /// What stands before the activation; `inputs` by lag.
  __device__ T sum(const T (&inputs)[kTaps], int taps) const {
    T p = bias;
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      if (j < taps) p = fma_of(w[j], inputs[j], p);
    }
    return p;
  }
  __device__ T value(T p) const {
    return silu ? cuda::silu(p) : p;
  }
  __device__ T derivative(T p) const {
    return silu ? silu_derivative(p) : T(1);
  }
};

// Blocks on a processor at a time: registers for what a thread holds. Said nothing, the compiler aims at more and spills.
constexpr int forward_blocks(int taps) {
  return taps == kFewTaps ? 4 : 2;
}
template <class T>
constexpr int backward_blocks(int taps) {
  return taps * sizeof(T) > 64 ? 1 : 2;
}

// ---- forward

template <class S>
struct ConvOutputs {
  Target<S> y, final_state;
};

/// One channel over one stretch. Where a sequence starts, the inputs before are forgotten.
template <class S, int kTaps>
__device__ void walk_forward(const ConvSize& size, const Stretch& stretch, std::int64_t channel,
                             const ConvInputs<S>& from, const Taps<S, kTaps>& taps,
                             const ConvOutputs<S>& to) {
  using T = Compute<S>;
  T inputs[kTaps];
  inputs[kTaps - 1] = T(0);
  bool seen = true;
#pragma unroll
  for (int j = 0; j < kTaps - 1; ++j) {
    const std::int64_t t = stretch.first - 1 - j;
    inputs[j] = seen && j < size.taps - 1 ? from.input(size, stretch.item, t, channel) : T(0);
    seen = seen && !from.starts(size, stretch.item, t);
  }
  for (std::int64_t t = stretch.first; t < stretch.last; ++t) {
    const bool starts = from.starts(size, stretch.item, t);
#pragma unroll
    for (int j = kTaps - 1; j > 0; --j) inputs[j] = starts ? T(0) : inputs[j - 1];
    inputs[0] = from.x.at(stretch.item * size.length + t, channel);
    to.y.put(stretch.item * size.length + t, channel, taps.value(taps.sum(inputs, size.taps)));
  }
  if (stretch.last != size.length || !to.final_state.wanted()) return;
  const std::int64_t rows = size.state_rows();
#pragma unroll
  for (int j = 0; j < kTaps - 1; ++j) {
    if (j < rows) to.final_state.put(stretch.item * rows + rows - 1 - j, channel, inputs[j]);
  }
}

template <class S, int kTaps>
__global__ void __launch_bounds__(kBlockThreads, forward_blocks(kTaps))
    causal_conv1d_fwd_window_kernel(ConvSize size, ConvInputs<S> from, ConvOutputs<S> to) {
  const std::int64_t step_x = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t step_y = static_cast<std::int64_t>(gridDim.y) * blockDim.y;
  for (std::int64_t channel = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       channel < size.channels; channel += step_x) {
    const Taps<S, kTaps> taps(from, size.taps, channel);
    for (std::int64_t number = static_cast<std::int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
         number < size.all_stretches; number += step_y)
      walk_forward<S, kTaps>(size, Stretch(size, number), channel, from, taps, to);
  }
}

// ---- backward

template <class S>
struct ConvGradients {
  Source<S> d_y, d_final_state;
  Target<S> d_x, d_initial_state;
  Compute<S>*weight_partial, *bias_partial;  // null where not wanted

  __host__ __device__ bool wants_inputs() const { return d_x.wanted() || d_initial_state.wanted(); }
  __host__ __device__ bool wants_sums() const { return weight_partial != nullptr || bias_partial != nullptr; }
};

/// One channel's walk backwards through time.
template <class S, int kTaps>
class BackwardWalk {
 public:
  using T = Compute<S>;

  __device__ BackwardWalk(const ConvSize& size, const ConvInputs<S>& from, const ConvGradients<S>& to,
                          const Taps<S, kTaps>& taps, std::int64_t channel)
      : size_(size), from_(from), to_(to), taps_(taps), channel_(channel) {}

  /// The steps after the stretch that see its inputs are walked over first.
  __device__ void walk(const Stretch& stretch) {
    item_ = stretch.item;
    std::int64_t end = stretch.last;
    if (to_.wants_inputs()) end = end + size_.taps - 1 < size_.length ? end + size_.taps - 1 : size_.length;
    begin(end - 1);
    for (std::int64_t t = end - 1; t >= stretch.first; --t) {
      step(t, t < stretch.last);
      back(t - size_.taps);
    }
    if (stretch.first > 0 || !to_.d_initial_state.wanted()) return;
    const std::int64_t rows = size_.state_rows();
    for (std::int64_t t = -1; t >= -rows; --t) {
      push(T(0));
      to_.d_initial_state.put(item_ * rows + rows + t, channel_, input_gradient(t));
    }
  }

  __device__ T weight_sum(int lag) const { return weight_sum_[lag]; }
  __device__ T bias_sum() const { return bias_sum_; }

 private:
  /// To step t, with nothing after it.
  __device__ void begin(std::int64_t t) {
    reach_ = 0;
    starts_ = 0;
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      inputs_[j] = j < size_.taps ? from_.input(size_, item_, t - j, channel_) : T(0);
      later_[j] = T(0);
      if (j < size_.taps && from_.starts(size_, item_, t - j)) starts_ |= 1u << j;
    }
  }
  /// To the step before, whose earliest input is X_t.
  __device__ void back(std::int64_t t) {
    if ((starts_ & 1u) != 0) reach_ = 0;
    starts_ >>= 1;
    if (from_.starts(size_, item_, t)) starts_ |= 1u << (size_.taps - 1);
    const T next = from_.input(size_, item_, t, channel_);
#pragma unroll
    for (int j = 0; j < kTaps; ++j)
      inputs_[j] = j + 1 < size_.taps && j + 1 < kTaps ? inputs_[(j + 1) % kTaps] : next;
  }
  /// g of the step that the walk has come to.
  __device__ void push(T g) {
#pragma unroll
    for (int j = kTaps - 1; j > 0; --j) later_[j] = later_[j - 1];
    later_[0] = g;
    if (reach_ < size_.taps) ++reach_;
  }
  __device__ void step(std::int64_t t, bool own) {
    const std::int64_t row = item_ * size_.length + t;
    T seen[kTaps];
    bool sees = true;
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      seen[j] = sees ? inputs_[j] : T(0);
      sees = sees && (starts_ >> j & 1u) == 0;
    }
    T g = T(0);
    if (to_.d_y.present()) g = to_.d_y.at(row, channel_) * taps_.derivative(taps_.sum(seen, size_.taps));
    push(g);
    if (!own) return;
    if (to_.wants_sums() && to_.d_y.present()) add(g, seen);
    if (to_.d_x.wanted()) to_.d_x.put(row, channel_, input_gradient(t));
  }
  __device__ void add(T g, const T (&seen)[kTaps]) {
    bias_sum_ += g;
    bool sees = true;
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      if (sees && j < size_.taps) weight_sum_[j] = fma_of(g, seen[j], weight_sum_[j]);
      sees = sees && (starts_ >> j & 1u) == 0;
    }
  }
  __device__ T input_gradient(std::int64_t t) const {
    T d = T(0);
    const std::int64_t rows = size_.state_rows(),
                       kept = t - (size_.length - rows);  // its row of the final state
    if (to_.d_final_state.present() && kept >= 0 && t + reach_ == size_.length)
      d = to_.d_final_state.at(item_ * rows + kept, channel_);
    if (!to_.d_y.present()) return d;
#pragma unroll
    for (int j = kTaps - 1; j >= 0; --j) {
      if (j < reach_ && t + j >= 0) d = fma_of(taps_.w[j], later_[j], d);
    }
    return d;
  }

  const ConvSize& size_;
  const ConvInputs<S>& from_;
  const ConvGradients<S>& to_;
  const Taps<S, kTaps>& taps_;
  const std::int64_t channel_;
  std::int64_t item_ = 0;
  T inputs_[kTaps];      // X_t, X_{t-1}, ..., whether or not step t sees them
  unsigned starts_ = 0;  // bit j: step t - j starts
  T later_[kTaps];       // g_t, g_{t+1}, ...
  int reach_ = 0;        // of these, those of X_t's own sequence
  T weight_sum_[kTaps] = {};
  T bias_sum_ = T(0);
};

/// The sum of `value` over the block's threads of each channel, handed to emit by the first of them. All threads must call it.
template <class T, class Emit>
__device__ void join_rows(T value, T (&cell)[kBlockThreads], Emit emit) {
  const unsigned self = threadIdx.y * blockDim.x + threadIdx.x;
  cell[self] = value;
  __syncthreads();
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    if (threadIdx.y < half) cell[self] += cell[self + half * blockDim.x];
    __syncthreads();
  }
  if (threadIdx.y == 0) emit(cell[self]);
  __syncthreads();
}

template <class S, int kTaps>
__global__ void __launch_bounds__(kBlockThreads, backward_blocks<Compute<S>>(kTaps))
    causal_conv1d_bwd_window_kernel(ConvSize size, std::int64_t stretches_per_block, ConvInputs<S> from,
                                    ConvGradients<S> to) {
  using T = Compute<S>;
  struct Storage {
    T cell[kBlockThreads];
  };
  auto& storage = shared_storage<Storage>();
  const std::int64_t begin = blockIdx.y * stretches_per_block;
  const std::int64_t end =
      begin + stretches_per_block < size.all_stretches ? begin + stretches_per_block : size.all_stretches;
  const std::int64_t width = blockDim.x;
  for (std::int64_t tile = blockIdx.x * width; tile < size.channels; tile += gridDim.x * width) {
    const std::int64_t channel = tile + threadIdx.x;
    const bool exists = channel < size.channels;
    const Taps<S, kTaps> taps(from, size.taps, exists ? channel : 0);
    BackwardWalk<S, kTaps> walk(size, from, to, taps, channel);
    for (std::int64_t number = begin + threadIdx.y; exists && number < end; number += blockDim.y)
      walk.walk(Stretch(size, number));
    if (!to.wants_sums()) continue;  // the same for all threads
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      if (j >= size.taps) continue;  // the same for all threads
      join_rows(walk.weight_sum(j), storage.cell, [&](T sum) {
        if (exists && to.weight_partial != nullptr)
          to.weight_partial[(blockIdx.y * size.channels + channel) * size.taps + size.taps - 1 - j] = sum;
      });
    }
    join_rows(walk.bias_sum(), storage.cell, [&](T sum) {
      if (exists && to.bias_partial != nullptr) to.bias_partial[blockIdx.y * size.channels + channel] = sum;
    });
  }
}

// ---- launchers

ConvSize size_of(const CausalConv1dForward& args) noexcept {
  const std::int64_t length = args.x.shape[1], stretches = ceil_div(length, kSteps);
  return {length, args.x.shape[2], stretches, args.x.shape[0] * stretches,
          static_cast<int>(args.weight.shape[1])};
}

/// A channel a thread along x, a stretch a thread along y.
dim3 block_of(const ConvSize& size) noexcept {
  const int x = power_of_two(size.channels, 32);
  return dim3(static_cast<unsigned>(x), static_cast<unsigned>(kBlockThreads / x));
}

std::int64_t at_most(std::int64_t value, std::int64_t most) noexcept {
  return value < most ? value : most;
}

/// How backward shares out stretches: each row of blocks leaves one row of partial sums.
struct BackwardPlan {
  dim3 grid, block;
  std::int64_t partial_rows, stretches_per_block;

  explicit BackwardPlan(const ConvSize& size) noexcept : block(block_of(size)) {
    partial_rows = at_most(ceil_div(size.all_stretches, block.y), kMostPartialRows);
    if (partial_rows < 1) partial_rows = 1;  // no items: one row of zeros
    stretches_per_block = ceil_div(size.all_stretches, partial_rows);
    grid = dim3(static_cast<unsigned>(at_most(ceil_div(size.channels, block.x), kMostTiles)),
                static_cast<unsigned>(partial_rows));
  }
  std::int64_t partials(const ConvSize& size) const noexcept { return partial_rows * size.channels; }
};

template <class S>
ConvInputs<S> inputs_of(const CausalConv1dForward& args) noexcept {
  return {source<S>(args.x),
          source<S>(args.weight),
          source<S>(args.bias),
          source<S>(args.initial_state),
          args.start.present ? args.start.as<S>() : nullptr,
          args.activation == Activation::silu};
}

/// Calls body(S{}, the number of taps that registers hold) for the arguments.
template <class Body>
Status dispatch(const CausalConv1dForward& args, Body&& body) {
  return dispatch_storage(args.x.dtype, "causal_conv1d: no CUDA kernel for this dtype", [&](auto zero) {
    return args.weight.shape[1] <= kFewTaps ? body(zero, std::integral_constant<int, kFewTaps>{})
                                            : body(zero, std::integral_constant<int, kMostConvTaps>{});
  });
}

template <class S, int kTaps>
Status forward(const CausalConv1dForward& args, Stream stream) {
  const ConvSize size = size_of(args);
  if (size.channels == 0) return Status();
  const dim3 block = block_of(size);
  const dim3 grid(static_cast<unsigned>(at_most(ceil_div(size.channels, block.x), kMostBlocksX)),
                  static_cast<unsigned>(at_most(ceil_div(size.all_stretches, block.y), kMostBlocksY)));
  return launch("causal_conv1d_fwd_window_kernel", causal_conv1d_fwd_window_kernel<S, kTaps>, grid, block, 0,
                stream, size, inputs_of<S>(args),
                ConvOutputs<S>{target<S>(args.y), target<S>(args.final_state)});
}

template <class S, int kTaps>
Status backward(const CausalConv1dBackward& args, Stream stream) {
  using T = Compute<S>;
  const ConvSize size = size_of(args);
  if (size.channels == 0) return Status();
  const BackwardPlan plan(size);
  T* const workspace = static_cast<T*>(args.workspace.data);
  const ConvGradients<S> to{source<S>(args.d_y),
                            source<S>(args.d_final_state),
                            target<S>(args.d_x),
                            target<S>(args.d_initial_state),
                            args.d_weight.wanted() ? workspace : nullptr,
                            args.d_bias.wanted() ? workspace + plan.partials(size) * size.taps : nullptr};
  SCANTAPE_TRY(launch("causal_conv1d_bwd_window_kernel", causal_conv1d_bwd_window_kernel<S, kTaps>, plan.grid,
                      plan.block, 0, stream, size, plan.stretches_per_block, inputs_of<S>(args), to));
  SCANTAPE_TRY(join_column_sums("causal_conv1d_bwd_join_weight", to.weight_partial, plan.partial_rows,
                                size.channels * size.taps, target<T>(args.d_weight), stream));
  return join_column_sums("causal_conv1d_bwd_join_bias", to.bias_partial, plan.partial_rows, size.channels,
                          target<T>(args.d_bias), stream);
}

}  // namespace

Status causal_conv1d_forward(const CausalConv1dForward& args, Stream stream) noexcept {
  return dispatch(args,
                  [&](auto zero, auto taps) { return forward<decltype(zero), taps.value>(args, stream); });
}

Status causal_conv1d_backward(const CausalConv1dBackward& args, Stream stream) noexcept {
  if (!args.d_x.wanted() && !args.d_weight.wanted() && !args.d_bias.wanted() &&
      !args.d_initial_state.wanted())
    return Status();
  return dispatch(args,
                  [&](auto zero, auto taps) { return backward<decltype(zero), taps.value>(args, stream); });
}

std::int64_t causal_conv1d_forward_workspace(const CausalConv1dForward&) noexcept {
  return 0;
}

std::int64_t causal_conv1d_backward_workspace(const CausalConv1dBackward& args) noexcept {
  if (!args.d_weight.wanted() && !args.d_bias.wanted()) return 0;
  const ConvSize size = size_of(args);
  return BackwardPlan(size).partials(size) * (size.taps + 1) * scantape::size_of(at_least_f32(args.x.dtype));
}

}  // namespace scantape::cuda
