#pragma once

#include "common/dense.cuh"
#include "common/dispatch.cuh"
#include "common/reduce.cuh"
#include "common/scan.cuh"
#include "common/timed.cuh"
#include "scantape/scan.h"

// The scan whose decay is one matrix, h_t = A h_{t-1} + v_t, N <= 64. Products of matrices cost N times what a step
// costs, so time is walked step by step; what runs side by side are the rows of A, the items and, in long sequences,
// parts of time.
//
//   walk    a block per item and part. Four threads share a row of A, which they hold in registers; the state goes
//           round through shared memory, one barrier a step. What a step reads is brought in for sixteen steps at a
//           time, so that memory is waited for once and not at each of them.
//
// Beyond 512 steps, parts of 128:
//
//   power   P = A^128 by one block, as P - I:  F <- 2 F + F F, seven times. Next to the identity the square of A itself
//           would lose the digits that make a slow decay slow.
//   walk    each part but the last from nothing, for the state it ends in and whether a sequence starts inside
//   walk    over parts: s_{p+1} = end_p + [no start in p] P s_p, this same scan, for the state before each part
//   walk    all parts from there
//
// Blocks never wait for each other; the cut follows from the length alone, and no sum crosses items but that of d_A.
//
// Gradient: the walk the other way with A^T,
//
//   g_t = d_h_t + [start_{t+1} = 0] A^T g_{t+1},   g_L = d_h_L + d_final_state
//   d_v_t = g_t,   d_A = sum over items and t with start_t = 0 of g_t h_{t-1}^T,   d_h0 = [start_1 = 0] A^T g_1
//
// d_h0 is one more step of that walk, whose input is nothing. The threads of a row of A hold the same row of d_A and
// add to it at each step; an item and part leaves one N x N matrix in the workspace, and these are added in order.
// Forward saves nothing but h.
//
// Sequences may be stored in 16 bits, as scan.cu says of S and T. What parts hand to each other is T: the walk over parts
// is one whose sequences are T.
//
// Variants: N <= 16 and N <= 64, with and without the sum of d_A, f32, f64, bf16 and f16.
//
// Bytes: forward reads v, writes h: 2 n elements; backward reads d_h and h, writes d_v: 3 n. In parts v (d_h) is read
// twice, and d_A's sums are N^2 / 128 elements a row.

namespace scantape::cuda::dense_scan {

using dense::kMost;

inline constexpr int kLanes = 4;    // threads of one row
inline constexpr int kStaged = 16;  // steps
inline constexpr std::int64_t kPartSteps = 128, kLongestPart = 512;
inline constexpr int kPowerSquarings = 7;
static_assert(kPartSteps == std::int64_t{1} << kPowerSquarings);
// Blocks along parts and items; they loop.
inline constexpr std::int64_t kMostPartBlocks = 1024, kMostItemBlocks = 4096;

/// A walk through time, forward or backward, in steps of its own order. There are `rows` steps with a row of the
/// tensors each, and one more where `steps` is rows + 1.
template <class S>
struct Walk {
  using T = Compute<S>;

  int n = 0;
  std::int64_t batch = 0, rows = 0, steps = 0;
  std::int64_t parts = 1, part_steps = 0;  // the last part takes what is left, unless each ends at `ends`
  bool flipped = false;                    // step 0 is the last row

  const T* matrix = nullptr;
  bool transposed = false, minus_one = false;

  Source<S> input;
  Source<T> initial;
  bool adds_initial = false;  // the first step adds `initial` as it is: nothing decays before it
  const S* start = nullptr;   // [batch, rows]
  int lag = 0;                // the flag of step r stands at the row of step r - lag

  const T* before = nullptr;  // [batch, parts - 1, n]: the state before part 1, 2, ...
  Target<S> output;           // each step
  Target<T> last;             // the last one
  T *ends = nullptr,
    *cuts = nullptr;  // where wanted: of [batch, parts] the state after it, and whether one starts

  Source<S> earlier;          // h of the forward scan, for the sum of d_A
  Source<T> earlier_initial;  // its h0
  T* sums = nullptr;          // [batch, parts, n, n]

