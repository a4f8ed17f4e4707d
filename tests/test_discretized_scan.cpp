/// What the cases of discretized_scan cannot say: it is what discretize, a product and scan are together, in fewer
/// launches and without their memory; it keeps its digits over as many steps as a state remembers, by closed forms; cut
/// anywhere and carried on, or packed, it is the whole.

#include <array>
#include <cmath>
#include <cstdio>

#include "case_tests.h"
#include "cases/compare.h"
#include "scantape/counters.h"
#include "scantape/discretized_scan.h"
#include "scantape/tensor.h"
#include "unbacked.h"

namespace scantape::cases {
namespace {

constexpr DiscretizeMethod kMethods[] = {DiscretizeMethod::zoh, DiscretizeMethod::exp_euler,
                                         DiscretizeMethod::bilinear, DiscretizeMethod::euler};

class DiscretizedScan : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!is_available(GetParam())) GTEST_SKIP() << "there is no device " << name(GetParam());
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, DiscretizedScan, testing::Values(kCpu, kCuda),
                         [](const auto& info) { return info.param.is_cpu() ? "cpu" : "cuda"; });

/// What a call of an op took.
struct Cost {
  std::int64_t launches = 0, workspace = 0;
  Cost& operator+=(const Cost& other) {
    launches += other.launches;
    workspace = std::max(workspace, other.workspace);
    return *this;
  }
};

/// Runs one direction with a workspace of the size it asks for.
template <class Args>
Cost run_op(const Direction<Args>& direction, Args args, Device device) {
  Cost cost;
  cost.workspace = direction.workspace(args);
  Tensor room;
  if (cost.workspace > 0) {
    room = Tensor::empty({(cost.workspace + 7) / 8}, DType::f64, device);
    args.workspace = {room.writable().as<void>(), cost.workspace};
  }
  const std::int64_t before = counters().kernel_launches;
  require(direction.routed(args, Stream{}));
  cost.launches = counters().kernel_launches - before;
  require(synchronize(device));
  return cost;
}

Values values_of(const Tensor& tensor) {
  return tensor.to(DType::f64).to(kCpu).values<double>();
}

/// The tensors of one layer on a device; outputs and gradients start as random numbers, the same ones every time.
struct Layer {
  Layer(const Shape& sequence, bool varying, double magnitude, bool with_start, DType dtype, Device on)
      : device(on) {
    const Shape states{sequence[2]}, state{sequence[0], sequence[2]};
    const auto make = [&](const Shape& shape, const Fill& fill) {
      Rng rng(seed() * 1000 + ++count);
      return Tensor::from(shape, fill(rng, shape)).to(dtype).to(device);
    };
    dt = make(varying ? sequence : states, uniform(0.005, 0.01));
    A = make(states, uniform(-100 * magnitude, -50 * magnitude));
    u = make(sequence, normal());
    h0 = make(state, normal());
    if (with_start)
      start = make({sequence[0], sequence[1]}, [](Rng& rng, const Shape& shape) {
        Values flags = uniform(0, 1)(rng, shape);
        for (double& flag : flags) flag = flag < 0.2 ? 1 : 0;
        return flags;
      });
    d_h = make(sequence, normal());
    d_final_state = make(state, normal());
    h = make(sequence, normal());
    final_state = make(state, normal());
    for (const Tensor* of : {&dt, &A, &u, &h0}) gradients.push_back(make(of->shape(), normal()));
  }

  std::uint64_t count = 0;
  Device device;
  Tensor dt, A, u, h0, start, d_h, d_final_state, h, final_state;
  std::vector<Tensor> gradients;

  Gradient gradient(std::size_t index, WriteMode mode) { return {gradients[index].writable(), mode}; }
};

ConstView view_of(const Tensor& tensor) {
  return tensor.present() ? tensor.view() : ConstView();
}

struct Costs {
  Cost forward, backward;
};

