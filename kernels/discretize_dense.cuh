#pragma once

#include "common/dense.cuh"
#include "common/dispatch.cuh"
#include "scantape/discretize.h"

// Discretisation of a dense A, N <= 64. One block works on the N x N matrices (common/dense.cuh), a grid on what
// is as wide as the input:
//
//   forward   (dt, A) -> A_bar, F and K, one block;      B_bar = K B
//   backward  G = d_B_bar B^T;   (dt, A, d_A_bar + d_F, G) -> d_A, d_dt and K, one block;      d_B = K^T d_B_bar
//
//              F                 K        d_A              d_dt                     with g = d_A_bar + d_F
//   zoh        exp(dt A) - I     Phi      see below
//   exp_euler  exp(dt A) - I     dt I     as zoh, Phi's cotangent 0; d_dt + trace G
//   bilinear   dt R A            dt R     dt/2 Z           <g R^T, R A> + <G R^T, R>    Z = R^T (2 g R^T + dt G R^T)
//   euler      dt A              dt I     dt g             <g, A> + trace G
//
// with R = (I - dt/2 A)^-1 by LU with partial pivoting, and Phi the integral of exp(A t) over the step. bilinear's d_dt:
// R = I + dt/2 A R makes d(dt R)/ddt = R R; taken apart it would cancel where dt A is large.
//
// zoh, by scaling and squaring, with m = 9 (f32) or 18 (f64) terms:
//
//   h = dt/2^s, s least with h max(|A|_1, |A|_inf) <= 1/2;  M = h A
//   T_{m+2} = I;  T_j = I + M T_{j+1} / j,  j = m+1 .. 2;      F = M T_2,  Phi = h T_2
//   s times  (F, Phi) <- (2 F + F F, 2 Phi + F Phi)
//
// F is squared, not exp: beside the identity a small F would lose its digits. Nothing divides by A, which may be
// singular. s is found on the device. Backward, the squarings first, last one first, each from its inputs:
//
//   (g_F, g_Phi) <- (2 g_F + F^T g_F + g_F F^T + g_Phi Phi^T,  2 g_Phi + F^T g_Phi)
//   g_T = M^T g_F + h g_Phi;  g_M = g_F T_2^T;  g_h = <g_Phi, T_2>
//   j = 2 .. m+1:  g_M += g_T T_{j+1}^T / j;  g_T <- M^T g_T / j
//   d_A = h g_M,  d_dt = (g_h + <g_M, A>) / 2^s
//
// The forward saves nothing. The backward runs it again and keeps the inputs of at most 32 squarings; beyond
// that of every second one, every third, ..., and runs those between again: its workspace follows from N alone.
//
// Bytes: A, dt and the matrices stay on one multiprocessor; B and B_bar are read or written once a row of K.

namespace scantape::cuda::dense {

inline constexpr int kKept = 32;

template <class T>
inline constexpr int kTerms = sizeof(T) == 4 ? 9 : 18;

constexpr bool is_exponential(DiscretizeMethod method) {
  return method == DiscretizeMethod::zoh || method == DiscretizeMethod::exp_euler;
}
/// Whether B_bar is dt B.
constexpr bool is_scaled(DiscretizeMethod method) {
  return method == DiscretizeMethod::exp_euler || method == DiscretizeMethod::euler;
}

/// n x n matrices in the workspace, one after the other. `series` holds T_2 .. T_{m+2}: all of them for the backward;
/// for the forward one that is overwritten as j falls.
template <class T>
struct Room {
  T *K, *F, *M, *G, *g_F, *g_T, *again, *series, *kept;
};

inline constexpr int kForwardMatrices = 4;
template <class T>
inline constexpr int kBackwardMatrices = 7 + kTerms<T> + 1 + 2 * kKept;

template <class T>
Room<T> room_in(const Workspace& workspace, std::int64_t n) noexcept {
  T* const data = static_cast<T*>(workspace.data);
  const auto at = [&](std::int64_t index) { return data + index * n * n; };
  return {at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), at(7 + kTerms<T> + 1)};
}

