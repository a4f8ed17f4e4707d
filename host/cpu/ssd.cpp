#include "cpu/ssd.h"

#include <omp.h>

#include <memory>

#include "cpu/exponential.h"
#include "in_f32.h"
#include "reference/ssd.h"
#include "scantape/counters.h"

// The chunked form. Inside of a chunk of n steps everything is a product of small matrices: with T_ij the decay from
// step j to step i, in rows and columns 0..n whose 0 is the state that comes in,
//
//   M_ij = (C_i . B_j) T_ij (j <= i),   y_i = sum_j M_ij X_j + T_i0 H C_i + D x_i,   X = dt x
//   H'   = T_n0 H + sum_j T_nj X_j B_j^T
//
// and backwards, with H' now the cotangent dH' of the state that goes out, V_ij = dy_i . X_j and R = V T,
//
//   dX_j = sum_i M_ij dy_i + T_nj dH' B_j           dH = T_n0 dH' + sum_i T_i0 dy_i C_i^T
//   d_C_i = sum_j R_ij B_j + T_i0 H^T dy_i          d_B_j = sum_i R_ij C_i + T_nj dH'^T X_j
//
// The cotangent of l_t is the sum over all that a decay across t multiplies: W_ij = V_ij M_ij for j < t <= i, and in the
// same way T_i0 dy_i . H C_i (j = 0), T_nj X_j . dH' B_j (beyond i = n) and T_n0 <dH', H>. It is summed from these, row by
// row from the left: sums, never differences.
//
// Two passes each way: first states go through time, head by head; then every chunk is on its own, and heads of a group
// share C . B, and in backward the sum of R. Nobody's sums depend on threads or on other rows of the batch. Loops stop at
// the diagonal: the future is not multiplied by zero, so that NaN there stays there.

namespace scantape::cpu {

namespace {

using reference::RowsOf;
using reference::SsdChunk;
using reference::SsdDecay;
using reference::SsdSizes;
using reference::SsdSkip;
using reference::SsdStates;
using reference::SsdTimeSteps;
using reference::Target;

// ---- products of small matrices

/// Which k a product's row i runs over, or which columns it has.
enum class Part { all, up_to_row, from_row, columns_up_to_row };

/// c[i][p] = sum over k of a[i * a_row + k * a_step] * b[k * b_step + p], k in order; or that added.
template <class T>
struct Product {
  std::int64_t rows, columns, depth;
  const T* a;
  std::int64_t a_row, a_step;
  const T* b;
  std::int64_t b_step;
  T* c;
  std::int64_t c_row;
  Part part = Part::all;
  bool add = false;
};

template <class T, int kBytes>
struct Lanes {
  typedef T Type __attribute__((vector_size(kBytes)));
  static constexpr int kCount = kBytes / static_cast<int>(sizeof(T));
};

/// kRows x kVectors vectors of c from row i and column p on.
template <class T, int kBytes, int kRows, int kVectors>
SCANTAPE_INLINE void multiply_tile(const Product<T>& m, std::int64_t i, std::int64_t p) noexcept {
  using Vector = typename Lanes<T, kBytes>::Type;
  constexpr int kCount = Lanes<T, kBytes>::kCount;
  Vector sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) {
      if (m.add)
        std::memcpy(&sums[r][v], m.c + (i + r) * m.c_row + p + v * kCount, sizeof(Vector));
      else
        sums[r][v] = Vector{};
    }
  // Rows of the diagonal have a step more or less than their neighbours.
  if (m.part == Part::from_row)
    for (int r = 0; r < kRows; ++r)
      for (std::int64_t k = i + r; k < i + kRows; ++k)
        for (int v = 0; v < kVectors; ++v) {
          Vector b;
          std::memcpy(&b, m.b + k * m.b_step + p + v * kCount, sizeof(Vector));
          sums[r][v] += m.a[(i + r) * m.a_row + k * m.a_step] * b;
        }
  const std::int64_t begin = m.part == Part::from_row ? i + kRows : 0;
  const std::int64_t end = m.part == Part::up_to_row ? i + 1 : m.depth;
  const T* a = m.a + i * m.a_row;
  for (std::int64_t k = begin; k < end; ++k) {
    Vector b[kVectors];
    for (int v = 0; v < kVectors; ++v)
      std::memcpy(&b[v], m.b + k * m.b_step + p + v * kCount, sizeof(Vector));
    for (int r = 0; r < kRows; ++r) {
      const T factor = a[r * m.a_row + k * m.a_step];
      for (int v = 0; v < kVectors; ++v) sums[r][v] += factor * b[v];
    }
  }
  if (m.part == Part::up_to_row)
    for (int r = 1; r < kRows; ++r)
      for (std::int64_t k = i + 1; k <= i + r; ++k)
        for (int v = 0; v < kVectors; ++v) {
          Vector b;
          std::memcpy(&b, m.b + k * m.b_step + p + v * kCount, sizeof(Vector));
          sums[r][v] += m.a[(i + r) * m.a_row + k * m.a_step] * b;
        }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v)
      std::memcpy(m.c + (i + r) * m.c_row + p + v * kCount, &sums[r][v], sizeof(Vector));
}

