// Selective scan of Mamba-1 (S6),
//
//   h_t = a_t h_{t-1} + dt_t u_t B_t,  a_t = exp(dt_t A),   y_t = C_t . h_t + D u_t,   out_t = y_t silu(z_t)
//
// Each of the E N states decays by itself, so that nothing inside of a sequence is a product of matrices: B L E N
// exponentials have to be taken, and the states live in registers, step after step.
//
// Forward: kLanes neighbours in a warp have a channel, each of them kPer of its states (4 lanes up to 16 states, else a
// warp). A step reads dt, u and z once a channel, B and C once a warp (all channels of a group read the same), and a sum
// over the lanes is y_t. A block is 64 channels of a sequence (or 8), and time is not split: a chunked form would take
// every exponential twice, for the states and again for the outputs, and needs no more threads than B E kLanes as soon as
// a batch fills a device. One long sequence does not; that is the price, and it buys that packed sequences have the bits
// that they have apart. Forward moves u, dt, z, B, C and out once, and sqrt(L) states.
//
// Gradient. With dy = d_out silu(z), from the last step to the first,
//
//   G_t = dy_t C_t + a_{t+1} G_{t+1}   (d_final_state behind the last step; nothing back over a start)
//   w_t = G_t a_t h_{t-1}              (nothing at a start)
//   d_u_t = dt_t (G_t . B_t) + D dy_t        d_dt_t = u_t (G_t . B_t) + A . w_t, through softplus
//   d_B_t = sum_e dt_t u_t G_t               d_C_t = sum_e dy_t h_t
//   d_A = sum_t dt_t w_t                     d_h0 = a_1 G_1
//
// The decayed state itself is formed, never h - dt u B, which would cancel where a is small. A thread walks an interval
// of about sqrt(L) steps once more from the state kept before it, leaves every state in the workspace (where it alone
// reads it), then walks back. d_B and d_C are sums over channels: shuffles add the channels of a warp, shared memory those
// of a block's warps, one barrier for four states of a lane, and a block goes on with the next channels of its group and
// adds to what it left. What several blocks of a group leave, at most as much as u or eight parts, is joined by another
// launch, in order. No atomics: every sum has one order.
//
// Workspace of backward: a state for each step of one interval and thread, the parts, and per sequence d_A, d_D, d_dt_bias.

#include "scantape/selective_scan.h"

#include <limits>

#include "common/dispatch.cuh"
#include "selective_scan_gradient.cuh"

namespace scantape::cuda {
namespace {

using namespace selective_scan;  // NOLINT(google-build-using-namespace): the parts of this file

/// How a group's channels are shared out: sets as large as a block, dealt out to parts.
struct Parts {
  std::int64_t parts, sets, channel_sets;

