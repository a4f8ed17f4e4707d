/// What the cases of the norms cannot say: how many launches there are, and that what is left out changes
/// nothing else.

#include <array>
#include <cstdio>

#include "case_tests.h"
#include "cases/compare.h"
#include "scantape/counters.h"
#include "scantape/layer_norm.h"
#include "scantape/projection.h"
#include "scantape/projection_layer_norm.h"
#include "scantape/rms_norm.h"
#include "scantape/tensor.h"
#include "unbacked.h"

namespace scantape::cases {
namespace {

std::vector<Device> devices() {
  std::vector<Device> list{kCpu};
  if (is_available(kCuda)) list.push_back(kCuda);
  return list;
}

Tensor random_tensor(const Shape& shape, DType dtype, Device device, int stream) {
  Rng rng(seed() * 1000 + static_cast<std::uint64_t>(stream));
  return Tensor::from(shape, normal()(rng, shape)).to(dtype).to(device);
}

struct NormOp {
  std::int64_t numbers;
  Status (*forward)(const NormForward&, Stream) noexcept;
};

class NormForms : public testing::TestWithParam<NormOp> {};

/// y and r of x + residual, and what the launches were.
struct Result {
  std::vector<double> y, r;
  std::int64_t launches = 0;
};

Result normalised(const NormOp& op, std::int64_t width, DType dtype, Device device, bool fused, bool keep_r) {
  const Shape shape{6, width};
  Tensor x = random_tensor(shape, dtype, device, 1), residual = random_tensor(shape, dtype, device, 2);
  if (!fused) {  // the sum is made outside, in the type of the data
    std::vector<double> sum = x.to(DType::f64).values<double>();
    const std::vector<double> more = residual.to(DType::f64).values<double>();
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] = dtype == DType::f32 ? double(float(sum[i]) + float(more[i])) : sum[i] + more[i];
    x = Tensor::from(shape, sum).to(dtype).to(device);
  }
  const Tensor weight = random_tensor({width}, dtype, device, 3),
               bias = random_tensor({width}, dtype, device, 4);
  Tensor y = Tensor::empty(shape, dtype, device), r = Tensor::zeros(shape, dtype, device);
  Tensor statistics = Tensor::empty({6, op.numbers}, dtype, device);
  NormForward args;
  args.x = x;
  args.weight = weight;
  args.bias = bias;
  if (fused) args.residual = residual;
  if (fused && keep_r) args.r = r.writable();
  args.y = y.writable();
  args.statistics = statistics.writable();
  const Counters before = counters();
  require(op.forward(args, Stream{}));
  const std::int64_t launches = counters().kernel_launches - before.kernel_launches;
  require(synchronize(device));
  return {y.to(DType::f64).values<double>(), (keep_r && fused ? r : x).to(DType::f64).values<double>(),
          launches};
}

/// Adding inside gives the bits of adding before; r may be left out; and it is one launch.
TEST_P(NormForms, AddTheResidualInOnePass) {
  for (const Device device : devices())
    for (const DType dtype : {DType::f32, DType::f64})
      for (const std::int64_t width : {5, 200, 1100}) {
        SCOPED_TRACE(std::string(name(device)) + " " + name(dtype) + " E " + std::to_string(width));
        const Result apart = normalised(GetParam(), width, dtype, device, false, false);
        const Result fused = normalised(GetParam(), width, dtype, device, true, true);
        const Result without = normalised(GetParam(), width, dtype, device, true, false);
        EXPECT_EQ(fused.y, apart.y);
        EXPECT_EQ(fused.r, apart.r);
        EXPECT_EQ(without.y, fused.y);
        EXPECT_EQ(fused.launches, device.is_cpu() ? 0 : 1);
        EXPECT_EQ(without.launches, fused.launches);
      }
}

INSTANTIATE_TEST_SUITE_P(Norms, NormForms,
                         testing::Values(NormOp{3, layer_norm_forward}, NormOp{1, rms_norm_forward}),
                         [](const testing::TestParamInfo<NormOp>& info) {
                           return info.param.numbers == 3 ? "layer_norm" : "rms_norm";
                         });

// ---- projection_layer_norm beside a projection and a layer norm

/// The op's tensors on a device; gradients start as random numbers.
struct Layer {
  Layer(std::int64_t rows, std::int64_t in, std::int64_t width, DType dtype, Device device) {
    const auto make = [&](const Shape& shape) { return random_tensor(shape, dtype, device, ++count); };
    x = make({rows, in});
    weight = make({width, in});
    bias = make({width});
    norm_weight = make({width});
    norm_bias = make({width});
    d_y = make({rows, width});
    y = make({rows, width});
    statistics = make({rows, 3});
    p = make({rows, width});
    d_p = make({rows, width});
    for (const Tensor* of : {&x, &weight, &bias, &norm_weight, &norm_bias})
      gradients.push_back(make(of->shape()));
  }