DiscretizedScanBackward arguments_of(Layer& layer, DiscretizeMethod method, ScanDirection direction,
                                     WriteMode mode) {
  DiscretizedScanBackward args;
  args.dt = layer.dt;
  args.A = layer.A;
  args.u = layer.u;
  args.h0 = layer.h0;
  args.start = view_of(layer.start);
  args.method = method;
  args.direction = direction;
  args.h = layer.h.writable();
  args.final_state = layer.final_state.writable();
  args.d_h = layer.d_h;
  args.d_final_state = layer.d_final_state;
  args.d_dt = layer.gradient(0, mode);
  args.d_A = layer.gradient(1, mode);
  args.d_u = layer.gradient(2, mode);
  args.d_h0 = layer.gradient(3, mode);
  return args;
}

Costs run_fused(Layer& layer, DiscretizeMethod method, ScanDirection direction, WriteMode mode) {
  const DiscretizedScanBackward args = arguments_of(layer, method, direction, mode);
  return {
      run_op<DiscretizedScanForward>(SCANTAPE_DIRECTION(discretized_scan_forward), args, layer.device),
      run_op(SCANTAPE_DIRECTION(discretized_scan_backward), args, layer.device),
  };
}

/// x y, elementwise; y's last axis alone where it has no other. On the host: a program would launch a kernel for it.
Tensor product(const Tensor& x, const Tensor& y) {
  Values result = values_of(x);
  const Values factor = values_of(y);
  for (std::size_t i = 0; i < result.size(); ++i) result[i] *= factor[i % factor.size()];
  return Tensor::from(x.shape(), result).to(x.dtype()).to(x.device());
}

/// The sum over all but the last axis.
Tensor summed(const Tensor& x) {
  const std::int64_t states = x.shape().back();
  Values sums(static_cast<std::size_t>(states), 0.0);
  const Values all = values_of(x);
  for (std::size_t i = 0; i < all.size(); ++i) sums[i % sums.size()] += all[i];
  return Tensor::from({states, 1}, sums).to(x.dtype()).to(x.device());
}

/// old + gradient, into the gradient's tensor.
void add(Tensor& target, const Tensor& more) {
  Values sums = values_of(target);
  const Values values = values_of(more);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
  target = Tensor::from(target.shape(), sums).to(target.dtype()).to(target.device());
}

/// discretize, a product and a scan, with decays as F = a - 1 or as they are; launches of the products are not counted.
Costs run_composed(Layer& layer, DiscretizeMethod method, ScanDirection direction, WriteMode mode,
                   bool minus_one) {
  const Device device = layer.device;
  const DType dtype = layer.u.dtype();
  const bool varying = layer.dt.shape().rank() == 3;
  const Shape shape = layer.dt.shape();
  Shape factor = shape;
  if (!varying) factor.append(1);
  const Tensor ones = Tensor::full(factor, 1, dtype, device);
  Tensor A_bar = Tensor::empty(shape, dtype, device), F = Tensor::empty(shape, dtype, device);
  Tensor s = Tensor::empty(factor, dtype, device), d_decay = Tensor::empty(shape, dtype, device);
  DiscretizeBackward model;
  model.dt = layer.dt;
  model.A = layer.A;
  if (!varying) model.B = ones;
  model.method = method;
  model.A_bar = A_bar.writable();
  model.F = F.writable();
  (varying ? model.s : model.B_bar) = s.writable();
  Costs costs;
  costs.forward += run_op<DiscretizeForward>(SCANTAPE_DIRECTION(discretize_forward), model, device);

  const Tensor b = product(layer.u, s);
  Tensor d_b = Tensor::empty(b.shape(), dtype, device);
  ScanBackward scan;
  scan.a = minus_one ? F : A_bar;
  scan.b = b;
  scan.h0 = layer.h0;
  scan.start = view_of(layer.start);
  scan.direction = direction;
  scan.minus_one = minus_one;
  scan.h = layer.h.writable();
  scan.final_state = layer.final_state.writable();
  scan.d_h = layer.d_h;
  scan.d_final_state = layer.d_final_state;
  scan.d_a = {d_decay.writable(), WriteMode::overwrite};
  scan.d_b = {d_b.writable(), WriteMode::overwrite};
  scan.d_h0 = layer.gradient(3, mode);
  costs.forward += run_op<ScanForward>(SCANTAPE_DIRECTION(scan_forward), scan, device);
  costs.backward += run_op(SCANTAPE_DIRECTION(scan_backward), scan, device);

  const Tensor d_s = varying ? product(d_b, layer.u) : summed(product(d_b, layer.u));
  const Tensor d_u = product(d_b, s);
  (minus_one ? model.d_F : model.d_A_bar) = d_decay;
  (varying ? model.d_s : model.d_B_bar) = d_s;
  model.A_bar = model.B_bar = model.F = model.s = View();
  model.d_dt = layer.gradient(0, mode);
  model.d_A = layer.gradient(1, mode);
  costs.backward += run_op(SCANTAPE_DIRECTION(discretize_backward), model, device);
  if (mode == WriteMode::accumulate)
    add(layer.gradients[2], d_u);
  else
    layer.gradients[2] = d_u;
  return costs;
}

