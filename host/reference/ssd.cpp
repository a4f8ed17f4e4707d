#include "ssd.h"

#include <omp.h>

#include "in_f32.h"

namespace scantape::reference {

namespace {

/// One row of the batch and one head, step by step.
template <class T>
class Head {
 public:
  Head(const SsdForward& args, std::int64_t item, std::int64_t head) noexcept
      : size_(args),
        item_(item),
        head_(head),
        group_(head / size_.heads_of_group()),
        A_(args.A.as<T>()[head]),
        x_(args.x, 2),
        B_(args.B, 2),
        C_(args.C, 2),
        z_(args.z, 2),
        steps_(args),
        skip_(args) {}

  std::int64_t row(std::int64_t t) const noexcept { return item_ * size_.length + t; }
  const T* x(std::int64_t t) const noexcept { return x_[row(t)] + head_ * size_.width; }
  const T* z(std::int64_t t) const noexcept { return z_ ? z_[row(t)] + head_ * size_.width : nullptr; }
  const T* B(std::int64_t t) const noexcept { return B_[row(t)] + group_ * size_.states; }
  const T* C(std::int64_t t) const noexcept { return C_[row(t)] + group_ * size_.states; }
  T dt(std::int64_t t) const noexcept { return steps_.dt(row(t), head_); }
  T slope(std::int64_t t) const noexcept { return steps_.slope(row(t), head_); }
  T A() const noexcept { return A_; }
  T D(std::int64_t p) const noexcept { return skip_.at(head_, p); }

  /// The state after step t from the one before, which may be the same memory; null: there is none.
  void advance(std::int64_t t, const T* before, T* after) const noexcept {
    const T dt = this->dt(t);
    const SsdDecay<T> decay(dt * A_);
    const T *x = this->x(t), *B = this->B(t);
    for (std::int64_t p = 0; p < size_.width; ++p) {
      const T moved = dt * x[p];
      T* to = after + p * size_.states;
      if (before == nullptr) {
        for (std::int64_t n = 0; n < size_.states; ++n) to[n] = moved * B[n];
      } else {
        const T* from = before + p * size_.states;
        for (std::int64_t n = 0; n < size_.states; ++n) to[n] = decay.step(from[n], moved * B[n]);
      }
    }
  }
  /// y_t of channel p before the gate.
  double y(std::int64_t t, const T* state, std::int64_t p) const noexcept {
    const T *C = this->C(t), *h = state + p * size_.states;
    return sum(size_.states, [&](std::int64_t n) { return double(h[n]) * C[n]; }) + double(D(p)) * x(t)[p];
  }

 private:
  const SsdSizes size_;
  std::int64_t item_, head_, group_;
  T A_;
  RowsOf<const T> x_, B_, C_, z_;
  SsdTimeSteps<T> steps_;
  SsdSkip<T> skip_;
};

int threads_for(const SsdSizes& size) noexcept {
  return worth_threads(size.batch * size.length * size.heads * size.state()) ? omp_get_max_threads() : 1;
}

template <class T>
void forward_head(const SsdForward& args, std::int64_t item, std::int64_t head_index, T* state) noexcept {
  const SsdSizes size(args);
  const Head<T> head(args, item, head_index);
  T* const kept = args.states.present ? args.states.as<T>() : nullptr;
  const SsdStates<T> states(size, args, kept);
  const Starts<T> start(args.start);
  const RowsOf<T> out(args.out, 2);
  const std::int64_t interval = ssd_interval(size.length, args.chunk_length);
  if (kept != nullptr) states.clear(item, head_index);

  const T* before = states.before({0, 1, start.at(item * size.length), -1}, item, head_index);
  for (std::int64_t t = 0, begin = 0; t < size.length; ++t) {
    if (start.at(head.row(t))) {
      before = nullptr;
      begin = t;
    } else if (t - begin == interval) {
      begin = t;
      if (kept != nullptr) std::copy_n(before, size.state(), states.kept(item, head_index, t / interval - 1));
    }
    head.advance(t, before, state);
    before = state;
    T* const to = out[head.row(t)] + head_index * size.width;
    const T* const z = head.z(t);
    for (std::int64_t p = 0; p < size.width; ++p) {
      const double y = head.y(t, state, p);
      to[p] = static_cast<T>(z != nullptr ? y * double(silu(z[p])) : y);
    }
  }
  if (args.final_state.present)
    std::copy_n(state, size.state(),
                args.final_state.as<T>() + (item * size.heads + head_index) * size.state());
}

template <class T>
void forward(const SsdForward& args) {
  const SsdSizes size(args);
  const std::int64_t rows = size.batch * size.heads;
  const int threads = threads_for(size);
  std::vector<T> scratch(static_cast<std::size_t>(threads * size.state()));
#pragma omp parallel for schedule(static) num_threads(threads)
  for (std::int64_t row = 0; row < rows; ++row)
    forward_head(args, row / size.heads, row % size.heads,
                 scratch.data() + omp_get_thread_num() * size.state());
}

/// What is summed over time, of each row of the batch and head: added over the batch in order at the end.
struct Sums {
  std::vector<double> A, D, dt_bias;

