#pragma once

#include <type_traits>

#include "common/grid.cuh"
#include "common/launch.cuh"
#include "common/shared.cuh"
#include "common/store.cuh"

// Parallel prefix scan over time, generic in what a step does. A step is an element of a monoid that acts on a
// state: sums, products, maxima, maps h -> a h + b, matrices. Associative is all that is asked; what is later
// in time stands on the left, and nothing is ever exchanged or inverted.
//
// A block takes a tile of neighbouring channels (along x: coalesced) and a part of time in chunks, each of
// `segments` threads (along y) times kSteps steps. A thread composes its segment, a scan over the threads' maps
// gives each of them the state it starts from, and it walks its segment once more. The state is carried from
// chunk to chunk in order.
//
// Long sequences are cut into parts of kPartSteps steps that run side by side: one launch composes each part,
// one scans the parts' maps (this same scan, a step being a part) and leaves the state before each of them, one
// walks all parts. Blocks never wait for each other. Segments, steps and parts follow from the length and the
// type alone, so that a sequence's bits depend on that sequence alone: 4 steps by 16 threads up to a length of
// 64; then kLongSteps by 16, 32 or 64 threads; parts beyond 4,096.
//
// Per chunk a thread combines 2 kSteps + log2(segments) + 2 times.
//
// What is scanned is a struct `Scan` of kernel arguments:
//
//   using Map, State       a composition of steps; what a map is applied to
//   using Thread           constructed as Thread(scan, item, channel, live); `live` is false beyond the last
//                          channel. Its members:
//     using Step           one step as it is loaded
//     Map identity(); Map compose(Step later, Map earlier); Map combine(Map later, Map earlier)
//     State apply(Step, State); State apply(Map, State)
//     State initial()      before the first step
//     Step load(r)         step r, in the order of the scan
//     void emit(r, exists, step, state)   state after step r. All threads of a block call it at once;
//                          `exists` is false where there is no such step or channel
//     Sum sum(i)           i < kSums: what the thread has gathered, to be added up over its channel
//   kLongSteps             steps a thread holds in registers
//   kSums, using Sum       and Sum* sums: [kSums, batch parts, channels], or null where nobody wants them

namespace scantape::cuda {

inline constexpr int kScanThreads = 512;
inline constexpr int kMostTile = 32;
inline constexpr int kShortSteps = 4;
inline constexpr std::int64_t kShortLength = 64;
inline constexpr std::int64_t kPartSteps = 2048;
inline constexpr std::int64_t kMostItems = 4096, kMostParts = 1024;  // blocks along B and time; they loop

/// Channels come in groups that no block's tile crosses (heads); one group where it does not matter.
struct Sequences {
  std::int64_t batch = 0, length = 0, groups = 1, width = 0;

  __host__ __device__ std::int64_t channels() const { return groups * width; }
  std::int64_t parts() const { return length <= 2 * kPartSteps ? 1 : (length + kPartSteps - 1) / kPartSteps; }
};

/// What the launches of one split scan hand to each other: in the caller's workspace. count 1: nothing.
template <class Scan>
struct Parts {
  std::int64_t count = 1, steps = 0;
  typename Scan::Map* maps = nullptr;      // [batch, count, channels]
  typename Scan::State* states = nullptr;  // before each part, [batch, count, channels]
};

/// The maps of a block's threads, twice: each round of the scan reads one side and writes the other, so that
/// one barrier a round is enough.
template <class Map>
struct MapCells {
  Map side[2][kScanThreads];
};

/// Scan over the segments of a block, earlier ones (smaller threadIdx.y) first.
template <class Map>
class SegmentScan {
 public:
  __device__ explicit SegmentScan(MapCells<Map>& cells) : cells_(cells) {}

  /// Takes each thread's map; leaves in *before the composition of all earlier segments and in *total that of
  /// all. All threads must call it.
  template <class Thread>
  __device__ void run(Thread& thread, Map mine, Map* before, Map* total) {
    const unsigned tile = blockDim.x, segment = threadIdx.y;
    const unsigned self = segment * tile + threadIdx.x;
    cells_.side[front_][self] = mine;
    __syncthreads();
    for (unsigned distance = 1; distance < blockDim.y; distance *= 2) {
      if (segment >= distance) {
        const Map earlier = cells_.side[front_][self - distance * tile];
        mine = thread.combine(mine, earlier);
      }
      front_ = 1 - front_;
      cells_.side[front_][self] = mine;
      __syncthreads();
    }
    if (segment > 0) {
      const Map earlier = cells_.side[front_][self - tile];
      *before = earlier;
    } else {
      *before = thread.identity();
    }
    const Map last = cells_.side[front_][(blockDim.y - 1) * tile + threadIdx.x];
    *total = last;
    front_ = 1 - front_;  // the side that nobody reads any more
  }

