// Discretisation and scan of a diagonal state space model in one pass over time:
//
//   h_t = a_t h_{t-1} + s_t u_t,   a_t and s_t of dt_t and A by a method of discretize (common/discretize.cuh)
//
// a, s and s u are formed in registers, where a step is loaded, and are never in memory. A step is a map
// h -> a h + s u; maps are scanned as in scan.cu (common/affine.cuh, common/scan.cuh).
//
// Decays near 1. With dt A = -1e-4 a state remembers 10,000 steps: a rounded to f32 is off by up to 3e-8 to the same
// side in each of them, and h by 3e-4. Discretisation knows a - 1 without cancellation, so a step has its decay in
// two numbers, a + a_low = 1 + (a - 1) exactly: a h + (a_low h + s u), each rounded once, is as good as
// h + ((a - 1) h + s u), and it is what compositions of steps are made of too. One kind of map does all.
//
// Gradient. With g the total cotangent of h, which is the same recurrence the other way through time,
//
//   g_t = d_h_t + [start_{t+1} = 0] a_{t+1} g_{t+1},   g_L = d_h_L + d_final_state
//   d_u_t = s_t g_t,   d_h0 = [start_1 = 0] a_1 g_1
//
// and with g_a_t = [start_t = 0] g_t h_{t-1} and g_s_t = g_t u_t
//
//   d_dt_t = g_a_t da/ddt + g_s_t ds/ddt,   d_A = sum over B and L of (g_a_t da/dA + g_s_t ds/dA)
//
// d_dt is summed as d_A is where dt is constant. Forward saves h alone; a, s and the slopes are formed again from dt
// and A, in the same launch. At a start a is selected away, in d_dt and d_A too; s counts there as anywhere.
//
// What is summed: over time in the thread and the block, one number per sequence and part of time, in the workspace,
// then over B and parts in order by a second launch.
//
// Variants: dt constant or varying, with and without starts, f32 and f64, and those of common/scan.cuh. Where dt is
// constant, a and s are formed once a channel, and so are the slopes, of which then the sums of g_a and g_s are enough.
// Method and direction are data, the same for all threads: a branch beside exponentials.
//
// Bytes: forward reads u (and dt where it varies), writes h: 2 n or 3 n elements; discretize, multiply and scan move
// 9 n. Backward reads d_h, h and u (and dt), writes d_u (and d_dt): 4 n or 6 n. Where time is cut into parts, what the
// maps are made of is read twice.

#include "scantape/discretized_scan.h"

#include "common/discretize.cuh"
#include "common/dispatch.cuh"
#include "common/reduce.cuh"
#include "common/scan.cuh"
#include "common/timed.cuh"

namespace scantape::cuda {
namespace {

/// What steps are made of.
template <class T>
struct StateModel {
  Timed<T> dt;
  const T* A = nullptr;
  DiscretizeMethod method = DiscretizeMethod::zoh;
};

/// That of one channel. Where dt is constant all steps are equal, and what they are is formed once.
template <class T, bool kVaries>
class ChannelModel {
 public:
  __device__ ChannelModel(const StateModel<T>& model, std::int64_t channel)
      : dt_(model.dt.channel(channel)), method_(model.method) {
    if (channel < 0) return;
    A_ = model.A[channel];
    if constexpr (!kVaries) map_ = formed(0);
  }

  __device__ DiscreteMap<T> map(std::int64_t row) const {
    if constexpr (kVaries) return formed(row);
    return map_;
  }
  __device__ DiscreteSlopes<T> slopes(std::int64_t row) const {
    const T dt = dt_.at(kVaries ? row : 0);
    return with_method(method_, [&](auto method) { return discrete_slopes<T, method.value>(dt, A_); });
  }

 private:
  __device__ DiscreteMap<T> formed(std::int64_t row) const {
    const T dt = dt_.at(row);
    return with_method(method_, [&](auto method) { return discrete_map<T, method.value>(dt, A_); });
  }

  Track<T> dt_;
  T A_ = T(0);
  DiscretizeMethod method_;
  DiscreteMap<T> map_{};
};

/// How maps are composed and applied: by the monoid, whose elements steps are already.
template <class T, bool kStarts>
class MapThread {
 public:
  using Map = Composed<T, kStarts>;

