#pragma once

#include "ssd_chunk_gradient.cuh"

// The gradient of the log decays, and from it those of dt, A and dt_bias.
//
// A log decay l_t counts in every path from a step before t, or the state before the chunk, to t or a step after it, or
// the state after the chunk. With one table W for the chunk, rows i = 1..n and n + 1 (the state after), columns j = 0 (the
// state before) and 1..n,
//
//   W_ij = (dy_i . dt_j x_j) (C_i . B_j) T_ij     W_i0 = T_i0 <dy_i, H C_i>
//   W_{n+1,j} = T_nj <dt_j x_j, dH' B_j>          W_{n+1,0} = T_n0 <dH', H>
//   g_l_t = sum over i >= t and j < t of W_ij
//
// As a difference of sums of W's rows and columns this would lose what small decays need: it is added up instead. In
// t's own tile by prefix sums along the rows and then down column t - 1; of its tile's rows to earlier columns by sums
// of rows; of later rows to its tile's columns by sums of columns; of later rows to earlier columns by sums of whole
// tiles, which every tile between them gets.
//
// A block per chunk and head, which goes through all pairs of tiles; W_i0 and W_{n+1,j} come with d_C and d_x.

namespace scantape::cuda::ssd {

template <class S>
struct DecayGradients {
  using T = Compute<S>;

  StepSums<T> of_input, outgoing, incoming;
  std::int64_t input_planes, state_planes;  // of the first two; of the last
  T *inside, *later_rows, *crossing;        // [B, H, L]; the last by the first step of a tile
  Steps<S> d_dt;
  T *d_A, *d_dt_bias;  // [B slots, H]; null where nobody asks
};

template <class T>
struct DecayCells {
  Panel<T> left, right;
  Square<T> table;
  StepTile<T> own, other;
  T line[kTile<T>];
  BlockSum<T, kBlockThreads> sums;
};

/// The sum of a line of a tile's numbers, in order, in every thread. Begins and ends with a barrier.
template <class T>
__device__ T line_total(DecayCells<T>& cells, T value) {
  const int self = static_cast<int>(threadIdx.x);
  __syncthreads();
  if (self < kTile<T>) cells.line[self] = value;
  __syncthreads();
  T sum = T(0);
  for (int i = 0; i < kTile<T>; ++i) sum += cells.line[i];
  __syncthreads();
  return sum;
}

/// W of a pair of tiles, into cells.table by row and column, zeros where i <= j on the diagonal.
template <class S>
__device__ void make_table(DecayCells<Compute<S>>& cells, const Problem<S>& problem, std::int64_t item,
                           std::int64_t h, const Steps<const Compute<S>>& dy, std::int64_t row0, int rows,
                           std::int64_t col0, int columns, bool diagonal, Compute<S> between) {
  using T = Compute<S>;
  const std::int64_t g = h / problem.heads_per_group;
  const Track<T> dy_rows = track(dy, item, row0, h);
  const Track<S> x_rows = track(problem.x, item, col0, h);
  const Track<S> C_rows = track(problem.C, item, row0, g), B_rows = track(problem.B, item, col0, g);
  Fragment<T> of_x = {}, of_state = {};
  add_product<true, true>(
      cells.left, cells.right, problem.width, rows, columns, [&](int k, int i) { return dy_rows.at(i, k); },
      [&](int k, int i) { return x_rows.at(i, k); }, of_x);
  add_product<true, true>(
      cells.left, cells.right, problem.states, rows, columns, [&](int k, int i) { return C_rows.at(i, k); },
      [&](int k, int i) { return B_rows.at(i, k); }, of_state);
  const StepTile<T>& other = diagonal ? cells.own : cells.other;
#pragma unroll
  for (int r = 0; r < kOwn<T>; ++r) {
#pragma unroll
    for (int c = 0; c < kOwn<T>; ++c) {
      const int i = own_row<T>(r), j = own_column(c);
      T w = T(0);
      if (i < rows && j < columns && (!diagonal || j < i))
        w = of_x.at[r][c] * other.dt[j] *
            (of_state.at[r][c] * decay(cells.own, other, diagonal, between, i, j));
      cells.table.at[i][j] = w;
    }
  }
  __syncthreads();
}

/// Of the diagonal's table: the sum over i >= t and j < t, for the thread's own t. All threads must call it.
template <class T>
__device__ T sum_of_corner(Square<T>& table) {
  const int self = static_cast<int>(threadIdx.x);
  if (self < kTile<T>) {
    T sum = T(0);
    for (int j = 0; j < self; ++j) {
      sum += table.at[self][j];
      table.at[self][j] = sum;
    }
  }
  __syncthreads();
  T corner = T(0);
  if (self > 0 && self < kTile<T>) {
    for (int i = kTile<T> - 1; i >= self; --i) corner += table.at[i][self - 1];
  }
  return corner;
}

/// Leaves in `inside` what t's own tile and its rows to earlier columns give, in later_rows the sums of columns, in
/// crossing those of whole tiles. Returns the log decay of the chunk.
template <class S>
__device__ Compute<S> sum_table(DecayCells<Compute<S>>& cells, const Problem<S>& problem, std::int64_t item,
                                std::int64_t h, const Steps<const Compute<S>>& dy, const Chunk& chunk,
                                const DecayGradients<S>& gradients) {
  using T = Compute<S>;
  const int self = static_cast<int>(threadIdx.x);
  const std::int64_t tiles = tiles_of<T>(chunk),
                     base = (item * problem.heads + h) * problem.length + chunk.begin;
  for (std::int64_t i = self; i < chunk.steps; i += kBlockThreads)
    gradients.later_rows[base + i] = gradients.crossing[base + i] = T(0);
  const auto cross = [&](std::int64_t first, std::int64_t end, T value) {
    for (std::int64_t tile = first + self; tile < end; tile += kBlockThreads)
      gradients.crossing[base + tile * kTile<T>] += value;
  };
  T whole = T(0);
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const std::int64_t row0 = tile * kTile<T>;
    const int rows = steps_of_tile<T>(chunk, tile);
    load_steps(cells.own, problem, item, chunk.begin + row0, rows, h);
    T corner = T(0), of_row = T(0), between = T(0);  // the first two for the thread's own step
    for (std::int64_t partner = tile; partner >= 0; --partner) {
      const bool diagonal = partner == tile;
      const std::int64_t col0 = partner * kTile<T>;
      const int columns = steps_of_tile<T>(chunk, partner);
      if (!diagonal) load_steps(cells.other, problem, item, chunk.begin + col0, columns, h);
      make_table(cells, problem, item, h, dy, chunk.begin + row0, rows, chunk.begin + col0, columns, diagonal,
                 between);
      if (diagonal) {
        corner = sum_of_corner(cells.table);
        continue;
      }
      T row = T(0);
      if (self < kTile<T>) {
        for (int j = 0; j < kTile<T>; ++j) row += cells.table.at[self][j];
        of_row += row;
      } else if (self < 2 * kTile<T>) {
        T column = T(0);
        for (int i = 0; i < kTile<T>; ++i) column += cells.table.at[i][self - kTile<T>];
        gradients.later_rows[base + col0 + self - kTile<T>] += column;
      }
      if (tile - partner > 1) cross(partner + 1, tile, line_total(cells, row));
      between += cells.other.total();
    }
    whole = between + cells.own.total();
    const T incoming =
        self < rows ? gradients.incoming.sum(base + row0 + self, gradients.state_planes) : T(0);
    cross(0, tile, line_total(cells, incoming));
    __syncthreads();
    if (self < kTile<T>) cells.line[self] = of_row + incoming;
    __syncthreads();
    if (self < rows) {
      for (int i = kTile<T> - 1; i >= self; --i) corner += cells.line[i];
      gradients.inside[base + row0 + self] = corner;
    }
  }
  return whole;
}