  __device__ std::int64_t row(std::int64_t item, std::int64_t step) const {
    return item * rows + (flipped ? rows - 1 - step : step);
  }
  __device__ bool starts_at(std::int64_t item, std::int64_t step) const {
    return start != nullptr && step >= 0 && loaded_from(start + row(item, step)) != T(0);
  }
  /// Whether the state before `step` takes no part in it.
  __device__ bool is_fresh(std::int64_t item, std::int64_t step) const {
    if (step == 0 && (adds_initial || !initial.present())) return true;
    return starts_at(item, step - lag);
  }
  __device__ T input_at(std::int64_t item, std::int64_t step, int column) const {
    const T value = input.present() && step < rows ? input.at(row(item, step), column) : T(0);
    return step == 0 && adds_initial && initial.present() ? value + initial.at(item, column) : value;
  }
  /// Of a backward walk: whether step's g meets a h_{t-1}, and that.
  __device__ bool has_earlier(std::int64_t item, std::int64_t step) const {
    if (step >= rows || starts_at(item, step)) return false;
    return step + 1 < rows || earlier_initial.present();
  }
  __device__ T earlier_at(std::int64_t item, std::int64_t step, int column) const {
    return step + 1 < rows ? earlier.at(row(item, step + 1), column) : earlier_initial.at(item, column);
  }
};

/// One matrix row's share of a thread: kColumns elements, kLanes apart.
template <class T, int kColumns>
struct Share {
  T at[kColumns];
};

template <class T, int kColumns, bool kSums>
struct Cells {
  static constexpr int kWidth = kLanes * kColumns;
  T state[2][kWidth];  // by turns
  T input[kStaged][kWidth];
  T earlier[kSums ? kStaged : 1][kWidth];
  bool fresh[kStaged], has_earlier[kStaged];
};

/// This thread's part of a walk. Columns beyond n are zero in every factor and stay zero in the state.
template <class S, int kColumns, bool kSums>
class Walker {
 public:
  using T = Compute<S>;
  using Storage = Cells<T, kColumns, kSums>;

  __device__ Walker(const Walk<S>& walk, Storage& cells) : walk_(walk), cells_(cells) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int k = column(c), at = walk.transposed ? k * walk.n + self_ : self_ * walk.n + k;
      matrix_.at[c] = owns_row() && k < walk.n ? walk.matrix[at] : T(0);
    }
  }

  /// All threads must call it.
  __device__ void run(std::int64_t item, std::int64_t part) {
    const std::int64_t begin = part * walk_.part_steps;
    const bool is_last = part + 1 == walk_.parts && walk_.ends == nullptr;
    const std::int64_t end = is_last ? walk_.steps : begin + walk_.part_steps;
    begin_part(item, part);
    for (std::int64_t first = begin; first < end; first += kStaged) {
      const int steps = end - first < kStaged ? static_cast<int>(end - first) : kStaged;
      stage(item, first, steps);
      __syncthreads();
      for (int s = 0; s < steps; ++s) step(item, first + s, s);
    }
    finish_part(item, part);
  }

 private:
  static constexpr int kWidth = Storage::kWidth;
  static constexpr int kThreads = kWidth * kLanes;

  __device__ bool owns_row() const {
    return self_ < walk_.n;
  }
  __device__ bool leads() const {
    return lane_ == 0 && owns_row();
  }
  __device__ int column(int c) const {
    return lane_ + kLanes * c;
  }

  /// The state before the part; zero where a part is walked for itself.
  __device__ void begin_part(std::int64_t item, std::int64_t part) {
    state_ = T(0);
    if (owns_row() && part > 0 && walk_.before != nullptr)
      state_ = walk_.before[(item * (walk_.parts - 1) + part - 1) * walk_.n + self_];
    if (owns_row() && part == 0 && walk_.initial.present()) state_ = walk_.initial.at(item, self_);
    cut_ = false;
    if (lane_ == 0) cells_.state[front_][self_] = state_;
    if constexpr (kSums) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) sum_.at[c] = T(0);
    }
  }

  __device__ void stage(std::int64_t item, std::int64_t first, int steps) {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < steps) {
      const std::int64_t r = first + thread;
      cells_.fresh[thread] = walk_.is_fresh(item, r);
      if constexpr (kSums) cells_.has_earlier[thread] = walk_.has_earlier(item, r);
    }
    for (int i = thread; i < steps * kWidth; i += kThreads) {
      const int s = i / kWidth, k = i % kWidth;
      const std::int64_t r = first + s;
      cells_.input[s][k] = k < walk_.n ? walk_.input_at(item, r, k) : T(0);
      if constexpr (kSums)
        cells_.earlier[s][k] =
            k < walk_.n && walk_.has_earlier(item, r) ? walk_.earlier_at(item, r, k) : T(0);
    }
  }

  /// The sum over k of this row's elements times the state, in all threads of the row.
  __device__ T product() const {
    T sum = T(0);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sum = fma_of(matrix_.at[c], cells_.state[front_][column(c)], sum);
#pragma unroll
    for (int distance = 1; distance < kLanes; distance *= 2) sum += __shfl_xor_sync(kAllLanes, sum, distance);
    return sum;
  }

  __device__ void step(std::int64_t item, std::int64_t r, int s) {
    const bool fresh = cells_.fresh[s];  // the same for all threads
    T moved = cells_.input[s][self_];
    if (!fresh) {
      moved += product();
      if (walk_.minus_one) moved += state_;
    }
    state_ = owns_row() ? moved : T(0);
    cut_ = cut_ || fresh;
    front_ = 1 - front_;
    if (lane_ == 0) cells_.state[front_][self_] = state_;
    if (leads()) emit(item, r);
    if constexpr (kSums) {
      if (cells_.has_earlier[s]) {
#pragma unroll
        for (int c = 0; c < kColumns; ++c)
          sum_.at[c] = fma_of(state_, cells_.earlier[s][column(c)], sum_.at[c]);
      }
    }
    __syncthreads();
  }

  __device__ void emit(std::int64_t item, std::int64_t r) const {
    if (walk_.output.wanted() && r < walk_.rows) walk_.output.put(walk_.row(item, r), self_, state_);
    if (walk_.last.wanted() && r + 1 == walk_.steps) walk_.last.put(item, self_, state_);
  }

  __device__ void finish_part(std::int64_t item, std::int64_t part) const {
    const std::int64_t slot = item * walk_.parts + part;
    if (walk_.ends != nullptr && leads()) walk_.ends[slot * walk_.n + self_] = state_;
    if (walk_.cuts != nullptr && threadIdx.x == 0) walk_.cuts[slot] = cut_ ? T(1) : T(0);
    if constexpr (kSums) {
      if (!owns_row()) return;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        if (column(c) < walk_.n) walk_.sums[(slot * walk_.n + self_) * walk_.n + column(c)] = sum_.at[c];
      }
    }
  }

  const Walk<S>& walk_;
  Storage& cells_;
  const int self_ = static_cast<int>(threadIdx.x) / kLanes;  // the row of this thread
  const int lane_ = static_cast<int>(threadIdx.x) % kLanes;
  Share<T, kColumns> matrix_, sum_;
  T state_ = T(0);
  int front_ = 0;
  bool cut_ = false;
};