  __device__ Map identity() const { return cuda::identity<T, kStarts>(); }
  __device__ Map combine(const Map& later, const Map& earlier) const { return cuda::combine(later, earlier); }
  __device__ T apply(const Map& map, T h) const { return cuda::apply(map, h); }

 protected:
  /// h -> a h + b, or h -> b where a sequence begins.
  __device__ static Map step(bool start, const Decay<T>& decay, T b) {
    if constexpr (kStarts) {
      if (start) return starting(b);
    }
    return composed<T, kStarts>(decay, b);
  }
  __device__ static bool starts_at(const T* start, std::int64_t row) {
    if constexpr (kStarts) return start[row] != T(0);
    return false;
  }
};

template <class T, bool kVaries, bool kStarts>
struct DiscretizedForward {
  using Map = Composed<T, kStarts>;
  using State = T;
  using Sum = T;
  // Half as many where each step has exponentials of its own, or, below, a flag: more do not fit into the registers.
  static constexpr int kSums = 0, kLongSteps = (kVaries ? 16 : 32) / static_cast<int>(sizeof(T));

  Clock clock;
  StateModel<T> model;
  Timed<T> u, h;
  Source<T> h0;
  const T* start;
  Target<T> final_state;

  class Thread : public MapThread<T, kStarts> {
   public:
    using Step = Map;

    __device__ Thread(const DiscretizedForward& scan, std::int64_t item, std::int64_t channel, bool)
        : scan_(scan),
          item_(item),
          channel_(channel),
          model_(scan.model, channel),
          u_(scan.u.channel(channel)),
          h_(scan.h.channel(channel)) {}

    __device__ Map compose(const Step& later, const Map& earlier) const {
      return this->combine(later, earlier);
    }
    __device__ T initial() const { return scan_.h0.present() ? scan_.h0.at(item_, channel_) : T(0); }
    __device__ Step load(std::int64_t r) const {
      const std::int64_t row = scan_.clock.row(item_, r);
      const DiscreteMap<T> map = model_.map(row);
      return this->step(this->starts_at(scan_.start, row), map.decay, map.s * u_.at(row));
    }
    __device__ void emit(std::int64_t r, bool exists, const Step&, T state) const {
      if (!exists) return;
      h_.put(scan_.clock.row(item_, r), state);
      if (scan_.final_state.wanted() && r == scan_.clock.length - 1)
        scan_.final_state.put(item_, channel_, state);
    }

   private:
    const DiscretizedForward& scan_;
    std::int64_t item_, channel_;
    ChannelModel<T, kVaries> model_;
    Track<T> u_, h_;
  };
};

/// The recurrence of g: step r is row length - 1 - r of the forward scan's order.
template <class T, bool kVaries, bool kStarts>
struct DiscretizedBackward {
  using Map = Composed<T, kStarts>;
  using State = T;
  using Sum = T;
  static constexpr int kSums = 2, kLongSteps = (kStarts ? 16 : 32) / static_cast<int>(sizeof(T));

  Clock clock;  // of the forward scan
  StateModel<T> model;
  Timed<T> u, h, d_h;
  Source<T> h0, d_final_state;
  const T* start;
  bool wants_slopes;   // d_dt or d_A
  Timed<T> d_dt, d_u;  // d_dt where dt varies
  Target<T> d_h0;
  T* sums;  // of d_A, then of d_dt where dt is constant

  class Thread : public MapThread<T, kStarts> {
   public:
    struct Step {
      Map map;
      T earlier, u;  // h_{t-1} and u_t
    };

    __device__ Thread(const DiscretizedBackward& scan, std::int64_t item, std::int64_t channel, bool)
        : scan_(scan),
          item_(item),
          channel_(channel),
          model_(scan.model, channel),
          u_(scan.u.channel(channel)),
          h_(scan.h.channel(channel)),
          d_h_(scan.d_h.channel(channel)),
          d_dt_(scan.d_dt.channel(channel)),
          d_u_(scan.d_u.channel(channel)) {}

