// First-order linear recurrence over time, h_t = a_t h_{t-1} + b_t, by parallel prefix scan.
//
// Step t is the map  h -> a_t h + b_t. Maps compose to maps, (a2, b2) o (a1, b1) = (a2 a1, a2 b1 + b2),
// associatively: so a thread composes a segment of time on its own, a scan over the threads' maps gives each
// of them the state it starts from, and it then walks its segment once more. Nothing is ever divided by a. (A
// product of decays above 1 over a segment may overflow where the walk itself does not.)
//
// Gradient. h_t reaches the loss directly and through h_{t+1}, so with g the total cotangent of h
//
//   g_t = d_h_t + a_{t+1} g_{t+1},   g_L = d_h_L + d_final_state
//   d_b_t = g_t,   d_a_t = g_t h_{t-1},   d_h0 = a_1 g_1
//
// which is the same recurrence in reversed time, with factor 1 at its first step, where d_final_state is what
// comes in. A constant a gathers d_a over time in the thread and the block (one number per sequence in the
// workspace), then over B in order. Backward reads h_{t-1} from what forward wrote: recovering it as (h_t -
// b_t) / a_t would lose all digits where a is small. Forward saves nothing else.
//
// Variants: constant or varying a. A block takes a tile of neighbouring channels (along x: coalesced) and all
// of time in chunks, each of `segments` threads (along y) times kSteps steps; the state is carried from chunk
// to chunk in order. segments and kSteps follow from L and the dtype alone, so that a sequence's bits depend
// on that sequence alone: 4 steps by 16 threads up to L = 64; then 16 steps (f64: 8) by 16, 32 or 64 threads.
// Per chunk a thread combines 2 kSteps + log2(segments) + 2 maps.
//
// Bytes: forward reads b (and a where it varies), writes h: 2 n or 3 n elements. Backward reads d_h and h
// (and a), writes d_b (and d_a): 3 n or 5 n.

#include "scantape/scan.h"

#include "common/affine.cuh"
#include "common/dispatch.cuh"
#include "common/reduce.cuh"

namespace scantape::cuda {
namespace {

constexpr int kScanThreads = 512;
constexpr int kMostTile = 32;
constexpr std::int64_t kMostItems = 4096;  // blocks along B; they loop
constexpr int kShortSteps = 4;
template <class T>
constexpr int kLongSteps = 64 / static_cast<int>(sizeof(T));

struct Sequences {
  std::int64_t batch = 0, length = 0, channels = 0;
};

/// The maps of a block's threads, twice: each round of the scan reads one side and writes the other, so that
/// one barrier a round is enough.
template <class T>
struct MapCells {
  Composed<T> side[2][kScanThreads];
};

/// Scan over the segments of a block, earlier ones (smaller threadIdx.y) first.
template <class T>
class SegmentScan {
 public:
  __device__ explicit SegmentScan(MapCells<T>& cells) : cells_(cells) {}

  /// Takes each thread's map; leaves in *before the composition of all earlier segments and in *total that of
  /// all. All threads must call it.
  __device__ void run(Composed<T> mine, Composed<T>* before, Composed<T>* total) {
    const unsigned tile = blockDim.x, segment = threadIdx.y;
    const unsigned self = segment * tile + threadIdx.x;
    cells_.side[front_][self] = mine;
    __syncthreads();
    for (unsigned distance = 1; distance < blockDim.y; distance *= 2) {
      if (segment >= distance) {
        const Composed<T> earlier = cells_.side[front_][self - distance * tile];
        mine = combine(mine, earlier);
      }
      front_ = 1 - front_;
      cells_.side[front_][self] = mine;
      __syncthreads();
    }
    *before = segment > 0 ? cells_.side[front_][self - tile] : identity<T>();
    *total = cells_.side[front_][(blockDim.y - 1) * tile + threadIdx.x];
    front_ = 1 - front_;  // the side that nobody reads any more
  }

