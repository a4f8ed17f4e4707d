#include "scantape/discretized_scan.h"

#include "discretize.h"
#include "timed.h"

namespace scantape::reference {

namespace {

/// One step: h -> (a + a_low) h + s u. Both numbers together are 1 + f where f is what is known to all its digits: a
/// alone, rounded, would lie to the same side of its value in every step.
template <class T>
struct Map {
  T a, a_low, s;

  T state(T before, T u) const noexcept { return std::fma(a, before, std::fma(a_low, before, s * u)); }
  T pulled(T g) const noexcept { return std::fma(a, g, a_low * g); }
};

template <class T>
Map<T> one_plus(T f, T s) noexcept {
  const T a = 1 + f, one = a - f;
  return {a, (1 - one) + (f - (a - one)), s};
}

template <class T>
Map<T> map_of(DiscretizeMethod method, T dt, T A) noexcept {
  const DiscreteStep<T> step = discrete_step(method, dt, A);
  if (std::abs(step.f) <= T(0.5)) return one_plus(step.f, step.s);
  // Far left a = 2 r - 1 is as near to -1.
  const T r = 1 / (1 - dt * A / 2);
  if (method == DiscretizeMethod::bilinear && std::abs(r) <= T(0.25)) {
    const Map<T> negative = one_plus(-2 * r, step.s);
    return {-negative.a, -negative.a_low, step.s};
  }
  return {step.a, 0, step.s};
}

/// dt and A. Where dt is constant, what they make of a state is formed once.
template <class T>
class Model {
 public:
  explicit Model(const DiscretizedScanForward& args)
      : dt_(args.dt), A_(args.A.as<T>()), method_(args.method), varies_(args.dt.rank() == 3) {
    if (varies_) return;
    for (std::int64_t n = 0; n < args.A.shape[0]; ++n) {
      maps_.push_back(map_of(method_, dt_[0][n], A_[n]));
      slopes_.push_back(discrete_slopes(method_, dt_[0][n], A_[n]));
    }
  }
  bool varies() const noexcept { return varies_; }
  Map<T> map(std::int64_t row, std::int64_t n) const noexcept {
    return varies_ ? map_of(method_, dt_[row][n], A_[n]) : maps_[static_cast<std::size_t>(n)];
  }
  DiscreteSlopes<T> slopes(std::int64_t row, std::int64_t n) const noexcept {
    return varies_ ? discrete_slopes(method_, dt_[row][n], A_[n]) : slopes_[static_cast<std::size_t>(n)];
  }