void expect_same(const Tensor& got, const Tensor& want, double f32_budget, const char* what) {
  const double budget = got.dtype() == DType::f64 ? 1e-10 : f32_budget;
  const double error =
      relative_error(values_of(got), values_of(want), got.shape(), got.dtype(), ErrorRule::slice);
  EXPECT_TRUE(error <= budget) << what << " is off by " << error;
}

/// Values and every gradient; how many launches there are, by the length and by what varies.
TEST_P(DiscretizedScan, IsTheComposedOpsInFewerLaunches) {
  const Device device = GetParam();
  for (const DType dtype : {DType::f32, DType::f64})
    for (const DiscretizeMethod method : kMethods)
      for (const bool varying : {true, false})
        for (const int form : {0, 1, 2}) {  // long steps; starts and adding; backwards in time
          SCOPED_TRACE(std::string(name(dtype)) + " " + name(method) + (varying ? " varying" : " constant") +
                       " form " + std::to_string(form));
          const bool minus_one = form != 0;
          const Shape sequence = form == 1 ? Shape{2, 150, 9} : Shape{3, 40, 9};
          const double magnitude = form == 0 ? 1 : 0.01;
          const WriteMode mode = form == 1 ? WriteMode::accumulate : WriteMode::overwrite;
          const ScanDirection direction = form == 2 ? ScanDirection::reversed : ScanDirection::forward;
          Layer fused(sequence, varying, magnitude, form == 1, dtype, device),
              composed(sequence, varying, magnitude, form == 1, dtype, device);
          const Costs one = run_fused(fused, method, direction, mode);
          const Costs many = run_composed(composed, method, direction, mode, minus_one);
          expect_same(fused.h, composed.h, 1e-5, "h");
          expect_same(fused.final_state, composed.final_state, 1e-5, "final_state");
          const char* const names[] = {"d_dt", "d_A", "d_u", "d_h0"};
          for (std::size_t i = 0; i < 4; ++i)
            expect_same(fused.gradients[i], composed.gradients[i], 1e-4, names[i]);
          if (device.is_cpu()) continue;
          EXPECT_EQ(one.forward.launches, 1);
          EXPECT_EQ(many.forward.launches, 2) << "and a product";
          EXPECT_EQ(one.backward.launches, varying ? 2 : 3) << "the scan, d_A, a constant d_dt";
          EXPECT_EQ(many.backward.launches, 3) << "and two products";
        }
}

