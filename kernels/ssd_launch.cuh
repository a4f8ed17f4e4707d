#pragma once

#include "ssd_sequential.cuh"

// What ssd and ssd_step share on the host's side: their arguments as kernels see them, and the launches of the sequential
// form. Functions take their room from the workspace whether they run or only count.

namespace scantape::cuda::ssd {

/// `axes`: trailing dimensions of a step, (heads, width) or (heads).
template <class S>
Steps<S> steps_of(const ConstView& view, int axes, std::int64_t length, bool accumulate = false) noexcept {
  Steps<S> steps;
  Rows rows;
  if (!view.present || !as_rows(view, axes, &rows)) return steps;
  steps.data = static_cast<S*>(const_cast<void*>(view.data));
  steps.batch = length * rows.stride;
  steps.time = rows.stride;
  steps.head = axes == 2 ? view.shape.back() : 1;
  steps.accumulate = accumulate;
  return steps;
}
template <class S>
Steps<S> steps_of(const Gradient& gradient, int axes, std::int64_t length) noexcept {
  if (!gradient.wanted()) return {};
  return steps_of<S>(gradient.view, axes, length, gradient.mode == WriteMode::accumulate);
}

/// Of the arguments that ssd and ssd_step have in common.
template <class S, class Args>
Problem<S> problem_of(const Args& args, std::int64_t length) noexcept {
  using T = Compute<S>;
  Problem<S> problem;
  const int rank = args.x.rank();
  problem.batch = args.x.shape[0];
  problem.length = length;
  problem.heads = args.x.shape[rank - 2];
  problem.groups = args.B.shape[rank - 2];
  problem.heads_per_group = problem.heads / problem.groups;
  problem.width = static_cast<int>(args.x.shape.back());
  problem.states = static_cast<int>(args.B.shape.back());
  problem.chunk = problem.slots = 1;
  problem.x = steps_of<const S>(args.x, 2, length);
  problem.B = steps_of<const S>(args.B, 2, length);
  problem.C = steps_of<const S>(args.C, 2, length);
  problem.z = steps_of<const S>(args.z, 2, length);
  problem.dt = steps_of<const S>(args.dt, 1, length);
  problem.A = args.A.template as<T>();
  problem.D = args.D.template as<T>();
  problem.dt_bias = args.dt_bias.template as<T>();
  problem.D_per_channel = args.D.rank() == 2;
  problem.softplus = args.dt_softplus;
  problem.dt_min = static_cast<T>(args.dt_min);
  problem.dt_max = static_cast<T>(args.dt_max);
  return problem;
}

/// What backward is given and asked for.
template <class S>
struct Backward {
  using T = Compute<S>;

  Steps<const S> d_out;
  const T* d_final_state = nullptr;
  Steps<S> d_x, d_dt, d_B, d_C, d_z;
  Target<T> d_A, d_D, d_dt_bias, d_h0;

