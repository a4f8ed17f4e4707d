#include "scantape/scan.h"

#include "in_f32.h"
#include "timed.h"

namespace scantape::reference {

namespace {

/// The sizes of a sequence [B, L, ...]. Each step has `parts` runs of `width` contiguous channels; run p belongs to
/// decay p / parts_per_decay where decays are shared ([B, L, H] over [B, L, H, ...]).
struct Sizes {
  std::int64_t batch, length, parts = 1, width, heads = 1;

  explicit Sizes(const ConstView& sequence) noexcept
      : batch(sequence.shape[0]), length(sequence.shape[1]), width(sequence.shape.back()) {
    for (int axis = 2; axis + 1 < sequence.rank(); ++axis) parts *= sequence.shape[axis];
    if (sequence.rank() > 3) heads = sequence.shape[2];
  }
  std::int64_t channels() const noexcept { return parts * width; }
  std::int64_t parts_per_head() const noexcept { return parts / heads; }
  bool worth_threads() const noexcept { return reference::worth_threads(batch * length * channels()); }
};

/// Decays, and how one is applied: a h + b, rounded once. Just below 1 a rounded product alone lies, step after
/// step, to the same side. Where a holds the decay less one, h + (a h + b).
template <class T>
struct Decays {
  RowsOf<const T> rows;
  bool varying, shared, minus_one;

  explicit Decays(const ScanForward& args, const ConstView& sequence) noexcept
      : rows(args.a), varying(args.a.rank() == 3), shared(sequence.rank() > 3), minus_one(args.minus_one) {}

