#pragma once

#include "ssd_tile.cuh"

// What is made of each chunk by itself, given the state before it and the cotangent of the state after it: the outputs
// and the gradients of x, B and C. Each is a tile of rows (steps of the chunk) of
//
//   out_i = sum_j (left_i . right_j) T value_j + T' (left_i state)
//
// where j runs over the steps up to i and the state is the one before the chunk (outputs, d_C), or over the steps from i
// on and the state is the cotangent of the one after it (d_x, d_B).
//
//           left   right  value  state              scaled by
//   output  C      B      x      H [P, N]           dt_j
//   d_x     B      C      dy     dH' [P, N]         dt_i, by who takes it: d_dt needs it without
//   d_C     dy     x      B      H, the other way   dt_j
//   d_B     x      dy     C      dH', the other way dt_i
//
// A block goes through the tiles of j from its own tile on outwards, so the log decay of the tiles between is a running
// sum, and only two tiles of steps are in shared memory however long the chunk is.

namespace scantape::cuda::ssd {

template <class T>
struct ChunkCells {
  Panel<T> left, right;
  Square<T> weights;
  StepTile<T> own, other;
};

/// One of the four. kLower: j up to i. kAcross: the state's rows are what the sum runs over. LS, RS, VS: what left, right
/// and value are stored in.
template <bool kUpTo, bool kStateAcross, class LS, class RS, class VS, class T>
struct Role {
  static constexpr bool kLower = kUpTo, kAcross = kStateAcross;

  Track<LS> left;
  Track<RS> right;
  Track<VS> value;
  const T* state;  // null where it is nothing
  int inner, outer, state_stride;

  __device__ T state_at(int k, int column) const {
    return kAcross ? state[static_cast<std::int64_t>(k) * state_stride + column]
                   : state[static_cast<std::int64_t>(column) * state_stride + k];
  }
};

/// A tile of rows and columns: `within` from the chunk's own steps, `carried` from its state, each row of the latter
/// still without its decay, which is returned for a row by carried_decay.
template <class T>
struct ChunkTile {
  Fragment<T> within, carried;
  T passed;  // the log decay of the tiles between this one and the chunk's begin (kLower) or end
};

template <bool kLower, class T>
__device__ T carried_decay(const StepTile<T>& own, T passed, int row) {
  return exp_of(kLower ? passed + own.tile_so_far[row] : own.tile_left[row] + passed);
}

template <class S, class R>
__device__ void make_tile(ChunkCells<Compute<S>>& cells, const Problem<S>& problem, std::int64_t item,
                          std::int64_t h, const Chunk& chunk, std::int64_t tile, int column, const R& role,
                          ChunkTile<Compute<S>>& out) {
  using T = Compute<S>;
  constexpr bool kLower = R::kLower;
  const std::int64_t tiles = tiles_of<T>(chunk), row0 = tile * kTile<T>;
  const int rows = steps_of_tile<T>(chunk, tile), columns = part_of<T>(role.outer, column);
  load_steps(cells.own, problem, item, chunk.begin + row0, rows, h);
  out = {};
  for (std::int64_t partner = tile; partner >= 0 && partner < tiles; partner += kLower ? -1 : 1) {
    const bool diagonal = partner == tile;
    const std::int64_t col0 = partner * kTile<T>;
    const int count = steps_of_tile<T>(chunk, partner);
    if (!diagonal) load_steps(cells.other, problem, item, chunk.begin + col0, count, h);
    const StepTile<T>& other = diagonal ? cells.own : cells.other;
    Fragment<T> inner = {};
    add_product<true, true>(
        cells.left, cells.right, role.inner, rows, count,
        [&](int k, int i) { return role.left.at(row0 + i, k); },
        [&](int k, int i) { return role.right.at(col0 + i, k); }, inner);
#pragma unroll
    for (int r = 0; r < kOwn<T>; ++r) {
#pragma unroll
      for (int c = 0; c < kOwn<T>; ++c) {
        const int i = own_row<T>(r), j = own_column(c);
        const bool counts = i < rows && j < count && (!diagonal || (kLower ? j <= i : j >= i));
        T weight = T(0);
        if (counts) {
          weight = inner.at[r][c] * (kLower ? decay(cells.own, other, diagonal, out.passed, i, j)
                                            : decay(other, cells.own, diagonal, out.passed, j, i));
          if (kLower) weight *= other.dt[j];
        }
        cells.weights.at[j][i] = weight;
      }
    }
    add_weighted<kLower>(
        cells.weights, cells.right, diagonal, count, columns,
        [&](int k, int i) { return role.value.at(col0 + k, column + i); }, out.within);
    if (!diagonal) out.passed += other.total();
  }
  if (role.state == nullptr) return;
  add_product<true, !R::kAcross>(
      cells.left, cells.right, role.inner, rows, columns,
      [&](int k, int i) { return role.left.at(row0 + i, k); },
      [&](int k, int i) { return role.state_at(k, column + i); }, out.carried);
}

/// Blocks over items, slots, heads (or parts of groups), tiles of a chunk's steps and of columns.
template <class T>
struct ChunkBlocks {
  std::int64_t lanes, row_tiles, column_tiles, count;

