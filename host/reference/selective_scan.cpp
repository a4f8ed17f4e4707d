#include "scantape/selective_scan.h"

#include <omp.h>

#include <limits>

#include "in_f32.h"
#include "ssd.h"

namespace scantape::reference {

namespace {

struct Sizes {
  std::int64_t batch, length, channels, groups, states, interval;

  explicit Sizes(const SelectiveScanForward& args) noexcept
      : batch(args.u.shape[0]),
        length(args.u.shape[1]),
        channels(args.u.shape[2]),
        groups(args.B.shape[2]),
        states(args.B.shape[3]),
        interval(selective_scan_interval(length)) {}
  std::int64_t channels_of_group() const noexcept { return channels / groups; }
  /// Channels whose d_B and d_C are summed by one thread: which these are depends on the sizes alone.
  std::int64_t block() const noexcept {
    return std::max<std::int64_t>(64, (channels_of_group() + kMostParts - 1) / kMostParts);
  }
  std::int64_t parts() const noexcept { return (channels_of_group() + block() - 1) / block(); }

 private:
  static constexpr std::int64_t kMostParts = 8;
};

/// One row of the batch and one channel, step by step.
template <class T>
class Channel {
 public:
  Channel(const SelectiveScanForward& args, std::int64_t item, std::int64_t channel) noexcept
      : size_(args),
        item_(item),
        channel_(channel),
        group_(channel / size_.channels_of_group()),
        A_(args.A.as<T>() + channel * size_.states),
        D_(args.D.present ? args.D.as<T>()[channel] : T(0)),
        initial_(args.initial_state.present
                     ? args.initial_state.as<T>() + (item * size_.channels + channel) * size_.states
                     : nullptr),
        u_(args.u),
        z_(args.z),
        B_(args.B, 2),
        C_(args.C, 2),
        steps_(args.dt, args.dt_bias, args.dt_softplus, -kInfinity, kInfinity),
        start_(args.start) {}

  std::int64_t row(std::int64_t t) const noexcept { return item_ * size_.length + t; }
  T u(std::int64_t t) const noexcept { return u_[row(t)][channel_]; }
  bool gated() const noexcept { return static_cast<bool>(z_); }
  T z(std::int64_t t) const noexcept { return z_[row(t)][channel_]; }
  const T* B(std::int64_t t) const noexcept { return B_[row(t)] + group_ * size_.states; }
  const T* C(std::int64_t t) const noexcept { return C_[row(t)] + group_ * size_.states; }
  T dt(std::int64_t t) const noexcept { return steps_.dt(row(t), channel_); }
  T slope(std::int64_t t) const noexcept { return steps_.slope(row(t), channel_); }
  T A(std::int64_t n) const noexcept { return A_[n]; }
  T D() const noexcept { return D_; }
  bool starts(std::int64_t t) const noexcept { return start_.at(row(t)); }
  const T* initial() const noexcept { return initial_; }

  /// The state after step t from the one before, which may be the same memory; null: there is none.
  void advance(std::int64_t t, const T* before, T* after) const noexcept {
    const T dt = this->dt(t), moved = dt * u(t);
    const T* const B = this->B(t);
    for (std::int64_t n = 0; n < size_.states; ++n) {
      const T added = moved * B[n];
      after[n] = before == nullptr ? added : SsdDecay<T>(dt * A_[n]).step(before[n], added);
    }
  }
  /// y_t before the gate.
  double y(std::int64_t t, const T* h) const noexcept {
    const T* const C = this->C(t);
    return sum(size_.states, [&](std::int64_t n) { return double(h[n]) * C[n]; }) + double(D_) * u(t);
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  const Sizes size_;
  std::int64_t item_, channel_, group_;
  const T* A_;
  T D_;
  const T* initial_;
  RowsOf<const T> u_, z_, B_, C_;
  SsdTimeSteps<T> steps_;
  Starts<T> start_;
};

/// Where the state after k intervals is kept, k from 1.
template <class T>
T* kept_state(const SelectiveScanForward& args, const Sizes& size, std::int64_t item, std::int64_t channel,
              std::int64_t k) noexcept {
  const std::int64_t count = (size.length - 1) / size.interval;
  return const_cast<T*>(args.states.as<T>()) +
         ((item * count + k - 1) * size.channels + channel) * size.states;
}

int threads_for(const Sizes& size) noexcept {
  return worth_threads(size.batch * size.length * size.channels * size.states) ? omp_get_max_threads() : 1;
}

template <class T>
void forward_channel(const SelectiveScanForward& args, const Sizes& size, std::int64_t item,
                     std::int64_t index, T* state) noexcept {
  const Channel<T> channel(args, item, index);
  const RowsOf<T> out(args.out);
  const T* before = channel.initial();
  for (std::int64_t t = 0; t < size.length; ++t) {
    if (args.states.present && t > 0 && t % size.interval == 0)
      std::copy_n(state, size.states, kept_state<T>(args, size, item, index, t / size.interval));
    channel.advance(t, channel.starts(t) ? nullptr : before, state);
    before = state;
    const double y = channel.y(t, state);
    out[channel.row(t)][index] = static_cast<T>(channel.gated() ? y * double(silu(channel.z(t))) : y);
  }
  if (args.final_state.present)
    std::copy_n(state, size.states, args.final_state.as<T>() + (item * size.channels + index) * size.states);
}

template <class T>
void forward(const SelectiveScanForward& args) {
  const Sizes size(args);
  const std::int64_t rows = size.batch * size.channels;
  const int threads = threads_for(size);
  std::vector<T> scratch(static_cast<std::size_t>(threads * size.states));
#pragma omp parallel for schedule(static) num_threads(threads)
  for (std::int64_t row = 0; row < rows; ++row)
    forward_channel(args, size, row / size.channels, row % size.channels,
                    scratch.data() + omp_get_thread_num() * size.states);
}

/// What is summed over time, of each row of the batch: added over the batch in order at the end. d_B and d_C are sums over
/// channels: of each part of a group, [parts, B, L, G, N].
struct Sums {
  std::vector<double> A, D, dt_bias, B, C;

