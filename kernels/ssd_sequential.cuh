#pragma once

#include "ssd_chunk_gradient.cuh"

// The recurrence step by step, the sequential form of ssd and, with one step, ssd_step.
//
// Forward: a warp has a row p of one head's state, in registers: lane n has states n, n + 32, ... A step reads dt, x_p, B
// and C, and a sum over the warp is y_p.
//
// Backward: a block has a head of a sequence and goes through the kept intervals from the last to the first: it walks
// the interval once more, leaving every state in the workspace, and then back. In a step first warps take rows p for the
// sums over n (d_x, g_l), then threads take columns n for the sums over p (B and C); the cotangent of the state lies in
// the workspace too, since a head may have 1,024 x 1,024 states.

namespace scantape::cuda::ssd {

inline constexpr int kWarps = kBlockThreads / kWarpSize;
inline constexpr int kStaged = 128;  // steps whose decays are formed at once

/// Writes what is kept for backward: states before chunks by slot, zeros where there is none.
template <class T>
class Keeper {
 public:
  __device__ Keeper(const StateStore<T>& store, std::int64_t item, std::int64_t h)
      : store_(store), item_(item), h_(h), wanted_(store.data != nullptr) {}

  /// To be called before every step; whether the state before it is to be put into slot().
  __device__ bool is_due(std::int64_t t, bool starts, std::int64_t chunk) {
    const bool begins = starts || done_ == chunk;
    done_ = begins ? 1 : done_ + 1;
    slot_ = t / chunk;
    return wanted_ && begins && !starts;
  }
  /// Calls put(cell, value) for the slots that were left out, and this one.
  template <class Fill>
  __device__ T* advance(Fill fill) {
    for (; next_ < slot_; ++next_) fill(store_.at(item_, next_, h_));
    next_ = slot_ + 1;
    return store_.at(item_, slot_, h_);
  }
  template <class Fill>
  __device__ void finish(Fill fill) {
    if (!wanted_) return;
    for (; next_ <= store_.slots; ++next_) fill(store_.at(item_, next_, h_));
  }

 private:
  const StateStore<T>& store_;
  std::int64_t item_, h_;
  bool wanted_;
  std::int64_t done_ = 0, slot_ = 0, next_ = 1;
};

/// kPer: states of a lane.
template <class S, int kPer>
static __global__ void __launch_bounds__(kBlockThreads)
    ssd_sequential_output_kernel(Problem<S> problem, StateStore<Compute<S>> kept, Outputs<S> outputs,
                                 Compute<S>* final_state) {
  using T = Compute<S>;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize,
            warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const std::int64_t row_tiles = ceil_div(problem.width, kWarps);
  for_each_of(problem.batch * problem.heads * row_tiles, [&](std::int64_t index) {
    const int p = static_cast<int>(take_digit(&index, row_tiles)) * kWarps + warp;
    const std::int64_t h = take_digit(&index, problem.heads), item = index, g = h / problem.heads_per_group;
    if (p >= problem.width) return;  // the same for all lanes
    const std::int64_t row =
        (item * problem.heads + h) * problem.state_size() + static_cast<std::int64_t>(p) * problem.states;
    const auto for_each_state = [&](auto body) {
#pragma unroll
      for (int i = 0; i < kPer; ++i) {
        const int n = lane + i * kWarpSize;
        if (n < problem.states) body(i, n);
      }
    };
    T state[kPer] = {};
    if (problem.h0 != nullptr) for_each_state([&](int i, int n) { state[i] = problem.h0[row + n]; });
    Keeper<T> keeper(kept, item, h);
    const std::int64_t in_cell = static_cast<std::int64_t>(p) * problem.states;
    const auto fill = [&](T* cell) { for_each_state([&](int, int n) { cell[in_cell + n] = T(0); }); };

    for (std::int64_t t = 0; t < problem.length; ++t) {
      const bool starts = problem.starts_at(item, t);
      if (keeper.is_due(t, starts, problem.chunk) && t > 0) {
        T* const cell = keeper.advance(fill);
        for_each_state([&](int i, int n) { cell[in_cell + n] = state[i]; });
      }
      const T dt = problem.step_size(item, t, h), x = problem.x.at(item, t, h, p), input = dt * x;
      const Carry<T> carry(dt * problem.A[h]);
      T y = T(0);
      for_each_state([&](int i, int n) {
        const T added = input * problem.B.at(item, t, g, n);
        state[i] = starts ? added : carry(state[i], added);
        y = fma_of(problem.C.at(item, t, g, n), state[i], y);
      });
      y = warp_sum(y);
      if (lane == 0)
        outputs.put(problem, item, t, h, p, problem.D == nullptr ? y : fma_of(problem.skip(h, p), x, y));
    }
    keeper.finish(fill);
    if (final_state != nullptr) for_each_state([&](int i, int n) { final_state[row + n] = state[i]; });
  });
}

template <class S>
Status launch_sequential_output(const Problem<S>& problem, const StateStore<Compute<S>>& kept,
                                const Outputs<S>& outputs, Compute<S>* final_state, Stream stream) {
  const dim3 grid = grid_of(problem.batch * problem.heads * ceil_div(problem.width, kWarps));
  const auto run = [&](auto kernel) {
    return launch("ssd_sequential_output_kernel", kernel, grid, dim3(kBlockThreads), 0, stream, problem, kept,
                  outputs, final_state);
  };
  if (problem.states <= kWarpSize) return run(ssd_sequential_output_kernel<S, 1>);
  if (problem.states <= 4 * kWarpSize) return run(ssd_sequential_output_kernel<S, 4>);
  return run(ssd_sequential_output_kernel<S, 32>);  // 1,024 states, which is the most
}

/// What the walk back writes; null or absent where nobody asks.
template <class S>
struct SequentialGradients {
  using T = Compute<S>;

