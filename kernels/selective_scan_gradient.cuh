#pragma once

#include "selective_scan_state.cuh"

// The walk back of selective_scan, and the sums over channels on its way.

namespace scantape::cuda::selective_scan {

/// Where the sums over the channels of a group go: straight to the gradient, or to this part's [B, L, G, N].
template <class S>
struct GroupSum {
  using T = Compute<S>;

  Steps<S> whole;
  T* partial = nullptr;

  __host__ __device__ bool wanted() const { return whole.present() || partial != nullptr; }
  /// `more`: adds to what the block itself left of the channels before.
  __device__ void put(const Problem<S>& problem, std::int64_t part, std::int64_t item, std::int64_t t,
                      std::int64_t g, int n, T value, bool more) const {
    if (whole.present()) {
      whole.put(item, t, g, n, value);
    } else if (partial != nullptr) {
      T& to = partial[(((part * problem.batch + item) * problem.length + t) * problem.groups + g) *
                          problem.states +
                      n];
      to = more ? to + value : value;
    }
  }
};

/// What the walk back writes; null or absent where nobody asks.
template <class S>
struct Gradients {
  using T = Compute<S>;

  Steps<const S> d_out;
  const T* d_final_state = nullptr;
  Steps<S> d_u, d_dt, d_z;
  GroupSum<S> d_B, d_C;
  T *d_A = nullptr, *d_D = nullptr, *d_dt_bias = nullptr;  // [B, E, N]; [B, E] twice
  Target<T> d_h0;
  T* history = nullptr;              // [interval, states of a lane, blocks, threads]
  std::int64_t parts = 1, sets = 1;  // of a group; of a part: as many channels as a block has
};

/// Sums over channels that a block's warps leave, in turns: who reads one turn's needs no barrier before the next.
template <class T, class P>
struct ChannelCells {
  T sum[2][2][kWarps][P::kColumns];  // turn; d_B, d_C
};

/// A thread on its way back through a channel. `history` is its own.
template <class S, class P>
class Walk {
 public:
  using T = Compute<S>;

  __device__ Walk(const Problem<S>& problem, const Gradients<S>& gradients, const T* kept, T* history,
                  std::int64_t item, std::int64_t first, std::int64_t count)
      : problem_(problem),
        gradients_(gradients),
        place_(count),
        item_(item),
        e_(first + place_.channel),
        g_(e_ / problem.heads_per_group),
        states_(problem, kept, item, e_),
        history_(history) {}

  /// Before the last step.
  __device__ void begin() {
    const T* const from = gradients_.d_final_state;
    for_each_state([&](int i, int n) {
      carry(i) = from == nullptr ? T(0) : from[item_ * states_.slot + states_.row + n];
      d_A(i) = T(0);
    });
  }

  /// Leaves the state after each step of an interval in the history.
  __device__ void remember(std::int64_t interval, std::int64_t steps) {
    interval_ = interval;
    T state[P::kPer] = {};
    const T* const before = first_state();
    if (before != nullptr) for_each_state([&](int i, int n) { state[i] = before[n]; });
    for (std::int64_t k = 0; k < steps; ++k) {
      const std::int64_t t = interval * problem_.chunk + k;
      const bool fresh = is_fresh(t);
      const T dt = problem_.step_size(item_, t, e_), input = dt * problem_.x.at(item_, t, e_);
      for_each_state([&](int i, int n) {
        state[i] = moved(problem_, item_, t, g_, n, dt * states_.A[n], input, fresh, state[i]);
        remembered(k, i) = state[i];
      });
    }
  }

  __device__ void begin_step(std::int64_t k) {
    k_ = k;
    t_ = interval_ * problem_.chunk + k;
    starts_ = problem_.starts_at(item_, t_);
    fresh_ = is_fresh(t_);
    raw_ = problem_.raw(item_, t_, e_);
    dt_ = problem_.clamped(problem_.unclamped(raw_));
    u_ = problem_.x.at(item_, t_, e_);
    d_y_ = d_out_ = gradients_.d_out.at_or_zero(item_, t_, e_);
    if (problem_.z.present() && gradients_.d_out.present()) d_y_ *= silu(problem_.z.at(item_, t_, e_));
    of_input_ = of_decay_ = y_ = T(0);
  }