template <class T>
Room<T> forward_room_in(const Workspace& workspace, std::int64_t n) noexcept {
  Room<T> room = {};
  room.K = static_cast<T*>(workspace.data);
  room.F = room.K + n * n;
  room.M = room.F + n * n;
  room.series = room.M + n * n;
  return room;
}

template <class T>
struct Cells {
  union {
    Panels<T> panels;
    Lu<T> lu;
  };
  BlockSum<T, kBlockThreads> sum;
  T norms[kMost];
};

/// dt halved until the series holds, and how often.
template <class T>
struct Halved {
  T h, share;  // h = share dt
  int times;
};

template <class T>
__device__ bool is_finite(T x) {
  return x - x == T(0);
}

template <class T>
__device__ Halved<T> halved(T dt, T norm) {
  Halved<T> step = {dt, T(1), 0};
  if (!is_finite(dt) || !is_finite(norm)) return step;
  while (abs_of(step.h) * norm > T(0.5)) {
    step.h *= T(0.5);
    step.share *= T(0.5);
    ++step.times;
  }
  return step;
}

template <class T>
__device__ void set_identity(T* to, int n) {
  for_each_owned(n, [&](int, int, int i, int j) { to[i * n + j] = i == j ? T(1) : T(0); });
}

/// room.M and the series; T_j goes to series + (j - 2) spacing. With spacing 0 only T_2 remains. F and, where it is
/// wanted, Phi of the step h.
template <class T>
__device__ void begin_exponential(const T* A, int n, T h, const Room<T>& room, int spacing, T* F, T* Phi,
                                  Panels<T>& panels) {
  for_each_owned(n, [&](int, int, int i, int j) { room.M[i * n + j] = h * A[i * n + j]; });
  set_identity(room.series + kTerms<T> * spacing, n);
  for (int term = kTerms<T> + 1; term >= 2; --term) {
    const T* const next = room.series + (term - 1) * spacing;
    T* const here = room.series + (term - 2) * spacing;
    const Tile<T> tile = product(plain<T>(room.M), plain(next), n, panels);
    const T share = T(1) / static_cast<T>(term);
    for_each_owned(n, [&](int r, int c, int i, int j) {
      here[i * n + j] = fma_of(share, tile.at[r][c], i == j ? T(1) : T(0));
    });
  }
  const Tile<T> tile = product(plain<T>(room.M), plain<T>(room.series), n, panels);
  for_each_owned(n, [&](int r, int c, int i, int j) {
    F[i * n + j] = tile.at[r][c];
    if (Phi != nullptr) Phi[i * n + j] = h * room.series[i * n + j];
  });
}

/// (F, Phi) <- (2 F + F F, 2 Phi + F Phi), in place; Phi may be left out.
template <class T>
__device__ void square(T* F, T* Phi, int n, Panels<T>& panels) {
  const Tile<T> F_F = product(plain<T>(F), plain<T>(F), n, panels);
  Tile<T> F_Phi = {};
  if (Phi != nullptr) add_product(F_Phi, plain<T>(F), plain<T>(Phi), n, panels);
  for_each_owned(n, [&](int r, int c, int i, int j) {
    T& f = F[i * n + j];
    f = fma_of(T(2), f, F_F.at[r][c]);
    if (Phi != nullptr) Phi[i * n + j] = fma_of(T(2), Phi[i * n + j], F_Phi.at[r][c]);
  });
}

