// Rows of a table by their indices:
//
//   y[place] = weight[id of place]       d_weight[v] = sum over the places whose id is v of d_y[place]
//
// Forward copies packs, a row of y per thread row; it saves nothing. An id outside the table reads nothing and writes NaN:
// the loss will show it.
//
// Backward wants, for each id, its places in one order, without atomics. It sorts the pairs (id, place), each one number
// of 64 bits and none twice, so that there is one sorted order whatever sorts: blocks sort runs of 256 by counting the
// smaller ones, then each merge finds a pair's place in the other run by bisection. ids are few beside the numbers that
// are summed: 8 bytes and a few steps a pass against D numbers a row.
//
// Then a warp takes up to kPart places of one id and sums their rows of d_y, lanes over columns. An id of no more places
// is written at once; parts of others go to the workspace, and one warp an id adds them in order. Ids outside the table
// sort behind all others and are left out. Overwriting writes zeros first: most rows of a large table have no place.
//
// Where the parts lie: parts of an id begin kPart apart, from its first place in sorted order. Of kPart places in sorted
// order at most one begins an id that has several parts, and at most one begins a later part of one: a slot for each.
//
// Bytes: forward reads and writes n D; backward reads n D and writes V D (overwriting: rows with an id twice), and sorts
// 16 n bytes in and out a pass, log2(n / 256) + 1 passes.

#include "scantape/embedding.h"

#include <limits>

#include "common/dispatch.cuh"
#include "common/grid.cuh"
#include "common/launch.cuh"
#include "common/shared.cuh"
#include "common/store.cuh"

namespace scantape::cuda {
namespace {

/// An id above, its place below.
using Pair = std::uint64_t;

constexpr int kRun = kBlockThreads;  // pairs that a block sorts
constexpr std::int64_t kPart = 64;   // places that a warp sums
constexpr int kWarpsOfBlock = kBlockThreads / kWarpSize;

__device__ std::int64_t id_of(Pair pair) {
  return static_cast<std::int64_t>(pair >> 32);
}
__device__ std::int64_t place_of(Pair pair) {
  return static_cast<std::int64_t>(pair & 0xffffffffu);
}
/// The least pair of an id.
__device__ Pair first_pair(std::int64_t id) {
  return static_cast<Pair>(id) << 32;
}

/// The first of pairs[begin..end) that is not below `wanted`, or end.
__device__ std::int64_t lower_bound(const Pair* pairs, std::int64_t begin, std::int64_t end, Pair wanted) {
  while (begin < end) {
    const std::int64_t middle = begin + (end - begin) / 2;
    if (pairs[middle] < wanted) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

template <class T>
__global__ void __launch_bounds__(kBlockThreads, 1)
    embedding_fwd_rows_kernel(Extent extent, std::int64_t table, const std::int32_t* ids, Source<T> weight,
                              Target<T> y) {
  for_each_pack<T>(extent, [&](std::int64_t row, std::int64_t column, std::int64_t remaining) {
    const std::int64_t id = ids[row];
    Pack<T> pack;
    if (id >= 0 && id < table) {
      pack = weight.load(id, column, remaining);
    } else {
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) pack[i] = std::numeric_limits<Compute<T>>::quiet_NaN();
    }
    y.store(row, column, remaining, pack);
  });
}

struct RunCells {
  Pair pair[kRun];
};

__global__ void __launch_bounds__(kBlockThreads)
    embedding_bwd_sort_kernel(std::int64_t count, std::int64_t table, const std::int32_t* ids, Pair* sorted) {
  auto& cells = shared_storage<RunCells>();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kRun;
  for (std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kRun; begin < count; begin += step) {
    const int here = count - begin < kRun ? static_cast<int>(count - begin) : kRun;
    const int self = static_cast<int>(threadIdx.x);
    Pair own = 0;
    if (self < here) {
      const std::int64_t id = ids[begin + self];
      own = first_pair(id >= 0 && id < table ? id : table) + static_cast<Pair>(begin + self);
      cells.pair[self] = own;
    }
    __syncthreads();
    if (self < here) {
      int rank = 0;
      for (int i = 0; i < here; ++i) rank += cells.pair[i] < own ? 1 : 0;
      sorted[begin + rank] = own;
    }
    __syncthreads();
  }
}

/// Runs of `run` pairs become runs of twice as many.
__global__ void __launch_bounds__(kBlockThreads)
    embedding_bwd_merge_kernel(std::int64_t count, std::int64_t run, const Pair* from, Pair* to) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kBlockThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x; i < count;
       i += step) {
    const std::int64_t begin = i / (2 * run) * (2 * run);
    const std::int64_t middle = begin + run < count ? begin + run : count;
    const std::int64_t end = middle + run < count ? middle + run : count;
    const Pair own = from[i];
    const std::int64_t others = i < middle ? lower_bound(from, middle, end, own) - middle
                                           : lower_bound(from, begin, middle, own) - begin;
    to[(i < middle ? i : begin + (i - middle)) + others] = own;
  }
}

template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    embedding_bwd_zero_kernel(Extent extent, Target<T> d_weight) {
  for_each_pack<T>(extent, [&](std::int64_t row, std::int64_t column, std::int64_t remaining) {
    d_weight.store(row, column, remaining, Pack<T>{});
  });
}

/// The sorted pairs, and where sums of parts go.
template <class T>
struct Sorted {
  const Pair* pairs;
  std::int64_t count, table, columns;
  T* partial;

