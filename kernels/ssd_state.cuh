#pragma once

#include "ssd_tile.cuh"

// States of chunks: what each chunk adds to the state, all of them at once, and then the walk from chunk to chunk. The
// same the other way through time for the cotangents of states.

namespace scantape::cuda::ssd {

/// Blocks of the kernels of states: over items, slots, heads and tiles of the state.
template <class S>
struct StateBlocks {
  std::int64_t slots;  // of which there are blocks
  std::int64_t row_tiles, column_tiles, count;

  StateBlocks(const Problem<S>& problem, std::int64_t slot_count)
      : slots(slot_count),
        row_tiles(ceil_div(problem.width, kTile<Compute<S>>)),
        column_tiles(ceil_div(problem.states, kTile<Compute<S>>)),
        count(problem.batch * slots * problem.heads * row_tiles * column_tiles) {}
};

template <class T>
struct StateCells {
  Panel<T> left, right;
  StepTile<T> steps;
  T weight[kTile<T>];
};

/// Writes a tile of sum_t weight_t left_t right_t^T, left_t [P], right_t [N], over a chunk.
/// kOutgoing: weights are dt_t and the decay from t to the chunk's end; else the decay from its begin to t, t's included.
/// `log_decay` [B, slots, H] gets the log decay of the chunk as a whole.
template <bool kOutgoing, class S, class L>
__device__ void write_chunk_state(StateCells<Compute<S>>& cells, const Problem<S>& problem, std::int64_t item,
                                  std::int64_t h, const Chunk& chunk, const Steps<const L>& left_steps,
                                  const Steps<const S>& right_steps, int row, int column, Compute<S>* state,
                                  Compute<S>* log_decay) {
  using T = Compute<S>;
  const Track<L> left = track(left_steps, item, chunk.begin, h);
  const Track<S> right = track(right_steps, item, chunk.begin, h / problem.heads_per_group);
  const int rows = part_of<T>(problem.width, row), columns = part_of<T>(problem.states, column);
  const std::int64_t tiles = tiles_of<T>(chunk);
  Fragment<T> sum = {};
  T passed = T(0);  // the log decay of the tiles that were taken before
  for (std::int64_t index = 0; index < tiles; ++index) {
    const std::int64_t tile = kOutgoing ? tiles - 1 - index : index, first = tile * kTile<T>;
    const int steps = steps_of_tile<T>(chunk, tile);
    load_steps(cells.steps, problem, item, chunk.begin + first, steps, h);
    const int self = static_cast<int>(threadIdx.x);
    if (self < kTile<T>)
      cells.weight[self] = kOutgoing ? cells.steps.dt[self] * exp_of(cells.steps.tile_left[self] + passed)
                                     : exp_of(passed + cells.steps.tile_so_far[self]);
    __syncthreads();
    add_product<false, false>(
        cells.left, cells.right, steps, rows, columns,
        [&](int k, int i) { return cells.weight[k] * left.at(first + k, row + i); },
        [&](int k, int i) { return right.at(first + k, column + i); }, sum);
    passed += cells.steps.total();
  }
#pragma unroll
  for (int r = 0; r < kOwn<T>; ++r) {
#pragma unroll
    for (int c = 0; c < kOwn<T>; ++c) {
      const int i = own_row<T>(r), j = own_column(c);
      if (i < rows && j < columns)
        state[static_cast<std::int64_t>(row + i) * problem.states + column + j] = sum.at[r][c];
    }
  }
  if (log_decay != nullptr && row == 0 && column == 0 && threadIdx.x == 0) *log_decay = passed;
}

/// Before the walk: slot c of `states` gets what the chunk adds that ends where slot c's carried chunk begins; the final
/// state gets what the last chunk adds. log_decay [B, slots + 1, H] is that of these chunks.
template <class S>
static __global__ void __launch_bounds__(kBlockThreads, 2)
    ssd_fwd_chunk_state_kernel(Problem<S> problem, StateBlocks<S> blocks, StateStore<Compute<S>> states,
                               Compute<S>* final_state, Compute<S>* log_decay) {
  using T = Compute<S>;
  auto& cells = shared_storage<StateCells<T>>();
  for_each_of(blocks.count, [&](std::int64_t index) {
    const int column = static_cast<int>(take_digit(&index, blocks.column_tiles)) * kTile<T>;
    const int row = static_cast<int>(take_digit(&index, blocks.row_tiles)) * kTile<T>;
    const std::int64_t h = take_digit(&index, problem.heads);
    const std::int64_t slot = take_digit(&index, blocks.slots) + 1, item = index;
    Chunk chunk;
    T* state;
    if (slot == problem.slots) {
      chunk = problem.last_chunk(item);
      state = final_state + (item * problem.heads + h) * problem.state_size();
    } else {
      const Chunk next = problem.carried_chunk(item, slot);
      if (next.steps == 0) return;
      chunk = {next.begin - problem.chunk, problem.chunk};
      state = states.at(item, slot, h);
    }
    T* const log = log_decay + (item * (problem.slots + 1) + slot) * problem.heads + h;
    write_chunk_state<true>(cells, problem, item, h, chunk, problem.x, problem.B, row, column, state, log);
  });
}

/// The walk: a thread per element of the state. Leaves in slot c the state before its carried chunk.
template <class S>
static __global__ void __launch_bounds__(kBlockThreads)
    ssd_fwd_state_passing_kernel(Problem<S> problem, StateStore<Compute<S>> states, Compute<S>* final_state,
                                 const Compute<S>* log_decay) {
  using T = Compute<S>;
  const std::int64_t count = problem.states_of_all(), size = problem.state_size();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kBlockThreads;
  for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x; at < count;
       at += step) {
    std::int64_t index = at;
    const std::int64_t element = take_digit(&index, size), h = take_digit(&index, problem.heads),
                       item = index;
    const T* const logs = log_decay + item * (problem.slots + 1) * problem.heads + h;
    T state = problem.h0 != nullptr && !problem.starts_at(item, 0) ? problem.h0[at] : T(0);
    for (std::int64_t slot = 1; slot < problem.slots; ++slot) {
      T& cell = states.at(item, slot, h)[element];
      const Chunk next = problem.carried_chunk(item, slot);
      if (next.steps == 0) {
        cell = T(0);  // nobody reads it; nothing is left unwritten
        continue;
      }
      const T added = cell;
      const bool begins = problem.starts_at(item, next.begin - problem.chunk);
      state = begins ? added : Carry<T>(logs[slot * problem.heads])(state, added);
      cell = state;
    }
    if (final_state != nullptr) {
      const T added = final_state[at];
      const bool begins = problem.starts_at(item, problem.last_chunk(item).begin);
      final_state[at] = begins ? added : Carry<T>(logs[problem.slots * problem.heads])(state, added);
    }
  }
}