template <class T, DiscretizeMethod kMethod>
static __global__ void __launch_bounds__(kBlockThreads, 1)
    discretize_dense_fwd_block_kernel(int n, const T* dt_at, const T* A, Room<T> room, Target<T> A_bar,
                                      Target<T> F_out) {
  auto& cells = shared_storage<Cells<T>>();
  const T dt = *dt_at;
  const auto put = [&](int i, int j, T f) {
    A_bar.put(i, j, i == j ? T(1) + f : f);
    if (F_out.wanted()) F_out.put(i, j, f);
  };
  if constexpr (is_exponential(kMethod)) {
    T* const Phi = kMethod == DiscretizeMethod::zoh ? room.K : nullptr;
    const Halved<T> step = halved(dt, norm_bound(A, n, cells.norms));
    begin_exponential(A, n, step.h, room, 0, room.F, Phi, cells.panels);
    for (int k = 0; k < step.times; ++k) square(room.F, Phi, n, cells.panels);
    for_each_owned(n, [&](int, int, int i, int j) { put(i, j, room.F[i * n + j]); });
  } else if constexpr (kMethod == DiscretizeMethod::bilinear) {
    for_each_owned(n, [&](int, int, int i, int j) {
      cells.lu.lu[i][j] = fma_of(T(-0.5) * dt, A[i * n + j], i == j ? T(1) : T(0));
    });
    const Tile<T> R = inverse(n, cells.lu);
    for_each_owned(n, [&](int r, int c, int i, int j) { room.K[i * n + j] = dt * R.at[r][c]; });
    const Tile<T> f = product(plain<T>(room.K), plain(A), n, cells.panels);
    for_each_owned(n, [&](int r, int c, int i, int j) { put(i, j, f.at[r][c]); });
  } else {
    for_each_owned(n, [&](int, int, int i, int j) { put(i, j, dt * A[i * n + j]); });
  }
}

/// out = K in, or K^T in; dt in where K is null, and 0 where `in` is absent.
template <class T>
static __global__ void __launch_bounds__(kBlockThreads)
    discretize_dense_apply_kernel(Extent extent, const T* dt, const T* K, bool transpose, Source<T> in,
                                  Target<T> out) {
  const std::int64_t n = extent.rows, row_step = transpose ? 1 : n, k_step = transpose ? n : 1;
  for_each_pack<T>(extent, [&](std::int64_t row, std::int64_t column, std::int64_t remaining) {
    Pack<T> sum = {};
    if (K != nullptr) {
      for (std::int64_t k = 0; k < n; ++k) {
        const T factor = K[row * row_step + k * k_step];
        const Pack<T> from = in.load(k, column, remaining);
#pragma unroll
        for (int i = 0; i < kPack<T>; ++i) sum[i] = fma_of(factor, from[i], sum[i]);
      }
    } else if (in.present()) {
      sum = in.load(row, column, remaining);
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) sum[i] *= *dt;
    }
    out.store(row, column, remaining, sum);
  });
}

/// G[i, j] = sum over columns of d_B_bar[i] B[j], a warp for each; with `diagonal_only` where i = j alone.
template <class T>
static __global__ void __launch_bounds__(kBlockThreads)
    discretize_dense_bwd_rows_kernel(Extent extent, bool diagonal_only, Source<T> d_B_bar, Source<T> B,
                                     T* G) {
  const std::int64_t n = extent.rows, products = diagonal_only ? n : n * n;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize,
            lane = static_cast<int>(threadIdx.x) % kWarpSize;
  constexpr int kWarps = kBlockThreads / kWarpSize;
  for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp; at < products;
       at += static_cast<std::int64_t>(gridDim.x) * kWarps) {
    const std::int64_t i = diagonal_only ? at : at / n, j = diagonal_only ? at : at % n;
    T sum = 0;
    for (std::int64_t column = lane * kPack<T>; column < extent.columns; column += kWarpSize * kPack<T>) {
      const Pack<T> g = d_B_bar.load(i, column, extent.columns - column);
      const Pack<T> b = B.load(j, column, extent.columns - column);
#pragma unroll
      for (int p = 0; p < kPack<T>; ++p) sum = fma_of(g[p], b[p], sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) G[i * n + j] = sum;
  }
}

/// What the block of the backward is asked for.
struct Asked {
  bool gradients;  // d_A or d_dt
  bool input;      // G is there
  bool factor;     // K, for d_B
};

