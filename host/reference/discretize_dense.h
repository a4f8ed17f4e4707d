#pragma once

#include "dense.h"
#include "scantape/discretize.h"

/// Discretisation of a dense A: matrices of N x N only. F is A_bar - I, Phi the integral of exp(A t) over the step, so
/// that zoh's B_bar is Phi B.
namespace scantape::reference {

/// exp(dt A) - I and its integral by scaling and squaring:
///   h = dt/2^s with h |A| <= 1/2;  M = h A;  T_{m+2} = I,  T_j = I + M T_{j+1} / j  for j = m+1 .. 2;
///   F = M T_2,  Phi = h T_2;  s times  (F, Phi) <- (2 F + F F, 2 Phi + F Phi).
/// exp itself is never squared: a small F would be lost beside the identity.
template <class T>
class Exponential {
 public:
  Exponential(T dt, const Matrix<T>& A) : n_(A.size()), h_(dt) {
    const T norm = norm_bound(A);
    if (std::isfinite(dt) && std::isfinite(norm)) {
      while (std::abs(h_) * norm > T(0.5)) {
        h_ /= 2;
        share_ /= 2;
        ++squarings_;
      }
    }
    M_ = weighted(h_, A, T(0), A);
    // series_[j - 2] is T_j.
    series_.assign(kTerms + 1, Matrix<T>::identity(n_));
    for (int j = kTerms + 1; j >= 2; --j)
      series_[j - 2] = weighted(T(1), series_[kTerms], T(1) / static_cast<T>(j), product(M_, series_[j - 1]));
    stride_ = squarings_ / kKept + 1;
    Pair pair{product(M_, series_[0]), weighted(h_, series_[0], T(0), series_[0])};
    for (int k = 0; k < squarings_; ++k) {
      if (k % stride_ == 0) kept_.push_back(pair);
      pair = squared(pair);
    }
    last_ = pair;
  }

  const Matrix<T>& F() const noexcept { return last_.F; }
  const Matrix<T>& Phi() const noexcept { return last_.Phi; }

  struct Gradients {
    Matrix<T> A;
    T dt;
  };

  /// From the cotangents of F and Phi. Those of the squarings first, last one first, each from its inputs:
  ///   (g_F, g_Phi) <- (2 g_F + F^T g_F + g_F F^T + g_Phi Phi^T, 2 g_Phi + F^T g_Phi);
  /// then those of F = M T_2 and Phi = h T_2, and of each T_j, j = 2 .. m+1.
  Gradients backward(const Matrix<T>& A, Matrix<T> g_F, Matrix<T> g_Phi) const {
    for (int k = squarings_ - 1; k >= 0; --k) {
      const Pair pair = inputs_of(k);
      const Matrix<T> F_t = transposed(pair.F);
      g_F = weighted(T(2), g_F, T(1),
                     product(F_t, g_F) + product(g_F, F_t) + product(g_Phi, transposed(pair.Phi)));
      g_Phi = weighted(T(2), g_Phi, T(1), product(F_t, g_Phi));
    }
    const Matrix<T> M_t = transposed(M_);
    Matrix<T> g_T = weighted(T(1), product(M_t, g_F), h_, g_Phi);
    Matrix<T> g_M = product(g_F, transposed(series_[0]));
    for (int j = 2; j <= kTerms + 1; ++j) {
      const T share = T(1) / static_cast<T>(j);
      g_M = weighted(T(1), g_M, share, product(g_T, transposed(series_[j - 1])));
      g_T = weighted(share, product(M_t, g_T), T(0), g_T);
    }
    return {weighted(h_, g_M, T(0), g_M),
            static_cast<T>((inner(g_Phi, series_[0]) + inner(g_M, A)) * share_)};
  }

 private:
  static constexpr int kTerms = sizeof(T) == 4 ? 9 : 18;  // m
  static constexpr int kKept = 32;                        // squarings whose inputs are kept at most
  struct Pair {
    Matrix<T> F, Phi;
  };

  static Pair squared(const Pair& x) {
    return {weighted(T(2), x.F, T(1), product(x.F, x.F)), weighted(T(2), x.Phi, T(1), product(x.F, x.Phi))};
  }
  /// What squaring k started from: kept, or run again from the nearest kept one before it.
  Pair inputs_of(int k) const {
    Pair pair = kept_[static_cast<std::size_t>(k / stride_)];
    for (int i = 0; i < k % stride_; ++i) pair = squared(pair);
    return pair;
  }

  std::int64_t n_;
  T h_, share_ = 1;  // share = h / dt
  int squarings_ = 0, stride_ = 1;
  Matrix<T> M_;
  std::vector<Matrix<T>> series_;
  std::vector<Pair> kept_;
  Pair last_;
};

/// (I - dt/2 A)^-1
template <class T>
Matrix<T> bilinear_inverse(T dt, const Matrix<T>& A) {
  return inverse(weighted(T(1), Matrix<T>::identity(A.size()), -dt / 2, A));
}

/// to[n] = sum over k of K(n, k) from[k], rows of E.
template <class T>
void apply(const Matrix<T>& K, const RowsOf<const T>& from, std::int64_t columns, const Target<T>& to) {
  std::vector<double> sums(static_cast<std::size_t>(columns));
  for (std::int64_t n = 0; n < K.size(); ++n) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (std::int64_t k = 0; k < K.size(); ++k)
      for (std::int64_t e = 0; e < columns; ++e)
        sums[static_cast<std::size_t>(e)] += double(K(n, k)) * from[k][e];
    to.write(n, columns, [&](std::int64_t e) { return static_cast<T>(sums[static_cast<std::size_t>(e)]); });
  }
}

