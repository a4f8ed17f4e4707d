// One step of ssd. A step is a sequence of length 1, so this is its sequential form (ssd_sequential.cuh) with the state
// given as the initial one and the next as the final one, and has its bits.
//
// Forward: a warp per row of a head's state, which it reads into registers, moves and writes: next_state may be the
// memory of state. 2 B H P N numbers are moved, and little else.
//
// Backward, from the state before:  G = d_next_state + dy C^T;  d_state = exp(dt A) G;  d_x = dt G B + D dy;
// g_l = <G, exp(dt A) state>; sums over the heads of a group (d_B, d_C) and over the batch (d_A, d_D, d_dt_bias) are
// joined in order by launches of their own. A block per head forms the next state again and G, in the workspace.

#include "scantape/ssd_step.h"

#include "common/dispatch.cuh"
#include "ssd_launch.cuh"

namespace scantape::cuda {
namespace {

template <class S>
ssd::Problem<S> problem_of(const SsdStepForward& args) noexcept {
  ssd::Problem<S> problem = ssd::problem_of<S>(args, 1);
  problem.h0 = args.state.as<Compute<S>>();
  return problem;
}

template <class S>
Status forward(const SsdStepForward& args, Stream stream) {
  using T = Compute<S>;
  return ssd::launch_sequential_output(problem_of<S>(args), ssd::StateStore<T>{},
                                       ssd::Outputs<S>{ssd::steps_of<S>(args.out, 2, 1), false, {}},
                                       args.next_state.as<T>(), stream);
}

Status backward(const SsdStepBackward& args, Room& room, bool run, Stream stream) {
  return dispatch_storage(args.x.dtype, "ssd_step: no CUDA kernel for this dtype", [&](auto zero) {
    using S = decltype(zero);
    return ssd::sequential_backward(problem_of<S>(args),
                                    ssd::backward_of<S>(args, 1, args.d_next_state, args.d_state),
                                    ssd::StateStore<Compute<S>>{}, room, run, stream);
  });
}

bool wants_nothing(const SsdStepBackward& args) noexcept {
  for (const Gradient* gradient : {&args.d_x, &args.d_dt, &args.d_A, &args.d_B, &args.d_C, &args.d_D,
                                   &args.d_z, &args.d_dt_bias, &args.d_state}) {
    if (gradient->wanted()) return false;
  }
  return true;
}

}  // namespace

Status ssd_step_forward(const SsdStepForward& args, Stream stream) noexcept {
  return dispatch_storage(args.x.dtype, "ssd_step: no CUDA kernel for this dtype",
                          [&](auto zero) { return forward<decltype(zero)>(args, stream); });
}

Status ssd_step_backward(const SsdStepBackward& args, Stream stream) noexcept {
  if (wants_nothing(args)) return Status();
  Room room(args.workspace.data);
  return backward(args, room, true, stream);
}

std::int64_t ssd_step_forward_workspace(const SsdStepForward&) noexcept {
  return 0;
}

std::int64_t ssd_step_backward_workspace(const SsdStepBackward& args) noexcept {
  if (wants_nothing(args)) return 0;
  Room room;
  (void)backward(args, room, false, Stream{});
  return room.bytes();
}

}  // namespace scantape::cuda
