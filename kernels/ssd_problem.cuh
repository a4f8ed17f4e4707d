#pragma once

#include "common/grid.cuh"
#include "common/launch.cuh"
#include "common/math.cuh"
#include "common/reduce.cuh"
#include "common/scan.cuh"
#include "common/shared.cuh"
#include "common/store.cuh"
#include "scantape/ssd.h"

// What all kernels of ssd see: the tensors by sequence, step and head, the size of a step and its decay, and how time is
// cut into chunks.
//
// Chunks begin at step 0, at each start, and every Q steps after one of these: a sequence has the chunks that it would
// have alone, and so the same bits. How many there are is known on the device only. Work is shared out by slots: slot c
// is the steps [cQ, (c + 1) Q), and who has slot c has the chunks that begin there. States are kept by slots too: of
// the chunks that begin in a slot only the first can have a state before it, all others begin at a start. (If two in one
// slot had one, each would end a chunk of Q steps without a start inside, and both would be at least Q apart.) So slot
// c has room for one state, and ceil(L / Q) states are enough whatever the starts.

namespace scantape::cuda::ssd {

/// A tensor [B, L, H, width] or [B, L, H] (width 1); G where H stands, for B and C. Data is null where it is absent.
template <class S>
struct Steps {
  S* data = nullptr;
  std::int64_t batch = 0, time = 0, head = 0;
  bool accumulate = false;

  __host__ __device__ bool present() const { return data != nullptr; }
  __device__ std::int64_t offset(std::int64_t item, std::int64_t t, std::int64_t h) const {
    return item * batch + t * time + h * head;
  }
  __device__ auto at(std::int64_t item, std::int64_t t, std::int64_t h, std::int64_t column = 0) const {
    return loaded_from(data + offset(item, t, h) + column);
  }
  __device__ auto at_or_zero(std::int64_t item, std::int64_t t, std::int64_t h,
                             std::int64_t column = 0) const {
    return present() ? at(item, t, h, column) : Compute<std::remove_const_t<S>>(0);
  }
  template <class T>
  __device__ void put(std::int64_t item, std::int64_t t, std::int64_t h, std::int64_t column, T value) const {
    S* to = data + offset(item, t, h) + column;
    *to = stored<S>(accumulate ? loaded_from(to) + value : value);
  }
};

/// Rows of such a tensor for one sequence and head, from one step on.
template <class S>
struct Track {
  const S* data = nullptr;
  std::int64_t stride = 0;

  __device__ auto at(std::int64_t t, std::int64_t column) const {
    return loaded_from(data + t * stride + column);
  }
};

template <class S>
__device__ Track<S> track(const Steps<const S>& steps, std::int64_t item, std::int64_t begin,
                          std::int64_t h) {
  return {steps.data + steps.offset(item, begin, h), steps.time};
}

/// Steps [begin, begin + steps) of a sequence.
struct Chunk {
  std::int64_t begin = 0, steps = 0;

  __device__ std::int64_t end() const { return begin + steps; }
};

/// Room for a state [P, N] per sequence, slot and head, from slot `first` on: slot 0 begins with the initial state.
template <class T>
struct StateStore {
  T* data = nullptr;
  std::int64_t slots = 0, first = 1, heads = 0, size = 0;  // slots that there is room for; size is P N

  std::int64_t count(std::int64_t batch) const noexcept { return batch * slots * heads * size; }
  __device__ T* at(std::int64_t item, std::int64_t slot, std::int64_t h) const {
    return data + ((item * slots + slot - first) * heads + h) * size;
  }
};

/// Everything that forward reads. S is what the sequences are stored in.
template <class S>
struct Problem {
  using T = Compute<S>;

  std::int64_t batch = 0, length = 0, chunk = 1, slots = 0;
  std::int64_t heads = 0, groups = 0, heads_per_group = 1;
  int width = 0, states = 0;  // P and N
  Steps<const S> x, B, C, z;
  Steps<const S> dt;
  const T *A = nullptr, *D = nullptr, *dt_bias = nullptr, *h0 = nullptr;
  bool D_per_channel = false, softplus = false;
  T dt_min = T(0), dt_max = T(0);
  const S* start = nullptr;
  const std::int64_t *left = nullptr, *last = nullptr;  // by chunk_table_kernel, where there are starts

  __host__ __device__ std::int64_t state_size() const { return static_cast<std::int64_t>(width) * states; }
  __host__ __device__ std::int64_t states_of_all() const { return batch * heads * state_size(); }

  __device__ T raw(std::int64_t item, std::int64_t t, std::int64_t h) const {
    const T value = dt.at(item, t, h);
    return dt_bias == nullptr ? value : value + dt_bias[h];
  }
  __device__ T unclamped(T raw_dt) const { return softplus ? cuda::softplus(raw_dt) : raw_dt; }
  /// Written so that NaN comes through.
  __device__ T clamped(T value) const { return value < dt_min ? dt_min : value > dt_max ? dt_max : value; }
  __device__ T step_size(std::int64_t item, std::int64_t t, std::int64_t h) const {
    return clamped(unclamped(raw(item, t, h)));
  }
  /// d raw of d dt.
  __device__ T raw_gradient(T raw_dt, T d_dt) const {
    const T value = unclamped(raw_dt);
    if (value < dt_min || value > dt_max) return T(0);
    return softplus ? d_dt * softplus_derivative(raw_dt) : d_dt;
  }
  __device__ T skip(std::int64_t h, int p) const {
    return D == nullptr ? T(0) : D[D_per_channel ? h * width + p : h];
  }

