// First-order linear recurrence over time, h_t = a_t h_{t-1} + b_t, by parallel prefix scan.
//
// Step t is the map  h -> a_t h + b_t. Maps compose to maps, (a2, b2) o (a1, b1) = (a2 a1, a2 b1 + b2),
// associatively (common/affine.cuh): so they can be scanned (common/scan.cuh). Nothing is ever divided by a. (A
// product of decays above 1 over a segment may overflow where the walk itself does not.) A step at which a
// sequence starts is the map h -> b_t, by selection.
//
// Gradient. h_t reaches the loss directly and through h_{t+1}, so with g the total cotangent of h
//
//   g_t = d_h_t + [start_{t+1} = 0] a_{t+1} g_{t+1},   g_L = d_h_L + d_final_state
//   d_b_t = g_t,   d_a_t = [start_t = 0] g_t h_{t-1},   d_h0 = [start_1 = 0] a_1 g_1
//
// which is the same recurrence the other way through time, with factor 1 at its first step, where d_final_state
// is what comes in. Backward reads h_{t-1} from what forward wrote: recovering it as (h_t - b_t) / a_t would
// lose all digits where a is small. Forward saves nothing else.
//
// The other direction exchanges first and last row; decays given as a - 1 change how a step is applied and
// composed; a constant or per-head decay is read from the same place for all steps or channels that share it:
// all of that is data, not other kernels. What is summed into d_a:
//
//   constant  over time in the thread and the block (one number per sequence and part of time, in the
//             workspace), then over B and parts in order
//   per head  over the tile of a block, which never crosses heads, by shuffles; where a head has several tiles
//             their sums go through the workspace
//
// A decay that is one matrix is walked otherwise: scan_dense.cuh.
//
// Sequences (b, h, start and their cotangents) may be stored in 16 bits: S is what they are stored in, T what they are
// computed in. Decays, states before and after, maps and all that is summed are T; h is rounded where it is written, and
// carried on as it was.
//
// Variants: with and without starts, f32, f64, bf16 and f16, and those of common/scan.cuh.
//
// Bytes: forward reads b (and a where it varies), writes h: 2 n or 3 n elements. Backward reads d_h and h
// (and a), writes d_b (and d_a): 3 n or 5 n. Where time is cut into parts, b and a (d_h and a) are read twice.

#include "scantape/scan.h"

#include "common/affine.cuh"
#include "common/dispatch.cuh"
#include "common/reduce.cuh"
#include "common/scan.cuh"
#include "common/timed.cuh"
#include "scan_dense.cuh"

namespace scantape::cuda {
namespace {

/// The decays of a scan. `shared_by`: so many neighbouring channels have one; stride 0 where all rows have one.
template <class T>
struct Decays {
  const T* data = nullptr;
  std::int64_t stride = 0, shared_by = 1;
  bool minus_one = false;

  __device__ Track<const T> channel(std::int64_t channel) const {
    if (channel < 0) return {};
    return {data + (shared_by == 1 ? channel : channel / shared_by), stride};
  }
};

/// What all scans of linear steps share: how steps and maps are composed and applied.
template <class T, bool kStarts>
class LinearThread {
 public:
  using Map = Composed<T, kStarts>;

  /// h -> a h + b, or h -> b where `start`.
  struct Step {
    T a, b;
    bool start;
  };

  __device__ explicit LinearThread(bool minus_one) : minus_one_(minus_one) {}

  __device__ Map identity() const { return cuda::identity<T, kStarts>(); }
  __device__ Map combine(const Map& later, const Map& earlier) const { return cuda::combine(later, earlier); }
  __device__ Map compose(const Step& later, const Map& earlier) const {
    if constexpr (kStarts) {
      if (later.start) return starting(later.b);
    }
    const Decay<T> decay = minus_one_ ? decay_from_excess(later.a) : decay_of(later.a);
    return cuda::combine(composed<T, kStarts>(decay, later.b), earlier);
  }
  __device__ T apply(const Map& map, T h) const { return cuda::apply(map, h); }
  __device__ T apply(const Step& step, T h) const {
    if (kStarts && step.start) return step.b;
    const T moved = fma_of(step.a, h, step.b);
    return minus_one_ ? h + moved : moved;
  }
  /// a g: what a step hands back of the cotangent of its state.
  __device__ T pulled(T a, T g) const { return minus_one_ ? fma_of(a, g, g) : a * g; }
  /// The decay of a step that changes nothing.
  __device__ T unit() const { return minus_one_ ? T(0) : T(1); }