/// What is left out costs nothing, and changes no bit of the rest.
TEST_P(DiscretizedScan, SkippedGradientsCostNoLaunch) {
  const Device device = GetParam();
  for (const bool varying : {true, false}) {
    Layer all({2, 20, 3}, varying, 1, false, DType::f64, device),
        some({2, 20, 3}, varying, 1, false, DType::f64, device);
    run_fused(all, DiscretizeMethod::zoh, ScanDirection::forward, WriteMode::overwrite);
    DiscretizedScanBackward args =
        arguments_of(some, DiscretizeMethod::zoh, ScanDirection::forward, WriteMode::overwrite);
    run_op<DiscretizedScanForward>(SCANTAPE_DIRECTION(discretized_scan_forward), args, device);
    args.d_A = args.d_dt = Gradient();
    const Cost cost = run_op(SCANTAPE_DIRECTION(discretized_scan_backward), args, device);
    EXPECT_EQ(values_of(some.gradients[2]), values_of(all.gradients[2]));
    EXPECT_EQ(values_of(some.gradients[3]), values_of(all.gradients[3]));
    EXPECT_EQ(cost.launches, device.is_cpu() ? 0 : 1);
    EXPECT_EQ(cost.workspace, 0);
    args.d_u = args.d_h0 = Gradient();
    EXPECT_EQ(run_op(SCANTAPE_DIRECTION(discretized_scan_backward), args, device).launches, 0);
  }
}

/// a, s and s u are never in memory: the workspace is a few numbers for each sequence and part of time.
TEST(DiscretizedScanCost, WorkspaceIsFarBelowASequence) {
  if (!is_available(kCuda)) GTEST_SKIP() << "no cuda device: " << cuda_backend();
  std::printf("     B      L      N  dt        forward   backward   a, s and s u (bytes)\n");
  for (const auto& [batch, length, states] : std::vector<std::array<std::int64_t, 3>>{
           {32, 60, 16}, {8, 2048, 64}, {8, 4096, 64}, {8, 16384, 64}, {1, 65536, 1024}})
    for (const bool varying : {true, false}) {
      const Shape sequence{batch, length, states};
      Unbacked view(DType::f32, kCuda);
      DiscretizedScanBackward args;
      args.u = view(sequence);
      args.dt = view(varying ? sequence : Shape{states});
      args.A = view({states});
      args.h0 = view({batch, states});
      args.h = view(sequence);
      args.d_h = view(sequence);
      args.d_dt = {view(args.dt.shape), WriteMode::overwrite};
      args.d_A = {view({states}), WriteMode::overwrite};
      args.d_u = {view(sequence), WriteMode::overwrite};
      args.d_h0 = {view({batch, states}), WriteMode::overwrite};
      const std::int64_t forward = discretized_scan_forward_workspace(args),
                         backward = discretized_scan_backward_workspace(args);
      const std::int64_t composed = (varying ? 3 : 1) * sequence.elements() * 4;
      std::printf("%6lld %6lld %6lld  %-8s %8lld %10lld %10lld\n", static_cast<long long>(batch),
                  static_cast<long long>(length), static_cast<long long>(states),
                  varying ? "varying" : "constant", static_cast<long long>(forward),
                  static_cast<long long>(backward), static_cast<long long>(composed));
      const std::int64_t parts = length <= 4096 ? 1 : (length + 2047) / 2048;
      const std::int64_t cells = batch * parts * states * 4;  // bytes of one number per sequence and part
      EXPECT_EQ(forward, parts == 1 ? 0 : 4 * cells);
      EXPECT_EQ(backward, parts == 1 ? 2 * cells : 6 * cells);
      EXPECT_LE(backward, composed / 10);
    }
}

/// Beyond 4,096 steps: the parts, what lies between them, and the walk; then the sums.
TEST(DiscretizedScanCost, LaunchesOfALongSequence) {
  if (!is_available(kCuda)) GTEST_SKIP() << "no cuda device: " << cuda_backend();
  for (const bool varying : {true, false}) {
    Layer layer({1, 4100, 1}, varying, 1e-3, false, DType::f32, kCuda);
    const Costs costs = run_fused(layer, DiscretizeMethod::zoh, ScanDirection::forward, WriteMode::overwrite);
    EXPECT_EQ(costs.forward.launches, 3);
    EXPECT_EQ(costs.backward.launches, varying ? 4 : 5);
  }
}