template <class T, int kRows>
SCANTAPE_INLINE void multiply_rows(const Product<T>& m, std::int64_t i) noexcept {
  constexpr std::int64_t kWide = Lanes<T, 64>::kCount, kNarrow = Lanes<T, 16>::kCount;
  const std::int64_t columns = m.part == Part::columns_up_to_row ? std::min(m.columns, i + kRows) : m.columns;
  std::int64_t p = 0;
  for (; p + 2 * kWide <= columns; p += 2 * kWide) multiply_tile<T, 64, kRows, 2>(m, i, p);
  for (; p + kWide <= columns; p += kWide) multiply_tile<T, 64, kRows, 1>(m, i, p);
  for (; p + kNarrow <= columns; p += kNarrow) multiply_tile<T, 16, kRows, 1>(m, i, p);
  for (; p < columns; ++p) multiply_tile<T, sizeof(T), kRows, 1>(m, i, p);
}

template <class T>
SCANTAPE_INLINE void multiply_all(const Product<T>& m) noexcept {
  std::int64_t i = 0;
  for (; i + 4 <= m.rows; i += 4) multiply_rows<T, 4>(m, i);
  for (; i < m.rows; ++i) multiply_rows<T, 1>(m, i);
}

SCANTAPE_CLONES void multiply(const Product<float>& m) noexcept {
  multiply_all(m);
}
SCANTAPE_CLONES void multiply(const Product<double>& m) noexcept {
  multiply_all(m);
}

/// to [columns, rows] = the transpose of from [rows, columns].
template <class T>
void transpose(const T* from, std::int64_t from_row, std::int64_t rows, std::int64_t columns,
               T* to) noexcept {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * from_row + j];
}

// ---- decays of a chunk

SCANTAPE_CLONES void exponentials_below_zero(std::int64_t count, const double* sums, float* to) noexcept {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float sum = static_cast<float>(sums[i]), decay = exp_below_zero(sum);
    to[i] = sum == sum ? decay : sum;  // NaN stays
  }
}

template <class T>
void exponentials(std::int64_t count, const double* sums, bool below_zero, T* to) noexcept {
  if constexpr (sizeof(T) == 4) {
    if (below_zero) return exponentials_below_zero(count, sums, to);
  }
  for (std::int64_t i = 0; i < count; ++i) to[i] = std::exp(static_cast<T>(sums[i]));
}

/// What a chunk's steps do to one head's state. Sums of l are added up from their own first term on.
template <class T>
class Decays {
 public:
  /// Scratch: dt [n], l [n], sums [n + 1], from_start [n + 1], to_end [n + 1]; table [n, n] where it is asked for.
  Decays(const SsdTimeSteps<T>& steps, T A, std::int64_t first_row, std::int64_t head, std::int64_t count,
         T* numbers, double* sums)
      : count_(count),
        dt_(numbers),
        from_start_(numbers + count),
        to_end_(from_start_ + count + 1),
        l_(sums),
        sums_(sums + count),
        below_zero_(A <= 0) {
    for (std::int64_t i = 0; i < count; ++i) {
      dt_[i] = steps.dt(first_row + i, head);
      l_[i] = dt_[i] * A;
    }
  }
  static std::int64_t numbers(std::int64_t count) noexcept { return 3 * count + 2; }
  static std::int64_t sums(std::int64_t count) noexcept { return 2 * count + 1; }

  /// T_i0, i = 0..n.
  const T* from_start() noexcept {
    sums_[0] = 0;
    for (std::int64_t i = 0; i < count_; ++i) sums_[i + 1] = sums_[i] + l_[i];
    exponentials(count_ + 1, sums_, below_zero_, from_start_);
    return from_start_;
  }
  /// T_nj, j = 0..n.
  const T* to_end() noexcept {
    sums_[count_] = 0;
    for (std::int64_t i = count_ - 1; i >= 0; --i) sums_[i] = sums_[i + 1] + l_[i];
    exponentials(count_ + 1, sums_, below_zero_, to_end_);
    return to_end_;
  }
  /// The way of a state through the whole chunk.
  SsdDecay<T> whole() const noexcept {
    double sum = 0;
    for (std::int64_t i = count_ - 1; i >= 0; --i) sum += l_[i];
    return SsdDecay<T>(static_cast<T>(sum));
  }
  /// T_ij of steps j <= i, counted from 0.
  void table(T* to) noexcept {
    for (std::int64_t i = 0; i < count_; ++i) {
      for (std::int64_t j = 0; j < i; ++j) sums_[j] += l_[i];
      sums_[i] = 0;
      exponentials(i + 1, sums_, below_zero_, to + i * count_);
    }
  }
  T dt(std::int64_t i) const noexcept { return dt_[i]; }