  int count = 0;
  Tensor x, weight, bias, norm_weight, norm_bias, d_y, y, statistics, p, d_p;
  std::vector<Tensor> gradients;

  Gradient gradient(std::size_t index, WriteMode mode) { return {gradients[index].writable(), mode}; }
  std::vector<std::vector<double>> results() const {
    std::vector<std::vector<double>> all{y.to(DType::f64).values<double>()};
    for (const Tensor& gradient : gradients) all.push_back(gradient.to(DType::f64).values<double>());
    return all;
  }
};

/// Runs one direction with a workspace of the size it asks for; returns its launches.
template <class Args>
std::int64_t launches_of(const Direction<Args>& direction, Args args, Device device) {
  const std::int64_t bytes = direction.workspace(args);
  Tensor room;
  if (bytes > 0) {
    room = Tensor::empty({(bytes + 7) / 8}, DType::f64, device);
    args.workspace = {room.writable().as<void>(), bytes};
  }
  const Counters before = counters();
  require(direction.routed(args, Stream{}));
  const std::int64_t launches = counters().kernel_launches - before.kernel_launches;
  require(synchronize(device));
  return launches;
}

ProjectionLayerNormBackward fused_arguments(Layer& layer, WriteMode mode) {
  ProjectionLayerNormBackward args;
  args.x = layer.x;
  args.weight = layer.weight;
  args.bias = layer.bias;
  args.norm_weight = layer.norm_weight;
  args.norm_bias = layer.norm_bias;
  args.y = layer.y.writable();
  args.statistics = layer.statistics.writable();
  args.d_y = layer.d_y;
  args.d_x = layer.gradient(0, mode);
  args.d_weight = layer.gradient(1, mode);
  args.d_bias = layer.gradient(2, mode);
  args.d_norm_weight = layer.gradient(3, mode);
  args.d_norm_bias = layer.gradient(4, mode);
  return args;
}

struct Launches {
  std::int64_t forward = 0, backward = 0;
};

Launches run_fused(Layer& layer, WriteMode mode, Device device) {
  const ProjectionLayerNormBackward args = fused_arguments(layer, mode);
  return {launches_of<ProjectionLayerNormForward>(SCANTAPE_DIRECTION(projection_layer_norm_forward), args,
                                                  device),
          launches_of(SCANTAPE_DIRECTION(projection_layer_norm_backward), args, device)};
}

Launches run_composed(Layer& layer, WriteMode mode, Device device) {
  ProjectionBackward projection;
  projection.x = layer.x;
  projection.weight = layer.weight;
  projection.bias = layer.bias;
  projection.y = layer.p.writable();
  projection.d_y = layer.d_p;
  projection.d_x = layer.gradient(0, mode);
  projection.d_weight = layer.gradient(1, mode);
  projection.d_bias = layer.gradient(2, mode);
  LayerNormBackward norm;
  norm.x = layer.p;
  norm.weight = layer.norm_weight;
  norm.bias = layer.norm_bias;
  norm.y = layer.y.writable();
  norm.statistics = layer.statistics.writable();
  norm.d_y = layer.d_y;
  norm.d_x = {layer.d_p.writable(), WriteMode::overwrite};
  norm.d_weight = layer.gradient(3, mode);
  norm.d_bias = layer.gradient(4, mode);
  return {launches_of<ProjectionForward>(SCANTAPE_DIRECTION(projection_forward), projection, device) +
              launches_of<LayerNormForward>(SCANTAPE_DIRECTION(layer_norm_forward), norm, device),
          launches_of(SCANTAPE_DIRECTION(layer_norm_backward), norm, device) +
              launches_of(SCANTAPE_DIRECTION(projection_backward), projection, device)};
}

void expect_fused_is_composed(std::int64_t rows, std::int64_t in, std::int64_t width, DType dtype,
                              Device device, WriteMode mode) {
  Layer fused(rows, in, width, dtype, device), composed(rows, in, width, dtype, device);
  const Launches one = run_fused(fused, mode, device), many = run_composed(composed, mode, device);
  EXPECT_EQ(one.forward, device.is_cpu() ? 0 : 1);
  EXPECT_EQ(many.forward, device.is_cpu() ? 0 : 3);
  const auto got = fused.results(), want = composed.results();
  const Shape shapes[] = {fused.y.shape(),    fused.x.shape(),           fused.weight.shape(),
                          fused.bias.shape(), fused.norm_weight.shape(), fused.norm_bias.shape()};
  const char* const names[] = {"y", "d_x", "d_weight", "d_bias", "d_norm_weight", "d_norm_bias"};
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double budget = dtype == DType::f64 ? 1e-10 : i == 0 ? 1e-5 : 1e-4;
    const double error = relative_error(got[i], want[i], shapes[i], dtype, ErrorRule::slice);
    EXPECT_TRUE(error <= budget) << names[i] << " is off by " << error;
  }
}