// ---- digits, by closed forms

/// States of h and gradients of its last one, for an input of ones and one A and dt.
struct Steady {
  Values h, d_u;
  double d_dt, d_A, d_h0;
};

Steady steady(DiscretizeMethod method, float dt, float A, std::int64_t length, double first, DType dtype,
              Device device, bool varying) {
  const Shape sequence{1, length, 1};
  const auto full = [&](const Shape& shape, double value) {
    return Tensor::full(shape, value, dtype, device);
  };
  const Tensor steps = full(varying ? sequence : Shape{1}, dt), rates = full({1}, A), u = full(sequence, 1);
  const Tensor h0 = full({1, 1}, first), d_final_state = full({1, 1}, 1);
  Tensor h = full(sequence, NAN), d_dt = full(steps.shape(), NAN), d_A = full({1}, NAN),
         d_u = full(sequence, NAN), d_h0 = full({1, 1}, NAN);
  DiscretizedScanBackward args;
  args.dt = steps;
  args.A = rates;
  args.u = u;
  args.h0 = h0;
  args.method = method;
  args.h = h.writable();
  args.d_final_state = d_final_state;
  args.d_dt = {d_dt.writable(), WriteMode::overwrite};
  args.d_A = {d_A.writable(), WriteMode::overwrite};
  args.d_u = {d_u.writable(), WriteMode::overwrite};
  args.d_h0 = {d_h0.writable(), WriteMode::overwrite};
  run_op<DiscretizedScanForward>(SCANTAPE_DIRECTION(discretized_scan_forward), args, device);
  run_op(SCANTAPE_DIRECTION(discretized_scan_backward), args, device);
  double by_dt = 0;
  for (const double one : values_of(d_dt)) by_dt += one;
  return {values_of(h), values_of(d_u), by_dt, values_of(d_A)[0], values_of(d_h0)[0]};
}

void expect_near(double got, double want, double tolerance, const std::string& what) {
  ASSERT_TRUE(std::abs(got - want) <= tolerance * std::abs(want))
      << what << " is " << got << ", wants " << want;
}

/// zoh is exact for an input that does not change: h_t = e^{tz} h_0 + (e^{tz} - 1) / A, each number by itself. In f64 the
/// state falls from three times its limit; in f32 it stands there from the first, which it does only where a and s fit
/// together to far more than their digits: one that moves evenly is itself rounded to the same side in every step.
TEST_P(DiscretizedScan, KeepsItsDigitsWhereDecaysAreNearOne) {
  const float dt = 0.0078125F;  // a power of two: z = dt A is exact
  for (const DType dtype : {DType::f32, DType::f64})
    for (const bool varying : {true, false})
      for (const auto& [magnitude, length] : std::vector<std::pair<double, std::int64_t>>{
               {1e-4, 16384}, {1e-6, 2000}, {1e-5, 2000}, {1e-3, 2000}, {1e-2, 500}, {5000, 300}}) {
        const auto A = static_cast<float>(-magnitude / dt);
        const double z = double(dt) * A, first = (dtype == DType::f32 ? 1 : 3) / std::abs(double(A));
        SCOPED_TRACE(std::string(name(dtype)) + (varying ? " varying" : " constant") + " dt A " +
                     std::to_string(z));
        const double forward = dtype == DType::f32 ? 1e-5 : 1e-10,
                     backward = dtype == DType::f32 ? 1e-4 : 1e-10;
        const Steady got = steady(DiscretizeMethod::zoh, dt, A, length, first, dtype, GetParam(), varying);
        const auto n = static_cast<double>(length);
        const double s = std::expm1(z) / A, left = std::exp(n * z);
        for (std::int64_t t = 0; t < length; ++t) {
          const double steps = static_cast<double>(t + 1);
          const double want = std::exp(steps * z) * first + std::expm1(steps * z) / A;
          ASSERT_TRUE(std::abs(got.h[static_cast<std::size_t>(t)] - want) <= forward * want)
              << "h, step " << t;
          // What e^{z (L - t)} loses to zero is not asked for.
          const double d_u = s * std::exp(z * static_cast<double>(length - 1 - t));
          ASSERT_TRUE(std::abs(got.d_u[static_cast<std::size_t>(t)] - d_u) <= backward * d_u + 1e-37)
              << "d_u, step " << t;
        }
        if (magnitude > 100) {  // e^z is gone: A counts through s alone
          expect_near(got.d_A, 1 / (double(A) * A), backward, "d_A");
          EXPECT_EQ(got.d_dt, 0);
          EXPECT_EQ(got.d_h0, 0);
          continue;
        }
        // h_L = e^{Lz} h_0 + (e^{Lz} - 1) / A; its slopes, h_0 being a number.
        const double by_z = n * left * (first + 1 / double(A));
        expect_near(got.d_h0, left, backward, "d_h0");
        EXPECT_TRUE(std::abs(got.d_dt - by_z * A) <= backward * n * left) << "d_dt";  // of its parts, in f32
        const double d_A = by_z * dt - std::expm1(n * z) / (double(A) * A);
        expect_near(got.d_A, d_A, backward, "d_A");
      }
}