template <class T>
void dense_forward(const DiscretizeForward& args) {
  const std::int64_t n = args.A.shape[0], columns = args.B.shape[1];
  const T dt = *args.dt.as<T>();
  const Matrix<T> A(n, args.A.as<T>(), T(1)), identity = Matrix<T>::identity(n);
  Matrix<T> F, input = weighted(dt, identity, T(0), identity);  // B_bar = input B
  switch (args.method) {
    case DiscretizeMethod::zoh:
    case DiscretizeMethod::exp_euler: {
      const Exponential<T> exponential(dt, A);
      F = exponential.F();
      if (args.method == DiscretizeMethod::zoh) input = exponential.Phi();
      break;
    }
    case DiscretizeMethod::bilinear: {
      const Matrix<T> R = bilinear_inverse(dt, A);
      F = product(R, weighted(dt, A, T(0), A));
      input = weighted(dt, R, T(0), R);
      break;
    }
    case DiscretizeMethod::euler:
      F = weighted(dt, A, T(0), A);
      break;
  }
  apply(input, RowsOf<const T>(args.B), columns, Target<T>(Gradient(args.B_bar, WriteMode::overwrite)));
  const Matrix<T> A_bar = F + identity;
  std::copy(A_bar.data(), A_bar.data() + n * n, args.A_bar.as<T>());
  if (args.F.present) std::copy(F.data(), F.data() + n * n, args.F.as<T>());
}

/// The sum over what is given of two cotangents of one matrix.
template <class T>
Matrix<T> given_sum(std::int64_t n, const ConstView& a, const ConstView& b) {
  Matrix<T> sum(n);
  for (const ConstView* view : {&a, &b})
    if (view->present) sum = sum + Matrix<T>(n, view->as<T>(), T(1));
  return sum;
}

/// d_B_bar B^T; zero without d_B_bar.
template <class T>
Matrix<T> input_cotangent(const DiscretizeBackward& args) {
  const std::int64_t n = args.A.shape[0], columns = args.B.shape[1];
  Matrix<T> result(n);
  if (!args.d_B_bar.present) return result;
  const RowsOf<const T> g(args.d_B_bar), B(args.B);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      result(i, j) = static_cast<T>(sum(columns, [&](std::int64_t e) { return double(g[i][e]) * B[j][e]; }));
  return result;
}

template <class T>
void dense_backward(const DiscretizeBackward& args) {
  const std::int64_t n = args.A.shape[0], columns = args.B.shape[1];
  const T dt = *args.dt.as<T>();
  const Matrix<T> A(n, args.A.as<T>(), T(1)), identity = Matrix<T>::identity(n);
  const Matrix<T> g_F = given_sum<T>(n, args.d_A_bar, args.d_F), g_input = input_cotangent<T>(args);
  Matrix<T> d_A, input = weighted(dt, identity, T(0), identity);
  T d_dt = 0;
  switch (args.method) {
    case DiscretizeMethod::zoh: {
      const Exponential<T> exponential(dt, A);
      const auto gradients = exponential.backward(A, g_F, g_input);
      d_A = gradients.A;
      d_dt = gradients.dt;
      input = exponential.Phi();
      break;
    }
    case DiscretizeMethod::exp_euler: {
      const auto gradients = Exponential<T>(dt, A).backward(A, g_F, Matrix<T>(n));
      d_A = gradients.A;
      d_dt = static_cast<T>(gradients.dt + inner(g_input, identity));
      break;
    }
    case DiscretizeMethod::bilinear: {
      // A_bar = 2 R - I, B_bar = dt R B. As R = I + dt/2 A R, d(dt R)/ddt is R R, which does not cancel.
      const Matrix<T> R = bilinear_inverse(dt, A), R_t = transposed(R);
      const Matrix<T> by_F = product(g_F, R_t), by_input = product(g_input, R_t);
      const Matrix<T> Z = product(R_t, weighted(T(2), by_F, dt, by_input));
      d_A = weighted(dt / 2, Z, T(0), Z);
      d_dt = static_cast<T>(inner(by_F, product(R, A)) + inner(by_input, R));
      input = weighted(dt, R, T(0), R);
      break;
    }
    case DiscretizeMethod::euler:
      d_A = weighted(dt, g_F, T(0), g_F);
      d_dt = static_cast<T>(inner(g_F, A) + inner(g_input, identity));
      break;
  }
  const Target<T> to_dt(args.d_dt), to_A(args.d_A), to_B(args.d_B);
  to_dt.write_one(0, d_dt);
  for (std::int64_t i = 0; i < n; ++i) to_A.write(i, n, [&](std::int64_t j) { return d_A(i, j); });
  if (args.d_B_bar.present) {
    apply(transposed(input), RowsOf<const T>(args.d_B_bar), columns, to_B);
  } else {
    for (std::int64_t i = 0; i < n; ++i) to_B.write(i, columns, [](std::int64_t) { return T(0); });
  }
}

}  // namespace scantape::reference
