#pragma once

#include "ssd_chunk.cuh"

// Gradients of x, B, C and D chunk by chunk, and the rows and columns of the table W at the chunk's borders, which come
// with them (ssd_decay.cuh).

namespace scantape::cuda::ssd {

/// Numbers of every step, one plane for each tile of the columns that were summed over: [planes, B, H, L].
template <class T>
struct StepSums {
  T* data = nullptr;
  std::int64_t plane = 0;  // B H L

  __device__ T sum(std::int64_t at, std::int64_t planes) const {
    T total = data[at];
    for (std::int64_t index = 1; index < planes; ++index) total += data[index * plane + at];
    return total;
  }
};

/// What the kernel of d_x writes; null or absent where nobody asks.
template <class S>
struct InputGradients {
  using T = Compute<S>;

  Steps<S> d_x;
  T* d_skip = nullptr;             // of D, [B slots row tiles, H, P]
  StepSums<T> of_input, outgoing;  // x . (d of dt x), and W_{n+1,t}: both, or neither
};

template <class S>
static __global__ void __launch_bounds__(kBlockThreads)
    ssd_bwd_input_kernel(Problem<S> problem, ChunkBlocks<Compute<S>> blocks, Steps<const Compute<S>> dy,
                         StateStore<Compute<S>> cotangents, const Compute<S>* d_final_state,
                         InputGradients<S> gradients) {
  using T = Compute<S>;
  auto& cells = shared_storage<ChunkCells<T>>();
  for_each_of(blocks.count, [&](std::int64_t index) {
    const ChunkPlace place = place_of(blocks, problem.slots, index);
    const std::int64_t item = place.item, h = place.lane, g = h / problem.heads_per_group;
    const int column = static_cast<int>(place.column_tile) * kTile<T>;
    T d_skip[kOwn<T>] = {};
    for_each_chunk(problem, item, place.slot, [&](const Chunk& chunk) {
      if (place.row_tile >= tiles_of<T>(chunk)) return;
      const Role<false, false, S, S, T, T> role{
          track(problem.B, item, chunk.begin, g),
          track(problem.C, item, chunk.begin, g),
          track(dy, item, chunk.begin, h),
          problem.cotangent_after(cotangents, d_final_state, item, chunk, h),
          problem.states,
          problem.width,
          problem.states};
      ChunkTile<T> tile;
      make_tile(cells, problem, item, h, chunk, place.row_tile, column, role, tile);
      const int rows = steps_of_tile<T>(chunk, place.row_tile);
#pragma unroll
      for (int r = 0; r < kOwn<T>; ++r) {
        const int i = own_row<T>(r);
        const std::int64_t t = chunk.begin + place.row_tile * kTile<T> + i;
        T of_input = T(0), outgoing = T(0);
        if (i < rows) {
          const T factor = carried_decay<false>(cells.own, tile.passed, i), dt = cells.own.dt[i];
#pragma unroll
          for (int c = 0; c < kOwn<T>; ++c) {
            const int p = column + own_column(c);
            if (p >= problem.width) continue;
            const T x = problem.x.at(item, t, h, p), of_y = dy.at(item, t, h, p);
            const T carried = role.state == nullptr ? T(0) : factor * tile.carried.at[r][c];
            const T d_input = tile.within.at[r][c] + carried;
            of_input = fma_of(x, d_input, of_input);
            outgoing = fma_of(dt * x, carried, outgoing);
            d_skip[c] = fma_of(of_y, x, d_skip[c]);
            if (gradients.d_x.present())
              gradients.d_x.put(
                  item, t, h, p,
                  problem.D == nullptr ? dt * d_input : fma_of(dt, d_input, problem.skip(h, p) * of_y));
          }
        }
        of_input = row_sum(of_input);
        outgoing = row_sum(outgoing);
        if (gradients.of_input.data != nullptr && i < rows && tile_x() == 0) {
          const std::int64_t at =
              place.column_tile * gradients.of_input.plane + (item * problem.heads + h) * problem.length + t;
          gradients.of_input.data[at] = of_input;
          gradients.outgoing.data[at] = outgoing;
        }
      }
    });
    if (gradients.d_skip == nullptr) return;
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kOwn<T>; ++c) cells.weights.at[tile_y()][own_column(c)] = d_skip[c];
    __syncthreads();
    const int self = static_cast<int>(threadIdx.x);
    if (self < kTile<T> && column + self < problem.width) {
      T sum = cells.weights.at[0][self];
      for (int y = 1; y < kSide; ++y) sum += cells.weights.at[y][self];
      const std::int64_t row = (item * problem.slots + place.slot) * blocks.row_tiles + place.row_tile;
      gradients.d_skip[(row * problem.heads + h) * problem.width + column + self] = sum;
    }
  });
}

/// The heads of a group are shared out in parts, each of which one block goes through in order; parts are joined later.
struct HeadParts {
  std::int64_t parts = 1, heads = 1;  // of a group; of a part