 private:
  bool minus_one_;
};

template <class S, bool kStarts>
struct LinearForward {
  using T = Compute<S>;
  using Map = Composed<T, kStarts>;
  using State = T;
  using Sum = T;
  static constexpr int kSums = 0, kLongSteps = 64 / static_cast<int>(sizeof(T));

  Clock clock;
  Decays<T> a;
  Timed<S> b, h;
  Source<T> h0;
  const S* start;
  Target<T> final_state;

  class Thread : public LinearThread<T, kStarts> {
   public:
    using Step = typename LinearThread<T, kStarts>::Step;

    __device__ Thread(const LinearForward& scan, std::int64_t item, std::int64_t channel, bool)
        : LinearThread<T, kStarts>(scan.a.minus_one),
          scan_(scan),
          item_(item),
          channel_(channel),
          a_(scan.a.channel(channel)),
          b_(scan.b.channel(channel)),
          h_(scan.h.channel(channel)) {}

    __device__ T initial() const { return scan_.h0.present() ? scan_.h0.at(item_, channel_) : T(0); }
    __device__ Step load(std::int64_t r) const {
      const std::int64_t row = scan_.clock.row(item_, r);
      bool start = false;
      if constexpr (kStarts) start = loaded_from(scan_.start + row) != T(0);
      return {a_.at(row), b_.at(row), start};
    }
    __device__ void emit(std::int64_t r, bool exists, const Step&, T state) const {
      if (!exists) return;
      h_.put(scan_.clock.row(item_, r), state);
      if (scan_.final_state.wanted() && r == scan_.clock.length - 1)
        scan_.final_state.put(item_, channel_, state);
    }

   private:
    const LinearForward& scan_;
    std::int64_t item_, channel_;
    Track<const T> a_;
    Track<S> b_, h_;
  };
};

/// Where d_a goes: to `each` row and channel (varying), or to `heads`, tile by tile where a head has several.
/// A constant a's is gathered through the scan's sums.
template <class T>
struct DecayGradient {
  Timed<T> each;
  Target<T> heads;
  T* tiles = nullptr;  // [B, L, H, tiles of a head]
  bool constant = false;

  __host__ __device__ bool wanted() const {
    return constant || each.present() || heads.wanted() || tiles != nullptr;
  }
  __host__ __device__ bool per_head() const { return heads.wanted() || tiles != nullptr; }
};

/// The recurrence of g: step r is row length - 1 - r of the forward scan's order.
template <class S, bool kStarts>
struct LinearBackward {
  using T = Compute<S>;
  using Map = Composed<T, kStarts>;
  using State = T;
  using Sum = T;
  // With starts half the steps: sixteen with their flags do not fit into the registers.
  static constexpr int kSums = 1, kLongSteps = (kStarts ? 32 : 64) / static_cast<int>(sizeof(T));

  Clock clock;  // of the forward scan
  Decays<T> a;
  Timed<S> h, d_h;
  Source<T> h0, d_final_state;
  const S* start;
  DecayGradient<T> d_a;
  Timed<S> d_b;
  Target<T> d_h0;
  T* sums;  // of d_a where a is constant

  class Thread : public LinearThread<T, kStarts> {
    using Base = LinearThread<T, kStarts>;

   public:
    struct Step : Base::Step {
      T earlier;   // h_{t-1}
      bool fresh;  // there is none
    };

    __device__ Thread(const LinearBackward& scan, std::int64_t item, std::int64_t channel, bool)
        : Base(scan.a.minus_one),
          scan_(scan),
          item_(item),
          channel_(channel),
          a_(scan.a.channel(channel)),
          h_(scan.h.channel(channel)),
          d_h_(scan.d_h.channel(channel)),
          d_b_(scan.d_b.channel(channel)),
          d_a_(scan.d_a.each.channel(channel)) {}