  /// The sum that begins at `slot`, the first of its id or a later one.
  __device__ T* part(std::int64_t slot, bool first) const {
    return partial + (2 * (slot / kPart) + (first ? 1 : 0)) * columns;
  }
};

/// A pack of d_y's columns into a row of d_weight, whose type is wider beside 16 bits.
template <class T>
__device__ void store_sum(const Target<Compute<T>>& d_weight, std::int64_t row, std::int64_t column,
                          std::int64_t remaining, const Pack<T>& sum) {
  using Wide = Compute<T>;
#pragma unroll
  for (int begin = 0; begin < kPack<T>; begin += kPack<Wide>) {
    Pack<Wide> part;
#pragma unroll
    for (int i = 0; i < kPack<Wide>; ++i) part[i] = sum[begin + i];
    if (begin < remaining) d_weight.store(row, column + begin, remaining - begin, part);
  }
}

template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    embedding_bwd_sum_kernel(Sorted<Compute<T>> sorted, Source<T> d_y, Target<Compute<T>> d_weight) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kWarpsOfBlock;
  for (std::int64_t slot = static_cast<std::int64_t>(blockIdx.x) * kWarpsOfBlock + threadIdx.y;
       slot < sorted.count; slot += step) {
    const std::int64_t id = id_of(sorted.pairs[slot]);
    if (id >= sorted.table) continue;
    const std::int64_t before = slot - lower_bound(sorted.pairs, 0, slot, first_pair(id));
    if (before % kPart != 0) continue;
    const std::int64_t ahead = slot + kPart < sorted.count ? slot + kPart : sorted.count;
    const std::int64_t end = lower_bound(sorted.pairs, slot, ahead, first_pair(id + 1));
    const bool ends = end == sorted.count || id_of(sorted.pairs[end]) != id;
    for (std::int64_t column = threadIdx.x * kPack<T>; column < sorted.columns;
         column += kWarpSize * kPack<T>) {
      const std::int64_t remaining = sorted.columns - column;
      Pack<T> sum = {};
      for (std::int64_t at = slot; at < end; ++at) {
        const Pack<T> row = d_y.load(place_of(sorted.pairs[at]), column, remaining);
#pragma unroll
        for (int i = 0; i < kPack<T>; ++i) sum[i] += row[i];
      }
      if (before == 0 && ends) {
        store_sum<T>(d_weight, id, column, remaining, sum);
      } else {
        auto* const part = sorted.part(slot, before == 0) + column;
#pragma unroll
        for (int i = 0; i < kPack<T>; ++i) {
          if (i < remaining) part[i] = sum[i];
        }
      }
    }
  }
}

/// The ids of more than kPart places: their parts, in order.
template <class T>
__global__ void __launch_bounds__(kBlockThreads)
    embedding_bwd_join_kernel(Sorted<T> sorted, Target<T> d_weight) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kWarpsOfBlock;
  const auto is_of = [&](std::int64_t slot, std::int64_t id) {
    return slot >= 0 && slot < sorted.count && id_of(sorted.pairs[slot]) == id;
  };
  for (std::int64_t slot = static_cast<std::int64_t>(blockIdx.x) * kWarpsOfBlock + threadIdx.y;
       slot < sorted.count; slot += step) {
    const std::int64_t id = id_of(sorted.pairs[slot]);
    if (id >= sorted.table || is_of(slot - 1, id) || !is_of(slot + kPart, id)) continue;
    for (std::int64_t column = threadIdx.x; column < sorted.columns; column += kWarpSize) {
      T sum = sorted.part(slot, true)[column];
      for (std::int64_t next = slot + kPart; is_of(next, id); next += kPart)
        sum += sorted.part(next, false)[column];
      d_weight.put(id, column, sum);
    }
  }
}

/// Of a table's rows those that an i32 can name: one more fits beside them into a pair.
constexpr std::int64_t rows_named(std::int64_t rows) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  return rows < kMost ? rows : kMost;
}

/// The workspace: pairs, pairs again for the merges, sums of parts.
struct Room {
  std::int64_t pairs, parts;  // bytes of each