  explicit Sums(const Sizes& size)
      : A(static_cast<std::size_t>(size.batch * size.channels * size.states)),
        D(static_cast<std::size_t>(size.batch * size.channels)),
        dt_bias(D.size()),
        B(static_cast<std::size_t>(size.parts() * plane(size))),
        C(B.size()) {}
  static std::int64_t plane(const Sizes& size) noexcept {
    return size.batch * size.length * size.groups * size.states;
  }
};

/// One channel, backwards, an interval after another.
template <class T>
class BackwardChannel {
 public:
  /// `history` [interval + 1, N], `carry` [N].
  BackwardChannel(const SelectiveScanBackward& args, std::int64_t item, std::int64_t index, Sums& sums,
                  T* history, T* carry) noexcept
      : args_(args),
        size_(args),
        item_(item),
        index_(index),
        channel_(args, item, index),
        history_(history),
        carry_(carry),
        d_out_(args.d_out),
        d_u_(args.d_u),
        d_dt_(args.d_dt),
        d_z_(args.d_z),
        sums_(sums),
        first_((item * size_.channels + index) * size_.states) {
    const std::int64_t group = index / size_.channels_of_group(),
                       part = index % size_.channels_of_group() / size_.block();
    by_step_ =
        part * Sums::plane(size_) + item * size_.length * size_.groups * size_.states + group * size_.states;
  }

  void run() noexcept {
    if (args_.d_final_state.present)
      std::copy_n(args_.d_final_state.template as<T>() + first_, size_.states, carry_);
    else
      std::fill_n(carry_, size_.states, T(0));
    for (std::int64_t k = (size_.length - 1) / size_.interval; k >= 0; --k) run_interval(k);
    const Target<T> d_initial(args_.d_initial_state, 3);
    d_initial.write(0, first_, first_ + size_.states, [&](std::int64_t i) { return carry_[i - first_]; });
  }

 private:
  void run_interval(std::int64_t k) noexcept {
    const std::int64_t begin = k * size_.interval, end = std::min(begin + size_.interval, size_.length);
    const T* const before = k > 0 ? kept_state<T>(args_, size_, item_, index_, k) : channel_.initial();
    if (before != nullptr) std::copy_n(before, size_.states, history_);
    const auto state_before = [&](std::int64_t t) -> const T* {
      const bool none = channel_.starts(t) || (t == 0 && before == nullptr);
      return none ? nullptr : history_ + (t - begin) * size_.states;
    };
    for (std::int64_t t = begin; t < end; ++t)
      channel_.advance(t, state_before(t), history_ + (t - begin + 1) * size_.states);
    for (std::int64_t t = end - 1; t >= begin; --t)
      run_step(t, state_before(t), history_ + (t - begin + 1) * size_.states);
  }