  template <class S>
  ChunkBlocks(const Problem<S>& problem, std::int64_t lane_count, int columns)
      : lanes(lane_count),
        row_tiles(ceil_div(problem.chunk, kTile<T>)),
        column_tiles(ceil_div(columns, kTile<T>)),
        count(problem.batch * problem.slots * lanes * row_tiles * column_tiles) {}
};

struct ChunkPlace {
  std::int64_t item, slot, lane, row_tile, column_tile;
};

template <class T>
__device__ ChunkPlace place_of(const ChunkBlocks<T>& blocks, std::int64_t slots, std::int64_t index) {
  ChunkPlace place;
  place.column_tile = take_digit(&index, blocks.column_tiles);
  place.row_tile = take_digit(&index, blocks.row_tiles);
  place.lane = take_digit(&index, blocks.lanes);
  place.slot = take_digit(&index, slots);
  place.item = index;
  return place;
}

/// Where outputs go, or, in backward, the gradient of the gate, for which they are formed again.
template <class S>
struct Outputs {
  Steps<S> out;
  bool is_d_z = false;
  Steps<const S> d_out;  // for d_z; absent where it is zero

  __device__ void put(const Problem<S>& problem, std::int64_t item, std::int64_t t, std::int64_t h, int p,
                      Compute<S> y) const {
    using T = Compute<S>;
    if (is_d_z) {
      const T slope = y * silu_derivative(problem.z.at(item, t, h, p));
      out.put(item, t, h, p, d_out.present() ? d_out.at(item, t, h, p) * slope : T(0));
      return;
    }
    const T gated = problem.z.present() ? y * silu(problem.z.at(item, t, h, p)) : y;
    out.put(item, t, h, p, gated);
  }
};

template <class S>
static __global__ void __launch_bounds__(kBlockThreads)
    ssd_chunk_output_kernel(Problem<S> problem, ChunkBlocks<Compute<S>> blocks, StateStore<Compute<S>> states,
                            Outputs<S> outputs) {
  using T = Compute<S>;
  auto& cells = shared_storage<ChunkCells<T>>();
  for_each_of(blocks.count, [&](std::int64_t index) {
    const ChunkPlace place = place_of(blocks, problem.slots, index);
    const std::int64_t item = place.item, h = place.lane, g = h / problem.heads_per_group;
    const int column = static_cast<int>(place.column_tile) * kTile<T>;
    for_each_chunk(problem, item, place.slot, [&](const Chunk& chunk) {
      if (place.row_tile >= tiles_of<T>(chunk)) return;
      const Role<true, false, S, S, S, T> role{track(problem.C, item, chunk.begin, g),
                                               track(problem.B, item, chunk.begin, g),
                                               track(problem.x, item, chunk.begin, h),
                                               problem.state_before(states, item, chunk, h),
                                               problem.states,
                                               problem.width,
                                               problem.states};
      ChunkTile<T> tile;
      make_tile(cells, problem, item, h, chunk, place.row_tile, column, role, tile);
      const int rows = steps_of_tile<T>(chunk, place.row_tile);
#pragma unroll
      for (int r = 0; r < kOwn<T>; ++r) {
        const int i = own_row<T>(r);
        if (i >= rows) continue;
        const T factor = carried_decay<true>(cells.own, tile.passed, i);
        const std::int64_t t = chunk.begin + place.row_tile * kTile<T> + i;
#pragma unroll
        for (int c = 0; c < kOwn<T>; ++c) {
          const int p = column + own_column(c);
          if (p >= problem.width) continue;
          T y = tile.within.at[r][c];
          if (role.state != nullptr) y = fma_of(factor, tile.carried.at[r][c], y);
          if (problem.D != nullptr) y = fma_of(problem.skip(h, p), problem.x.at(item, t, h, p), y);
          outputs.put(problem, item, t, h, p, y);
        }
      }
    });
  });
}

}  // namespace scantape::cuda::ssd