template <class T>
struct MatrixGradients {
  Target<T> d_A, d_dt;
};

/// d_A and d_dt of F's and Phi's cotangents room.g_F and room.G, which are overwritten; without Phi's where `with_Phi`
/// is false. room.K is the last Phi where it is wanted.
template <class T>
__device__ void exponential_backward(const T* A, int n, T dt, const Room<T>& room, bool with_Phi,
                                     bool wants_Phi, bool gradients, T extra_d_dt,
                                     const MatrixGradients<T>& out, Cells<T>& cells) {
  const int size = n * n;
  const Halved<T> step = halved(dt, norm_bound(A, n, cells.norms));
  const int stride = step.times / kKept + 1;
  T* const Phi = wants_Phi || with_Phi ? room.K : nullptr;
  const auto kept = [&](int k) { return room.kept + 2 * size * (k / stride); };
  begin_exponential(A, n, step.h, room, size, room.F, Phi, cells.panels);
  for (int k = 0; k < step.times; ++k) {
    if (gradients && k % stride == 0) {
      for_each_owned(n, [&](int, int, int i, int j) {
        kept(k)[i * n + j] = room.F[i * n + j];
        if (Phi != nullptr) kept(k)[size + i * n + j] = Phi[i * n + j];
      });
    }
    square(room.F, Phi, n, cells.panels);
  }
  if (!gradients) return;

  for (int k = step.times - 1; k >= 0; --k) {
    // The inputs of squaring k: kept, or run again in room.F and room.again, which are free.
    const T *F = kept(k), *inner_Phi = kept(k) + size;
    if (k % stride != 0) {
      for_each_owned(n, [&](int, int, int i, int j) {
        room.F[i * n + j] = F[i * n + j];
        if (with_Phi) room.again[i * n + j] = inner_Phi[i * n + j];
      });
      for (int again = 0; again < k % stride; ++again)
        square(room.F, with_Phi ? room.again : nullptr, n, cells.panels);
      F = room.F;
      inner_Phi = room.again;
    }
    Tile<T> g_F = product(transposed(F), plain<T>(room.g_F), n, cells.panels);
    add_product(g_F, plain<T>(room.g_F), transposed(F), n, cells.panels);
    Tile<T> g_Phi = {};
    if (with_Phi) {
      add_product(g_F, plain<T>(room.G), transposed(inner_Phi), n, cells.panels);
      add_product(g_Phi, transposed(F), plain<T>(room.G), n, cells.panels);
    }
    for_each_owned(n, [&](int r, int c, int i, int j) {
      room.g_F[i * n + j] = fma_of(T(2), room.g_F[i * n + j], g_F.at[r][c]);
      if (with_Phi) room.G[i * n + j] = fma_of(T(2), room.G[i * n + j], g_Phi.at[r][c]);
    });
  }

  const T* const T_2 = room.series;
  Tile<T> g_M = product(plain<T>(room.g_F), transposed(T_2), n, cells.panels);
  {
    const Tile<T> g_T = product(transposed<T>(room.M), plain<T>(room.g_F), n, cells.panels);
    for_each_owned(n, [&](int r, int c, int i, int j) {
      room.g_T[i * n + j] = with_Phi ? fma_of(step.h, room.G[i * n + j], g_T.at[r][c]) : g_T.at[r][c];
    });
  }
  for (int term = 2; term <= kTerms<T> + 1; ++term) {
    const T share = T(1) / static_cast<T>(term);
    const Tile<T> by_M =
        product(plain<T>(room.g_T), transposed<T>(room.series + (term - 1) * size), n, cells.panels);
    const Tile<T> next = product(transposed<T>(room.M), plain<T>(room.g_T), n, cells.panels);
    for_each_owned(n, [&](int r, int c, int i, int j) {
      g_M.at[r][c] = fma_of(share, by_M.at[r][c], g_M.at[r][c]);
      room.g_T[i * n + j] = share * next.at[r][c];
    });
  }

  T by_dt = 0;
  for_each_owned(n, [&](int r, int c, int i, int j) {
    by_dt = fma_of(g_M.at[r][c], A[i * n + j], by_dt);
    if (with_Phi) by_dt = fma_of(room.G[i * n + j], T_2[i * n + j], by_dt);
    if (out.d_A.wanted()) out.d_A.put(i, j, step.h * g_M.at[r][c]);
  });
  by_dt = block_sum(by_dt, cells.sum);
  if (threadIdx.x == 0 && out.d_dt.wanted()) out.d_dt.put(0, 0, by_dt * step.share + extra_d_dt);
}

