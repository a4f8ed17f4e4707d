#include "scantape/discretize.h"

#include "discretize.h"
#include "discretize_dense.h"

namespace scantape::reference {

namespace {

template <class T>
void forward(const DiscretizeForward& args) noexcept {
  const Rows rows = rows_of(args.B);
  const T* dt = args.dt.as<T>();
  const T* A = args.A.as<T>();
  const RowsOf<const T> B(args.B);
  const RowsOf<T> B_bar(args.B_bar);
#pragma omp parallel for schedule(static) if (worth_threads(rows.count * rows.length))
  for (std::int64_t n = 0; n < rows.count; ++n) {
    const DiscreteStep<T> at = discrete_step(args.method, dt[n], A[n]);
    args.A_bar.as<T>()[n] = at.a;
    if (args.F.present) args.F.as<T>()[n] = at.f;
    const T* from = B[n];
    T* to = B_bar[n];
    for (std::int64_t e = 0; e < rows.length; ++e) to[e] = at.s * from[e];
  }
}

template <class T>
void backward(const DiscretizeBackward& args) noexcept {
  const Rows rows = rows_of(args.B);
  const T* dt = args.dt.as<T>();
  const T* A = args.A.as<T>();
  const RowsOf<const T> B(args.B), d_B_bar(args.d_B_bar);
  const Target<T> d_dt(args.d_dt), d_A(args.d_A), d_B(args.d_B);
#pragma omp parallel for schedule(static) if (worth_threads(rows.count * rows.length))
  for (std::int64_t n = 0; n < rows.count; ++n) {
    const T s = discrete_step(args.method, dt[n], A[n]).s;
    const DiscreteSlopes<T> at = discrete_slopes(args.method, dt[n], A[n]);
    // A cotangent that is absent is left out, not multiplied by 0: a derivative may be infinite.
    T d_A_n = 0, d_dt_n = 0;
    if (args.d_A_bar.present || args.d_F.present) {
      const T g_a = (args.d_A_bar.present ? args.d_A_bar.as<T>()[n] : T(0)) +
                    (args.d_F.present ? args.d_F.as<T>()[n] : T(0));
      d_A_n += g_a * at.a_A;
      d_dt_n += g_a * at.a_dt;
    }
    if (args.d_B_bar.present) {
      const T *g = d_B_bar[n], *b = B[n];
      const T g_s = static_cast<T>(sum(rows.length, [&](std::int64_t e) { return double(g[e]) * b[e]; }));
      d_A_n += g_s * at.s_A;
      d_dt_n += g_s * at.s_dt;
    }
    d_A.write_one(n, d_A_n);
    d_dt.write_one(n, d_dt_n);
    d_B.write(n, rows.length, [&](std::int64_t e) { return d_B_bar ? s * d_B_bar[n][e] : T(0); });
  }
}

/// A[H] over every dt[B, L, H].
template <class T>
void per_head_forward(const DiscretizeForward& args) noexcept {
  const Rows rows = rows_of(args.dt);
  const RowsOf<const T> dt(args.dt);
  const T* A = args.A.as<T>();
  const RowsOf<T> A_bar(args.A_bar), F(args.F), s(args.s);
#pragma omp parallel for schedule(static) if (worth_threads(rows.count * rows.length))
  for (std::int64_t row = 0; row < rows.count; ++row) {
    for (std::int64_t head = 0; head < rows.length; ++head) {
      const DiscreteStep<T> at = discrete_step(args.method, dt[row][head], A[head]);
      A_bar[row][head] = at.a;
      s[row][head] = at.s;
      if (F) F[row][head] = at.f;
    }
  }
}

template <class T>
void per_head_backward(const DiscretizeBackward& args) {
  const Rows rows = rows_of(args.dt);
  const RowsOf<const T> dt(args.dt), d_A_bar(args.d_A_bar), d_F(args.d_F), d_s(args.d_s);
  const T* A = args.A.as<T>();
  const Target<T> d_dt(args.d_dt), d_A(args.d_A);
  std::vector<double> sums(static_cast<std::size_t>(rows.length));
  // Threads share out the heads: each d_dt is written once, each d_A summed from the first row to the last.
  sum_rows(rows.count, rows.length, sums.data(),
           [&](std::int64_t row, std::int64_t begin, std::int64_t end, double* sum) {
             for (std::int64_t head = begin; head < end; ++head) {
               const DiscreteSlopes<T> at = discrete_slopes(args.method, dt[row][head], A[head]);
               T by_A = 0, by_dt = 0;  // what is absent is left out, not multiplied by 0
               if (d_A_bar || d_F) {
                 const T g = (d_A_bar ? d_A_bar[row][head] : T(0)) + (d_F ? d_F[row][head] : T(0));
                 by_A += g * at.a_A;
                 by_dt += g * at.a_dt;
               }
               if (d_s) {
                 by_A += d_s[row][head] * at.s_A;
                 by_dt += d_s[row][head] * at.s_dt;
               }
               sum[head] += by_A;
               d_dt.write_at(row, head, by_dt);
             }
           });
  d_A.write(0, rows.length,
            [&](std::int64_t head) { return static_cast<T>(sums[static_cast<std::size_t>(head)]); });
}

}  // namespace

Status discretize_forward(const DiscretizeForward& args) noexcept {
  return run("discretize", [&] {
    dispatch(args.A.dtype, [&](auto zero) {
      using T = decltype(zero);
      switch (form_of(args)) {
        case DiscretizeForm::diagonal:
          return forward<T>(args);
        case DiscretizeForm::per_head:
          return per_head_forward<T>(args);
        case DiscretizeForm::dense:
          return dense_forward<T>(args);
      }
    });
  });
}

Status discretize_backward(const DiscretizeBackward& args) noexcept {
  return run("discretize_backward", [&] {
    dispatch(args.A.dtype, [&](auto zero) {
      using T = decltype(zero);
      switch (form_of(args)) {
        case DiscretizeForm::diagonal:
          return backward<T>(args);
        case DiscretizeForm::per_head:
          return per_head_backward<T>(args);
        case DiscretizeForm::dense:
          return dense_backward<T>(args);
      }
    });
  });
}

}  // namespace scantape::reference