template <class S>
static __global__ void __launch_bounds__(kBlockThreads)
    ssd_bwd_decay_kernel(Problem<S> problem, Steps<const Compute<S>> dy, StateStore<Compute<S>> states,
                         StateStore<Compute<S>> cotangents, const Compute<S>* d_final_state,
                         DecayGradients<S> gradients) {
  using T = Compute<S>;
  auto& cells = shared_storage<DecayCells<T>>();
  const int self = static_cast<int>(threadIdx.x);
  for_each_of(problem.batch * problem.slots * problem.heads, [&](std::int64_t index) {
    const std::int64_t row = index / problem.heads, h = take_digit(&index, problem.heads);
    const std::int64_t slot = take_digit(&index, problem.slots), item = index;
    T d_A = T(0), d_dt_bias = T(0);
    for_each_chunk(problem, item, slot, [&](const Chunk& chunk) {
      const std::int64_t base = (item * problem.heads + h) * problem.length;
      const T whole = sum_table(cells, problem, item, h, dy, chunk, gradients);
      const T* const before = problem.state_before(states, item, chunk, h);
      const T* const after = problem.cotangent_after(cotangents, d_final_state, item, chunk, h);
      T through = T(0);  // W_{n+1,0}, and then what crosses from the tiles before to the state after
      if (before != nullptr && after != nullptr) {
        for (std::int64_t i = self; i < problem.state_size(); i += kBlockThreads)
          through = fma_of(before[i], after[i], through);
        through = exp_of(whole) * block_sum(through, cells.sums);
      }
      for (std::int64_t tile = 0; tile < tiles_of<T>(chunk); ++tile) {
        const int rows = steps_of_tile<T>(chunk, tile);
        const std::int64_t t0 = chunk.begin + tile * kTile<T>, t = t0 + self;
        const T outgoing = self < rows ? gradients.outgoing.sum(base + t, gradients.input_planes) : T(0);
        __syncthreads();
        if (self < rows) cells.line[self] = outgoing + gradients.later_rows[base + t];
        __syncthreads();
        if (self < rows) {
          T g_log = gradients.inside[base + t] + gradients.crossing[base + t0] + through;
          for (int j = 0; j < self; ++j) g_log += cells.line[j];
          const T raw = problem.raw(item, t, h), dt = problem.clamped(problem.unclamped(raw));
          const T of_input = gradients.of_input.sum(base + t, gradients.input_planes);
          const T d_raw = problem.raw_gradient(raw, fma_of(problem.A[h], g_log, of_input));
          if (gradients.d_dt.present()) gradients.d_dt.put(item, t, h, 0, d_raw);
          d_A = fma_of(dt, g_log, d_A);
          d_dt_bias += d_raw;
        }
        through += line_total(cells, outgoing);
      }
    });
    d_A = block_sum(d_A, cells.sums);
    d_dt_bias = block_sum(d_dt_bias, cells.sums);
    if (self == 0 && gradients.d_A != nullptr) gradients.d_A[row * problem.heads + h] = d_A;
    if (self == 0 && gradients.d_dt_bias != nullptr) gradients.d_dt_bias[row * problem.heads + h] = d_dt_bias;
  });
}

}  // namespace scantape::cuda::ssd
