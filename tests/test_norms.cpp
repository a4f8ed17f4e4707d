/// What the cases of the norms cannot say: how many launches there are, and that what is left out changes
/// nothing else.

#include "case_tests.h"
#include "scantape/counters.h"
#include "scantape/layer_norm.h"
#include "scantape/rms_norm.h"
#include "scantape/tensor.h"

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

}  // namespace
}  // namespace scantape::cases
