#include "scantape/scan.h"

#include "common.h"

namespace scantape::reference {

namespace {

/// [B, L, C] tensors are seen as B L rows of C; the decays as well, or as one row that stands for all.
template <class T>
struct Decays {
  RowsOf<const T> rows;
  bool varying;

  explicit Decays(const ConstView& a) noexcept : rows(a), varying(a.rank() == 3) {}
  const T* operator[](std::int64_t row) const noexcept { return rows[varying ? row : 0]; }
};

template <class T>
void forward(const ScanForward& args) noexcept {
  const std::int64_t batch = args.b.shape[0], length = args.b.shape[1], channels = args.b.shape[2];
  const Decays<T> a(args.a);
  const RowsOf<const T> b(args.b), h0(args.h0);
  const RowsOf<T> h(args.h), final_state(args.final_state);
#pragma omp parallel for schedule(static) if (worth_threads(batch * length * channels))
  for (std::int64_t item = 0; item < batch; ++item) {
    const T* previous = h0[item];
    for (std::int64_t row = item * length; row < (item + 1) * length; ++row) {
      const T* decay = a[row];
      const T* input = b[row];
      T* state = h[row];
      if (previous == nullptr) {
        std::copy(input, input + channels, state);
      } else {
        // Rounded once: just below 1 a rounded product alone lies, step after step, to the same side.
        for (std::int64_t c = 0; c < channels; ++c) state[c] = std::fma(decay[c], previous[c], input[c]);
      }
      previous = state;
    }
    if (final_state) std::copy(previous, previous + channels, final_state[item]);
  }
}

/// Runs one sequence backwards. `carry` [C] starts as the cotangent of the final state and ends as that of
/// h0; `d_a_sums` [C] takes what this sequence adds to the gradient of a constant decay, unless it is null.
template <class T>
void backward_item(const ScanBackward& args, std::int64_t item, T* carry, double* d_a_sums) noexcept {
  const std::int64_t length = args.h.shape[1], channels = args.h.shape[2];
  const Decays<T> a(args.a);
  const RowsOf<const T> h(args.h), h0(args.h0), d_h(args.d_h);
  const Target<T> d_a(args.d_a), d_b(args.d_b);
  for (std::int64_t t = length - 1; t >= 0; --t) {
    const std::int64_t row = item * length + t;
    if (const T* from = d_h[row]; from != nullptr) {
#pragma omp simd
      for (std::int64_t c = 0; c < channels; ++c) carry[c] += from[c];
    }
    d_b.write(row, channels, [&](std::int64_t c) { return carry[c]; });
    const T* previous = t > 0 ? h[row - 1] : h0[item];
    if (d_a_sums != nullptr) {
      for (std::int64_t c = 0; previous != nullptr && c < channels; ++c)
        d_a_sums[c] += double(carry[c]) * previous[c];
    } else {
      d_a.write(row, channels,
                [&](std::int64_t c) { return previous != nullptr ? carry[c] * previous[c] : T(0); });
    }
    const T* decay = a[row];
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) carry[c] *= decay[c];
  }
}

template <class T>
void backward(const ScanBackward& args) {
  const std::int64_t batch = args.h.shape[0], length = args.h.shape[1], channels = args.h.shape[2];
  const bool sums_a = args.a.rank() == 1 && args.d_a.wanted();
  std::vector<T> carries(static_cast<std::size_t>(batch * channels));
  std::vector<double> sums(sums_a ? carries.size() : 0);
  const RowsOf<const T> d_final_state(args.d_final_state);
  const Target<T> d_h0(args.d_h0);
#pragma omp parallel for schedule(static) if (worth_threads(batch * length * channels))
  for (std::int64_t item = 0; item < batch; ++item) {
    T* carry = carries.data() + item * channels;
    if (d_final_state) std::copy(d_final_state[item], d_final_state[item] + channels, carry);
    backward_item(args, item, carry, sums_a ? sums.data() + item * channels : nullptr);
    d_h0.write(item, channels, [&](std::int64_t c) { return carry[c]; });
  }
  if (!sums_a) return;
  const Target<T> d_a(args.d_a);
  for (std::int64_t c = 0; c < channels; ++c) {
    double total = 0;
    for (std::int64_t item = 0; item < batch; ++item)
      total += sums[static_cast<std::size_t>(item * channels + c)];
    d_a.write_one(c, static_cast<T>(total));
  }
}

}  // namespace

Status scan_forward(const ScanForward& args) noexcept {
  dispatch(args.b.dtype, [&](auto zero) { forward<decltype(zero)>(args); });
  return {};
}

Status scan_backward(const ScanBackward& args) noexcept {
  return run("scan_backward",
             [&] { dispatch(args.h.dtype, [&](auto zero) { backward<decltype(zero)>(args); }); });
}

}  // namespace scantape::reference