    __device__ T initial() const {
      return scan_.d_final_state.present() ? scan_.d_final_state.at(item_, channel_) : T(0);
    }
    __device__ Step load(std::int64_t r) const {
      const std::int64_t t = scan_.clock.length - 1 - r, row = scan_.clock.row(item_, t);
      const std::int64_t ahead = scan_.clock.ahead();
      Step step;
      step.start = starts(row + ahead, r == 0);
      step.a = r == 0 ? this->unit() : a_.at(row + ahead);
      step.b = d_h_.present() ? d_h_.at(row) : T(0);
      step.fresh = starts(row, false) || (t == 0 && !scan_.h0.present());
      step.earlier = T(0);
      if (scan_.d_a.wanted() && !step.fresh)
        step.earlier = t == 0 ? scan_.h0.at(item_, channel_) : h_.at(row - ahead);
      return step;
    }
    __device__ void emit(std::int64_t r, bool exists, const Step& step, T g) {
      const std::int64_t t = scan_.clock.length - 1 - r;
      T slope = T(0);  // selected, not multiplied by zero, where nothing stood before
      if (exists) {
        const std::int64_t row = scan_.clock.row(item_, t);
        if (d_b_.present()) d_b_.put(row, g);
        if (!step.fresh) slope = g * step.earlier;
        if (d_a_.present()) d_a_.put(row, slope);
        if (scan_.d_h0.wanted() && t == 0)
          scan_.d_h0.put(item_, channel_, starts(row, false) ? T(0) : this->pulled(a_.at(row), g));
        sum_ += slope;
      }
      if (scan_.d_a.per_head()) emit_head(t, exists, slope);  // the same for all threads
    }
    __device__ T sum(int) const { return sum_; }

   private:
    __device__ bool starts(std::int64_t row, bool beyond) const {
      if constexpr (kStarts) return !beyond && loaded_from(scan_.start + row) != T(0);
      return false;
    }
    /// A tile's part of d_a: the lanes of a tile stand side by side in one warp.
    __device__ void emit_head(std::int64_t t, bool exists, T slope) const {
      for (unsigned distance = blockDim.x / 2; distance > 0; distance /= 2)
        slope += __shfl_xor_sync(kAllLanes, slope, static_cast<int>(distance));
      if (threadIdx.x != 0 || !exists) return;
      const std::int64_t row = scan_.clock.row(item_, t), width = scan_.a.shared_by;
      if (scan_.d_a.tiles == nullptr) {
        scan_.d_a.heads.put(row, channel_ / width, slope);
        return;
      }
      const std::int64_t tiles = (width + blockDim.x - 1) / blockDim.x;
      scan_.d_a.tiles[row * gridDim.x + channel_ / width * tiles + channel_ % width / blockDim.x] = slope;
    }

