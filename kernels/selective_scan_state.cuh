#pragma once

#include "ssd_launch.cuh"

// Which threads of selective_scan have which states, and the walk forward.

namespace scantape::cuda::selective_scan {

using ssd::Carry, ssd::Problem, ssd::Steps, ssd::for_each_of, ssd::take_digit, ssd::kWarps;

/// Which threads have which states.
template <int kLanes_, int kPer_>
struct Plan {
  static constexpr int kLanes = kLanes_, kPer = kPer_;      // of a channel; states of a lane
  static constexpr int kChannels = kBlockThreads / kLanes;  // of a block
  static constexpr int kWarpChannels = kWarpSize / kLanes;  // of a warp
  static constexpr int kAtOnce = 4,
                       kColumns = kLanes * kAtOnce;  // states that are summed over channels together
  static constexpr bool kInRegisters = kPer <= 4;    // what backward carries along; more would be spilled
};

/// The thread's channel of a tile of `count` channels; threads beyond them redo the last one and write nothing.
template <class P>
struct Place {
  int lane, channel;
  bool writes;

  __device__ explicit Place(std::int64_t count)
      : lane(static_cast<int>(threadIdx.x) % P::kLanes), channel(static_cast<int>(threadIdx.x) / P::kLanes) {
    writes = channel < count;
    if (!writes) channel = static_cast<int>(count) - 1;
  }
};

/// Whether a warp has any of `count` channels.
template <class P>
__device__ bool has_work(std::int64_t count) {
  return static_cast<int>(threadIdx.x) / kWarpSize * P::kWarpChannels < count;
}

/// The sum over a channel's lanes, in each of them.
template <class P, class T>
__device__ T lane_sum(T value) {
#pragma unroll
  for (int distance = P::kLanes / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(kAllLanes, value, distance);
  return value;
}

/// The sum over the channels of a warp, of each lane.
template <class P, class T>
__device__ T channel_sum(T value) {
#pragma unroll
  for (int distance = P::kLanes; distance < kWarpSize; distance *= 2)
    value += __shfl_xor_sync(kAllLanes, value, distance);
  return value;
}

/// States of a channel from one step to the next, and what is kept of them.
template <class S>
struct States {
  using T = Compute<S>;

  const T* A;                              // of the channel
  const T *h0 = nullptr, *kept = nullptr;  // of the channel, null where there is none; of the item
  std::int64_t row = 0, slot = 0;          // of the channel in [E, N]; size of [E, N]

  __device__ States(const Problem<S>& problem, const T* all_kept, std::int64_t item, std::int64_t e)
      : A(problem.A + e * problem.states), row(e * problem.states), slot(problem.heads * problem.states) {
    if (problem.h0 != nullptr) h0 = problem.h0 + item * slot + row;
    if (all_kept != nullptr) kept = all_kept + item * (problem.slots - 1) * slot + row;
  }
  /// The state after k intervals, k from 1.
  __device__ const T* after(std::int64_t k) const { return kept + (k - 1) * slot; }
};

/// A step forward of state n; `fresh`: nothing comes in.
template <class S>
__device__ Compute<S> moved(const Problem<S>& problem, std::int64_t item, std::int64_t t, std::int64_t g,
                            int n, Compute<S> log_decay, Compute<S> input, bool fresh, Compute<S> state) {
  const Compute<S> added = input * problem.B.at(item, t, g, n);
  return fresh ? added : Carry<Compute<S>>(log_decay)(state, added);
}

/// One block a multiprocessor is enough for the bounds: left to itself ptxas spills to fit more (f64).
template <class S, class P>
static __global__ void __launch_bounds__(kBlockThreads, 1)
    selective_scan_fwd_kernel(Problem<S> problem, Steps<S> out, Compute<S>* kept, Compute<S>* final_state) {
  using T = Compute<S>;
  const std::int64_t tiles = ceil_div(problem.heads, P::kChannels);
  for_each_of(problem.batch * tiles, [&](std::int64_t index) {
    const std::int64_t first = take_digit(&index, tiles) * P::kChannels, item = index;
    if (!has_work<P>(problem.heads - first)) return;
    const Place<P> place(problem.heads - first);
    const std::int64_t e = first + place.channel, g = e / problem.heads_per_group;
    const States<S> states(problem, kept, item, e);
    const auto for_each_state = [&](auto body) {
#pragma unroll
      for (int i = 0; i < P::kPer; ++i) {
        const int n = place.lane + i * P::kLanes;
        if (n < problem.states) body(i, n);
      }
    };
    T state[P::kPer] = {};
    // The next state may lie where this one does: only who writes it may read it.
    if (states.h0 != nullptr && place.writes) for_each_state([&](int i, int n) { state[i] = states.h0[n]; });

    std::int64_t done = 0, intervals = 0;  // steps of this interval
    for (std::int64_t t = 0; t < problem.length; ++t, ++done) {
      if (done == problem.chunk) {
        done = 0;
        ++intervals;
        if (kept != nullptr && place.writes) {
          T* const to = kept + (item * (problem.slots - 1) + intervals - 1) * states.slot + states.row;
          for_each_state([&](int i, int n) { to[n] = state[i]; });
        }
      }
      const bool fresh = problem.starts_at(item, t) || (t == 0 && states.h0 == nullptr);
      const T dt = problem.step_size(item, t, e), u = problem.x.at(item, t, e), input = dt * u;
      T y = T(0);
      for_each_state([&](int i, int n) {
        state[i] = moved(problem, item, t, g, n, dt * states.A[n], input, fresh, state[i]);
        y = fma_of(problem.C.at(item, t, g, n), state[i], y);
      });
      y = lane_sum<P>(y);
      if (!place.writes || place.lane != 0) continue;
      if (problem.D != nullptr) y = fma_of(problem.D[e], u, y);
      if (problem.z.present()) y *= silu(problem.z.at(item, t, e));
      out.put(item, t, e, 0, y);
    }
    if (final_state != nullptr && place.writes) {
      T* const to = final_state + item * states.slot + states.row;
      for_each_state([&](int i, int n) { to[n] = state[i]; });
    }
  });
}

}  // namespace scantape::cuda::selective_scan