  /// Calls body(channel, decay) for a run of channels at one row.
  template <class Body>
  void each(const Sizes& size, std::int64_t row, std::int64_t part, const Body& body) const noexcept {
    const T* decay = rows[varying ? row : 0];
    if (shared) {
      const T one = decay[part / size.parts_per_head()];
      for (std::int64_t c = 0; c < size.width; ++c) body(c, one);
    } else {
      for (std::int64_t c = 0; c < size.width; ++c) body(c, decay[c]);
    }
  }
  T step(T decay, T state, T input) const noexcept {
    const T moved = std::fma(decay, state, input);
    return minus_one ? state + moved : moved;
  }
  T times(T decay, T value) const noexcept {
    return minus_one ? std::fma(decay, value, value) : decay * value;
  }
};

template <class T>
void forward(const ScanForward& args) noexcept {
  const Sizes size(args.b);
  const Order order{size.length, args.direction == ScanDirection::reversed};
  const Decays<T> a(args, args.b);
  const Starts<T> start(args.start);
  const RowsOf<const T> b(args.b), h0(args.h0);
  const RowsOf<T> h(args.h), final_state(args.final_state);
#pragma omp parallel for schedule(static) if (size.worth_threads())
  for (std::int64_t item = 0; item < size.batch; ++item) {
    for (std::int64_t step = 0; step < size.length; ++step) {
      const std::int64_t row = order.row(item, step);
      for (std::int64_t part = 0; part < size.parts; ++part) {
        const T* previous =
            step > 0 ? h[order.row(item, step - 1) * size.parts + part] : h0[item * size.parts + part];
        const T* input = b[row * size.parts + part];
        T* state = h[row * size.parts + part];
        if (previous == nullptr || start.at(row))
          std::copy(input, input + size.width, state);
        else
          a.each(size, row, part,
                 [&](std::int64_t c, T decay) { state[c] = a.step(decay, previous[c], input[c]); });
        if (final_state && step + 1 == size.length)
          std::copy(state, state + size.width, final_state[item * size.parts + part]);
      }
    }
  }
}

/// Runs one sequence backwards. `carry` [parts, width] starts as the cotangent of the final state and ends as that
/// of h0; `d_a_sums` [width] takes what this sequence adds to the gradient of a constant decay, unless it is null.
template <class T>
void backward_item(const ScanBackward& args, std::int64_t item, T* carry, double* d_a_sums) noexcept {
  const Sizes size(args.h);
  const Order order{size.length, args.direction == ScanDirection::reversed};
  const Decays<T> a(args, args.h);
  const Starts<T> start(args.start);
  const RowsOf<const T> h(args.h), h0(args.h0), d_h(args.d_h);
  const Target<T> d_a(args.d_a), d_b(args.d_b);
  for (std::int64_t step = size.length - 1; step >= 0; --step) {
    const std::int64_t row = order.row(item, step);
    const bool cut = start.at(row);
    double head_sum = 0;
    for (std::int64_t part = 0; part < size.parts; ++part) {
      T* g = carry + part * size.width;
      if (const T* from = d_h[row * size.parts + part]; from != nullptr)
        for (std::int64_t c = 0; c < size.width; ++c) g[c] += from[c];
      d_b.write(row * size.parts + part, 0, size.width, [&](std::int64_t c) { return g[c]; });
      const T* previous = cut        ? nullptr
                          : step > 0 ? h[order.row(item, step - 1) * size.parts + part]
                                     : h0[item * size.parts + part];
      if (d_a_sums != nullptr) {
        for (std::int64_t c = 0; previous != nullptr && c < size.width; ++c)
          d_a_sums[c] += double(g[c]) * previous[c];
      } else if (a.shared) {
        for (std::int64_t c = 0; previous != nullptr && c < size.width; ++c)
          head_sum += double(g[c]) * previous[c];
        if ((part + 1) % size.parts_per_head() == 0) {
          const std::int64_t head = part / size.parts_per_head();
          const T value = static_cast<T>(head_sum);
          if (T* target = d_a.row(row); target != nullptr)
            target[head] = d_a.accumulates() ? target[head] + value : value;
          head_sum = 0;
        }
      } else {
        d_a.write(row, 0, size.width,
                  [&](std::int64_t c) { return previous != nullptr ? g[c] * previous[c] : T(0); });
      }
      if (cut)
        std::fill(g, g + size.width, T(0));
      else
        a.each(size, row, part, [&](std::int64_t c, T decay) { g[c] = a.times(decay, g[c]); });
    }
  }
}

template <class T>
void backward(const ScanBackward& args) {
  const Sizes size(args.h);
  const std::int64_t channels = size.channels();
  const bool sums_a = args.a.rank() == 1 && args.d_a.wanted();
  std::vector<T> carries(static_cast<std::size_t>(size.batch * channels));
  std::vector<double> sums(sums_a ? carries.size() : 0);
  const Target<T> d_h0(args.d_h0);
#pragma omp parallel for schedule(static) if (size.worth_threads())
  for (std::int64_t item = 0; item < size.batch; ++item) {
    T* carry = carries.data() + item * channels;
    if (args.d_final_state.present)  // contiguous
      std::copy_n(args.d_final_state.as<T>() + item * channels, channels, carry);
    backward_item(args, item, carry, sums_a ? sums.data() + item * channels : nullptr);
    for (std::int64_t part = 0; part < size.parts; ++part)
      d_h0.write(item * size.parts + part, 0, size.width,
                 [&](std::int64_t c) { return carry[part * size.width + c]; });
  }
  if (!sums_a) return;
  const Target<T> d_a(args.d_a);
  for (std::int64_t c = 0; c < channels; ++c) {
    double total = 0;
    for (std::int64_t item = 0; item < size.batch; ++item)
      total += sums[static_cast<std::size_t>(item * channels + c)];
    d_a.write_one(c, static_cast<T>(total));
  }
}

// The decay as one matrix, a [N, N]: h_t = a h_{t-1} + v_t. Products in double, each state rounded once.

bool is_dense(const ScanForward& args) noexcept {
  return args.a.rank() == 2;
}

bool dense_worth_threads(const Sizes& size) noexcept {
  return reference::worth_threads(size.batch * size.length * size.width * size.width);
}

/// sums += sum over k of x[k] times row k of `rows` [n, n].
template <class T, class X>
void add_weighted_rows(std::int64_t n, const T* rows, const X* x, double* sums) noexcept {
  for (std::int64_t k = 0; k < n; ++k) {
    const double weight = x[k];
    const T* row = rows + k * n;
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) sums[i] += weight * row[i];
  }
}

/// The transpose of a, so that a's columns are rows.
template <class T>
std::vector<T> columns_of(const ConstView& a) {
  const std::int64_t n = a.shape[0];
  const T* rows = a.as<T>();
  std::vector<T> columns(static_cast<std::size_t>(n * n));
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t k = 0; k < n; ++k) columns[static_cast<std::size_t>(k * n + i)] = rows[i * n + k];
  return columns;
}

/// `state` [n] is scratch.
template <class T>
void dense_forward_item(const ScanForward& args, std::int64_t item, const T* columns,
                        double* state) noexcept {
  const Sizes size(args.b);
  const std::int64_t n = size.width;
  const Order order{size.length, args.direction == ScanDirection::reversed};
  const Starts<T> start(args.start);
  const RowsOf<const T> v(args.b), h0(args.h0);
  const RowsOf<T> h(args.h), final_state(args.final_state);
  for (std::int64_t step = 0; step < size.length; ++step) {
    const std::int64_t row = order.row(item, step);
    const T* previous = start.at(row) ? nullptr : step > 0 ? h[order.row(item, step - 1)] : h0[item];
    std::copy_n(v[row], n, state);
    if (previous != nullptr) {
      add_weighted_rows(n, columns, previous, state);
      for (std::int64_t i = 0; args.minus_one && i < n; ++i) state[i] += previous[i];
    }
    for (std::int64_t i = 0; i < n; ++i) h[row][i] = static_cast<T>(state[i]);
  }
  if (final_state) std::copy_n(h[order.row(item, size.length - 1)], n, final_state[item]);
}