    const LinearBackward& scan_;
    std::int64_t item_, channel_;
    Track<const T> a_;
    Track<S> h_, d_h_, d_b_;
    Track<T> d_a_;
    T sum_ = T(0);
  };
};

/// d_a[row, head] = the sum of `tiles` [rows, heads, count] over the tiles of a head, in order.
template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    scan_bwd_join_heads_kernel(std::int64_t rows, std::int64_t heads, std::int64_t count, const T* tiles,
                               Target<T> d_a) {
  const std::int64_t cells = rows * heads;
  for (std::int64_t cell = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; cell < cells;
       cell += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    T sum = 0;
    for (std::int64_t tile = 0; tile < count; ++tile) sum += tiles[cell * count + tile];
    d_a.put(cell / heads, cell % heads, sum);
  }
}

bool is_per_head(const ConstView& sequence) noexcept {
  return sequence.rank() > 3;
}

Sequences sequences(const ConstView& sequence) noexcept {
  Sequences size{sequence.shape[0], sequence.shape[1], 1, 1};
  if (is_per_head(sequence)) size.groups = sequence.shape[2];
  for (int axis = is_per_head(sequence) ? 3 : 2; axis < sequence.rank(); ++axis)
    size.width *= sequence.shape[axis];
  return size;
}

template <class T>
Decays<T> decays(const ScanForward& args, const Sequences& size, const ConstView& sequence) noexcept {
  const Source<T> rows = source<T>(args.a);
  return {rows.data, args.a.rank() == 1 ? 0 : rows.stride, is_per_head(sequence) ? size.width : 1,
          args.minus_one};
}

/// h0 and the like are contiguous, so they are rows of all channels whatever their rank.
template <class T>
Source<T> state_source(const ConstView& view, const Sequences& size) noexcept {
  Source<T> result;
  if (view.present) result = {view.as<T>(), size.channels(), false};
  return result;
}

template <class T>
Target<T> state_target(const View& view, const Sequences& size, bool accumulate = false) noexcept {
  Target<T> result;
  if (view.present) result = {view.as<T>(), size.channels(), false, accumulate};
  return result;
}

Clock clock_of(const ScanForward& args, const Sequences& size) noexcept {
  return {size.length, args.direction == ScanDirection::reversed};
}

template <class S, bool kStarts>
Status forward(const ScanForward& args, Room& room, bool run, Stream stream) {
  using T = Compute<S>;
  const Sequences size = sequences(args.b);
  using Scan = LinearForward<S, kStarts>;
  const Parts<Scan> parts = take_parts<Scan>(size, room);
  if (!run || size.channels() == 0) return Status();
  const Scan scan{clock_of(args, size),
                  decays<T>(args, size, args.b),
                  timed<S>(args.b),
                  timed<S>(args.h),
                  state_source<T>(args.h0, size),
                  args.start.as<S>(),
                  state_target<T>(args.final_state, size)};
  return launch_scan(size, parts, scan, stream);
}

template <class S, bool kStarts>
Status backward(const ScanBackward& args, Room& room, bool run, Stream stream) {
  using T = Compute<S>;
  const Sequences size = sequences(args.h);
  using Scan = LinearBackward<S, kStarts>;
  const Parts<Scan> parts = take_parts<Scan>(size, room);
  const bool wants_d_a = args.d_a.wanted();
  const Target<T> d_a = target<T>(args.d_a);
  DecayGradient<T> slopes;
  T* sums = nullptr;
  const std::int64_t rows = size.batch * size.length;
  const std::int64_t blocks = scan_grid(size, 1, size.length, Scan::kLongSteps).grid.x;
  if (wants_d_a && args.a.rank() == 1) {
    slopes.constant = true;
    sums = room.take<T>(size.batch * parts.count * size.channels());
  } else if (wants_d_a && !is_per_head(args.h)) {
    slopes.each = timed<T>(args.d_a);
  } else if (wants_d_a && blocks > size.groups) {
    slopes.tiles = room.take<T>(rows * blocks);
  } else {
    slopes.heads = d_a;
  }
  if (!run) return Status();
  const Scan scan{clock_of(args, size),
                  decays<T>(args, size, args.h),
                  timed<S>(args.h),
                  timed<S>(args.d_h),
                  state_source<T>(args.h0, size),
                  state_source<T>(args.d_final_state, size),
                  args.start.as<S>(),
                  slopes,
                  timed<S>(args.d_b),
                  state_target<T>(args.d_h0.wanted() ? args.d_h0.view : View(), size,
                                  args.d_h0.mode == WriteMode::accumulate),
                  sums};
  if (size.channels() > 0) SCANTAPE_TRY(launch_scan(size, parts, scan, stream));
  if (slopes.constant)
    return join_column_sums("scan_bwd_join_d_a", sums, size.batch * parts.count, size.channels(), d_a,
                            stream);
  if (slopes.tiles != nullptr || (wants_d_a && size.width == 0))
    return launch("scan_bwd_join_heads_kernel", scan_bwd_join_heads_kernel<T>,
                  grid_for(rows * size.groups, kBlockThreads, kMostBlocksX), dim3(kBlockThreads), 0, stream,
                  rows, size.groups, size.width == 0 ? 0 : blocks / size.groups, slopes.tiles, d_a);
  return Status();
}

constexpr const char* kNoDtype = "scan: no CUDA kernel for this dtype";

Status forward(const ScanForward& args, Room& room, bool run, Stream stream) {
  return dispatch_storage(args.b.dtype, kNoDtype, [&](auto zero) {
    using S = decltype(zero);
    if (dense_scan::is_dense(args)) return dense_scan::forward<S>(args, room, run, stream);
    return args.start.present ? forward<S, true>(args, room, run, stream)
                              : forward<S, false>(args, room, run, stream);
  });
}

Status backward(const ScanBackward& args, Room& room, bool run, Stream stream) {
  return dispatch_storage(args.h.dtype, kNoDtype, [&](auto zero) {
    using S = decltype(zero);
    if (dense_scan::is_dense(args)) return dense_scan::backward<S>(args, room, run, stream);
    return args.start.present ? backward<S, true>(args, room, run, stream)
                              : backward<S, false>(args, room, run, stream);
  });
}

}  // namespace

Status scan_forward(const ScanForward& args, Stream stream) noexcept {
  Room room(args.workspace.data);
  return forward(args, room, true, stream);
}

Status scan_backward(const ScanBackward& args, Stream stream) noexcept {
  if (!args.d_a.wanted() && !args.d_b.wanted() && !args.d_h0.wanted()) return Status();
  Room room(args.workspace.data);
  return backward(args, room, true, stream);
}

std::int64_t scan_forward_workspace(const ScanForward& args) noexcept {
  Room room;
  (void)forward(args, room, false, Stream{});
  return room.bytes();
}

std::int64_t scan_backward_workspace(const ScanBackward& args) noexcept {
  if (!args.d_a.wanted() && !args.d_b.wanted() && !args.d_h0.wanted()) return 0;
  Room room;
  (void)backward(args, room, false, Stream{});
  return room.bytes();
}

}  // namespace scantape::cuda