  explicit Sums(const SsdSizes& size)
      : A(static_cast<std::size_t>(size.batch * size.heads)),
        D(A.size() * static_cast<std::size_t>(size.width)),
        dt_bias(A.size()) {}
};

/// The heads of one group run backwards together, chunk after chunk: d_B and d_C are sums over them.
template <class T>
class BackwardGroup {
 public:
  /// Scratch: `states` [interval + 1, P, N], `carries` [heads of the group, P, N], `d_B`, `d_C` [interval, N].
  struct Scratch {
    T *states, *carries;
    double *d_B, *d_C;
  };

  BackwardGroup(const SsdBackward& args, std::int64_t item, std::int64_t group, const Scratch& scratch,
                Sums& sums) noexcept
      : args_(args),
        size_(args),
        item_(item),
        group_(group),
        scratch_(scratch),
        sums_(sums),
        kept_(size_, args, const_cast<T*>(args.states.as<T>())),
        d_out_(args.d_out, 2),
        d_x_(args.d_x, 2),
        d_dt_(args.d_dt),
        d_B_(args.d_B, 2),
        d_C_(args.d_C, 2),
        d_z_(args.d_z, 2) {}

  void run(const std::vector<SsdChunk>& chunks) noexcept {
    const std::int64_t heads = size_.heads_of_group(), first = item_ * size_.heads + group_ * heads;
    if (args_.d_final_state.present)
      std::copy_n(args_.d_final_state.as<T>() + first * size_.state(), heads * size_.state(),
                  scratch_.carries);
    else
      std::fill_n(scratch_.carries, heads * size_.state(), T(0));
    for (auto chunk = chunks.rbegin(); chunk != chunks.rend(); ++chunk) {
      std::fill_n(scratch_.d_B, chunk->steps() * size_.states, 0.0);
      std::fill_n(scratch_.d_C, chunk->steps() * size_.states, 0.0);
      for (std::int64_t head = 0; head < heads; ++head)
        run_chunk(*chunk, group_ * heads + head, scratch_.carries + head * size_.state());
      for (std::int64_t t = chunk->begin; t < chunk->end; ++t) {
        const std::int64_t row = item_ * size_.length + t, from = group_ * size_.states;
        const double *d_B = scratch_.d_B + (t - chunk->begin) * size_.states,
                     *d_C = scratch_.d_C + (t - chunk->begin) * size_.states;
        d_B_.write(row, from, from + size_.states,
                   [&](std::int64_t n) { return static_cast<T>(d_B[n - from]); });
        d_C_.write(row, from, from + size_.states,
                   [&](std::int64_t n) { return static_cast<T>(d_C[n - from]); });
      }
    }
    const Target<T> d_initial(args_.d_initial_state, 4);
    const std::int64_t begin = first * size_.state();
    d_initial.write(0, begin, begin + heads * size_.state(),
                    [&](std::int64_t i) { return scratch_.carries[i - begin]; });
  }

 private:
  void run_chunk(const SsdChunk& chunk, std::int64_t head_index, T* carry) noexcept {
    const Head<T> head(args_, item_, head_index);
    const T* const before = kept_.before(chunk, item_, head_index);
    if (before != nullptr) std::copy_n(before, size_.state(), scratch_.states);
    for (std::int64_t t = chunk.begin; t < chunk.end; ++t) {
      T* const state = scratch_.states + (t - chunk.begin) * size_.state();
      head.advance(t, t > chunk.begin || before != nullptr ? state : nullptr, state + size_.state());
    }
    for (std::int64_t t = chunk.end - 1; t >= chunk.begin; --t) {
      const T* const state = scratch_.states + (t - chunk.begin) * size_.state();
      run_step(head, head_index, t, chunk, t > chunk.begin || before != nullptr ? state : nullptr,
               state + size_.state(), carry);
    }
  }