template <class S, int kColumns, bool kSums>
static __global__ void __launch_bounds__(kLanes* kLanes* kColumns, 1) scan_dense_walk_kernel(Walk<S> walk) {
  auto& cells = shared_storage<Cells<Compute<S>, kColumns, kSums>>();
  Walker<S, kColumns, kSums> walker(walk, cells);
  for (std::int64_t item = blockIdx.y; item < walk.batch; item += gridDim.y)
    for (std::int64_t part = blockIdx.x; part < walk.parts; part += gridDim.x) walker.run(item, part);
}

/// F <- A^kPartSteps - I. One block.
template <class T>
static __global__ void __launch_bounds__(kBlockThreads, 1)
    scan_dense_power_kernel(int n, const T* A, bool minus_one, T* F) {
  auto& panels = shared_storage<dense::Panels<T>>();
  dense::for_each_owned(
      n, [&](int, int, int i, int j) { F[i * n + j] = A[i * n + j] - (i == j && !minus_one ? T(1) : T(0)); });
  for (int k = 0; k < kPowerSquarings; ++k) {
    const dense::Tile<T> square = dense::product(dense::plain<T>(F), dense::plain<T>(F), n, panels);
    dense::for_each_owned(
        n, [&](int r, int c, int i, int j) { F[i * n + j] = fma_of(T(2), F[i * n + j], square.at[r][c]); });
  }
}

inline std::int64_t parts_of(std::int64_t length) noexcept {
  return length <= kLongestPart ? 1 : ceil_div(length, kPartSteps);
}

/// What the launches of a walk in parts hand to each other: in the caller's workspace.
template <class T>
struct Carried {
  T *power = nullptr, *ends = nullptr, *cuts = nullptr, *before = nullptr;
};

template <class T>
Carried<T> take_carried(std::int64_t batch, std::int64_t parts, std::int64_t n, Room& room) noexcept {
  Carried<T> carried;
  if (parts == 1) return carried;
  const std::int64_t joints = batch * (parts - 1);
  carried.power = room.take<T>(n * n);
  carried.ends = room.take<T>(joints * n);
  carried.cuts = room.take<T>(joints);
  carried.before = room.take<T>(joints * n);
  return carried;
}

template <class S, int kColumns, bool kSums>
static Status launch_walk(const Walk<S>& walk, Stream stream) {
  const auto most = [](std::int64_t count, std::int64_t limit) {
    return static_cast<unsigned>(count < limit ? count : limit);
  };
  return launch("scan_dense_walk_kernel", scan_dense_walk_kernel<S, kColumns, kSums>,
                dim3(most(walk.parts, kMostPartBlocks), most(walk.batch, kMostItemBlocks)),
                dim3(kLanes * kLanes * kColumns), 0, stream, walk);
}