 private:
  MapCells<Map>& cells_;
  int front_ = 0;
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

template <class Scan>
struct ScanCells {
  MapCells<typename Scan::Map> maps;
  typename Scan::Sum sums[Scan::kSums > 0 ? kScanThreads : 1];
};

/// This thread's channel under a scan_grid, or -1.
__device__ inline std::int64_t scan_channel(const Sequences& size) {
  const std::int64_t tiles = (size.width + blockDim.x - 1) / blockDim.x;
  const std::int64_t group = blockIdx.x / tiles;
  const std::int64_t within = (blockIdx.x % tiles) * blockDim.x + threadIdx.x;
  return within < size.width ? group * size.width + within : -1;
}

/// Steps of this thread's segment that exist: of kSteps from `first` on, those below `end`.
template <int kSteps>
__device__ int steps_of_segment(std::int64_t first, std::int64_t end) {
  const std::int64_t left = end - first;
  return left >= kSteps ? kSteps : left > 0 ? static_cast<int>(left) : 0;
}

/// Walks one part of time, [begin, end), with the state `carry` before it.
template <int kSteps, class Thread, class Map, class State>
__device__ void walk_part(Thread& thread, SegmentScan<Map>& segments, bool live, std::int64_t begin,
                          std::int64_t end, State carry) {
  for (std::int64_t chunk = begin; chunk < end; chunk += blockDim.y * kSteps) {
    const std::int64_t first = chunk + threadIdx.y * kSteps;
    const int steps = live ? steps_of_segment<kSteps>(first, end) : 0;
    typename Thread::Step step[kSteps];
    Map segment = thread.identity(), before, total;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (i < steps) step[i] = thread.load(first + i);
    }
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (i < steps) segment = thread.compose(step[i], segment);
    }
    segments.run(thread, segment, &before, &total);
    State state = thread.apply(before, carry);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      if (i < steps) state = thread.apply(step[i], state);
      thread.emit(first + i, i < steps, step[i], state);
    }
    carry = thread.apply(total, carry);
  }
}

template <class Scan, int kSteps>
__global__ void __launch_bounds__(kScanThreads)
    scan_segments_kernel(Sequences size, Parts<Scan> parts, Scan scan) {
  auto& cells = shared_storage<ScanCells<Scan>>();
  SegmentScan<typename Scan::Map> segments(cells.maps);
  const std::int64_t channel = scan_channel(size);
  const bool live = channel >= 0;

  for (std::int64_t item = blockIdx.y; item < size.batch; item += gridDim.y) {
    for (std::int64_t part = blockIdx.z; part < parts.count; part += gridDim.z) {
      typename Scan::Thread thread(scan, item, channel, live);
      const std::int64_t slot = item * parts.count + part;
      const std::int64_t begin = part * parts.steps;
      const std::int64_t end = part + 1 < parts.count ? begin + parts.steps : size.length;
      typename Scan::State carry{};
      if (live) {
        if (part == 0) {
          carry = thread.initial();
        } else {
          const typename Scan::State before = parts.states[slot * size.channels() + channel];
          carry = before;
        }
      }
      walk_part<kSteps>(thread, segments, live, begin, end, carry);
      if constexpr (Scan::kSums > 0) {
        if (scan.sums != nullptr) {  // the same for all threads
          for (int i = 0; i < Scan::kSums; ++i) {
            const auto sum = sum_over_segments(thread.sum(i), cells.sums);
            if (live && threadIdx.y == 0)
              scan.sums[(i * size.batch * parts.count + slot) * size.channels() + channel] = sum;
          }
        }
      }
    }
  }
}

/// The composition of every part but the last, whose own nobody needs.
template <class Scan>
__global__ void __launch_bounds__(kScanThreads)
    scan_parts_kernel(Sequences size, Parts<Scan> parts, Scan scan) {
  using Map = typename Scan::Map;
  auto& cells = shared_storage<MapCells<Map>>();
  SegmentScan<Map> segments(cells);
  const std::int64_t channel = scan_channel(size);
  const bool live = channel >= 0;
  const std::int64_t span = parts.steps / blockDim.y;

  for (std::int64_t item = blockIdx.y; item < size.batch; item += gridDim.y) {
    for (std::int64_t part = blockIdx.z; part < parts.count - 1; part += gridDim.z) {
      typename Scan::Thread thread(scan, item, channel, live);
      const std::int64_t first = part * parts.steps + threadIdx.y * span;
      Map segment = thread.identity(), before, total;
      for (std::int64_t r = first; live && r < first + span; ++r)
        segment = thread.compose(thread.load(r), segment);
      segments.run(thread, segment, &before, &total);
      if (live && threadIdx.y == 0)
        parts.maps[(item * parts.count + part) * size.channels() + channel] = total;
    }
  }
}