 private:
  std::int64_t count_;
  T *dt_, *from_start_, *to_end_;
  double *l_, *sums_;
  bool below_zero_;  // by A alone, as no dt is below 0: a later step changes nothing of an earlier one
};

// ---- one call

/// One chunk of one row of the batch, and what goes on in it.
struct Task {
  std::int64_t item;
  SsdChunk chunk;
  bool last;          // of its row
  bool goes_on;       // a state goes out to the chunk after it
  std::int64_t next;  // which of the kept states that is
};

/// Scratch that is cut up as it is asked for.
template <class T>
class Pieces {
 public:
  explicit Pieces(T* data) noexcept : at_(data) {}
  T* take(std::int64_t count) noexcept {
    T* const piece = at_;
    at_ += count;
    return piece;
  }

 private:
  T* at_;
};

template <class T>
class Chunked {
 public:
  explicit Chunked(const SsdForward& args)
      : args_(args),
        size_(args),
        x_(args.x, 2),
        B_(args.B, 2),
        C_(args.C, 2),
        z_(args.z, 2),
        steps_(args),
        skip_(args),
        A_(args.A.as<T>()) {
    for (std::int64_t item = 0; item < size_.batch; ++item) {
      first_task_.push_back(tasks_.size());
      const std::vector<SsdChunk> chunks = reference::ssd_chunks<T>(args, item);
      for (std::size_t i = 0; i < chunks.size(); ++i) {
        const bool last = i + 1 == chunks.size(), goes_on = !last && !chunks[i + 1].start;
        tasks_.push_back({item, chunks[i], last, goes_on, goes_on ? chunks[i + 1].kept : -1});
        longest_ = std::max(longest_, chunks[i].steps());
      }
    }
    first_task_.push_back(tasks_.size());
    threads_ = reference::worth_threads(size_.batch * size_.length * size_.heads * size_.state() / 64)
                   ? omp_get_max_threads()
                   : 1;
  }

  void forward() {
    const SsdForward& args = args_;
    const bool wants_states = args.states.present, goes_on = count_kept() > 0;
    std::unique_ptr<T[]> own;
    if (!wants_states && goes_on) own.reset(new T[static_cast<std::size_t>(numbers_kept())]);
    T* const kept = wants_states ? args.states.as<T>() : own.get();
    const SsdStates<T> states(size_, args, kept);
    if (goes_on || args.final_state.present) pass_states(states);

    // A block of heads shares C . B.
    const std::int64_t block = std::min<std::int64_t>(size_.heads_of_group(), 8);
    const std::int64_t blocks_of_group = (size_.heads_of_group() + block - 1) / block;
    const std::int64_t blocks = size_.groups * blocks_of_group;
    const Scratch scratch(*this, forward_numbers(), 0);
#pragma omp parallel for schedule(dynamic) num_threads(threads_)
    for (std::int64_t index = 0; index < count_of_tasks() * blocks; ++index) {
      const std::int64_t group = index % blocks / blocks_of_group;
      const std::int64_t first = group * size_.heads_of_group() + index % blocks_of_group * block;
      const std::int64_t end = std::min(first + block, (group + 1) * size_.heads_of_group());
      forward_chunk(tasks_[static_cast<std::size_t>(index / blocks)], group, first, end, states, scratch);
    }
  }

 protected:
  /// Numbers of each thread, allocated before there are threads.
  class Scratch {
   public:
    Scratch(const Chunked& call, std::int64_t numbers, std::int64_t extra_sums)
        : numbers_(numbers),
          sums_(Decays<T>::sums(call.longest_) + extra_sums),
          all_numbers_(new T[static_cast<std::size_t>(call.threads_ * numbers_)]),
          all_sums_(new double[static_cast<std::size_t>(call.threads_ * sums_)]) {}
    T* numbers() const noexcept { return all_numbers_.get() + omp_get_thread_num() * numbers_; }
    double* sums() const noexcept { return all_sums_.get() + omp_get_thread_num() * sums_; }

   private:
    std::int64_t numbers_, sums_;
    std::unique_ptr<T[]> all_numbers_;
    std::unique_ptr<double[]> all_sums_;
  };