template <class T>
void dense_forward(const ScanForward& args) {
  const Sizes size(args.b);
  const std::vector<T> columns = columns_of<T>(args.a);
  std::vector<double> states(static_cast<std::size_t>(size.batch * size.width));
#pragma omp parallel for schedule(static) if (dense_worth_threads(size))
  for (std::int64_t item = 0; item < size.batch; ++item)
    dense_forward_item(args, item, columns.data(), states.data() + item * size.width);
}

/// What one sequence's backward walk needs of its own: g [n] and what a step hands back [n]. `d_a` [n, n] takes the
/// sum of g_t h_{t-1}^T; null where it is not wanted.
struct DenseScratch {
  double *g, *carried, *d_a;
};

template <class T>
void dense_backward_item(const ScanBackward& args, std::int64_t item, const DenseScratch& scratch) noexcept {
  const Sizes size(args.h);
  const std::int64_t n = size.width;
  const Order order{size.length, args.direction == ScanDirection::reversed};
  const Starts<T> start(args.start);
  const T* a = args.a.as<T>();
  const RowsOf<const T> h(args.h), h0(args.h0), d_h(args.d_h), d_final_state(args.d_final_state);
  const Target<T> d_b(args.d_b), d_h0(args.d_h0);
  if (d_final_state) std::copy_n(d_final_state[item], n, scratch.carried);
  for (std::int64_t step = size.length - 1; step >= 0; --step) {
    const std::int64_t row = order.row(item, step);
    const T* from = d_h[row];
    for (std::int64_t i = 0; i < n; ++i)
      scratch.g[i] = static_cast<T>(scratch.carried[i] + (from != nullptr ? from[i] : T(0)));
    d_b.write(row, n, [&](std::int64_t i) { return static_cast<T>(scratch.g[i]); });
    const T* previous = start.at(row) ? nullptr : step > 0 ? h[order.row(item, step - 1)] : h0[item];
    for (std::int64_t i = 0; scratch.d_a != nullptr && previous != nullptr && i < n; ++i) {
      double* sums = scratch.d_a + i * n;
#pragma omp simd
      for (std::int64_t k = 0; k < n; ++k) sums[k] += scratch.g[i] * previous[k];
    }
    std::fill_n(scratch.carried, n, 0.0);
    if (start.at(row)) continue;
    add_weighted_rows(n, a, scratch.g, scratch.carried);
    for (std::int64_t k = 0; args.minus_one && k < n; ++k) scratch.carried[k] += scratch.g[k];
  }
  d_h0.write(item, n, [&](std::int64_t k) { return static_cast<T>(scratch.carried[k]); });
}

template <class T>
void dense_backward(const ScanBackward& args) {
  const Sizes size(args.h);
  const std::int64_t n = size.width, square = n * n;
  std::vector<double> vectors(static_cast<std::size_t>(2 * size.batch * n)),
      sums(static_cast<std::size_t>(args.d_a.wanted() ? size.batch * square : 0));
#pragma omp parallel for schedule(static) if (dense_worth_threads(size))
  for (std::int64_t item = 0; item < size.batch; ++item) {
    double* const mine = vectors.data() + 2 * item * n;
    dense_backward_item<T>(args, item,
                           {mine, mine + n, args.d_a.wanted() ? sums.data() + item * square : nullptr});
  }
  const Target<T> d_a(args.d_a);
  for (std::int64_t i = 0; args.d_a.wanted() && i < square; ++i) {
    double total = 0;
    for (std::int64_t item = 0; item < size.batch; ++item)
      total += sums[static_cast<std::size_t>(item * square + i)];
    d_a.write_one(i, static_cast<T>(total));
  }
}

}  // namespace

Status scan_forward(const ScanForward& args) noexcept {
  if (is_16_bit(args.b.dtype)) return in_f32("scan", args, scan_forward);
  return run("scan", [&] {
    dispatch(args.b.dtype, [&](auto zero) {
      using T = decltype(zero);
      is_dense(args) ? dense_forward<T>(args) : forward<T>(args);
    });
  });
}

Status scan_backward(const ScanBackward& args) noexcept {
  if (is_16_bit(args.h.dtype)) return in_f32("scan_backward", args, scan_backward);
  return run("scan_backward", [&] {
    dispatch(args.h.dtype, [&](auto zero) {
      using T = decltype(zero);
      is_dense(args) ? dense_backward<T>(args) : backward<T>(args);
    });
  });
}

}  // namespace scantape::reference