/// The scan over the parts of another: a step is a part, and each state is what the next part starts from.
template <class Scan>
struct PartsScan {
  using Map = typename Scan::Map;
  using State = typename Scan::State;
  using Sum = typename Scan::Sum;
  static constexpr int kSums = 0, kLongSteps = kShortSteps;

  Scan scan;
  Parts<Scan> parts;
  std::int64_t channels;

  class Thread : public Scan::Thread {
   public:
    using Step = Map;

    __device__ Thread(const PartsScan& all, std::int64_t item, std::int64_t channel, bool live)
        : Scan::Thread(all.scan, item, channel, live),
          at_(item * all.parts.count * all.channels + channel),
          channels_(all.channels),
          count_(all.parts.count),
          maps_(all.parts.maps),
          states_(all.parts.states) {}
    __device__ Map compose(const Map& later, const Map& earlier) { return this->combine(later, earlier); }
    __device__ Map load(std::int64_t part) const {
      const Map map = maps_[at_ + part * channels_];
      return map;
    }
    __device__ void emit(std::int64_t part, bool exists, const Map&, const State& state) {
      if (exists && part + 1 < count_) states_[at_ + (part + 1) * channels_] = state;
    }

   private:
    std::int64_t at_, channels_, count_;
    const Map* maps_;
    State* states_;
  };
};

inline bool is_short(std::int64_t length) noexcept {
  return length <= kShortLength;
}

/// A thread per channel of a tile along x and per segment along y; blocks over channels, items and parts.
inline Grid scan_grid(const Sequences& size, std::int64_t parts, std::int64_t length,
                      int long_steps) noexcept {
  int segments = 16;
  if (!is_short(length)) {
    if (length > 16 * long_steps) segments = 32;
    if (length > 64 * long_steps) segments = 64;
  }
  const int most = kScanThreads / segments < kMostTile ? kScanThreads / segments : kMostTile;
  const int tile = power_of_two(size.width, most);
  return {dim3(static_cast<unsigned>(size.groups * ceil_div(size.width, tile)),
               static_cast<unsigned>(size.batch < kMostItems ? size.batch : kMostItems),
               static_cast<unsigned>(parts < kMostParts ? parts : kMostParts)),
          dim3(static_cast<unsigned>(tile), static_cast<unsigned>(segments))};
}

/// Shares out a workspace, each piece aligned to 256 bytes; without one it only counts.
class Room {
 public:
  explicit Room(void* data = nullptr) noexcept : data_(static_cast<char*>(data)) {}

  template <class T>
  T* take(std::int64_t count) noexcept {
    T* const piece = data_ == nullptr ? nullptr : reinterpret_cast<T*>(data_ + bytes_);
    bytes_ += ceil_div(count * static_cast<std::int64_t>(sizeof(T)), 256) * 256;
    return piece;
  }
  std::int64_t bytes() const noexcept { return bytes_; }

 private:
  char* data_;
  std::int64_t bytes_ = 0;
};

template <class Scan>
Parts<Scan> take_parts(const Sequences& size, Room& room) noexcept {
  Parts<Scan> parts;
  parts.count = size.parts();
  parts.steps = kPartSteps;
  if (parts.count == 1) return parts;
  const std::int64_t cells = size.batch * parts.count * size.channels();
  parts.maps = room.take<typename Scan::Map>(cells);
  parts.states = room.take<typename Scan::State>(cells);
  return parts;
}

/// Runs a scan: one launch, or three where time is cut into parts.
template <class Scan>
Status launch_scan(const Sequences& size, const Parts<Scan>& parts, const Scan& scan, Stream stream) {
  const Grid grid = scan_grid(size, parts.count, size.length, Scan::kLongSteps);
  if (is_short(size.length)) {
    return launch("scan_segments_kernel", scan_segments_kernel<Scan, kShortSteps>, grid.grid, grid.block, 0,
                  stream, size, parts, scan);
  }
  if (parts.count > 1) {
    using Over = PartsScan<Scan>;
    SCANTAPE_TRY(launch("scan_parts_kernel", scan_parts_kernel<Scan>, grid.grid, grid.block, 0, stream, size,
                        parts, scan));
    Sequences over = size;
    over.length = parts.count - 1;
    const Grid over_grid = scan_grid(over, 1, kShortLength, kShortSteps);
    Parts<Over> whole;
    SCANTAPE_TRY(launch("scan_segments_kernel", scan_segments_kernel<Over, kShortSteps>, over_grid.grid,
                        over_grid.block, 0, stream, over, whole, Over{scan, parts, size.channels()}));
  }
  return launch("scan_segments_kernel", scan_segments_kernel<Scan, Scan::kLongSteps>, grid.grid, grid.block,
                0, stream, size, parts, scan);
}

}  // namespace scantape::cuda