  std::int64_t count_of_tasks() const noexcept {
    return static_cast<std::int64_t>(tasks_.size());
  }
  std::int64_t count_kept() const noexcept {
    return SsdStates<T>(size_, args_, nullptr).count();
  }
  std::int64_t numbers_kept() const noexcept {
    return SsdStates<T>(size_, args_, nullptr).numbers();
  }
  std::int64_t first_row(const Task& task) const noexcept {
    return task.item * size_.length + task.chunk.begin;
  }
  std::int64_t group_of(std::int64_t head) const noexcept {
    return head / size_.heads_of_group();
  }
  const T* x(std::int64_t row, std::int64_t head) const noexcept {
    return x_[row] + head * size_.width;
  }
  const T* z(std::int64_t row, std::int64_t head) const noexcept {
    return z_ ? z_[row] + head * size_.width : nullptr;
  }
  const T* B(std::int64_t row, std::int64_t group) const noexcept {
    return B_[row] + group * size_.states;
  }
  const T* C(std::int64_t row, std::int64_t group) const noexcept {
    return C_[row] + group * size_.states;
  }

  /// States at the ends of chunks, head by head through time.
  void pass_states(const SsdStates<T>& states) {
    const std::int64_t rows = size_.batch * size_.heads;
    const Scratch scratch(*this, Decays<T>::numbers(longest_) + longest_ * size_.width, 0);
#pragma omp parallel for schedule(static) num_threads(threads_)
    for (std::int64_t row = 0; row < rows; ++row)
      pass_head(row / size_.heads, row % size_.heads, states, scratch);
  }

  void pass_head(std::int64_t item, std::int64_t head, const SsdStates<T>& states, const Scratch& scratch) {
    T* const final_state = args_.final_state.present ? args_.final_state.template as<T>() +
                                                           (item * size_.heads + head) * size_.state()
                                                     : nullptr;
    const std::size_t first = first_task_[static_cast<std::size_t>(item)],
                      end = first_task_[static_cast<std::size_t>(item + 1)];
    if (args_.start.present) states.clear(item, head);  // not every place has a state
    for (std::size_t index = first; index < end; ++index) {
      const Task& task = tasks_[index];
      T* const to = task.last ? final_state : task.goes_on ? states.kept(item, head, task.next) : nullptr;
      if (to == nullptr) continue;
      Pieces<T> pieces(scratch.numbers());
      const std::int64_t steps = task.chunk.steps(), row = first_row(task);
      Decays<T> decays(steps_, A_[head], row, head, steps, pieces.take(Decays<T>::numbers(steps)),
                       scratch.sums());
      const T* const to_end = decays.to_end();
      T* const moved = pieces.take(steps * size_.width);
      for (std::int64_t j = 0; j < steps; ++j) {
        const T factor = to_end[j + 1] * decays.dt(j);
        const T* from = x(row + j, head);
        for (std::int64_t p = 0; p < size_.width; ++p) moved[j * size_.width + p] = factor * from[p];
      }
      // The final state may lie where the initial one did: it is read before it is written, number by number.
      const T* const before = states.before(task.chunk, item, head);
      if (before != nullptr) {
        const SsdDecay<T> whole = decays.whole();
        for (std::int64_t i = 0; i < size_.state(); ++i) to[i] = whole.times(before[i]);
      }
      multiply(Product<T>{size_.width, size_.states, steps, moved, 1, size_.width, B(row, group_of(head)),
                          B_.stride(), to, size_.states, Part::all, before != nullptr});
    }
  }

  std::int64_t forward_numbers() const noexcept {
    const std::int64_t n = longest_;
    return n * n + size_.states * n + Decays<T>::numbers(n) + n * n + 3 * n * size_.width + size_.state();
  }

  void forward_chunk(const Task& task, std::int64_t group, std::int64_t first, std::int64_t end,
                     const SsdStates<T>& states, const Scratch& scratch) const noexcept {
    const std::int64_t n = task.chunk.steps(), row = first_row(task), width = size_.width;
    Pieces<T> pieces(scratch.numbers());
    const T* const scores = make_scores(pieces, row, group, n);
    T* const numbers = pieces.take(Decays<T>::numbers(n));
    T *const mixing = pieces.take(n * n), *const moved = pieces.take(n * width),
             *const y = pieces.take(n * width);
    T *const from_state = pieces.take(n * width), *const turned = pieces.take(size_.state());
    for (std::int64_t head = first; head < end; ++head) {
      Decays<T> decays(steps_, A_[head], row, head, n, numbers, scratch.sums());
      decays.table(mixing);
      mix(n, scores, mixing);
      move(decays, row, head, n, moved);
      const T* const before = states.before(task.chunk, task.item, head);
      outputs(decays, row, group, head, n, mixing, moved, before, turned, from_state, y);
      const RowsOf<T> out(args_.out, 2);
      for (std::int64_t i = 0; i < n; ++i) {
        T* const to = out[row + i] + head * width;
        const T* const gate = z(row + i, head);
        for (std::int64_t p = 0; p < width; ++p)
          to[p] = gate != nullptr ? y[i * width + p] * reference::silu(gate[p]) : y[i * width + p];
      }
    }
  }