  __device__ bool starts_at(std::int64_t item, std::int64_t t) const {
    return start != nullptr && loaded_from(start + item * length + t) != T(0);
  }
  /// Where the first chunk begins at or after the slot's first step; it may be beyond the slot.
  __device__ std::int64_t first_begin(std::int64_t item, std::int64_t slot) const {
    const std::int64_t t = slot * chunk;
    if (left == nullptr || t == 0) return t;
    const std::int64_t* of_item = left + item * length;
    return of_item[t - 1] == 1 ? t : t + of_item[t];
  }
  __device__ Chunk chunk_at(std::int64_t item, std::int64_t begin) const {
    if (left != nullptr) return {begin, left[item * length + begin]};
    return {begin, length - begin < chunk ? length - begin : chunk};
  }
  /// The chunk in which the sequence ends.
  __device__ Chunk last_chunk(std::int64_t item) const {
    const std::int64_t begin = last == nullptr ? (slots - 1) * chunk : last[item];
    return {begin, length - begin};
  }
  /// The chunk that ends where `end` is.
  __device__ Chunk chunk_before(std::int64_t item, std::int64_t end) const {
    std::int64_t begin = end - 1;
    if (left == nullptr) {
      begin = begin / chunk * chunk;
    } else {
      const std::int64_t* of_item = left + item * length;
      while (begin > 0 && of_item[begin - 1] == of_item[begin] + 1) --begin;
    }
    return {begin, end - begin};
  }
  /// The slot's chunk that begins with a state, or none (0 steps).
  __device__ Chunk carried_chunk(std::int64_t item, std::int64_t slot) const {
    const std::int64_t begin = first_begin(item, slot), t = slot * chunk;
    if (begin >= length || begin - t >= chunk || starts_at(item, begin)) return {};
    return chunk_at(item, begin);
  }
  /// The state before a chunk, null where that is nothing. The same for all threads.
  __device__ const T* state_before(const StateStore<T>& states_kept, std::int64_t item, const Chunk& of,
                                   std::int64_t h) const {
    if (starts_at(item, of.begin)) return nullptr;
    if (of.begin == 0) return h0 == nullptr ? nullptr : h0 + (item * heads + h) * state_size();
    return states_kept.at(item, of.begin / chunk, h);
  }
  /// The cotangent of the state after a chunk: that before the next one, or of the final state.
  __device__ const T* cotangent_after(const StateStore<T>& cotangents, const T* d_final, std::int64_t item,
                                      const Chunk& of, std::int64_t h) const {
    if (of.end() == length) return d_final == nullptr ? nullptr : d_final + (item * heads + h) * state_size();
    if (starts_at(item, of.end())) return nullptr;
    return cotangents.at(item, of.end() / chunk, h);
  }
};

/// Calls body(chunk) for the chunks that begin in a slot. The same for all threads of a block.
template <class S, class Body>
__device__ void for_each_chunk(const Problem<S>& problem, std::int64_t item, std::int64_t slot, Body body) {
  std::int64_t begin = problem.first_begin(item, slot);
  while (begin < problem.length && begin - slot * problem.chunk < problem.chunk) {
    const Chunk chunk = problem.chunk_at(item, begin);
    body(chunk);
    begin = chunk.end();
  }
}

/// Calls body(index) for the blocks' share of [0, count).
template <class Body>
__device__ void for_each_of(std::int64_t count, Body body) {
  for (std::int64_t index = blockIdx.x; index < count; index += gridDim.x) body(index);
}

inline dim3 grid_of(std::int64_t count) noexcept {
  return grid_for(count, 1, kMostBlocksX);
}

/// Takes the last of an index's digits, in a number system whose digit here has `size` values.
__device__ inline std::int64_t take_digit(std::int64_t* index, std::int64_t size) {
  const std::int64_t digit = *index % size;
  *index /= size;
  return digit;
}

/// h after a step of log decay l. A decay near 1 would be off by half a unit to the same side at every step: what is
/// added there is (a - 1) h, exact to rounding.
template <class T>
class Carry {
 public:
  __device__ explicit Carry(T log_decay)
      : slow_(log_decay > T(-0.6931471805599453)), factor_(slow_ ? expm1_of(log_decay) : exp_of(log_decay)) {}

  __device__ T operator()(T h, T added) const {
    const T moved = fma_of(factor_, h, added);
    return slow_ ? h + moved : moved;
  }