  /// Some states' share of this step; what d_B and d_C get of state i, in the threads of the warp's first channel.
  template <bool kSums>
  __device__ void step(int i, T* of_B, T* of_C) {
    const int n = place_.lane + i * P::kLanes;
    T to_B = T(0), to_C = T(0);
    if (n < problem_.states) {
      const T b = problem_.B.at(item_, t_, g_, n), c = problem_.C.at(item_, t_, g_, n);
      const T h = remembered(k_, i), A = states_.A[n], G = fma_of(d_y_, c, carry(i));
      to_B = dt_ * u_ * G;
      to_C = d_y_ * h;
      of_input_ = fma_of(G, b, of_input_);
      y_ = fma_of(c, h, y_);
      const Carry<T> decay(dt_ * A);
      if (!fresh_) {
        const T through = G * decay(k_ > 0 ? remembered(k_ - 1, i) : first_state()[n], T(0));
        of_decay_ = fma_of(A, through, of_decay_);
        d_A(i) = fma_of(dt_, through, d_A(i));
      }
      carry(i) = starts_ ? T(0) : decay(G, T(0));
    }
    if constexpr (kSums) {
      *of_B = channel_sum<P>(place_.writes ? to_B : T(0));
      *of_C = channel_sum<P>(place_.writes ? to_C : T(0));
    }
  }

  __device__ void end_step() {
    of_input_ = lane_sum<P>(of_input_);
    of_decay_ = lane_sum<P>(of_decay_);
    if (gradients_.d_z.present()) y_ = lane_sum<P>(y_);
    const T d_raw = problem_.raw_gradient(raw_, fma_of(u_, of_input_, of_decay_));
    d_dt_bias_ += d_raw;
    d_D_ = fma_of(d_y_, u_, d_D_);
    if (!place_.writes || place_.lane != 0) return;
    const T D = problem_.D == nullptr ? T(0) : problem_.D[e_];
    if (gradients_.d_dt.present()) gradients_.d_dt.put(item_, t_, e_, 0, d_raw);
    if (gradients_.d_u.present())
      gradients_.d_u.put(item_, t_, e_, 0,
                         problem_.D == nullptr ? dt_ * of_input_ : fma_of(dt_, of_input_, D * d_y_));
    if (gradients_.d_z.present())
      gradients_.d_z.put(item_, t_, e_, 0,
                         d_out_ * (problem_.D == nullptr ? y_ : fma_of(D, u_, y_)) *
                             silu_derivative(problem_.z.at(item_, t_, e_)));
  }

  /// After the first step.
  __device__ void finish() {
    if (!place_.writes) return;
    const std::int64_t row = item_ * states_.slot + states_.row, channel = item_ * problem_.heads + e_;
    if (gradients_.d_A != nullptr) for_each_state([&](int i, int n) { gradients_.d_A[row + n] = d_A(i); });
    if (gradients_.d_h0.wanted())
      for_each_state([&](int i, int n) { gradients_.d_h0.put(0, row + n, carry(i)); });
    if (place_.lane != 0) return;
    if (gradients_.d_D != nullptr) gradients_.d_D[channel] = d_D_;
    if (gradients_.d_dt_bias != nullptr) gradients_.d_dt_bias[channel] = d_dt_bias_;
  }

 private:
  template <class Body>
  __device__ void for_each_state(Body body) const {
#pragma unroll
    for (int i = 0; i < P::kPer; ++i) {
      const int n = place_.lane + i * P::kLanes;
      if (n < problem_.states) body(i, n);
    }
  }
  __device__ bool is_fresh(std::int64_t t) const {
    return problem_.starts_at(item_, t) || (t == 0 && states_.h0 == nullptr);
  }
  /// The state before the interval.
  __device__ const T* first_state() const {
    return interval_ > 0 ? states_.after(interval_) : states_.h0;
  }
  __device__ T& remembered(std::int64_t k, int i) const {
    return history_[(k * P::kPer + i) * (static_cast<std::int64_t>(gridDim.x) * kBlockThreads)];
  }