  /// C_i . B_j for j <= i.
  const T* make_scores(Pieces<T>& pieces, std::int64_t row, std::int64_t group,
                       std::int64_t n) const noexcept {
    T *const scores = pieces.take(n * n), *const turned = pieces.take(size_.states * n);
    transpose(B(row, group), B_.stride(), n, size_.states, turned);
    multiply(Product<T>{n, n, size_.states, C(row, group), C_.stride(), 1, turned, n, scores, n,
                        Part::columns_up_to_row});
    return scores;
  }
  /// M from T.
  void mix(std::int64_t n, const T* scores, T* table) const noexcept {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j <= i; ++j) table[i * n + j] *= scores[i * n + j];
  }
  /// X = dt x.
  void move(const Decays<T>& decays, std::int64_t row, std::int64_t head, std::int64_t n,
            T* moved) const noexcept {
    for (std::int64_t j = 0; j < n; ++j) {
      const T* from = x(row + j, head);
      for (std::int64_t p = 0; p < size_.width; ++p) moved[j * size_.width + p] = decays.dt(j) * from[p];
    }
  }
  /// y before the gate, and H C_i (where a state comes in).
  void outputs(Decays<T>& decays, std::int64_t row, std::int64_t group, std::int64_t head, std::int64_t n,
               const T* mixing, const T* moved, const T* before, T* turned, T* from_state,
               T* y) const noexcept {
    const std::int64_t width = size_.width;
    multiply(Product<T>{n, width, n, mixing, n, 1, moved, width, y, width, Part::up_to_row});
    if (before != nullptr) {
      transpose(before, size_.states, width, size_.states, turned);
      multiply(Product<T>{n, width, size_.states, C(row, group), C_.stride(), 1, turned, width, from_state,
                          width});
      const T* const from_start = decays.from_start();
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t p = 0; p < width; ++p)
          y[i * width + p] += from_start[i + 1] * from_state[i * width + p];
    }
    if (!skip_) return;
    for (std::int64_t i = 0; i < n; ++i) {
      const T* from = x(row + i, head);
      for (std::int64_t p = 0; p < width; ++p) y[i * width + p] += skip_.at(head, p) * from[p];
    }
  }

  const SsdForward& args_;
  const SsdSizes size_;
  RowsOf<const T> x_, B_, C_, z_;
  SsdTimeSteps<T> steps_;
  SsdSkip<T> skip_;
  const T* A_;
  std::vector<Task> tasks_;
  std::vector<std::size_t> first_task_;
  std::int64_t longest_ = 0;
  int threads_;
};

template <class T>
class ChunkedBackward : Chunked<T> {
  using Base = Chunked<T>;
  using Scratch = typename Base::Scratch;
  using Base::A_, Base::B_, Base::C_, Base::first_row, Base::group_of, Base::longest_, Base::size_,
      Base::skip_, Base::steps_, Base::tasks_, Base::threads_, Base::first_task_;

 public:
  explicit ChunkedBackward(const SsdBackward& args)
      : Base(args),
        args_(args),
        d_out_(args.d_out, 2),
        d_x_(args.d_x, 2),
        d_B_(args.d_B, 2),
        d_C_(args.d_C, 2),
        d_z_(args.d_z, 2),
        d_dt_(args.d_dt),
        kept_(size_, args, const_cast<T*>(args.states.as<T>())),
        // Of each step and head: dt g_l, and what the gradient of dt is before the bias.
        of_steps_(2 * static_cast<std::size_t>(size_.batch * size_.length * size_.heads)) {}

  void backward() {
    const std::unique_ptr<T[]> cotangents(new T[static_cast<std::size_t>(Base::numbers_kept() + 1)]);
    const SsdStates<T> d_kept(size_, args_, cotangents.get());
    {
      const Scratch scratch(*this, passing_numbers() + size_.state(), 0);
      const std::int64_t rows = size_.batch * size_.heads;
#pragma omp parallel for schedule(static) num_threads(threads_)
      for (std::int64_t row = 0; row < rows; ++row)
        pass_head(row / size_.heads, row % size_.heads, d_kept, scratch);
    }
    {
      const Scratch scratch(*this, backward_numbers(), 2 * longest_);
#pragma omp parallel for schedule(dynamic) num_threads(threads_)
      for (std::int64_t index = 0; index < Base::count_of_tasks() * size_.groups; ++index)
        backward_chunk(tasks_[static_cast<std::size_t>(index / size_.groups)], index % size_.groups, d_kept,
                       scratch);
    }
    write_sums();
  }

