// Selective state space of Mamba-2,
//
//   h_t = a_t h_{t-1} + dt_t x_t B_t^T,  a_t = exp(dt_t A),   y_t = h_t C_t + D x_t,   out_t = y_t silu(z_t)
//
// with one decay for all P x N numbers of a head's state. Between two steps s <= t of a sequence only that decay stands,
// so that inside of a chunk of steps all is matrix products: with T_ij = exp(sum of dt A over j+1..i), j <= i,
//
//   y_i = sum_j (C_i . B_j) T_ij dt_j x_j + T_i0 H C_i + D x_i       H: the state before the chunk
//   H' = T_n0 H + sum_j T_nj dt_j x_j B_j^T                          H': the state after it
//
// Gradient. With dy = d_out silu(z) and dH' the cotangent of H',
//
//   d(dt x)_j = sum_i (C_i . B_j) T_ij dy_i + T_nj dH' B_j           d_x_j = dt_j d(dt x)_j + D dy_j
//   d_C_i = sum_j (dy_i . dt_j x_j) T_ij B_j + T_i0 H^T dy_i         d_B_j likewise
//   dH = T_n0 dH' + sum_i T_i0 dy_i C_i^T                            d_h0 is that of the first chunk
//
// and g_l, that of dt A, from all products of which T is a factor (ssd_decay.cuh); d_dt = x . d(dt x) + A g_l, through
// clamp and softplus where dt is not clamped. Forward saves the states before chunks; what is inside of them is formed
// again, y too where there is a gate.
//
// Chunked form. Forward, three launches:
//   chunk_state     a block per chunk, head and tile of the state: what the chunk adds to the state
//   state_passing   a thread per element of the state: H, chunk after chunk
//   chunk_output    a block per chunk, head, tile of its steps and tile of P: the outputs
// Backward, over the same blocks:
//   cotangent       dy, where there is a gate, or 16 bits are stored
//   chunk_output    once more, for d_z
//   chunk_state     what the chunk's outputs add to dH; state_passing: dH, back from chunk to chunk
//   input           d_x; x . d(dt x) and the row of W for the state after
//   group           d_C and the column of W for the state before; d_B. A block goes through some heads of a group in
//                   order; what several blocks of a group leave is joined by another launch, in order
//   decay           g_l and with it d_dt, and per chunk and head the sums of d_A and d_dt_bias, joined in order
// With starts one launch before these writes where chunks begin (ssd_problem.cuh).
//
// Sequential form: ssd_sequential.cuh.
//
// What is read again: a chunk's C, B and x in every product that they take part in, in tiles of 64 (f64: 32), most of it
// from the L2 cache. The least is x, B, C, dt once and out once, states twice: in bytes of shape [B, L, H, P] forward
// moves 2 n and 3 n N / chunk_length of states; backward reads x, d_out, B and C four times.
//
// Shared memory: two panels, one square of weights, two tiles of steps: 36 KiB (f64: 29 KiB). Kernels that hold three
// or four tiles of products in registers take 200 to 254 of them, so that a multiprocessor has one block of 256 threads;
// bound to two they would spill. Workspace, forward: log decays of chunks [B, chunks, H], the table of chunks with starts,
// and the states where they are not kept. Backward: dy where it is formed, cotangents of states, six numbers a step and
// head, and up to eight parts of d_B and of d_C.

#include "scantape/ssd.h"

#include "common/dispatch.cuh"
#include "ssd_decay.cuh"
#include "ssd_launch.cuh"
#include "ssd_state.cuh"