  static constexpr std::int64_t kMostParts = 8;
  explicit HeadParts(std::int64_t heads_per_group) noexcept
      : heads(ceil_div(heads_per_group, heads_per_group < kMostParts ? heads_per_group : kMostParts)) {
    parts = ceil_div(heads_per_group, heads);
  }
};

/// What the kernels of d_B and d_C write: the gradient, where there is one part, or else a part's share of it,
/// [parts, B, L, G, N]; and for d_C W_t0 too, the column of W for the state before the chunk.
template <class S>
struct GroupGradient {
  using T = Compute<S>;

  HeadParts parts{1};
  Steps<S> whole;
  T* partial = nullptr;
  StepSums<T> incoming;
};

/// kLower: of C, from dy and the state before; else of B, from x and the cotangent of the state after.
template <class S, bool kLower>
static __global__ void __launch_bounds__(kBlockThreads)
    ssd_bwd_group_kernel(Problem<S> problem, ChunkBlocks<Compute<S>> blocks, Steps<const Compute<S>> dy,
                         StateStore<Compute<S>> states, const Compute<S>* d_final_state,
                         GroupGradient<S> gradient) {
  using T = Compute<S>;
  using LS = std::conditional_t<kLower, T, S>;
  using RS = std::conditional_t<kLower, S, T>;
  auto& cells = shared_storage<ChunkCells<T>>();
  for_each_of(blocks.count, [&](std::int64_t index) {
    const ChunkPlace place = place_of(blocks, problem.slots, index);
    const std::int64_t item = place.item, g = place.lane / gradient.parts.parts;
    const std::int64_t part = place.lane % gradient.parts.parts, beyond = (g + 1) * problem.heads_per_group;
    const std::int64_t first_head = g * problem.heads_per_group + part * gradient.parts.heads;
    const int column = static_cast<int>(place.column_tile) * kTile<T>;
    for_each_chunk(problem, item, place.slot, [&](const Chunk& chunk) {
      if (place.row_tile >= tiles_of<T>(chunk)) return;
      const int rows = steps_of_tile<T>(chunk, place.row_tile);
      const std::int64_t t0 = chunk.begin + place.row_tile * kTile<T>;
      Fragment<T> sum = {};
      for (std::int64_t h = first_head; h < first_head + gradient.parts.heads && h < beyond; ++h) {
        Role<kLower, true, LS, RS, S, T> role{};
        if constexpr (kLower) {
          role.left = track(dy, item, chunk.begin, h);
          role.right = track(problem.x, item, chunk.begin, h);
          role.value = track(problem.B, item, chunk.begin, g);
          role.state = problem.state_before(states, item, chunk, h);
        } else {
          role.left = track(problem.x, item, chunk.begin, h);
          role.right = track(dy, item, chunk.begin, h);
          role.value = track(problem.C, item, chunk.begin, g);
          role.state = problem.cotangent_after(states, d_final_state, item, chunk, h);
        }
        role.inner = problem.width;
        role.outer = role.state_stride = problem.states;
        ChunkTile<T> tile;
        make_tile(cells, problem, item, h, chunk, place.row_tile, column, role, tile);
#pragma unroll
        for (int r = 0; r < kOwn<T>; ++r) {
          const int i = own_row<T>(r);
          const T factor = carried_decay<kLower>(cells.own, tile.passed, i);
          const T scale = kLower ? T(1) : cells.own.dt[i];
          T incoming = T(0);
#pragma unroll
          for (int c = 0; c < kOwn<T>; ++c) {
            const int n = column + own_column(c);
            const T carried = role.state == nullptr ? T(0) : factor * tile.carried.at[r][c];
            sum.at[r][c] = fma_of(scale, tile.within.at[r][c] + carried, sum.at[r][c]);
            if (kLower && gradient.incoming.data != nullptr && i < rows && n < problem.states)
              incoming = fma_of(problem.C.at(item, t0 + i, g, n), carried, incoming);
          }
          if constexpr (kLower) {
            if (gradient.incoming.data == nullptr) continue;  // the same for all threads
            incoming = row_sum(incoming);
            if (i < rows && tile_x() == 0)
              gradient.incoming.data[place.column_tile * gradient.incoming.plane +
                                     (item * problem.heads + h) * problem.length + t0 + i] = incoming;
          }
        }
      }
#pragma unroll
      for (int r = 0; r < kOwn<T>; ++r) {
#pragma unroll
        for (int c = 0; c < kOwn<T>; ++c) {
          const int i = own_row<T>(r), n = column + own_column(c);
          if (i >= rows || n >= problem.states) continue;
          const std::int64_t t = t0 + i;
          if (gradient.whole.present())
            gradient.whole.put(item, t, g, n, sum.at[r][c]);
          else if (gradient.partial != nullptr)
            gradient.partial[(((part * problem.batch + item) * problem.length + t) * problem.groups + g) *
                                 problem.states +
                             n] = sum.at[r][c];
        }
      }
    });
  });
}

}  // namespace scantape::cuda::ssd