template <class S, bool kSums>
static Status launch_walk(const Walk<S>& walk, Stream stream) {
  return walk.n <= 16 ? launch_walk<S, 4, kSums>(walk, stream)
                      : launch_walk<S, kMost / kLanes, kSums>(walk, stream);
}

/// Each part but the last from nothing, to where it ends.
template <class S>
Walk<S> walk_to_ends(Walk<S> walk, const Carried<Compute<S>>& carried) noexcept {
  --walk.parts;
  walk.output = {};
  walk.last = {};
  walk.ends = carried.ends;
  walk.cuts = carried.cuts;
  return walk;
}

/// From part to part: a step is a part.
template <class S>
Walk<Compute<S>> walk_over_parts(const Walk<S>& whole, const Carried<Compute<S>>& carried) noexcept {
  Walk<Compute<S>> walk;
  walk.n = whole.n;
  walk.batch = whole.batch;
  walk.rows = walk.steps = whole.parts - 1;
  walk.matrix = carried.power;
  walk.transposed = whole.transposed;
  walk.minus_one = true;
  walk.input = {carried.ends, whole.n, false};
  walk.start = carried.cuts;
  walk.output = {carried.before, whole.n, false, false};
  return walk;
}

template <class S>
static Status run_walk(Walk<S> walk, const Carried<Compute<S>>& carried, Stream stream) {
  using T = Compute<S>;
  if (walk.parts > 1) {
    SCANTAPE_TRY(launch("scan_dense_power_kernel", scan_dense_power_kernel<T>, dim3(1), dim3(kBlockThreads),
                        0, stream, walk.n, walk.matrix, walk.minus_one, carried.power));
    SCANTAPE_TRY((launch_walk<S, false>(walk_to_ends(walk, carried), stream)));
    SCANTAPE_TRY((launch_walk<T, false>(walk_over_parts(walk, carried), stream)));
    walk.before = carried.before;
  }
  return walk.sums != nullptr ? launch_walk<S, true>(walk, stream) : launch_walk<S, false>(walk, stream);
}

/// What both directions share.
template <class S>
Walk<S> walk_of(const ScanForward& args, const ConstView& sequence) noexcept {
  Walk<S> walk;
  walk.n = static_cast<int>(sequence.shape[2]);
  walk.batch = sequence.shape[0];
  walk.rows = walk.steps = sequence.shape[1];
  walk.parts = parts_of(walk.rows);
  walk.part_steps = kPartSteps;
  walk.matrix = args.a.as<Compute<S>>();
  walk.minus_one = args.minus_one;
  walk.start = args.start.present ? args.start.as<S>() : nullptr;
  return walk;
}

template <class S>
static Status forward(const ScanForward& args, Room& room, bool run, Stream stream) {
  using T = Compute<S>;
  Walk<S> walk = walk_of<S>(args, args.b);
  const Carried<T> carried = take_carried<T>(walk.batch, walk.parts, walk.n, room);
  if (!run || walk.n == 0) return Status();
  walk.flipped = args.direction == ScanDirection::reversed;
  walk.input = source<S>(args.b);
  walk.initial = source<T>(args.h0);
  walk.output = target<S>(args.h);
  walk.last = target<T>(args.final_state);
  return run_walk(walk, carried, stream);
}

template <class S>
static Status backward(const ScanBackward& args, Room& room, bool run, Stream stream) {
  using T = Compute<S>;
  Walk<S> walk = walk_of<S>(args, args.h);
  const Carried<T> carried = take_carried<T>(walk.batch, walk.parts, walk.n, room);
  const std::int64_t slots = walk.batch * walk.parts, elements = std::int64_t{walk.n} * walk.n;
  T* const sums = args.d_a.wanted() ? room.take<T>(slots * elements) : nullptr;
  if (!run || walk.n == 0) return Status();
  walk.flipped = args.direction == ScanDirection::forward;
  walk.transposed = true;
  walk.input = source<S>(args.d_h);
  walk.initial = source<T>(args.d_final_state);
  walk.adds_initial = true;
  walk.lag = 1;
  walk.output = target<S>(args.d_b);
  walk.last = target<T>(args.d_h0);
  if (args.d_h0.wanted()) walk.steps = walk.rows + 1;
  walk.earlier = source<S>(args.h);
  walk.earlier_initial = source<T>(args.h0);
  walk.sums = sums;
  SCANTAPE_TRY(run_walk(walk, carried, stream));
  return join_column_sums("scan_bwd_join_d_a", sums, slots, elements, target<T>(args.d_a), stream);
}

inline bool is_dense(const ScanForward& args) noexcept {
  return args.a.rank() == 2;
}

}  // namespace scantape::cuda::dense_scan