namespace scantape::cuda {
namespace {

using namespace ssd;  // NOLINT(google-build-using-namespace): the parts of this file

bool is_sequential(const SsdForward& args) noexcept {
  return args.chunk_length == 0;
}

void count_form(const SsdForward& args) noexcept {
  Counters& counters = scantape::detail::mutable_counters();
  ++(is_sequential(args) ? counters.ssd_sequential : counters.ssd_chunked);
}

template <class S>
Problem<S> problem_of(const SsdForward& args) noexcept {
  const std::int64_t length = args.x.shape[1];
  Problem<S> problem = ssd::problem_of<S>(args, length);
  const std::int64_t interval = ssd_interval(length, args.chunk_length);
  problem.chunk = interval < length ? interval : length;
  problem.slots = ceil_div(length, problem.chunk);
  problem.h0 = args.initial_state.as<Compute<S>>();
  problem.start = args.start.as<S>();
  return problem;
}

template <class S>
StateStore<Compute<S>> kept_states(const Problem<S>& problem, const View& states) noexcept {
  return {states.as<Compute<S>>(), problem.slots - 1, 1, problem.heads, problem.state_size()};
}

/// Where chunks begin, if that is not known beforehand.
template <class S>
Status make_chunk_table(Problem<S>& problem, Room& room, bool run, Stream stream) {
  if (problem.start == nullptr) return Status();
  std::int64_t* const left = room.take<std::int64_t>(problem.batch * problem.length);
  std::int64_t* const last = room.take<std::int64_t>(problem.batch);
  problem.left = left;
  problem.last = last;
  if (!run) return Status();
  return launch("ssd_chunk_table_kernel", ssd_chunk_table_kernel<S>, grid_of(problem.batch),
                dim3(kBlockThreads), 0, stream, problem.start, problem.batch, problem.length, problem.chunk,
                left, last);
}

template <class S>
Status launch_chunk_output(const Problem<S>& problem, const StateStore<Compute<S>>& states,
                           const Outputs<S>& outputs, Stream stream) {
  const ChunkBlocks<Compute<S>> blocks(problem, problem.heads, problem.width);
  return launch("ssd_chunk_output_kernel", ssd_chunk_output_kernel<S>, grid_of(blocks.count),
                dim3(kBlockThreads), 0, stream, problem, blocks, states, outputs);
}

template <class S>
Status forward(const SsdForward& args, Room& room, bool run, Stream stream) {
  using T = Compute<S>;
  Problem<S> problem = problem_of<S>(args);
  StateStore<T> states = kept_states(problem, args.states);
  const Outputs<S> outputs{steps_of<S>(args.out, 2, problem.length), false, {}};
  T* const final_state = args.final_state.as<T>();
  if (is_sequential(args)) {
    if (!run) return Status();
    return launch_sequential_output(problem, states, outputs, final_state, stream);
  }
  SCANTAPE_TRY(make_chunk_table(problem, room, run, stream));
  if (!args.states.present) states.data = room.take<T>(states.count(problem.batch));
  T* const log_decay = room.take<T>(problem.batch * (problem.slots + 1) * problem.heads);
  if (!run) return Status();
  const StateBlocks<S> blocks(problem, states.slots + (final_state == nullptr ? 0 : 1));
  if (blocks.slots > 0) {
    SCANTAPE_TRY(launch("ssd_fwd_chunk_state_kernel", ssd_fwd_chunk_state_kernel<S>, grid_of(blocks.count),
                        dim3(kBlockThreads), 0, stream, problem, blocks, states, final_state, log_decay));
    SCANTAPE_TRY(launch("ssd_fwd_state_passing_kernel", ssd_fwd_state_passing_kernel<S>,
                        element_blocks(problem.states_of_all()), dim3(kBlockThreads), 0, stream, problem,
                        states, final_state, log_decay));
  }
  return launch_chunk_output(problem, states, outputs, stream);
}

/// dH after every chunk.
template <class S>
Status make_cotangents(const Problem<S>& problem, const Backward<S>& backward,
                       const Steps<const Compute<S>>& dy, Room& room, bool run, Stream stream,
                       StateStore<Compute<S>>* cotangents) {
  using T = Compute<S>;
  const bool wants_first = backward.d_h0.wanted();
  *cotangents = kept_states(problem, View());
  if (wants_first) {
    cotangents->first = 0;
    cotangents->slots = problem.slots;
  }
  cotangents->data = room.take<T>(cotangents->count(problem.batch));
  T* const log_decay = room.take<T>(problem.batch * problem.slots * problem.heads);
  if (!run || cotangents->slots == 0) return Status();
  const StateBlocks<S> blocks(problem, cotangents->slots);
  SCANTAPE_TRY(launch("ssd_bwd_chunk_state_kernel", ssd_bwd_chunk_state_kernel<S>, grid_of(blocks.count),
                      dim3(kBlockThreads), 0, stream, problem, blocks, dy, *cotangents, log_decay));
  return launch("ssd_bwd_state_passing_kernel", ssd_bwd_state_passing_kernel<S>,
                element_blocks(problem.states_of_all()), dim3(kBlockThreads), 0, stream, problem, *cotangents,
                backward.d_final_state, static_cast<const T*>(log_decay), backward.d_h0);
}

/// d_C (kLower, with the states) or d_B (with the cotangents of states).
template <class S, bool kLower>
Status make_group_gradient(const Problem<S>& problem, const Backward<S>& backward,
                           const Steps<const Compute<S>>& dy, const StateStore<Compute<S>>& states,
                           const StepSums<Compute<S>>& incoming, Room& room, bool run, Stream stream) {
  using T = Compute<S>;
  const Steps<S>& out = kLower ? backward.d_C : backward.d_B;
  GroupGradient<S> gradient;
  gradient.parts = HeadParts(problem.heads_per_group);
  gradient.incoming = incoming;
  const std::int64_t parts = gradient.parts.parts;
  if (parts == 1)
    gradient.whole = out;
  else if (out.present())
    gradient.partial = take_group_parts(problem, parts, room);
  if (!run) return Status();
  const ChunkBlocks<T> blocks(problem, problem.groups * parts, problem.states);
  SCANTAPE_TRY(launch(kLower ? "ssd_bwd_group_kernel (d_C)" : "ssd_bwd_group_kernel (d_B)",
                      ssd_bwd_group_kernel<S, kLower>, grid_of(blocks.count), dim3(kBlockThreads), 0, stream,
                      problem, blocks, dy, states, backward.d_final_state, gradient));
  return parts == 1 ? Status() : join_parts(problem, parts, gradient.partial, out, stream);
}

template <class S>
Status chunked_backward(const Problem<S>& problem, const Backward<S>& backward,
                        const StateStore<Compute<S>>& states, Room& room, bool run, Stream stream) {
  using T = Compute<S>;
  if (backward.d_z.present() && run)
    SCANTAPE_TRY(
        launch_chunk_output(problem, states, Outputs<S>{backward.d_z, true, backward.d_out}, stream));
  if (!backward.wants_more_than_z()) return Status();
  Steps<const T> dy;
  SCANTAPE_TRY(make_dy(problem, backward, room, run, stream, &dy));
  StateStore<T> cotangents;
  SCANTAPE_TRY(make_cotangents(problem, backward, dy, room, run, stream, &cotangents));

  const bool wants_decay = backward.wants_decay();
  const ChunkBlocks<T> blocks(problem, problem.heads, problem.width);
  const std::int64_t plane = problem.batch * problem.heads * problem.length;
  const std::int64_t state_planes = ceil_div(problem.states, kTile<T>);
  const std::int64_t rows = problem.batch * problem.slots, skip_rows = rows * blocks.row_tiles;
  InputGradients<S> input;
  DecayGradients<S> decay{};
  input.d_x = backward.d_x;
  if (wants_decay) {
    decay.of_input = input.of_input = {room.take<T>(blocks.column_tiles * plane), plane};
    decay.outgoing = input.outgoing = {room.take<T>(blocks.column_tiles * plane), plane};
    decay.incoming = {room.take<T>(state_planes * plane), plane};
    decay.input_planes = blocks.column_tiles;
    decay.state_planes = state_planes;
    decay.inside = room.take<T>(plane);
    decay.later_rows = room.take<T>(plane);
    decay.crossing = room.take<T>(plane);
    decay.d_dt = backward.d_dt;
    if (backward.d_A.wanted()) decay.d_A = room.take<T>(rows * problem.heads);
    if (backward.d_dt_bias.wanted()) decay.d_dt_bias = room.take<T>(rows * problem.heads);
  }
  if (backward.d_D.wanted()) input.d_skip = room.take<T>(skip_rows * problem.heads * problem.width);

  if (run && (wants_decay || backward.d_x.present() || backward.d_D.wanted()))
    SCANTAPE_TRY(launch("ssd_bwd_input_kernel", ssd_bwd_input_kernel<S>, grid_of(blocks.count),
                        dim3(kBlockThreads), 0, stream, problem, blocks, dy, cotangents,
                        backward.d_final_state, input));
  if (wants_decay || backward.d_C.present())
    SCANTAPE_TRY(
        (make_group_gradient<S, true>(problem, backward, dy, states, decay.incoming, room, run, stream)));
  if (backward.d_B.present())
    SCANTAPE_TRY((make_group_gradient<S, false>(problem, backward, dy, cotangents, {}, room, run, stream)));
  if (!run) return Status();
  if (wants_decay)
    SCANTAPE_TRY(launch("ssd_bwd_decay_kernel", ssd_bwd_decay_kernel<S>, grid_of(rows * problem.heads),
                        dim3(kBlockThreads), 0, stream, problem, dy, states, cotangents,
                        backward.d_final_state, decay));
  return join_parameters(problem, backward, rows, decay.d_A, decay.d_dt_bias, skip_rows, input.d_skip,
                         stream);
}

template <class S>
Status backward(const SsdBackward& args, Room& room, bool run, Stream stream) {
  Problem<S> problem = problem_of<S>(args);
  const Backward<S> gradients =
      backward_of<S>(args, problem.length, args.d_final_state, args.d_initial_state);
  SCANTAPE_TRY(make_chunk_table(problem, room, run, stream));
  const StateStore<Compute<S>> states = kept_states(problem, args.states);
  return is_sequential(args) ? sequential_backward(problem, gradients, states, room, run, stream)
                             : chunked_backward(problem, gradients, states, room, run, stream);
}

constexpr const char* kNoDtype = "ssd: no CUDA kernel for this dtype";

Status forward(const SsdForward& args, Room& room, bool run, Stream stream) {
  return dispatch_storage(args.x.dtype, kNoDtype,
                          [&](auto zero) { return forward<decltype(zero)>(args, room, run, stream); });
}

Status backward(const SsdBackward& args, Room& room, bool run, Stream stream) {
  return dispatch_storage(args.x.dtype, kNoDtype,
                          [&](auto zero) { return backward<decltype(zero)>(args, room, run, stream); });
}

bool wants_nothing(const SsdBackward& args) noexcept {
  for (const Gradient* gradient : {&args.d_x, &args.d_dt, &args.d_A, &args.d_B, &args.d_C, &args.d_D,
                                   &args.d_z, &args.d_dt_bias, &args.d_initial_state}) {
    if (gradient->wanted()) return false;
  }
  return true;
}

}  // namespace

Status ssd_forward(const SsdForward& args, Stream stream) noexcept {
  count_form(args);
  Room room(args.workspace.data);
  return forward(args, room, true, stream);
}

Status ssd_backward(const SsdBackward& args, Stream stream) noexcept {
  if (wants_nothing(args)) return Status();
  count_form(args);
  Room room(args.workspace.data);
  return backward(args, room, true, stream);
}

std::int64_t ssd_forward_workspace(const SsdForward& args) noexcept {
  Room room;
  (void)forward(args, room, false, Stream{});
  return room.bytes();
}

std::int64_t ssd_backward_workspace(const SsdBackward& args) noexcept {
  if (wants_nothing(args)) return 0;
  Room room;
  (void)backward(args, room, false, Stream{});
  return room.bytes();
}

}  // namespace scantape::cuda