template <class T, DiscretizeMethod kMethod>
static __global__ void __launch_bounds__(kBlockThreads, 1)
    discretize_dense_bwd_block_kernel(int n, Asked asked, const T* dt_at, const T* A, Source<T> d_A_bar,
                                      Source<T> d_F, Room<T> room, MatrixGradients<T> out) {
  auto& cells = shared_storage<Cells<T>>();
  const T dt = *dt_at;
  const auto g = [&](int i, int j) {
    return (d_A_bar.present() ? d_A_bar.at(i, j) : T(0)) + (d_F.present() ? d_F.at(i, j) : T(0));
  };
  const auto trace_of_G = [&] {
    return sum_owned(n, cells.sum, [&](int i, int j) { return i == j ? room.G[i * n + j] : T(0); });
  };
  if constexpr (is_exponential(kMethod)) {
    constexpr bool kPhi = kMethod == DiscretizeMethod::zoh;
    const T extra = !kPhi && asked.input ? trace_of_G() : T(0);
    for_each_owned(n, [&](int, int, int i, int j) { room.g_F[i * n + j] = g(i, j); });
    exponential_backward(A, n, dt, room, kPhi && asked.input, kPhi && asked.factor, asked.gradients, extra,
                         out, cells);
  } else if constexpr (kMethod == DiscretizeMethod::bilinear) {
    for_each_owned(n, [&](int, int, int i, int j) {
      cells.lu.lu[i][j] = fma_of(T(-0.5) * dt, A[i * n + j], i == j ? T(1) : T(0));
    });
    const Tile<T> R = inverse(n, cells.lu);
    for_each_owned(n, [&](int r, int c, int i, int j) {
      room.K[i * n + j] = dt * R.at[r][c];
      room.F[i * n + j] = R.at[r][c];
      room.g_F[i * n + j] = g(i, j);
    });
    if (!asked.gradients) return;
    T by_dt = 0;
    {
      const Tile<T> by_F = product(plain<T>(room.g_F), transposed<T>(room.F), n, cells.panels);
      Tile<T> by_input = {};
      if (asked.input) add_product(by_input, plain<T>(room.G), transposed<T>(room.F), n, cells.panels);
      const Tile<T> R_A = product(plain<T>(room.F), plain(A), n, cells.panels);
      for_each_owned(n, [&](int r, int c, int i, int j) {
        by_dt = fma_of(by_F.at[r][c], R_A.at[r][c], by_dt);
        by_dt = fma_of(by_input.at[r][c], room.F[i * n + j], by_dt);
        room.g_T[i * n + j] = fma_of(dt, by_input.at[r][c], T(2) * by_F.at[r][c]);
      });
    }
    const Tile<T> Z = product(transposed<T>(room.F), plain<T>(room.g_T), n, cells.panels);
    for_each_owned(n, [&](int r, int c, int i, int j) {
      if (out.d_A.wanted()) out.d_A.put(i, j, T(0.5) * dt * Z.at[r][c]);
    });
    by_dt = block_sum(by_dt, cells.sum);
    if (threadIdx.x == 0 && out.d_dt.wanted()) out.d_dt.put(0, 0, by_dt);
  } else {
    const T extra = asked.input ? trace_of_G() : T(0);
    T by_dt = 0;
    for_each_owned(n, [&](int, int, int i, int j) {
      by_dt = fma_of(g(i, j), A[i * n + j], by_dt);
      if (out.d_A.wanted()) out.d_A.put(i, j, dt * g(i, j));
    });
    by_dt = block_sum(by_dt, cells.sum);
    if (threadIdx.x == 0 && out.d_dt.wanted()) out.d_dt.put(0, 0, by_dt + extra);
  }
}