  bool wants_decay() const noexcept { return d_dt.present() || d_A.wanted() || d_dt_bias.wanted(); }
  bool wants_more_than_z() const noexcept {
    return wants_decay() || d_x.present() || d_B.present() || d_C.present() || d_D.wanted() || d_h0.wanted();
  }
};

template <class S, class Args>
Backward<S> backward_of(const Args& args, std::int64_t length, const ConstView& d_final_state,
                        const Gradient& d_h0) noexcept {
  using T = Compute<S>;
  Backward<S> backward;
  backward.d_out = steps_of<const S>(args.d_out, 2, length);
  backward.d_final_state = d_final_state.template as<T>();
  backward.d_x = steps_of<S>(args.d_x, 2, length);
  backward.d_dt = steps_of<S>(args.d_dt, 1, length);
  backward.d_B = steps_of<S>(args.d_B, 2, length);
  backward.d_C = steps_of<S>(args.d_C, 2, length);
  backward.d_z = steps_of<S>(args.d_z, 2, length);
  backward.d_A = target<T>(args.d_A, true);
  backward.d_D = target<T>(args.d_D, true);
  backward.d_dt_bias = target<T>(args.d_dt_bias, true);
  backward.d_h0 = target<T>(d_h0, true);
  return backward;
}

inline dim3 element_blocks(std::int64_t count) noexcept {
  return grid_for(count, kBlockThreads, kMostBlocksX);
}

/// dy: d_out itself where it can be read as it is.
template <class S>
Status make_dy(const Problem<S>& problem, const Backward<S>& backward, Room& room, bool run, Stream stream,
               Steps<const Compute<S>>* dy) {
  using T = Compute<S>;
  if constexpr (std::is_same_v<S, T>) {
    if (!problem.z.present() && backward.d_out.present()) {
      *dy = backward.d_out;
      return Status();
    }
  }
  const std::int64_t row = problem.heads * problem.width, count = problem.batch * problem.length * row;
  T* const made = room.take<T>(count);
  *dy = {made, problem.length * row, row, problem.width, false};
  if (!run) return Status();
  return launch("ssd_bwd_cotangent_kernel", ssd_bwd_cotangent_kernel<S>, element_blocks(count),
                dim3(kBlockThreads), 0, stream, problem, backward.d_out, made);
}

/// Sums over rows of [rows, H] and [rows, H, P]; null where nobody asked.
template <class S>
Status join_parameters(const Problem<S>& problem, const Backward<S>& backward, std::int64_t rows,
                       const Compute<S>* d_A, const Compute<S>* d_dt_bias, std::int64_t skip_rows,
                       const Compute<S>* d_skip, Stream stream) {
  using T = Compute<S>;
  SCANTAPE_TRY(join_column_sums("ssd_bwd_join_d_A", d_A, rows, problem.heads, backward.d_A, stream));
  SCANTAPE_TRY(
      join_column_sums("ssd_bwd_join_d_dt_bias", d_dt_bias, rows, problem.heads, backward.d_dt_bias, stream));
  if (!backward.d_D.wanted()) return Status();
  if (problem.D_per_channel)
    return join_column_sums("ssd_bwd_join_d_D", d_skip, skip_rows, problem.heads * problem.width,
                            backward.d_D, stream);
  return launch("ssd_bwd_join_heads_kernel", ssd_bwd_join_heads_kernel<T>, grid_of(problem.heads),
                dim3(kBlockThreads), 0, stream, d_skip, skip_rows, problem.heads,
                static_cast<std::int64_t>(problem.width), backward.d_D);
}

template <class S>
Status join_parts(const Problem<S>& problem, std::int64_t parts, const Compute<S>* partial,
                  const Steps<S>& out, Stream stream) {
  if (!out.present()) return Status();
  return launch("ssd_bwd_join_parts_kernel", ssd_bwd_join_parts_kernel<S>,
                element_blocks(problem.batch * problem.length * problem.groups * problem.states),
                dim3(kBlockThreads), 0, stream, problem, parts, partial, out);
}

/// Room for so many parts of a gradient [B, L, G, N].
template <class S>
Compute<S>* take_group_parts(const Problem<S>& problem, std::int64_t parts, Room& room) noexcept {
  return room.take<Compute<S>>(parts * problem.batch * problem.length * problem.groups * problem.states);
}

template <class S>
Status sequential_backward(const Problem<S>& problem, const Backward<S>& backward,
                           const StateStore<Compute<S>>& kept, Room& room, bool run, Stream stream) {
  using T = Compute<S>;
  if (backward.d_z.present() && run)
    SCANTAPE_TRY(launch_sequential_output(problem, StateStore<T>{},
                                          Outputs<S>{backward.d_z, true, backward.d_out},
                                          static_cast<T*>(nullptr), stream));
  if (!backward.wants_more_than_z()) return Status();
  Steps<const T> dy;
  SCANTAPE_TRY(make_dy(problem, backward, room, run, stream, &dy));
  const std::int64_t rows = problem.batch * problem.heads, parts = problem.heads_per_group;
  SequentialGradients<S> gradients;
  gradients.d_x = backward.d_x;
  gradients.d_dt = backward.d_dt;
  gradients.d_h0 = backward.d_h0;
  if (backward.d_D.wanted()) gradients.d_skip = room.take<T>(rows * problem.width);
  if (backward.d_A.wanted()) gradients.d_A = room.take<T>(rows);
  if (backward.d_dt_bias.wanted()) gradients.d_dt_bias = room.take<T>(rows);
  if (parts == 1) {
    gradients.d_B = backward.d_B;
    gradients.d_C = backward.d_C;
  } else {
    if (backward.d_B.present()) gradients.partial_B = take_group_parts(problem, parts, room);
    if (backward.d_C.present()) gradients.partial_C = take_group_parts(problem, parts, room);
  }
  gradients.history = room.take<T>(problem.chunk * problem.states_of_all());
  gradients.cotangent = room.take<T>(problem.states_of_all());
  if (!run) return Status();
  SCANTAPE_TRY(launch("ssd_sequential_bwd_kernel", ssd_sequential_bwd_kernel<S>, grid_of(rows),
                      dim3(kBlockThreads), 0, stream, problem, dy, kept, backward.d_final_state, gradients));
  if (parts > 1) {
    SCANTAPE_TRY(join_parts(problem, parts, gradients.partial_B, backward.d_B, stream));
    SCANTAPE_TRY(join_parts(problem, parts, gradients.partial_C, backward.d_C, stream));
  }
  return join_parameters(problem, backward, problem.batch, gradients.d_A, gradients.d_dt_bias, problem.batch,
                         gradients.d_skip, stream);
}

}  // namespace scantape::cuda::ssd