 private:
  MapCells<T>& cells_;
  int front_ = 0;
};

/// Steps of this thread's segment that exist: of kSteps from `first` on, those below `length`.
template <int kSteps>
__device__ int steps_of_segment(std::int64_t first, std::int64_t length) {
  const std::int64_t left = length - first;
  return left >= kSteps ? kSteps : left > 0 ? static_cast<int>(left) : 0;
}

template <class T, bool kConstant, int kSteps>
__global__ void __launch_bounds__(kScanThreads)
    scan_fwd_segments_kernel(Sequences size, Source<T> a, Source<T> b, Source<T> h0, Target<T> h,
                             Target<T> final_state) {
  SegmentScan<T> scan(shared_storage<MapCells<T>>());
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const bool live = channel < size.channels;
  const T constant_a = kConstant && live ? a.at(0, channel) : T(1);

  for (std::int64_t item = blockIdx.y; item < size.batch; item += gridDim.y) {
    const std::int64_t row = item * size.length;  // of t = 0
    T carry = live && h0.present() ? h0.at(item, channel) : T(0);
    for (std::int64_t chunk = 0; chunk < size.length; chunk += blockDim.y * kSteps) {
      const std::int64_t first = chunk + threadIdx.y * kSteps;
      const int steps = live ? steps_of_segment<kSteps>(first, size.length) : 0;
      Affine<T> step[kSteps];
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        if (i < steps) {
          step[i].a = kConstant ? constant_a : a.at(row + first + i, channel);
          step[i].b = b.at(row + first + i, channel);
        }
      }
      Composed<T> segment = identity<T>(), before, total;
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        if (i < steps) segment = combine(step[i], segment);
      }
      scan.run(segment, &before, &total);
      T state = apply(before, carry);
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        if (i < steps) {
          state = apply(step[i], state);
          h.put(row + first + i, channel, state);
        }
      }
      if (final_state.wanted() && steps > 0 && first + steps == size.length)
        final_state.put(item, channel, state);
      carry = apply(total, carry);
    }
  }
}

template <class T>
struct BackwardCells {
  MapCells<T> maps;
  T d_a[kScanThreads];
};

/// Adds up `sum` over the block's segments in a fixed order, into the threads of segment 0. All threads must
/// call it.
template <class T>
__device__ T sum_over_segments(T sum, T* cells) {
  const unsigned self = threadIdx.y * blockDim.x + threadIdx.x;
  cells[self] = sum;
  __syncthreads();
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    if (threadIdx.y < half) {
      sum += cells[self + half * blockDim.x];
      cells[self] = sum;
    }
    __syncthreads();
  }
  return sum;
}

/// Time runs backwards: reversed step r is t = length - 1 - r. `partial` [batch, channels] takes d_a of a
/// constant a.
template <class T, bool kConstant, int kSteps>
__global__ void __launch_bounds__(kScanThreads)
    scan_bwd_segments_kernel(Sequences size, Source<T> a, Source<T> h0, Source<T> h, Source<T> d_h,
                             Source<T> d_final_state, Target<T> d_a, T* partial, Target<T> d_b,
                             Target<T> d_h0) {
  auto& cells = shared_storage<BackwardCells<T>>();
  SegmentScan<T> scan(cells.maps);
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const bool live = channel < size.channels;
  const bool wants_d_a = kConstant ? partial != nullptr : d_a.wanted();
  const T constant_a = kConstant && live ? a.at(0, channel) : T(1);

  for (std::int64_t item = blockIdx.y; item < size.batch; item += gridDim.y) {
    const std::int64_t row = item * size.length;
    const T initial = live && wants_d_a && h0.present() ? h0.at(item, channel) : T(0);
    T carry = live && d_final_state.present() ? d_final_state.at(item, channel) : T(0);
    T d_a_sum = 0;
    for (std::int64_t chunk = 0; chunk < size.length; chunk += blockDim.y * kSteps) {
      const std::int64_t first = chunk + threadIdx.y * kSteps;
      const int steps = live ? steps_of_segment<kSteps>(first, size.length) : 0;
      const std::int64_t last_row = row + size.length - 1 - first;  // of reversed step `first`
      Affine<T> step[kSteps];
      T earlier[kSteps];  // h_{t-1}
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        if (i < steps) {
          const bool is_last = first + i == 0, is_first = first + i == size.length - 1;
          step[i].a = is_last ? T(1) : kConstant ? constant_a : a.at(last_row - i + 1, channel);
          step[i].b = d_h.present() ? d_h.at(last_row - i, channel) : T(0);
          earlier[i] = !wants_d_a ? T(0) : is_first ? initial : h.at(last_row - i - 1, channel);
        }
      }
      Composed<T> segment = identity<T>(), before, total;
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        if (i < steps) segment = combine(step[i], segment);
      }
      scan.run(segment, &before, &total);
      T g = apply(before, carry);
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        if (i < steps) {
          g = apply(step[i], g);
          if (d_b.wanted()) d_b.put(last_row - i, channel, g);
          if constexpr (kConstant) {
            d_a_sum += g * earlier[i];
          } else {
            if (wants_d_a) d_a.put(last_row - i, channel, g * earlier[i]);
          }
        }
      }
      if (d_h0.wanted() && steps > 0 && first + steps == size.length) {
        d_h0.put(item, channel, (kConstant ? constant_a : a.at(row, channel)) * g);
      }
      carry = apply(total, carry);
    }
    if constexpr (kConstant) {
      if (wants_d_a) {  // the same for all threads
        const T sum = sum_over_segments(d_a_sum, cells.d_a);
        if (live && threadIdx.y == 0) partial[item * size.channels + channel] = sum;
      }
    }
  }
}