  /// `g` comes in as what the steps after give to the state after step t, and leaves as what goes to the one before.
  void run_step(const Head<T>& head, std::int64_t head_index, std::int64_t t, const SsdChunk& chunk,
                const T* before, const T* after, T* g) noexcept {
    const std::int64_t row = head.row(t), channel = head_index * size_.width, states = size_.states;
    const T *x = head.x(t), *z = head.z(t), *B = head.B(t), *C = head.C(t);
    const T dt = head.dt(t);
    const SsdDecay<T> decay(dt * head.A());
    double *d_B = scratch_.d_B + (t - chunk.begin) * states, *d_C = scratch_.d_C + (t - chunk.begin) * states;
    double through_x = 0, through_decay = 0;
    for (std::int64_t p = 0; p < size_.width; ++p) {
      const T d_out = d_out_ ? d_out_[row][channel + p] : T(0);
      const T d_y = z != nullptr ? d_out * silu(z[p]) : d_out;
      if (z != nullptr && d_z_)
        d_z_.write_at(row, channel + p,
                      static_cast<T>(double(d_out) * head.y(t, after, p) * double(silu_derivative(z[p]))));
      T* const G = g + p * states;
      const T* const h = after + p * states;
      const double moved = double(dt) * x[p];
      for (std::int64_t n = 0; n < states; ++n) {
        G[n] = std::fma(d_y, C[n], G[n]);
        d_C[n] += double(d_y) * h[n];
        d_B[n] += moved * G[n];
      }
      const double d_moved = sum(states, [&](std::int64_t n) { return double(G[n]) * B[n]; });
      d_x_.write_at(row, channel + p, static_cast<T>(double(dt) * d_moved + double(head.D(p)) * d_y));
      through_x += x[p] * d_moved;
      sums_.D[static_cast<std::size_t>((item_ * size_.heads + head_index) * size_.width + p)] +=
          double(d_y) * x[p];
      if (before != nullptr) {
        const T* const h_before = before + p * states;
        through_decay += sum(states, [&](std::int64_t n) { return double(G[n]) * decay.times(h_before[n]); });
      }
      for (std::int64_t n = 0; n < states; ++n)
        G[n] = chunk.start && t == chunk.begin ? T(0) : decay.times(G[n]);
    }
    const double d_raw = (through_x + double(head.A()) * through_decay) * head.slope(t);
    d_dt_.write_at(row, head_index, static_cast<T>(d_raw));
    const auto place = static_cast<std::size_t>(item_ * size_.heads + head_index);
    sums_.A[place] += double(dt) * through_decay;
    sums_.dt_bias[place] += d_raw;
  }

  const SsdBackward& args_;
  const SsdSizes size_;
  std::int64_t item_, group_;
  Scratch scratch_;
  Sums& sums_;
  SsdStates<T> kept_;
  RowsOf<const T> d_out_;
  Target<T> d_x_, d_dt_, d_B_, d_C_, d_z_;
};

template <class T>
void write_sums(const SsdBackward& args, const SsdSizes& size, const Sums& sums) noexcept {
  const Target<T> d_A(args.d_A), d_D(args.d_D, args.D.rank() == 2 ? 2 : 1), d_dt_bias(args.d_dt_bias);
  const auto total = [&](const std::vector<double>& values, std::int64_t width, std::int64_t i) {
    double result = 0;
    for (std::int64_t item = 0; item < size.batch; ++item)
      result += values[static_cast<std::size_t>(item * size.heads * width + i)];
    return result;
  };
  for (std::int64_t head = 0; head < size.heads; ++head) {
    d_A.write_one(head, static_cast<T>(total(sums.A, 1, head)));
    d_dt_bias.write_one(head, static_cast<T>(total(sums.dt_bias, 1, head)));
    double of_head = 0;
    for (std::int64_t p = 0; p < size.width; ++p) {
      const std::int64_t channel = head * size.width + p;
      const double value = total(sums.D, size.width, channel);
      of_head += value;
      if (args.D.rank() == 2) d_D.write_one(channel, static_cast<T>(value));
    }
    if (args.D.rank() != 2) d_D.write_one(head, static_cast<T>(of_head));
  }
}

template <class T>
void backward(const SsdBackward& args) {
  const SsdSizes size(args);
  const std::int64_t interval = std::min(ssd_interval(size.length, args.chunk_length), size.length);
  const std::int64_t tasks = size.batch * size.groups;
  const std::int64_t carries = size.heads_of_group() * size.state(), states = (interval + 1) * size.state();
  std::vector<std::vector<SsdChunk>> chunks;
  for (std::int64_t item = 0; item < size.batch; ++item) chunks.push_back(ssd_chunks<T>(args, item));
  const int threads = threads_for(size);
  std::vector<T> scratch(static_cast<std::size_t>(threads * (carries + states)));
  std::vector<double> by_state(static_cast<std::size_t>(threads * 2 * interval * size.states));
  Sums sums(size);
#pragma omp parallel for schedule(static) num_threads(threads)
  for (std::int64_t task = 0; task < tasks; ++task) {
    T* const mine = scratch.data() + omp_get_thread_num() * (carries + states);
    double* const d_B = by_state.data() + omp_get_thread_num() * 2 * interval * size.states;
    BackwardGroup<T> group(args, task / size.groups, task % size.groups,
                           {mine + carries, mine, d_B, d_B + interval * size.states}, sums);
    group.run(chunks[static_cast<std::size_t>(task / size.groups)]);
  }
  write_sums<T>(args, size, sums);
}

}  // namespace

Status ssd_forward(const SsdForward& args) noexcept {
  if (is_16_bit(args.x.dtype)) return in_f32("ssd", args, ssd_forward);
  return run("ssd", [&] { dispatch(args.x.dtype, [&](auto zero) { forward<decltype(zero)>(args); }); });
}

Status ssd_backward(const SsdBackward& args) noexcept {
  if (is_16_bit(args.x.dtype)) return in_f32("ssd_backward", args, ssd_backward);
  return run("ssd_backward",
             [&] { dispatch(args.x.dtype, [&](auto zero) { backward<decltype(zero)>(args); }); });
}

}  // namespace scantape::reference