    __device__ Map compose(const Step& later, const Map& earlier) const {
      return this->combine(later.map, earlier);
    }
    using MapThread<T, kStarts>::apply;
    __device__ T apply(const Step& step, T g) const { return cuda::apply(step.map, g); }
    __device__ T initial() const {
      return scan_.d_final_state.present() ? scan_.d_final_state.at(item_, channel_) : T(0);
    }
    __device__ Step load(std::int64_t r) const {
      const std::int64_t t = scan_.clock.length - 1 - r, row = scan_.clock.row(item_, t);
      const std::int64_t ahead = scan_.clock.ahead();
      const T d_h = d_h_.present() ? d_h_.at(row) : T(0);
      Step step;
      if (r == 0)  // what comes in is the cotangent of the final state itself
        step.map = this->step(false, decay_of(T(1)), d_h);
      else
        step.map = this->step(starts(row + ahead), model_.map(row + ahead).decay, d_h);
      step.earlier = step.u = T(0);
      if (scan_.wants_slopes) {
        step.u = u_.at(row);
        if (!is_fresh(t, row)) step.earlier = t == 0 ? scan_.h0.at(item_, channel_) : h_.at(row - ahead);
      }
      return step;
    }
    __device__ void emit(std::int64_t r, bool exists, const Step& step, T g) {
      if (!exists) return;
      const std::int64_t t = scan_.clock.length - 1 - r, row = scan_.clock.row(item_, t);
      if (d_u_.present()) d_u_.put(row, model_.map(row).s * g);
      if (scan_.wants_slopes) add_slopes(t, row, step, g);
      if (scan_.d_h0.wanted() && t == 0) {
        const Decay<T> decay = model_.map(row).decay;
        scan_.d_h0.put(item_, channel_, starts(row) ? T(0) : fma_of(decay.a, g, decay.a_low * g));
      }
    }
    /// Of d_A, and of a constant d_dt: its slopes are the same in every step.
    __device__ T sum(int which) const {
      if constexpr (kVaries) return which == 0 ? by_A_ : T(0);
      if (channel_ < 0) return T(0);
      const DiscreteSlopes<T> slopes = model_.slopes(0);
      return which == 0 ? fma_of(g_a_, slopes.a_by_A, g_s_ * slopes.s_by_A)
                        : fma_of(g_a_, slopes.a_by_dt, g_s_ * slopes.s_by_dt);
    }

   private:
    __device__ bool starts(std::int64_t row) const { return this->starts_at(scan_.start, row); }
    /// Nothing stood before step t.
    __device__ bool is_fresh(std::int64_t t, std::int64_t row) const {
      return starts(row) || (t == 0 && !scan_.h0.present());
    }
    /// What nothing stood before is selected away, not multiplied by zero.
    __device__ void add_slopes(std::int64_t t, std::int64_t row, const Step& step, T g) {
      const bool fresh = is_fresh(t, row);
      const T g_s = g * step.u, g_a = fresh ? T(0) : g * step.earlier;
      if constexpr (kVaries) {
        const DiscreteSlopes<T> slopes = model_.slopes(row);
        T by_A = g_s * slopes.s_by_A, by_dt = g_s * slopes.s_by_dt;
        if (!fresh) {
          by_A = fma_of(g_a, slopes.a_by_A, by_A);
          by_dt = fma_of(g_a, slopes.a_by_dt, by_dt);
        }
        if (d_dt_.present()) d_dt_.put(row, by_dt);
        by_A_ += by_A;
      } else {
        g_a_ += g_a;
        g_s_ += g_s;
      }
    }