TEST(ProjectionLayerNorm, IsTheComposedOpsWithOneLaunchForward) {
  for (const Device device : devices())
    for (const DType dtype : {DType::f32, DType::f64})
      for (const WriteMode mode : {WriteMode::overwrite, WriteMode::accumulate})
        for (const auto& [rows, in, width] :
             std::vector<std::array<std::int64_t, 3>>{{70, 33, 65}, {9, 20, 700}, {33, 1, 5}, {600, 3, 8}}) {
          SCOPED_TRACE(std::string(name(device)) + " " + name(dtype) + " M " + std::to_string(rows) + " I " +
                       std::to_string(in) + " E " + std::to_string(width) +
                       (mode == WriteMode::accumulate ? " accumulated" : ""));
          expect_fused_is_composed(rows, in, width, dtype, device, mode);
        }
}

/// However many parts of rows there are, what is added to a gradient is what would overwrite it, rounded once.
TEST(ProjectionLayerNorm, AddsWhatItWouldWrite) {
  if (!is_available(kCuda)) GTEST_SKIP() << "no cuda device: " << cuda_backend();
  Layer written(600, 3, 8, DType::f32, kCuda), added(600, 3, 8, DType::f32, kCuda);
  const std::vector<std::vector<double>> old = added.results();
  run_fused(written, WriteMode::overwrite, kCuda);
  run_fused(added, WriteMode::accumulate, kCuda);
  const auto sums = written.results(), got = added.results();
  for (std::size_t gradient = 1; gradient < got.size(); ++gradient)
    for (std::size_t i = 0; i < got[gradient].size(); ++i)
      ASSERT_EQ(float(got[gradient][i]), float(old[gradient][i]) + float(sums[gradient][i]))
          << "gradient " << gradient << ", element " << i;
}

/// p is never in memory: not forward, and backward less than all of its cotangent is.
TEST(ProjectionLayerNorm, WorkspaceIsBelowTheRows) {
  if (!is_available(kCuda)) GTEST_SKIP() << "no cuda device: " << cuda_backend();
  std::printf("         M      I      E  forward  overwrite  accumulate   M E (bytes of workspace)\n");
  for (const auto& [rows, in, width] : std::vector<std::array<std::int64_t, 3>>{{64, 16, 64},
                                                                                {1920, 256, 512},
                                                                                {1920, 512, 1024},
                                                                                {16384, 1024, 1024},
                                                                                {65536, 64, 4096},
                                                                                {1 << 20, 256, 512},
                                                                                {4096, 128, 16384}}) {
    Unbacked view(DType::f32, kCuda);
    ProjectionLayerNormBackward args;
    args.x = view({rows, in});
    args.weight = view({width, in});
    args.bias = args.norm_weight = args.norm_bias = view({width});
    args.y = view({rows, width});
    args.d_y = view({rows, width});
    args.statistics = view({rows, 3});
    std::int64_t bytes[2];
    for (const bool accumulated : {false, true}) {
      const WriteMode mode = accumulated ? WriteMode::accumulate : WriteMode::overwrite;
      args.d_x = {view({rows, in}), mode};
      args.d_weight = {view({width, in}), mode};
      for (Gradient* gradient : {&args.d_bias, &args.d_norm_weight, &args.d_norm_bias})
        *gradient = {view({width}), mode};
      bytes[accumulated ? 1 : 0] = projection_layer_norm_backward_workspace(args);
    }
    const std::int64_t forward = projection_layer_norm_forward_workspace(args), all = rows * width * 4;
    std::printf("%10lld %6lld %6lld %8lld %10lld %11lld %12lld\n", static_cast<long long>(rows),
                static_cast<long long>(in), static_cast<long long>(width), static_cast<long long>(forward),
                static_cast<long long>(bytes[0]), static_cast<long long>(bytes[1]),
                static_cast<long long>(all));
    EXPECT_EQ(forward, 0);
    EXPECT_GT(bytes[0], 0);
    EXPECT_LT(bytes[0], all);
    EXPECT_LE(bytes[1], bytes[0] + width * in * 4);
    EXPECT_LT(bytes[1], all);
  }
}

TEST(ProjectionLayerNorm, SaysHowWideItCanBe) {
  if (!is_available(kCuda)) GTEST_SKIP() << "no cuda device: " << cuda_backend();
  Layer layer(1, 1, 16385, DType::f32, kCuda);
  const ProjectionLayerNormBackward args = fused_arguments(layer, WriteMode::overwrite);
  for (const Status& status : {projection_layer_norm_forward(args), projection_layer_norm_backward(args)}) {
    EXPECT_EQ(status.code(), Code::unsupported);
    EXPECT_EQ(status.message(), "projection_layer_norm: E is 16385, on cuda wants at most 16384");
  }
}

}  // namespace
}  // namespace scantape::cases