  explicit Room(const EmbeddingBackward& args) {
    const std::int64_t count = args.ids.elements();
    pairs = ceil_div(count * static_cast<std::int64_t>(sizeof(Pair)), 256) * 256;
    parts = 2 * ceil_div(count, kPart) * args.d_y.shape.back() * size_of(at_least_f32(args.d_y.dtype));
  }
  std::int64_t bytes() const { return 2 * pairs + parts; }
};

/// Sorts the pairs of all ids; `pairs` becomes where they are.
Status sort_pairs(const EmbeddingBackward& args, const Room& room, Stream stream, const Pair** pairs) {
  const std::int64_t count = args.ids.elements();
  char* const memory = static_cast<char*>(args.workspace.data);
  Pair* from = reinterpret_cast<Pair*>(memory);
  Pair* to = reinterpret_cast<Pair*>(memory + room.pairs);
  const dim3 grid = grid_for(count, kRun, kMostBlocksX);
  SCANTAPE_TRY(launch("embedding_bwd_sort_kernel", embedding_bwd_sort_kernel, grid, dim3(kBlockThreads), 0,
                      stream, count, rows_named(args.d_weight.view.shape[0]), args.ids.as<std::int32_t>(),
                      from));
  for (std::int64_t run = kRun; run < count; run *= 2) {
    SCANTAPE_TRY(launch("embedding_bwd_merge_kernel", embedding_bwd_merge_kernel, grid, dim3(kBlockThreads),
                        0, stream, count, run, static_cast<const Pair*>(from), to));
    Pair* const merged = to;
    to = from;
    from = merged;
  }
  *pairs = from;
  return Status();
}

template <class T>
Status sum_by_id(const EmbeddingBackward& args, Stream stream) {
  using Wide = Compute<T>;
  const Extent extent{args.d_weight.view.shape[0], args.d_weight.view.shape[1]};
  if (extent.rows == 0 || extent.columns == 0) return Status();
  const Target<Wide> zeros = target<Wide>(args.d_weight);
  if (!zeros.accumulate) {
    const Grid grid = element_grid<Wide>(extent);
    SCANTAPE_TRY(launch("embedding_bwd_zero_kernel", embedding_bwd_zero_kernel<Wide>, grid.grid, grid.block,
                        0, stream, extent, zeros));
  }
  if (args.ids.elements() == 0) return Status();
  const Room room(args);
  Sorted<Wide> sorted{nullptr, args.ids.elements(), rows_named(extent.rows), extent.columns,
                      reinterpret_cast<Wide*>(static_cast<char*>(args.workspace.data) + 2 * room.pairs)};
  SCANTAPE_TRY(sort_pairs(args, room, stream, &sorted.pairs));
  const dim3 grid = grid_for(sorted.count, kWarpsOfBlock, kMostBlocksX), block(kWarpSize, kWarpsOfBlock);
  SCANTAPE_TRY(launch("embedding_bwd_sum_kernel", embedding_bwd_sum_kernel<T>, grid, block, 0, stream, sorted,
                      source<T>(args.d_y), target<Wide>(args.d_weight)));
  if (sorted.count <= kPart) return Status();
  return launch("embedding_bwd_join_kernel", embedding_bwd_join_kernel<Wide>, grid, block, 0, stream, sorted,
                target<Wide>(args.d_weight));
}

constexpr const char* kMissing = "embedding: no CUDA kernel for this dtype";

}  // namespace

Status embedding_forward(const EmbeddingForward& args, Stream stream) noexcept {
  return dispatch_storage(args.weight.dtype, kMissing, [&](auto zero) {
    using T = decltype(zero);
    const Extent extent{args.ids.elements(), args.weight.shape[1]};
    if (extent.rows == 0 || extent.columns == 0) return Status();
    const Grid grid = element_grid<T>(extent);
    return launch("embedding_fwd_rows_kernel", embedding_fwd_rows_kernel<T>, grid.grid, grid.block, 0, stream,
                  extent, args.weight.shape[0], args.ids.as<std::int32_t>(), source<T>(args.weight),
                  target<T>(args.y));
  });
}

Status embedding_backward(const EmbeddingBackward& args, Stream stream) noexcept {
  if (!args.d_weight.wanted()) return Status();
  return dispatch_storage(args.d_y.dtype, kMissing,
                          [&](auto zero) { return sum_by_id<decltype(zero)>(args, stream); });
}

std::int64_t embedding_forward_workspace(const EmbeddingForward&) noexcept {
  return 0;
}

std::int64_t embedding_backward_workspace(const EmbeddingBackward& args) noexcept {
  return args.d_weight.wanted() ? Room(args).bytes() : 0;
}

}  // namespace scantape::cuda