/// Before the walk back: slot c gets what its carried chunk's outputs add to the cotangent of the state before it.
/// log_decay [B, slots, H] is that of these chunks. Slot 0 is left out where nobody asks for d_h0.
template <class S>
static __global__ void __launch_bounds__(kBlockThreads, 2)
    ssd_bwd_chunk_state_kernel(Problem<S> problem, StateBlocks<S> blocks, Steps<const Compute<S>> dy,
                               StateStore<Compute<S>> cotangents, Compute<S>* log_decay) {
  using T = Compute<S>;
  auto& cells = shared_storage<StateCells<T>>();
  for_each_of(blocks.count, [&](std::int64_t index) {
    const int column = static_cast<int>(take_digit(&index, blocks.column_tiles)) * kTile<T>;
    const int row = static_cast<int>(take_digit(&index, blocks.row_tiles)) * kTile<T>;
    const std::int64_t h = take_digit(&index, problem.heads);
    const std::int64_t slot = take_digit(&index, blocks.slots) + cotangents.first, item = index;
    const Chunk chunk = problem.carried_chunk(item, slot);
    if (chunk.steps == 0) return;
    write_chunk_state<false>(cells, problem, item, h, chunk, dy, problem.C, row, column,
                             cotangents.at(item, slot, h),
                             log_decay + (item * problem.slots + slot) * problem.heads + h);
  });
}

/// The walk back. Leaves in slot c the cotangent of the state before its carried chunk; that of slot 0 is d_h0.
template <class S>
static __global__ void __launch_bounds__(kBlockThreads)
    ssd_bwd_state_passing_kernel(Problem<S> problem, StateStore<Compute<S>> cotangents,
                                 const Compute<S>* d_final_state, const Compute<S>* log_decay,
                                 Target<Compute<S>> d_h0) {
  using T = Compute<S>;
  const std::int64_t count = problem.states_of_all(), size = problem.state_size();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kBlockThreads;
  for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x; at < count;
       at += step) {
    std::int64_t index = at;
    const std::int64_t element = take_digit(&index, size), h = take_digit(&index, problem.heads),
                       item = index;
    const T* const logs = log_decay + item * problem.slots * problem.heads + h;
    const T d_final = d_final_state == nullptr ? T(0) : d_final_state[at];
    T after = T(0);  // of the state before the carried chunk that was seen last
    for (std::int64_t slot = problem.slots - 1; slot >= (d_h0.wanted() ? 0 : 1); --slot) {
      const Chunk chunk = problem.carried_chunk(item, slot);
      if (chunk.steps == 0) continue;
      T& cell = cotangents.at(item, slot, h)[element];
      const T added = cell;
      const bool ends = chunk.end() == problem.length;
      const T of_end = ends ? d_final : after;
      const bool counts = ends ? d_final_state != nullptr : !problem.starts_at(item, chunk.end());
      after = counts ? Carry<T>(logs[slot * problem.heads])(of_end, added) : added;
      cell = after;
    }
    if (d_h0.wanted()) d_h0.put(0, at, problem.starts_at(item, 0) ? T(0) : after);
  }
}

}  // namespace scantape::cuda::ssd