/// bilinear far left: a = 2 R - 1 is as near to -1 as another is to 1, and remembers as long. h_t = h* (1 - a^t).
/// In f32 a state that swings between nothing and twice its limit is itself rounded to the same side, often enough.
TEST_P(DiscretizedScan, KeepsItsDigitsWhereDecaysAreNearMinusOne) {
  const float dt = 0.0078125F, A = static_cast<float>(-5000 / 0.0078125);
  constexpr std::int64_t kLength = 6000;
  for (const DType dtype : {DType::f32, DType::f64})
    for (const bool varying : {true, false}) {
      const double forward = dtype == DType::f32 ? 1e-4 : 1e-10;
      const Steady got = steady(DiscretizeMethod::bilinear, dt, A, kLength, 0, dtype, GetParam(), varying);
      const double z = double(dt) * A, rate = std::log1p(-2 / (1 - z / 2)), limit = -1 / double(A);
      double worst = 0;
      for (std::int64_t t = 0; t < kLength; ++t) {
        const double power = (t % 2 == 0 ? -1 : 1) * std::exp(static_cast<double>(t + 1) * rate);
        const double error = std::abs(got.h[static_cast<std::size_t>(t)] / limit - (1 - power));
        if (!(error <= worst)) worst = error;
      }
      EXPECT_TRUE(worst <= forward) << name(dtype) << ": off by " << worst << " of the limit";
    }
}

// ---- parts of a sequence, and sequences in one

DiscretizedScanForward forward_of(Layer& layer, const Tensor& dt, const Tensor& u, const Tensor& h0,
                                  Tensor& h, Tensor& final_state) {
  DiscretizedScanForward args;
  args.dt = dt;
  args.A = layer.A;
  args.u = u;
  args.h0 = view_of(h0);
  args.h = h.writable();
  args.final_state = final_state.writable();
  return args;
}

/// h of steps begin..end from the state h0, which becomes the one after them.
Values piece(Layer& layer, std::int64_t begin, std::int64_t end, Tensor& h0) {
  const Tensor dt = layer.dt.shape().rank() == 3 ? layer.dt.slice(1, begin, end).clone() : layer.dt;
  const Tensor u = layer.u.slice(1, begin, end).clone();
  Tensor h = Tensor::empty(u.shape(), u.dtype(), u.device());
  Tensor final_state = Tensor::empty({1, u.shape()[2]}, u.dtype(), u.device());
  run_op<DiscretizedScanForward>(SCANTAPE_DIRECTION(discretized_scan_forward),
                                 forward_of(layer, dt, u, h0, h, final_state), layer.device);
  h0 = final_state;
  return values_of(h);
}