template <class T>
Status apply(const T* dt, const T* K, bool transpose, const ConstView& in, const Target<T>& out,
             Extent extent, Stream stream) {
  const Grid grid = element_grid<T>(extent);
  return launch("discretize_dense_apply_kernel", discretize_dense_apply_kernel<T>, grid.grid, grid.block, 0,
                stream, extent, dt, K, transpose, source<T>(in), out);
}

template <class T, DiscretizeMethod kMethod>
Status forward(const DiscretizeForward& args, Stream stream) {
  const Extent extent{args.B.shape[0], args.B.shape[1]};
  const Room<T> room = forward_room_in<T>(args.workspace, extent.rows);
  const T* const dt = args.dt.as<T>();
  if (extent.rows == 0) return Status();
  SCANTAPE_TRY(launch("discretize_dense_fwd_block_kernel", discretize_dense_fwd_block_kernel<T, kMethod>,
                      dim3(1), dim3(kBlockThreads), 0, stream, static_cast<int>(extent.rows), dt,
                      args.A.as<T>(), room, target<T>(args.A_bar), target<T>(args.F)));
  return apply<T>(dt, is_scaled(kMethod) ? nullptr : room.K, false, args.B, target<T>(args.B_bar), extent,
                  stream);
}

template <class T, DiscretizeMethod kMethod>
Status backward(const DiscretizeBackward& args, Stream stream) {
  const Extent extent{args.B.shape[0], args.B.shape[1]};
  const Room<T> room = room_in<T>(args.workspace, extent.rows);
  const T* const dt = args.dt.as<T>();
  Asked asked;
  asked.gradients = args.d_dt.wanted() || args.d_A.wanted();
  asked.input = asked.gradients && args.d_B_bar.present;
  asked.factor = args.d_B.wanted() && args.d_B_bar.present && !is_scaled(kMethod);
  if (asked.input) {
    const std::int64_t products = is_scaled(kMethod) ? extent.rows : extent.rows * extent.rows;
    SCANTAPE_TRY(launch("discretize_dense_bwd_rows_kernel", discretize_dense_bwd_rows_kernel<T>,
                        grid_for(products, kBlockThreads / kWarpSize, kMostBlocksX), dim3(kBlockThreads), 0,
                        stream, extent, is_scaled(kMethod), source<T>(args.d_B_bar), source<T>(args.B),
                        room.G));
  }
  if (asked.gradients || asked.factor) {
    SCANTAPE_TRY(launch("discretize_dense_bwd_block_kernel", discretize_dense_bwd_block_kernel<T, kMethod>,
                        dim3(1), dim3(kBlockThreads), 0, stream, static_cast<int>(extent.rows), asked, dt,
                        args.A.as<T>(), source<T>(args.d_A_bar), source<T>(args.d_F), room,
                        MatrixGradients<T>{target<T>(args.d_A), target<T>(args.d_dt)}));
  }
  if (!args.d_B.wanted()) return Status();
  return apply<T>(dt, asked.factor ? room.K : nullptr, true, args.d_B_bar, target<T>(args.d_B), extent,
                  stream);
}

inline std::int64_t forward_workspace(const DiscretizeForward& args) noexcept {
  return kForwardMatrices * args.A.elements() * size_of(args.A.dtype);
}

inline std::int64_t backward_workspace(const DiscretizeBackward& args) noexcept {
  const int matrices = args.A.dtype == DType::f32 ? kBackwardMatrices<float> : kBackwardMatrices<double>;
  return matrices * args.A.elements() * size_of(args.A.dtype);
}

}  // namespace scantape::cuda::dense