  Steps<S> d_x, d_dt;
  T *d_skip = nullptr, *d_A = nullptr, *d_dt_bias = nullptr;  // [B, H, P]; [B, H] twice
  Steps<S> d_B, d_C;                                          // where a group is one head; else, by part:
  T *partial_B = nullptr, *partial_C = nullptr;               // [heads of a group, B, L, G, N]
  Target<T> d_h0;
  T *history = nullptr, *cotangent = nullptr;  // [B, H, chunk, P, N], [B, H, P, N]
};

template <class T>
struct SequentialCells {
  T dt[kStaged], log[kStaged];
  T input[kWarps], decay[kWarps];
};

/// The states after each step of a chunk, [steps, P, N], from the one before it.
template <class S>
__device__ void write_history(SequentialCells<Compute<S>>& cells, const Problem<S>& problem,
                              std::int64_t item, std::int64_t h, const Chunk& chunk, const Compute<S>* before,
                              Compute<S>* history) {
  using T = Compute<S>;
  const std::int64_t g = h / problem.heads_per_group, size = problem.state_size();
  for (std::int64_t first = 0; first < chunk.steps; first += kStaged) {
    const std::int64_t left = chunk.steps - first;
    const int steps = left < kStaged ? static_cast<int>(left) : kStaged, self = static_cast<int>(threadIdx.x);
    __syncthreads();
    if (self < steps) {
      const T dt = problem.step_size(item, chunk.begin + first + self, h);
      cells.dt[self] = dt;
      cells.log[self] = dt * problem.A[h];
    }
    __syncthreads();
    for (std::int64_t at = self; at < size; at += kBlockThreads) {
      const int p = static_cast<int>(at / problem.states), n = static_cast<int>(at % problem.states);
      T state = first > 0 ? history[(first - 1) * size + at] : before != nullptr ? before[at] : T(0);
      for (int k = 0; k < steps; ++k) {
        const std::int64_t t = chunk.begin + first + k;
        const T added = cells.dt[k] * problem.x.at(item, t, h, p) * problem.B.at(item, t, g, n);
        const bool fresh = first == 0 && k == 0 && before == nullptr;
        state = fresh ? added : Carry<T>(cells.log[k])(state, added);
        history[(first + k) * size + at] = state;
      }
    }
  }
  __syncthreads();
}

/// Sums of one step over n: d_x of the warps' rows, and, in cells, each warp's share of x . (G B) and of g_l.
template <class S>
__device__ void walk_rows(SequentialCells<Compute<S>>& cells, const Problem<S>& problem,
                          const Steps<const Compute<S>>& dy, std::int64_t item, std::int64_t h,
                          std::int64_t t, Compute<S> dt, const Compute<S>* before,
                          const Compute<S>* d_final_state, const SequentialGradients<S>& gradients,
                          Compute<S>* cotangent) {
  using T = Compute<S>;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize,
            warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const std::int64_t g = h / problem.heads_per_group;
  const bool is_last = t == problem.length - 1;
  const bool comes_back = is_last ? d_final_state != nullptr : !problem.starts_at(item, t + 1);
  const Carry<T> later(is_last || !comes_back ? T(0) : problem.step_size(item, t + 1, h) * problem.A[h]);
  const Carry<T> own(dt * problem.A[h]);
  const T* const of_later = is_last ? d_final_state : cotangent;
  T of_input = T(0), of_decay = T(0);
  for (int p = warp; p < problem.width; p += kWarps) {
    const T of_y = dy.at(item, t, h, p), x = problem.x.at(item, t, h, p);
    T d_input = T(0);
    for (int n = lane; n < problem.states; n += kWarpSize) {
      const std::int64_t at = static_cast<std::int64_t>(p) * problem.states + n;
      const T added = of_y * problem.C.at(item, t, g, n);
      const T of_state = comes_back ? later(of_later[at], added) : added;
      cotangent[at] = of_state;
      d_input = fma_of(of_state, problem.B.at(item, t, g, n), d_input);
      if (before != nullptr) of_decay = fma_of(of_state, own(before[at], T(0)), of_decay);
    }
    d_input = warp_sum(d_input);
    of_input = fma_of(x, d_input, of_input);
    if (lane != 0) continue;
    if (gradients.d_x.present())
      gradients.d_x.put(item, t, h, p,
                        problem.D == nullptr ? dt * d_input : fma_of(dt, d_input, problem.skip(h, p) * of_y));
    if (gradients.d_skip != nullptr) {
      T& skip = gradients.d_skip[(item * problem.heads + h) * problem.width + p];
      const T so_far = is_last ? T(0) : skip;
      skip = fma_of(of_y, x, so_far);
    }
  }
  of_decay = warp_sum(of_decay);
  if (lane == 0) {
    cells.input[warp] = of_input;
    cells.decay[warp] = of_decay;
  }
}

/// Sums of one step over p: d_B and d_C of the head.
template <class S>
__device__ void walk_columns(const Problem<S>& problem, const Steps<const Compute<S>>& dy, std::int64_t item,
                             std::int64_t h, std::int64_t t, Compute<S> dt, const Compute<S>* state,
                             const Compute<S>* cotangent, const SequentialGradients<S>& gradients) {
  using T = Compute<S>;
  const std::int64_t g = h / problem.heads_per_group, part = h % problem.heads_per_group;
  const auto put = [&](const Steps<S>& whole, T* partial, int n, T value) {
    if (whole.present())
      whole.put(item, t, g, n, value);
    else if (partial != nullptr)
      partial[(((part * problem.batch + item) * problem.length + t) * problem.groups + g) * problem.states +
              n] = value;
  };
  for (int n = static_cast<int>(threadIdx.x); n < problem.states; n += kBlockThreads) {
    T d_B = T(0), d_C = T(0);
    for (int p = 0; p < problem.width; ++p) {
      const std::int64_t at = static_cast<std::int64_t>(p) * problem.states + n;
      d_B = fma_of(problem.x.at(item, t, h, p), cotangent[at], d_B);
      d_C = fma_of(dy.at(item, t, h, p), state[at], d_C);
    }
    put(gradients.d_B, gradients.partial_B, n, dt * d_B);
    put(gradients.d_C, gradients.partial_C, n, d_C);
  }
}

/// One block a multiprocessor is enough for the bounds: left to itself ptxas spills to fit three.
template <class S>
static __global__ void __launch_bounds__(kBlockThreads, 1)
    ssd_sequential_bwd_kernel(Problem<S> problem, Steps<const Compute<S>> dy, StateStore<Compute<S>> kept,
                              const Compute<S>* d_final_state, SequentialGradients<S> gradients) {
  using T = Compute<S>;
  auto& cells = shared_storage<SequentialCells<T>>();
  const std::int64_t size = problem.state_size();
  for_each_of(problem.batch * problem.heads, [&](std::int64_t index) {
    const std::int64_t h = index % problem.heads, item = index / problem.heads;
    T* const history = gradients.history + index * problem.chunk * size;
    T* const cotangent = gradients.cotangent + index * size;
    const T* const d_final = d_final_state == nullptr ? nullptr : d_final_state + index * size;
    T d_A = T(0), d_dt_bias = T(0);  // in thread 0
    for (std::int64_t end = problem.length; end > 0;) {
      const Chunk chunk = problem.chunk_before(item, end);
      const T* const before = problem.state_before(kept, item, chunk, h);
      write_history(cells, problem, item, h, chunk, before, history);
      for (std::int64_t k = chunk.steps - 1; k >= 0; --k) {
        const std::int64_t t = chunk.begin + k;
        const T raw = problem.raw(item, t, h), dt = problem.clamped(problem.unclamped(raw));
        walk_rows(cells, problem, dy, item, h, t, dt, k > 0 ? history + (k - 1) * size : before, d_final,
                  gradients, cotangent);
        __syncthreads();
        if (threadIdx.x == 0) {
          T of_input = cells.input[0], of_decay = cells.decay[0];
          for (int warp = 1; warp < kWarps; ++warp) {
            of_input += cells.input[warp];
            of_decay += cells.decay[warp];
          }
          const T d_raw = problem.raw_gradient(raw, fma_of(problem.A[h], of_decay, of_input));
          if (gradients.d_dt.present()) gradients.d_dt.put(item, t, h, 0, d_raw);
          d_A = fma_of(dt, of_decay, d_A);
          d_dt_bias += d_raw;
        }
        walk_columns(problem, dy, item, h, t, dt, history + k * size, cotangent, gradients);
        __syncthreads();
      }
      end = chunk.begin;
    }
    if (threadIdx.x == 0 && gradients.d_A != nullptr) gradients.d_A[index] = d_A;
    if (threadIdx.x == 0 && gradients.d_dt_bias != nullptr) gradients.d_dt_bias[index] = d_dt_bias;
    if (gradients.d_h0.wanted()) {
      const bool starts = problem.starts_at(item, 0);
      const Carry<T> carry(problem.step_size(item, 0, h) * problem.A[h]);
      for (std::int64_t at = threadIdx.x; at < size; at += kBlockThreads)
        gradients.d_h0.put(0, index * size + at, starts ? T(0) : carry(cotangent[at], T(0)));
    }
    __syncthreads();
  });
}

}  // namespace scantape::cuda::ssd