    const DiscretizedBackward& scan_;
    std::int64_t item_, channel_;
    ChannelModel<T, kVaries> model_;
    Track<T> u_, h_, d_h_, d_dt_, d_u_;
    T by_A_ = T(0), g_a_ = T(0), g_s_ = T(0);  // the first where dt varies, the others where not
  };
};

Sequences sequences(const ConstView& sequence) noexcept {
  return {sequence.shape[0], sequence.shape[1], 1, sequence.shape[2]};
}

template <class T>
StateModel<T> model_of(const DiscretizedScanForward& args) noexcept {
  return {timed<T>(args.dt), args.A.as<T>(), args.method};
}

Clock clock_of(const DiscretizedScanForward& args) noexcept {
  return {args.u.shape[1], args.direction == ScanDirection::reversed};
}

template <class T, bool kVaries, bool kStarts>
Status forward(const DiscretizedScanForward& args, Room& room, bool run, Stream stream) {
  const Sequences size = sequences(args.u);
  using Scan = DiscretizedForward<T, kVaries, kStarts>;
  const Parts<Scan> parts = take_parts<Scan>(size, room);
  if (!run || size.channels() == 0) return Status();
  const Scan scan{clock_of(args),     model_of<T>(args),  timed<T>(args.u),           timed<T>(args.h),
                  source<T>(args.h0), args.start.as<T>(), target<T>(args.final_state)};
  return launch_scan(size, parts, scan, stream);
}

template <class T, bool kVaries, bool kStarts>
Status backward(const DiscretizedScanBackward& args, Room& room, bool run, Stream stream) {
  const Sequences size = sequences(args.u);
  using Scan = DiscretizedBackward<T, kVaries, kStarts>;
  const Parts<Scan> parts = take_parts<Scan>(size, room);
  const bool sums_dt = args.d_dt.wanted() && !kVaries;
  const std::int64_t slots = size.batch * parts.count;
  T* sums = nullptr;
  if (args.d_A.wanted() || sums_dt) sums = room.take<T>(Scan::kSums * slots * size.channels());
  if (!run || size.channels() == 0) return Status();
  const Scan scan{clock_of(args),
                  model_of<T>(args),
                  timed<T>(args.u),
                  timed<T>(args.h),
                  timed<T>(args.d_h),
                  source<T>(args.h0),
                  source<T>(args.d_final_state),
                  args.start.as<T>(),
                  args.d_A.wanted() || args.d_dt.wanted(),
                  sums_dt ? Timed<T>{} : timed<T>(args.d_dt),
                  timed<T>(args.d_u),
                  target<T>(args.d_h0),
                  sums};
  SCANTAPE_TRY(launch_scan(size, parts, scan, stream));
  SCANTAPE_TRY(join_column_sums("discretized_scan_bwd_join_d_A", sums, slots, size.channels(),
                                target<T>(args.d_A), stream));
  if (!sums_dt) return Status();
  return join_column_sums("discretized_scan_bwd_join_d_dt", sums + slots * size.channels(), slots,
                          size.channels(), target<T>(args.d_dt), stream);
}

/// Calls body(T{}, whether dt varies, whether there are starts) for the arguments.
template <class Body>
Status dispatch(const DiscretizedScanForward& args, Body&& body) {
  return dispatch_dtype(args.u.dtype, "discretized_scan: no CUDA kernel for this dtype", [&](auto zero) {
    const auto with_starts = [&](auto varies) {
      return args.start.present ? body(zero, varies, std::true_type{})
                                : body(zero, varies, std::false_type{});
    };
    return args.dt.rank() == 3 ? with_starts(std::true_type{}) : with_starts(std::false_type{});
  });
}

Status forward(const DiscretizedScanForward& args, Room& room, bool run, Stream stream) {
  return dispatch(args, [&](auto zero, auto varies, auto starts) {
    return forward<decltype(zero), varies.value, starts.value>(args, room, run, stream);
  });
}

Status backward(const DiscretizedScanBackward& args, Room& room, bool run, Stream stream) {
  return dispatch(args, [&](auto zero, auto varies, auto starts) {
    return backward<decltype(zero), varies.value, starts.value>(args, room, run, stream);
  });
}

bool wants_nothing(const DiscretizedScanBackward& args) noexcept {
  return !args.d_dt.wanted() && !args.d_A.wanted() && !args.d_u.wanted() && !args.d_h0.wanted();
}

}  // namespace

Status discretized_scan_forward(const DiscretizedScanForward& args, Stream stream) noexcept {
  Room room(args.workspace.data);
  return forward(args, room, true, stream);
}

Status discretized_scan_backward(const DiscretizedScanBackward& args, Stream stream) noexcept {
  if (wants_nothing(args)) return Status();
  Room room(args.workspace.data);
  return backward(args, room, true, stream);
}

std::int64_t discretized_scan_forward_workspace(const DiscretizedScanForward& args) noexcept {
  Room room;
  (void)forward(args, room, false, Stream{});
  return room.bytes();
}

std::int64_t discretized_scan_backward_workspace(const DiscretizedScanBackward& args) noexcept {
  if (wants_nothing(args)) return 0;
  Room room;
  (void)backward(args, room, false, Stream{});
  return room.bytes();
}

}  // namespace scantape::cuda