  template <class S>
  Parts(const Problem<S>& problem, int channels) noexcept {
    channel_sets = ceil_div(problem.heads_per_group, channels);
    const std::int64_t as_large_as_u = problem.heads / (problem.groups * problem.states);
    const std::int64_t most = as_large_as_u > 8 ? as_large_as_u : 8;
    sets = ceil_div(channel_sets, most);
    parts = ceil_div(channel_sets, sets);
  }
};

/// Calls body(Plan) for the plan that so many states want.
template <class Body>
Status dispatch_plan(int states, Body body) {
  if (states <= 16) return body(Plan<4, 4>());
  if (states <= 4 * kWarpSize) return body(Plan<kWarpSize, 4>());
  return body(Plan<kWarpSize, 32>());  // 1,024 states, which is the most
}

template <class S>
Problem<S> problem_of(const SelectiveScanForward& args) noexcept {
  using T = Compute<S>;
  Problem<S> problem;
  const std::int64_t length = args.u.shape[1];
  problem.batch = args.u.shape[0];
  problem.length = length;
  problem.chunk = selective_scan_interval(length);
  problem.slots = ceil_div(length, problem.chunk);
  problem.heads = args.u.shape[2];
  problem.groups = args.B.shape[2];
  problem.heads_per_group = problem.heads / problem.groups;
  problem.width = 1;
  problem.states = static_cast<int>(args.B.shape[3]);
  problem.x = ssd::steps_of<const S>(args.u, 1, length);
  problem.dt = ssd::steps_of<const S>(args.dt, 1, length);
  problem.z = ssd::steps_of<const S>(args.z, 1, length);
  problem.B = ssd::steps_of<const S>(args.B, 2, length);
  problem.C = ssd::steps_of<const S>(args.C, 2, length);
  problem.A = args.A.as<T>();
  problem.D = args.D.as<T>();
  problem.dt_bias = args.dt_bias.as<T>();
  problem.h0 = args.initial_state.as<T>();
  problem.softplus = args.dt_softplus;
  problem.dt_max = std::numeric_limits<T>::infinity();
  problem.dt_min = -problem.dt_max;  // no clamp
  problem.start = args.start.as<S>();
  return problem;
}

template <class S>
Status forward(const SelectiveScanForward& args, Stream stream) {
  using T = Compute<S>;
  const Problem<S> problem = problem_of<S>(args);
  return dispatch_plan(problem.states, [&](auto plan) {
    using P = decltype(plan);
    return launch("selective_scan_fwd_kernel", selective_scan_fwd_kernel<S, P>,
                  ssd::grid_of(problem.batch * ceil_div(problem.heads, P::kChannels)), dim3(kBlockThreads), 0,
                  stream, problem, ssd::steps_of<S>(args.out, 1, problem.length), args.states.as<T>(),
                  args.final_state.as<T>());
  });
}

template <class S, class P>
Status backward(const SelectiveScanBackward& args, const Problem<S>& problem, Room& room, bool run,
                Stream stream) {
  using T = Compute<S>;
  const std::int64_t rows = problem.batch * problem.heads;
  const Parts parts(problem, P::kChannels);
  Gradients<S> gradients;
  gradients.d_out = ssd::steps_of<const S>(args.d_out, 1, problem.length);
  gradients.d_final_state = args.d_final_state.as<T>();
  gradients.d_u = ssd::steps_of<S>(args.d_u, 1, problem.length);
  gradients.d_dt = ssd::steps_of<S>(args.d_dt, 1, problem.length);
  gradients.d_z = ssd::steps_of<S>(args.d_z, 1, problem.length);
  gradients.d_h0 = target<T>(args.d_initial_state, true);
  gradients.parts = parts.parts;
  gradients.sets = parts.sets;
  const Steps<S> d_B = ssd::steps_of<S>(args.d_B, 2, problem.length),
                 d_C = ssd::steps_of<S>(args.d_C, 2, problem.length);
  if (parts.channel_sets == 1) {
    gradients.d_B.whole = d_B;
    gradients.d_C.whole = d_C;
  } else {
    if (d_B.present()) gradients.d_B.partial = ssd::take_group_parts(problem, parts.parts, room);
    if (d_C.present()) gradients.d_C.partial = ssd::take_group_parts(problem, parts.parts, room);
  }
  if (args.d_A.wanted()) gradients.d_A = room.take<T>(rows * problem.states);
  if (args.d_D.wanted()) gradients.d_D = room.take<T>(rows);
  if (args.d_dt_bias.wanted()) gradients.d_dt_bias = room.take<T>(rows);
  const dim3 grid = ssd::grid_of(problem.batch * problem.groups * parts.parts);
  gradients.history =
      room.take<T>((problem.chunk + (P::kInRegisters ? 0 : 2)) * P::kPer * grid.x * kBlockThreads);
  if (!run) return Status();

  const T* const kept = args.states.as<T>();
  const auto walk = [&](auto kernel) {
    return launch("selective_scan_bwd_kernel", kernel, grid, dim3(kBlockThreads), 0, stream, problem, kept,
                  gradients);
  };
  SCANTAPE_TRY(d_B.present() || d_C.present() ? walk(selective_scan_bwd_kernel<S, P, true>)
                                              : walk(selective_scan_bwd_kernel<S, P, false>));
  if (parts.channel_sets > 1) {
    SCANTAPE_TRY(ssd::join_parts(problem, parts.parts, gradients.d_B.partial, d_B, stream));
    SCANTAPE_TRY(ssd::join_parts(problem, parts.parts, gradients.d_C.partial, d_C, stream));
  }
  SCANTAPE_TRY(join_column_sums("selective_scan_bwd_join_d_A", gradients.d_A, problem.batch,
                                problem.heads * problem.states, target<T>(args.d_A, true), stream));
  SCANTAPE_TRY(join_column_sums("selective_scan_bwd_join_d_D", gradients.d_D, problem.batch, problem.heads,
                                target<T>(args.d_D, true), stream));
  return join_column_sums("selective_scan_bwd_join_d_dt_bias", gradients.d_dt_bias, problem.batch,
                          problem.heads, target<T>(args.d_dt_bias, true), stream);
}

constexpr const char* kNoDtype = "selective_scan: no CUDA kernel for this dtype";

Status backward(const SelectiveScanBackward& args, Room& room, bool run, Stream stream) {
  return dispatch_storage(args.u.dtype, kNoDtype, [&](auto zero) {
    using S = decltype(zero);
    const Problem<S> problem = problem_of<S>(args);
    return dispatch_plan(problem.states, [&](auto plan) {
      return backward<S, decltype(plan)>(args, problem, room, run, stream);
    });
  });
}

bool wants_nothing(const SelectiveScanBackward& args) noexcept {
  for (const Gradient* gradient : {&args.d_u, &args.d_dt, &args.d_A, &args.d_B, &args.d_C, &args.d_D,
                                   &args.d_z, &args.d_dt_bias, &args.d_initial_state}) {
    if (gradient->wanted()) return false;
  }
  return true;
}

}  // namespace

Status selective_scan_forward(const SelectiveScanForward& args, Stream stream) noexcept {
  return dispatch_storage(args.u.dtype, kNoDtype,
                          [&](auto zero) { return forward<decltype(zero)>(args, stream); });
}

Status selective_scan_backward(const SelectiveScanBackward& args, Stream stream) noexcept {
  if (wants_nothing(args)) return Status();
  Room room(args.workspace.data);
  return backward(args, room, true, stream);
}

std::int64_t selective_scan_forward_workspace(const SelectiveScanForward&) noexcept {
  return 0;
}

std::int64_t selective_scan_backward_workspace(const SelectiveScanBackward& args) noexcept {
  if (wants_nothing(args)) return 0;
  Room room;
  (void)backward(args, room, false, Stream{});
  return room.bytes();
}

}  // namespace scantape::cuda