 private:
  bool slow_;
  T factor_;
};

/// For every step the steps that are left of its chunk, itself included, and where the last chunk begins. A block per
/// sequence; a thread walks a share of time and asks the others what lies before and after.
template <class S>
static __global__ void __launch_bounds__(kBlockThreads)
    ssd_chunk_table_kernel(const S* start, std::int64_t batch, std::int64_t length, std::int64_t chunk,
                           std::int64_t* left, std::int64_t* last) {
  struct Storage {
    std::int64_t first[kBlockThreads], last[kBlockThreads];
  };
  auto& storage = shared_storage<Storage>();
  const int self = static_cast<int>(threadIdx.x);
  const std::int64_t share = (length + kBlockThreads - 1) / kBlockThreads;
  const std::int64_t begin = self * share < length ? self * share : length;
  const std::int64_t end = begin + share < length ? begin + share : length;

  for (std::int64_t item = blockIdx.x; item < batch; item += gridDim.x) {
    const S* flags = start + item * length;
    const auto starts_at = [&](std::int64_t t) { return loaded_from(flags + t) != Compute<S>(0); };
    std::int64_t first_start = -1, last_start = -1;
    for (std::int64_t t = begin; t < end; ++t) {
      if (!starts_at(t)) continue;
      if (first_start < 0) first_start = t;
      last_start = t;
    }
    storage.first[self] = first_start;
    storage.last[self] = last_start;
    __syncthreads();
    std::int64_t anchor = 0,
                 after = length;  // where the sequence at `begin` began; the first start beyond `end`
    for (int i = self - 1; i >= 0 && anchor == 0; --i) anchor = storage.last[i] > 0 ? storage.last[i] : 0;
    for (int i = self + 1; i < kBlockThreads && after == length; ++i) {
      if (storage.first[i] >= 0) after = storage.first[i];
    }
    std::int64_t next = first_start >= 0 ? first_start : after;
    std::int64_t done = (begin - anchor) % chunk;  // steps of t's chunk before it
    for (std::int64_t t = begin; t < end; ++t) {
      if (t == next) {
        done = 0;
        do ++next;
        while (next < end && !starts_at(next));
        if (next == end) next = after;
      }
      const std::int64_t to_start = next - t, to_length = length - t;
      std::int64_t steps = chunk - done;
      if (steps > to_start) steps = to_start;
      if (steps > to_length) steps = to_length;
      left[item * length + t] = steps;
      if (t == length - 1) last[item] = t - done;
      done = done + 1 == chunk ? 0 : done + 1;
    }
    __syncthreads();
  }
}

/// dy = d_out silu(z), [B, L, H, P], where there is a gate or 16 bits are stored: formed once, read by all.
template <class S>
static __global__ void __launch_bounds__(kBlockThreads)
    ssd_bwd_cotangent_kernel(Problem<S> problem, Steps<const S> d_out, Compute<S>* dy) {
  using T = Compute<S>;
  const std::int64_t count = problem.batch * problem.length * problem.heads * problem.width;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kBlockThreads;
  for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x; at < count;
       at += step) {
    std::int64_t index = at;
    const std::int64_t p = take_digit(&index, problem.width), h = take_digit(&index, problem.heads);
    const std::int64_t t = take_digit(&index, problem.length);
    T value = d_out.at_or_zero(index, t, h, p);
    if (problem.z.present() && d_out.present()) value *= silu(problem.z.at(index, t, h, p));
    dy[at] = value;
  }
}

/// The gradients of B or C from what each part of a group's heads leaves, [parts, B, L, G, N], added in order.
template <class S>
static __global__ void __launch_bounds__(kBlockThreads)
    ssd_bwd_join_parts_kernel(Problem<S> problem, std::int64_t parts, const Compute<S>* partial,
                              Steps<S> out) {
  using T = Compute<S>;
  const std::int64_t count = problem.batch * problem.length * problem.groups * problem.states;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kBlockThreads;
  for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x; at < count;
       at += step) {
    T sum = partial[at];
    for (std::int64_t part = 1; part < parts; ++part) sum += partial[part * count + at];
    std::int64_t index = at;
    const std::int64_t n = take_digit(&index, problem.states), g = take_digit(&index, problem.groups);
    const std::int64_t t = take_digit(&index, problem.length);
    out.put(index, t, g, n, sum);
  }
}

/// d_D [H] from rows of [H, P]: a block per head.
template <class T>
static __global__ void __launch_bounds__(kBlockThreads)
    ssd_bwd_join_heads_kernel(const T* partial, std::int64_t rows, std::int64_t heads, std::int64_t width,
                              Target<T> out) {
  auto& cells = shared_storage<BlockSum<T, kBlockThreads>>();
  for (std::int64_t h = blockIdx.x; h < heads; h += gridDim.x) {
    T sum = T(0);
    for (std::int64_t at = threadIdx.x; at < rows * width; at += kBlockThreads)
      sum += partial[at / width * (heads * width) + h * width + at % width];
    sum = block_sum(sum, cells);
    if (threadIdx.x == 0) out.put(0, h, sum);
  }
}

}  // namespace scantape::cuda::ssd