  /// The carry comes in as what the steps after give to the state after step t, and leaves as what goes to the one before.
  void run_step(std::int64_t t, const T* before, const T* after) noexcept {
    const std::int64_t row = channel_.row(t), states = size_.states;
    const T dt = channel_.dt(t), u = channel_.u(t), *B = channel_.B(t), *C = channel_.C(t);
    const T d_out = d_out_ ? d_out_[row][index_] : T(0);
    const T d_y = channel_.gated() ? d_out * silu(channel_.z(t)) : d_out;
    if (channel_.gated())
      d_z_.write_at(
          row, index_,
          static_cast<T>(double(d_out) * channel_.y(t, after) * double(silu_derivative(channel_.z(t)))));
    double* const d_B = sums_.B.data() + by_step_ + t * size_.groups * states;
    double* const d_C = sums_.C.data() + by_step_ + t * size_.groups * states;
    double* const d_A = sums_.A.data() + first_;
    const bool starts = channel_.starts(t);
    const double moved = double(dt) * u;
    double d_moved = 0, through_decay = 0;
    for (std::int64_t n = 0; n < states; ++n) {
      const T G = std::fma(d_y, C[n], carry_[n]), A = channel_.A(n);
      const SsdDecay<T> decay(dt * A);
      d_C[n] += double(d_y) * after[n];
      d_B[n] += moved * G;
      d_moved += double(G) * B[n];
      const double w = before == nullptr ? 0.0 : double(G) * decay.times(before[n]);
      through_decay += double(A) * w;
      d_A[n] += double(dt) * w;
      carry_[n] = starts ? T(0) : decay.times(G);
    }
    d_u_.write_at(row, index_, static_cast<T>(double(dt) * d_moved + double(channel_.D()) * d_y));
    const double d_raw = (double(u) * d_moved + through_decay) * channel_.slope(t);
    d_dt_.write_at(row, index_, static_cast<T>(d_raw));
    const auto place = static_cast<std::size_t>(item_ * size_.channels + index_);
    sums_.D[place] += double(d_y) * u;
    sums_.dt_bias[place] += d_raw;
  }

  const SelectiveScanBackward& args_;
  const Sizes size_;
  std::int64_t item_, index_;
  Channel<T> channel_;
  T *history_, *carry_;
  RowsOf<const T> d_out_;
  Target<T> d_u_, d_dt_, d_z_;
  Sums& sums_;
  std::int64_t first_, by_step_;
};

/// Sums over the rows of the batch, or over the parts of a group, in order.
double total(const std::vector<double>& values, std::int64_t count, std::int64_t stride, std::int64_t i) {
  double result = 0;
  for (std::int64_t k = 0; k < count; ++k) result += values[static_cast<std::size_t>(k * stride + i)];
  return result;
}

template <class T>
void write_sums(const SelectiveScanBackward& args, const Sizes& size, const Sums& sums) noexcept {
  const auto write = [&](const Gradient& gradient, const std::vector<double>& values, std::int64_t count) {
    const Target<T> target(gradient, gradient.view.rank());
    target.write(0, count,
                 [&](std::int64_t i) { return static_cast<T>(total(values, size.batch, count, i)); });
  };
  write(args.d_A, sums.A, size.channels * size.states);
  write(args.d_D, sums.D, size.channels);
  write(args.d_dt_bias, sums.dt_bias, size.channels);

  const Target<T> d_B(args.d_B, 2), d_C(args.d_C, 2);
  const std::int64_t width = size.groups * size.states, plane = Sums::plane(size);
  for (std::int64_t row = 0; row < size.batch * size.length; ++row) {
    const auto of_row = [&](const std::vector<double>& values) {
      return [&values, &size, plane, first = row * width](std::int64_t i) {
        return static_cast<T>(total(values, size.parts(), plane, first + i));
      };
    };
    d_B.write(row, width, of_row(sums.B));
    d_C.write(row, width, of_row(sums.C));
  }
}

template <class T>
void backward(const SelectiveScanBackward& args) {
  const Sizes size(args);
  const std::int64_t parts = size.parts(), tasks = size.batch * size.groups * parts;
  const std::int64_t mine = (size.interval + 2) * size.states;
  const int threads = threads_for(size);
  std::vector<T> scratch(static_cast<std::size_t>(threads * mine));
  Sums sums(size);
#pragma omp parallel for schedule(static) num_threads(threads)
  for (std::int64_t task = 0; task < tasks; ++task) {
    const std::int64_t item = task / (size.groups * parts), group = task / parts % size.groups;
    const std::int64_t begin = task % parts * size.block();
    const std::int64_t end = std::min(begin + size.block(), size.channels_of_group());
    T* const carry = scratch.data() + omp_get_thread_num() * mine;
    for (std::int64_t i = begin; i < end; ++i) {
      BackwardChannel<T> channel(args, item, group * size.channels_of_group() + i, sums, carry + size.states,
                                 carry);
      channel.run();
    }
  }
  write_sums<T>(args, size, sums);
}

}  // namespace

Status selective_scan_forward(const SelectiveScanForward& args) noexcept {
  if (is_16_bit(args.u.dtype)) return in_f32("selective_scan", args, selective_scan_forward);
  return run("selective_scan",
             [&] { dispatch(args.u.dtype, [&](auto zero) { forward<decltype(zero)>(args); }); });
}

Status selective_scan_backward(const SelectiveScanBackward& args) noexcept {
  if (is_16_bit(args.u.dtype)) return in_f32("selective_scan_backward", args, selective_scan_backward);
  return run("selective_scan_backward",
             [&] { dispatch(args.u.dtype, [&](auto zero) { backward<decltype(zero)>(args); }); });
}

}  // namespace scantape::reference