Sequences sequences(const ConstView& h) noexcept {
  return {h.shape[0], h.shape[1], h.shape[2]};
}

bool is_short(Sequences size) noexcept {
  return size.length <= 64;
}

Grid scan_grid(Sequences size, int long_steps) noexcept {
  int segments = 16;
  if (!is_short(size)) {
    if (size.length > 16 * long_steps) segments = 32;
    if (size.length > 64 * long_steps) segments = 64;
  }
  const int most = kScanThreads / segments < kMostTile ? kScanThreads / segments : kMostTile;
  const int tile = power_of_two(size.channels, most);
  return {dim3(static_cast<unsigned>(ceil_div(size.channels, tile)),
               static_cast<unsigned>(size.batch < kMostItems ? size.batch : kMostItems)),
          dim3(static_cast<unsigned>(tile), static_cast<unsigned>(segments))};
}

template <class T, bool kConstant>
Status forward(const ScanForward& args, Stream stream) {
  const Sequences size = sequences(args.b);
  const Grid grid = scan_grid(size, kLongSteps<T>);
  const auto run = [&](auto kernel) {
    return launch("scan_fwd_segments_kernel", kernel, grid.grid, grid.block, 0, stream, size,
                  source<T>(args.a), source<T>(args.b), source<T>(args.h0), target<T>(args.h),
                  target<T>(args.final_state));
  };
  return is_short(size) ? run(scan_fwd_segments_kernel<T, kConstant, kShortSteps>)
                        : run(scan_fwd_segments_kernel<T, kConstant, kLongSteps<T>>);
}

template <class T, bool kConstant>
Status backward(const ScanBackward& args, Stream stream) {
  const Sequences size = sequences(args.h);
  const Grid grid = scan_grid(size, kLongSteps<T>);
  const Target<T> d_a = target<T>(args.d_a);
  T* const partial = kConstant && d_a.wanted() ? static_cast<T*>(args.workspace.data) : nullptr;
  const auto run = [&](auto kernel) {
    return launch("scan_bwd_segments_kernel", kernel, grid.grid, grid.block, 0, stream, size,
                  source<T>(args.a), source<T>(args.h0), source<T>(args.h), source<T>(args.d_h),
                  source<T>(args.d_final_state), d_a, partial, target<T>(args.d_b), target<T>(args.d_h0));
  };
  SCANTAPE_TRY(is_short(size) ? run(scan_bwd_segments_kernel<T, kConstant, kShortSteps>)
                              : run(scan_bwd_segments_kernel<T, kConstant, kLongSteps<T>>));
  if constexpr (kConstant) {
    return join_column_sums("scan_bwd_join_d_a", partial, size.batch, size.channels, d_a, stream);
  }
  return Status();
}

constexpr const char* kMissing = "scan: no CUDA kernel for this dtype";

}  // namespace

Status scan_forward(const ScanForward& args, Stream stream) noexcept {
  return dispatch_dtype(args.b.dtype, kMissing, [&](auto zero) {
    using T = decltype(zero);
    return args.a.rank() == 1 ? forward<T, true>(args, stream) : forward<T, false>(args, stream);
  });
}

Status scan_backward(const ScanBackward& args, Stream stream) noexcept {
  if (!args.d_a.wanted() && !args.d_b.wanted() && !args.d_h0.wanted()) return Status();
  return dispatch_dtype(args.h.dtype, kMissing, [&](auto zero) {
    using T = decltype(zero);
    return args.a.rank() == 1 ? backward<T, true>(args, stream) : backward<T, false>(args, stream);
  });
}

std::int64_t scan_forward_workspace(const ScanForward&) noexcept {
  return 0;
}

std::int64_t scan_backward_workspace(const ScanBackward& args) noexcept {
  if (!args.d_a.wanted() || args.a.rank() != 1) return 0;
  const Sequences size = sequences(args.h);
  return size.batch * size.channels * size_of(args.h.dtype);
}

}  // namespace scantape::cuda
