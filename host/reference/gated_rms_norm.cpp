#include "scantape/gated_rms_norm.h"

#include "in_f32.h"
#include "norm.h"

namespace scantape::reference {

namespace {

/// Groups of neighbouring channels of one row, each normalised by itself.
struct Groups {
  std::int64_t rows, count, columns;

  explicit Groups(const GatedRmsNormForward& args) noexcept
      : rows(rows_of(args.x).count), count(args.groups), columns(rows_of(args.x).length / args.groups) {}
  std::int64_t channels() const noexcept { return count * columns; }
};

/// Where the gate stands.
enum class Gate { none, first, last };

Gate gate_of(const GatedRmsNormForward& args) noexcept {
  return !args.z.present ? Gate::none : args.norm_before_gate ? Gate::last : Gate::first;
}

/// Calls body(row, scratch of one row's length) for every row. Blocks of rows share the scratch; bits do not depend on
/// how many there are.
template <class T, class Body>
void for_each_row(const Groups& groups, const Body& body) {
  const std::int64_t blocks = std::min<std::int64_t>(groups.rows, 64), channels = groups.channels();
  std::vector<T> scratch(static_cast<std::size_t>(blocks * channels));
#pragma omp parallel for schedule(static) if (worth_threads(groups.rows * channels))
  for (std::int64_t block = 0; block < blocks; ++block)
    for (std::int64_t row = block * groups.rows / blocks; row < (block + 1) * groups.rows / blocks; ++row)
      body(row, scratch.data() + block * channels);
}

template <class T>
void gates(const T* z, std::int64_t count, T* to) noexcept {
  for (std::int64_t i = 0; i < count; ++i) to[i] = z != nullptr ? silu(z[i]) : T(1);
}

template <class T>
void forward(const GatedRmsNormForward& args) {
  const Groups groups(args);
  const Gate gate = gate_of(args);
  const RowsOf<const T> x(args.x), z(args.z);
  const RowsOf<T> y(args.y), saved(args.statistics);
  const T* weight = args.weight.as<T>();
  for_each_row<T>(groups, [&](std::int64_t row, T* s) {
    gates(z[row], groups.channels(), s);
    for (std::int64_t group = 0; group < groups.count; ++group) {
      const std::int64_t first = group * groups.columns;
      const T *xg = x[row] + first, *sg = s + first, *w = weight + first;
      T* to = y[row] + first;
      const auto u = [xg, sg, gate](std::int64_t i) { return gate == Gate::first ? xg[i] * sg[i] : xg[i]; };
      const auto statistics = statistics_of<T, Norm::rms>(u, groups.columns, args.eps);
      for (std::int64_t i = 0; i < groups.columns; ++i) {
        const T normalised = statistics.normalised(u(i)) * w[i];
        to[i] = gate == Gate::last ? normalised * sg[i] : normalised;
      }
      statistics.save(saved[row] + group);
    }
  });
}

template <class T>
void backward_rows(const GatedRmsNormBackward& args) {
  const Groups groups(args);
  const Gate gate = gate_of(args);
  const RowsOf<const T> x(args.x), z(args.z), d_y(args.d_y), saved(args.statistics);
  const Target<T> d_x(args.d_x), d_z(args.d_z);
  const T* weight = args.weight.as<T>();
  for_each_row<T>(groups, [&](std::int64_t row, T* s) {
    gates(z[row], groups.channels(), s);
    for (std::int64_t group = 0; group < groups.count; ++group) {
      const std::int64_t first = group * groups.columns;
      const T *xg = x[row] + first, *sg = s + first, *w = weight + first, *gy = d_y[row] + first;
      const T* zg = gate != Gate::none ? z[row] + first : nullptr;
      const auto u = [xg, sg, gate](std::int64_t i) { return gate == Gate::first ? xg[i] * sg[i] : xg[i]; };
      const auto g = [gy, sg, w, gate](std::int64_t i) {
        return w[i] * (gate == Gate::last ? gy[i] * sg[i] : gy[i]);
      };
      const auto d_u = row_derivative<T, Norm::rms>(saved[row] + group, u, g, groups.columns);
      for (std::int64_t i = 0; i < groups.columns; ++i) {
        // All of d_y is read before either is written over it.
        const T du = d_u(i), dx = gate == Gate::first ? du * sg[i] : du;
        T dz = 0;
        if (gate == Gate::first) dz = du * xg[i] * silu_derivative(zg[i]);
        if (gate == Gate::last)
          dz = gy[i] * (d_u.statistics.normalised(xg[i]) * w[i]) * silu_derivative(zg[i]);
        d_x.write_at(row, first + i, dx);
        d_z.write_at(row, first + i, dz);
      }
    }
  });
}

template <class T>
void backward_weight(const GatedRmsNormBackward& args) {
  const Groups groups(args);
  const Gate gate = gate_of(args);
  const RowsOf<const T> x(args.x), z(args.z), d_y(args.d_y), saved(args.statistics);
  std::vector<double> sums(static_cast<std::size_t>(groups.channels()));
  sum_rows(groups.rows, groups.channels(), sums.data(),
           [&](std::int64_t row, std::int64_t begin, std::int64_t end, double* to) {
             const T *xr = x[row], *zr = z[row], *gr = d_y[row];
             for (std::int64_t i = begin; i < end; ++i) {
               const auto statistics = NormStatistics<T, Norm::rms>::saved(saved[row] + i / groups.columns);
               const T s = gate == Gate::none ? T(1) : silu(zr[i]);
               const T u = gate == Gate::first ? xr[i] * s : xr[i];
               const T g = gate == Gate::last ? gr[i] * s : gr[i];
               to[i] += g * statistics.normalised(u);
             }
           });
  Target<T>(args.d_weight).write(0, groups.channels(), [&](std::int64_t i) {
    return static_cast<T>(sums[static_cast<std::size_t>(i)]);
  });
}

}  // namespace

Status gated_rms_norm_forward(const GatedRmsNormForward& args) noexcept {
  if (is_16_bit(args.x.dtype)) return in_f32("gated_rms_norm", args, gated_rms_norm_forward);
  return run("gated_rms_norm",
             [&] { dispatch(args.x.dtype, [&](auto zero) { forward<decltype(zero)>(args); }); });
}

Status gated_rms_norm_backward(const GatedRmsNormBackward& args) noexcept {
  if (is_16_bit(args.x.dtype)) return in_f32("gated_rms_norm_backward", args, gated_rms_norm_backward);
  return run("gated_rms_norm_backward", [&] {
    dispatch(args.x.dtype, [&](auto zero) {
      using T = decltype(zero);
      if (args.d_weight.wanted()) backward_weight<T>(args);  // first: d_x or d_z may be written over d_y
      if (args.d_x.wanted() || args.d_z.wanted()) backward_rows<T>(args);
    });
  });
}

}  // namespace scantape::reference