void expect_equal(const Values& got, const Values& want, double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_TRUE(std::abs(got[i] - want[i]) <= tolerance)
        << what << ", element " << i << ": " << got[i] << ", " << want[i];
}

/// Bit for bit on the CPU, which goes step by step.
TEST_P(DiscretizedScan, CutAnywhereIsTheWhole) {
  constexpr std::int64_t kLength = 300;
  const double tolerance = GetParam().is_cpu() ? 0 : 1e-13;
  for (const bool varying : {true, false}) {
    Layer layer({1, kLength, 3}, varying, 0.1, false, DType::f64, GetParam());
    Tensor whole_end = layer.h0;
    const Values whole = piece(layer, 0, kLength, whole_end);
    for (const std::int64_t cut : {1, 31, 128, 150, 299}) {
      Tensor end = layer.h0;
      Values parts = piece(layer, 0, cut, end);
      const Values rest = piece(layer, cut, kLength, end);
      parts.insert(parts.end(), rest.begin(), rest.end());
      expect_equal(parts, whole, tolerance, "cut at " + std::to_string(cut));
      expect_equal(values_of(end), values_of(whole_end), tolerance,
                   "final state, cut at " + std::to_string(cut));
    }
  }
}

/// Three sequences packed into one, of which the middle one is spoilt: the bits of the others stay, and are those that
/// each has alone. h, then d_u and a varying d_dt; d_A is a sum over all three.
TEST_P(DiscretizedScan, NothingLeavesASequence) {
  for (const std::vector<std::int64_t>& lengths :
       std::vector<std::vector<std::int64_t>>{{3, 2, 4}, {30, 50, 20}, {3000, 700, 1340}})
    for (const ScanDirection direction : {ScanDirection::forward, ScanDirection::reversed}) {
      const std::int64_t begin = lengths[0], end = begin + lengths[1], length = end + lengths[2];
      Layer layer({1, length, 1}, true, 0.1, false, DType::f64, GetParam());
      Values start(static_cast<std::size_t>(length), 0.0);
      const bool onward = direction == ScanDirection::forward;
      for (const std::int64_t first : {std::int64_t{0}, begin, end}) {
        if (onward) start[static_cast<std::size_t>(first)] = 1;
        if (!onward) start[static_cast<std::size_t>(first == 0 ? length - 1 : first - 1)] = 1;
      }
      layer.start = Tensor::from({1, length}, start).to(GetParam());
      const auto results = [&] {
        run_fused(layer, DiscretizeMethod::zoh, direction, WriteMode::overwrite);
        return std::vector<Values>{values_of(layer.h), values_of(layer.gradients[2]),
                                   values_of(layer.gradients[0])};
      };
      const std::vector<Values> clean = results();
      for (Tensor* spoilt : {&layer.dt, &layer.u, &layer.d_h}) {
        Values values = values_of(*spoilt);
        for (std::int64_t t = begin; t < end; ++t)
          values[static_cast<std::size_t>(t)] = t % 2 == 0 ? std::nan("") : HUGE_VAL;
        *spoilt = Tensor::from({1, length, 1}, values).to(GetParam());
      }
      const std::vector<Values> mixed = results();
      for (std::size_t k = 0; k < clean.size(); ++k)
        for (std::int64_t t = 0; t < length; ++t) {
          const double was = clean[k][static_cast<std::size_t>(t)],
                       is = mixed[k][static_cast<std::size_t>(t)];
          if (t < begin || t >= end) {
            ASSERT_EQ(was, is) << "tensor " << k << ", step " << t;
          } else {
            ASSERT_FALSE(std::isfinite(is)) << "tensor " << k << ", step " << t << ": nothing was spoilt";
          }
        }
      ASSERT_FALSE(std::isfinite(values_of(layer.gradients[1])[0])) << "d_A is of all sequences";
      EXPECT_EQ(values_of(layer.gradients[3])[0], 0) << "a sequence starts at once: h0 counts for nothing";
    }
}

}  // namespace
}  // namespace scantape::cases