 private:
  RowsOf<const T> dt_;
  const T* A_;
  DiscretizeMethod method_;
  bool varies_;
  std::vector<Map<T>> maps_;
  std::vector<DiscreteSlopes<T>> slopes_;
};

Order order_of(const DiscretizedScanForward& args) noexcept {
  return {args.u.shape[1], args.direction == ScanDirection::reversed};
}

template <class T>
void forward(const DiscretizedScanForward& args) {
  const std::int64_t batch = args.u.shape[0], states = args.u.shape[2];
  const Order order = order_of(args);
  const Model<T> model(args);
  const Starts<T> start(args.start);
  const RowsOf<const T> u(args.u), h0(args.h0);
  const RowsOf<T> h(args.h), final_state(args.final_state);
#pragma omp parallel for schedule(static) if (worth_threads(args.u.elements()))
  for (std::int64_t item = 0; item < batch; ++item) {
    for (std::int64_t step = 0; step < order.length; ++step) {
      const std::int64_t row = order.row(item, step);
      const T* previous = step > 0 ? h[order.row(item, step - 1)] : h0[item];
      if (start.at(row)) previous = nullptr;
      for (std::int64_t n = 0; n < states; ++n) {
        const Map<T> map = model.map(row, n);
        h[row][n] = previous != nullptr ? map.state(previous[n], u[row][n]) : map.s * u[row][n];
      }
    }
    if (final_state) {
      const T* last = h[order.row(item, order.length - 1)];
      std::copy(last, last + states, final_state[item]);
    }
  }
}

/// What one sequence adds to the gradients that are summed over the batch, [states] each.
struct Sums {
  double *d_A, *d_dt;
};

/// Runs one sequence backwards. `carry` [states] starts as the cotangent of the final state and ends as that of h0.
template <class T>
void backward_item(const DiscretizedScanBackward& args, const Model<T>& model, std::int64_t item, T* carry,
                   const Sums& sums) noexcept {
  const std::int64_t states = args.u.shape[2];
  const Order order = order_of(args);
  const Starts<T> start(args.start);
  const RowsOf<const T> u(args.u), h(args.h), h0(args.h0), d_h(args.d_h);
  const Target<T> d_u(args.d_u), d_dt(model.varies() ? args.d_dt : Gradient());
  const bool wants_slopes = args.d_A.wanted() || args.d_dt.wanted();
  for (std::int64_t step = order.length - 1; step >= 0; --step) {
    const std::int64_t row = order.row(item, step);
    const bool cut = start.at(row);
    const T* previous = cut ? nullptr : step > 0 ? h[order.row(item, step - 1)] : h0[item];
    for (std::int64_t n = 0; n < states; ++n) {
      const T g = d_h ? carry[n] + d_h[row][n] : carry[n];
      const Map<T> map = model.map(row, n);
      d_u.write_at(row, n, map.s * g);
      if (wants_slopes) {
        const DiscreteSlopes<T> slopes = model.slopes(row, n);
        const T g_s = g * u[row][n];
        T by_A = g_s * slopes.s_A, by_dt = g_s * slopes.s_dt;
        if (previous != nullptr) {
          const T g_a = g * previous[n];
          by_A += g_a * slopes.a_A;
          by_dt += g_a * slopes.a_dt;
        }
        d_dt.write_at(row, n, by_dt);
        sums.d_A[n] += by_A;
        sums.d_dt[n] += by_dt;
      }
      carry[n] = cut ? T(0) : map.pulled(g);
    }
  }
}

/// target[n] = the sum over the sequences, in their order.
template <class T>
void write_sums(const Target<T>& target, const std::vector<double>& sums, std::int64_t states) noexcept {
  target.write(0, states, [&](std::int64_t n) {
    double total = 0;
    for (std::size_t at = static_cast<std::size_t>(n); at < sums.size();
         at += static_cast<std::size_t>(states))
      total += sums[at];
    return static_cast<T>(total);
  });
}

template <class T>
void backward(const DiscretizedScanBackward& args) {
  const std::int64_t batch = args.u.shape[0], states = args.u.shape[2];
  const Model<T> model(args);
  std::vector<T> carries(static_cast<std::size_t>(batch * states));
  std::vector<double> d_A(carries.size()), d_dt(carries.size());
  const RowsOf<const T> d_final_state(args.d_final_state);
  const Target<T> d_h0(args.d_h0);
#pragma omp parallel for schedule(static) if (worth_threads(args.u.elements()))
  for (std::int64_t item = 0; item < batch; ++item) {
    const std::int64_t at = item * states;
    T* carry = carries.data() + at;
    if (d_final_state) std::copy_n(d_final_state[item], states, carry);
    backward_item(args, model, item, carry, {d_A.data() + at, d_dt.data() + at});
    d_h0.write(item, states, [&](std::int64_t n) { return carry[n]; });
  }
  write_sums(Target<T>(args.d_A), d_A, states);
  if (!model.varies()) write_sums(Target<T>(args.d_dt), d_dt, states);
}

}  // namespace

Status discretized_scan_forward(const DiscretizedScanForward& args) noexcept {
  return run("discretized_scan",
             [&] { dispatch(args.u.dtype, [&](auto zero) { forward<decltype(zero)>(args); }); });
}

Status discretized_scan_backward(const DiscretizedScanBackward& args) noexcept {
  return run("discretized_scan_backward",
             [&] { dispatch(args.u.dtype, [&](auto zero) { backward<decltype(zero)>(args); }); });
}

}  // namespace scantape::reference