  __device__ T& carry(int i) {
    if constexpr (P::kInRegisters)
      return carry_[i];
    else
      return remembered(problem_.chunk, i);
  }
  __device__ T& d_A(int i) {
    if constexpr (P::kInRegisters)
      return d_A_[i];
    else
      return remembered(problem_.chunk + 1, i);
  }

  const Problem<S>& problem_;
  const Gradients<S>& gradients_;
  Place<P> place_;
  std::int64_t item_, e_, g_;
  States<S> states_;
  T* history_;
  std::int64_t interval_ = 0, k_ = 0, t_ = 0;
  bool starts_ = false, fresh_ = false;
  T raw_ = T(0), dt_ = T(0), u_ = T(0), d_out_ = T(0), d_y_ = T(0);
  T of_input_ = T(0), of_decay_ = T(0), y_ = T(0), d_D_ = T(0), d_dt_bias_ = T(0);
  T carry_[P::kInRegisters ? P::kPer : 1], d_A_[P::kInRegisters ? P::kPer : 1];
};

template <class S, class P, bool kSums>
static __global__ void __launch_bounds__(kBlockThreads, 1)
    selective_scan_bwd_kernel(Problem<S> problem, const Compute<S>* kept, Gradients<S> gradients) {
  using T = Compute<S>;
  auto& cells = shared_storage<ChannelCells<T, P>>();
  const int self = static_cast<int>(threadIdx.x), warp = self / kWarpSize;
  int turn = 0;
  T* const history = gradients.history + static_cast<std::int64_t>(blockIdx.x) * kBlockThreads + self;
  for_each_of(problem.batch * problem.groups * gradients.parts, [&](std::int64_t index) {
    const std::int64_t part = take_digit(&index, gradients.parts), g = take_digit(&index, problem.groups),
                       item = index;
    for (std::int64_t set = 0; set < gradients.sets; ++set) {
      const std::int64_t first = (part * gradients.sets + set) * P::kChannels,
                         count = problem.heads_per_group - first;
      if (count <= 0) break;
      const bool works = has_work<P>(count);
      const int warps = count < P::kChannels ? static_cast<int>(ceil_div(count, P::kWarpChannels)) : kWarps;
      Walk<S, P> walk(problem, gradients, kept, history, item, g * problem.heads_per_group + first, count);
      if (works) walk.begin();
      for (std::int64_t interval = problem.slots - 1; interval >= 0; --interval) {
        const std::int64_t begin = interval * problem.chunk, left = problem.length - begin;
        const std::int64_t steps = left < problem.chunk ? left : problem.chunk;
        if (works) walk.remember(interval, steps);
        for (std::int64_t k = steps - 1; k >= 0; --k) {
          if (works) walk.begin_step(k);
#pragma unroll 1
          for (int from = 0; from < P::kPer; from += P::kAtOnce) {
            if (from * P::kLanes >= problem.states) continue;  // the same for all threads
            if (works) {
#pragma unroll
              for (int j = 0; j < P::kAtOnce; ++j) {
                T of_B, of_C;
                walk.template step<kSums>(from + j, &of_B, &of_C);
                if (!kSums || self % kWarpSize >= P::kLanes) continue;
                cells.sum[turn][0][warp][j * P::kLanes + self % kWarpSize] = of_B;
                cells.sum[turn][1][warp][j * P::kLanes + self % kWarpSize] = of_C;
              }
            }
            if constexpr (kSums) {
              __syncthreads();
              const int column = self % P::kColumns, n = from * P::kLanes + column;
              if (self < 2 * P::kColumns && n < problem.states) {
                const int which = self / P::kColumns;
                T sum = cells.sum[turn][which][0][column];
                for (int other = 1; other < warps; ++other) sum += cells.sum[turn][which][other][column];
                if (which == 0)
                  gradients.d_B.put(problem, part, item, begin + k, g, n, sum, set > 0);
                else
                  gradients.d_C.put(problem, part, item, begin + k, g, n, sum, set > 0);
              }
              turn = 1 - turn;
            }
          }
          if (works) walk.end_step();
        }
      }
      if (works) walk.finish();
    }
  });
}

}  // namespace scantape::cuda::selective_scan