 private:
  const T* d_out(std::int64_t row, std::int64_t head) const noexcept {
    return d_out_ ? d_out_[row] + head * size_.width : nullptr;
  }
  T d_y(const T* d_out, const T* z, std::int64_t p) const noexcept {
    const T given = d_out != nullptr ? d_out[p] : T(0);
    return z != nullptr ? given * reference::silu(z[p]) : given;
  }
  /// The cotangent of the state that goes out of a chunk; null: there is none.
  const T* after(const Task& task, std::int64_t head, const SsdStates<T>& d_kept) const noexcept {
    if (task.goes_on) return d_kept.kept(task.item, head, task.next);
    if (!task.last || !args_.d_final_state.present) return nullptr;
    return args_.d_final_state.template as<T>() + (task.item * size_.heads + head) * size_.state();
  }

  /// Cotangents of the states between chunks, from the last to the initial one.
  void pass_head(std::int64_t item, std::int64_t head, const SsdStates<T>& d_kept, const Scratch& scratch) {
    const std::size_t first = first_task_[static_cast<std::size_t>(item)],
                      end = first_task_[static_cast<std::size_t>(item + 1)];
    for (std::size_t index = end; index-- > first;) {
      const Task& task = tasks_[index];
      if (task.chunk.kept >= 0) {
        into_state(task, head, after(task, head, d_kept), d_kept.kept(item, head, task.chunk.kept), scratch);
      } else if (task.chunk.begin == 0 && args_.d_initial_state.wanted()) {
        T* const to =
            args_.d_initial_state.view.template as<T>() + (item * size_.heads + head) * size_.state();
        const bool add = args_.d_initial_state.mode == WriteMode::accumulate;
        if (task.chunk.start) {
          if (!add) std::fill_n(to, size_.state(), T(0));
          continue;
        }
        T* const whole = add ? scratch.numbers() + passing_numbers() : to;  // added once, when it is whole
        into_state(task, head, after(task, head, d_kept), whole, scratch);
        for (std::int64_t i = 0; add && i < size_.state(); ++i) to[i] += whole[i];
      }
    }
  }
  std::int64_t passing_numbers() const noexcept {
    return Decays<T>::numbers(longest_) + longest_ * size_.width;
  }
  void into_state(const Task& task, std::int64_t head, const T* after, T* to, const Scratch& scratch) {
    Pieces<T> pieces(scratch.numbers());
    const std::int64_t n = task.chunk.steps(), row = first_row(task), width = size_.width;
    Decays<T> decays(steps_, A_[head], row, head, n, pieces.take(Decays<T>::numbers(n)), scratch.sums());
    const T* const from_start = decays.from_start();
    T* const weighted = pieces.take(n * width);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t p = 0; p < width; ++p)
        weighted[i * width + p] = from_start[i + 1] * d_y(d_out(row + i, head), Base::z(row + i, head), p);
    if (after != nullptr) {
      const SsdDecay<T> whole = decays.whole();
      for (std::int64_t i = 0; i < size_.state(); ++i) to[i] = whole.times(after[i]);
    }
    multiply(Product<T>{width, size_.states, n, weighted, 1, width, Base::C(row, group_of(head)), C_.stride(),
                        to, size_.states, Part::all, after != nullptr});
  }

  std::int64_t backward_numbers() const noexcept {
    const std::int64_t n = longest_;
    return 4 * n * n + 3 * size_.states * n + Decays<T>::numbers(n) + 8 * n * size_.width + size_.state();
  }

  /// What one chunk's steps of one head are made of.
  struct HeadPieces {
    T *mixing, *products, *moved, *moved_turned, *d_y, *y, *from_state, *d_moved, *into_state, *weighted,
        *turned;
  };

  void backward_chunk(const Task& task, std::int64_t group, const SsdStates<T>& d_kept,
                      const Scratch& scratch) {
    const std::int64_t n = task.chunk.steps(), row = first_row(task), width = size_.width,
                       states = size_.states;
    Pieces<T> pieces(scratch.numbers());
    const T* const scores = Base::make_scores(pieces, row, group, n);
    T* const numbers = pieces.take(Decays<T>::numbers(n));
    T* const over_heads = pieces.take(n * n);  // the sum of R
    T *const d_B = pieces.take(n * states), *const d_C = pieces.take(n * states);
    HeadPieces own;
    own.mixing = pieces.take(n * n);
    own.products = pieces.take(n * n);
    for (T** piece : {&own.moved, &own.moved_turned, &own.d_y, &own.y, &own.from_state, &own.d_moved,
                      &own.into_state, &own.weighted})
      *piece = pieces.take(n * width);
    own.turned = pieces.take(size_.state());
    std::fill_n(over_heads, n * n, T(0));
    std::fill_n(d_B, n * states, T(0));
    std::fill_n(d_C, n * states, T(0));
    for (std::int64_t head = group * size_.heads_of_group(); head < (group + 1) * size_.heads_of_group();
         ++head) {
      Decays<T> decays(steps_, A_[head], row, head, n, numbers, scratch.sums());
      backward_head(task, group, head, after(task, head, d_kept), scores, decays, own, over_heads, d_B, d_C,
                    scratch.sums() + Decays<T>::sums(longest_));
    }
    multiply(Product<T>{n, states, n, over_heads, n, 1, Base::B(row, group), B_.stride(), d_C, states,
                        Part::up_to_row, true});
    multiply(Product<T>{n, states, n, over_heads, 1, n, Base::C(row, group), C_.stride(), d_B, states,
                        Part::from_row, true});
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t from = group * states;
      d_B_.write(row + i, from, from + states, [&](std::int64_t s) { return d_B[i * states + s - from]; });
      d_C_.write(row + i, from, from + states, [&](std::int64_t s) { return d_C[i * states + s - from]; });
    }
  }

  void backward_head(const Task& task, std::int64_t group, std::int64_t head, const T* after, const T* scores,
                     Decays<T>& decays, const HeadPieces& own, T* over_heads, T* d_B, T* d_C, double* sums) {
    const std::int64_t n = task.chunk.steps(), row = first_row(task), width = size_.width,
                       states = size_.states;
    const T* const before = kept_.before(task.chunk, task.item, head);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t p = 0; p < width; ++p)
        own.d_y[i * width + p] = d_y(d_out(row + i, head), Base::z(row + i, head), p);
    Base::move(decays, row, head, n, own.moved);
    transpose(own.moved, width, n, width, own.moved_turned);
    // V, then R = V T into the sum over heads, then M.
    multiply(Product<T>{n, n, width, own.d_y, width, 1, own.moved_turned, n, own.products, n,
                        Part::columns_up_to_row});
    decays.table(own.mixing);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j <= i; ++j)
        over_heads[i * n + j] += own.products[i * n + j] * own.mixing[i * n + j];
    Base::mix(n, scores, own.mixing);

    if (d_z_ || before != nullptr)
      Base::outputs(decays, row, group, head, n, own.mixing, own.moved, before, own.turned, own.from_state,
                    own.y);
    if (d_z_)
      for (std::int64_t i = 0; i < n; ++i) {
        const T *z = Base::z(row + i, head), *given = d_out(row + i, head);
        d_z_.write(row + i, head * width, (head + 1) * width, [&](std::int64_t channel) {
          const std::int64_t p = channel - head * width;
          return given != nullptr ? given[p] * own.y[i * width + p] * reference::silu_derivative(z[p]) : T(0);
        });
      }
    multiply(Product<T>{n, width, n, own.mixing, 1, n, own.d_y, width, own.d_moved, width, Part::from_row});
    if (after != nullptr) {
      transpose(after, states, width, states, own.turned);
      multiply(Product<T>{n, width, states, Base::B(row, group), B_.stride(), 1, own.turned, width,
                          own.into_state, width});
      const T* const to_end = decays.to_end();
      for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t p = 0; p < width; ++p) {
          own.d_moved[j * width + p] += to_end[j + 1] * own.into_state[j * width + p];
          own.weighted[j * width + p] = to_end[j + 1] * own.moved[j * width + p];
        }
      multiply(
          Product<T>{n, states, width, own.weighted, width, 1, after, states, d_B, states, Part::all, true});
    }
    decay_gradients(n, before, after, decays, own, sums);
    if (before != nullptr) {
      const T* const from_start = decays.from_start();
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t p = 0; p < width; ++p)
          own.weighted[i * width + p] = from_start[i + 1] * own.d_y[i * width + p];
      multiply(
          Product<T>{n, states, width, own.weighted, width, 1, before, states, d_C, states, Part::all, true});
    }
    write_steps(row, head, n, decays, own, sums);
  }

  /// sums[t] = g_l of step t (from 0): W summed along rows from the left, then down. `sums` [n] and `sums + n`.
  void decay_gradients(std::int64_t n, const T* before, const T* after, Decays<T>& decays,
                       const HeadPieces& own, double* sums) const noexcept {
    const std::int64_t width = size_.width;
    const auto dot = [](std::int64_t count, const T* a, const T* b) {
      return reference::sum(count, [&](std::int64_t i) { return double(a[i]) * b[i]; });
    };
    std::fill_n(sums, n, 0.0);
    const T* const from_start = decays.from_start();
    for (std::int64_t i = 0; i < n; ++i) {
      double along = before == nullptr ? 0.0
                                       : double(from_start[i + 1]) *
                                             dot(width, own.d_y + i * width, own.from_state + i * width);
      sums[0] += along;
      const T *const V = own.products + i * n, *const M = own.mixing + i * n;
      for (std::int64_t t = 1; t <= i; ++t) {
        along += double(V[t - 1]) * M[t - 1];
        sums[t] += along;
      }
    }
    if (after == nullptr) return;
    double along = before == nullptr ? 0.0 : whole_product(decays, before, after);
    sums[0] += along;
    const T* const to_end = decays.to_end();
    for (std::int64_t t = 1; t < n; ++t) {
      along += double(to_end[t]) * dot(width, own.moved + (t - 1) * width, own.into_state + (t - 1) * width);
      sums[t] += along;
    }
  }
  double whole_product(const Decays<T>& decays, const T* before, const T* after) const noexcept {
    const SsdDecay<T> whole = decays.whole();
    return reference::sum(size_.state(),
                          [&](std::int64_t i) { return double(after[i]) * whole.times(before[i]); });
  }

  void write_steps(std::int64_t row, std::int64_t head, std::int64_t n, const Decays<T>& decays,
                   const HeadPieces& own, const double* g_l) {
    const std::int64_t width = size_.width;
    for (std::int64_t i = 0; i < n; ++i) {
      const T *const x = Base::x(row + i, head), *const d_moved = own.d_moved + i * width,
                     *const d_y = own.d_y + i * width;
      d_x_.write(row + i, head * width, (head + 1) * width, [&](std::int64_t channel) {
        const std::int64_t p = channel - head * width;
        const T through = decays.dt(i) * d_moved[p];
        return skip_ ? through + skip_.at(head, p) * d_y[p] : through;
      });
      const double through_x =
          reference::sum(width, [&](std::int64_t p) { return double(x[p]) * d_moved[p]; });
      const double d_raw = (through_x + double(A_[head]) * g_l[i]) * steps_.slope(row + i, head);
      d_dt_.write_at(row + i, head, static_cast<T>(d_raw));
      const auto place = 2 * static_cast<std::size_t>((row + i) * size_.heads + head);
      of_steps_[place] = double(decays.dt(i)) * g_l[i];
      of_steps_[place + 1] = d_raw;
    }
  }

  /// What is summed over the batch and time, head by head, step after step.
  void write_sums() {
    const Target<T> d_A(args_.d_A), d_dt_bias(args_.d_dt_bias), d_D(args_.d_D, args_.D.rank() == 2 ? 2 : 1);
    std::vector<double> channels(static_cast<std::size_t>(size_.heads * size_.width));
#pragma omp parallel for schedule(static) num_threads(threads_)
    for (std::int64_t head = 0; head < size_.heads; ++head) {
      double A = 0, dt_bias = 0;
      double* const D = channels.data() + head * size_.width;
      for (std::int64_t row = 0; row < size_.batch * size_.length; ++row) {
        const auto place = 2 * static_cast<std::size_t>(row * size_.heads + head);
        A += of_steps_[place];
        dt_bias += of_steps_[place + 1];
        if (!d_D) continue;
        const T *const x = Base::x(row, head), *const z = Base::z(row, head), *const given = d_out(row, head);
        for (std::int64_t p = 0; p < size_.width; ++p) D[p] += double(d_y(given, z, p)) * x[p];
      }
      d_A.write_one(head, static_cast<T>(A));
      d_dt_bias.write_one(head, static_cast<T>(dt_bias));
      if (args_.D.rank() == 2) {
        for (std::int64_t p = 0; p < size_.width; ++p)
          d_D.write_one(head * size_.width + p, static_cast<T>(D[p]));
      } else {
        double total = 0;
        for (std::int64_t p = 0; p < size_.width; ++p) total += D[p];
        d_D.write_one(head, static_cast<T>(total));
      }
    }
  }

  const SsdBackward& args_;
  RowsOf<const T> d_out_;
  Target<T> d_x_, d_B_, d_C_, d_z_, d_dt_;
  SsdStates<T> kept_;
  std::vector<double> of_steps_;
};

}  // namespace

Status ssd_forward(const SsdForward& args) noexcept {
  if (is_16_bit(args.x.dtype)) return in_f32("ssd", args, ssd_forward);
  if (args.chunk_length == 0) {
    ++detail::mutable_counters().ssd_sequential;
    return reference::ssd_forward(args);
  }
  ++detail::mutable_counters().ssd_chunked;
  return reference::run("ssd", [&] {
    reference::dispatch(args.x.dtype, [&](auto zero) { Chunked<decltype(zero)>(args).forward(); });
  });
}

Status ssd_backward(const SsdBackward& args) noexcept {
  if (is_16_bit(args.x.dtype)) return in_f32("ssd_backward", args, ssd_backward);
  if (args.chunk_length == 0) {
    ++detail::mutable_counters().ssd_sequential;
    return reference::ssd_backward(args);
  }
  ++detail::mutable_counters().ssd_chunked;
  return reference::run("ssd_backward", [&] {
    reference::dispatch(args.x.dtype, [&](auto zero) { ChunkedBackward<decltype(zero)>(args).backward(); });
  });
}

}  // namespace scantape::cpu
