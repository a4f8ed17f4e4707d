/// Every kernel, on the device `cuda` that this build has, against the f64 reference; and every compiled
/// kernel is reached. Skipped where there is no such device.

#include "case_tests.h"
#include "kernel_arms.h"
#include "scantape/tensor.h"

namespace scantape::cases {
namespace {

TEST(Device, IsThere) {
  if (!is_available(kCuda)) GTEST_SKIP() << "no cuda device: " << cuda_backend();
  SUCCEED();
}

TEST(Device, TakesAFewBytesAlongWithALaunch) {
  if (!is_available(kCuda)) GTEST_SKIP() << "no cuda device: " << cuda_backend();
  const std::vector<double> wanted = {0.5, -3, 1e300, -0.0, 7, 1e-300, 2, 8};
  const Counters before = counters();
  const Tensor tensor = Tensor::from({8}, wanted, kCuda);
  EXPECT_EQ(counters().kernel_launches, before.kernel_launches + 1);
  EXPECT_EQ(tensor.values<double>(), wanted);
}

class Kernels : public CaseTest {};

TEST_P(Kernels, FollowReference) {
  for (const DType dtype : kernel_dtypes(*GetParam()))
    expect_all_pass(compare(*GetParam(), {kCuda, dtype}, seed()));
}

std::vector<const Case*> cases_on_device() {
  return tested_cases([available = is_available(kCuda)](const Case& c) { return available && !c.cpu_only; });
}

// Without a device there is no case, and Device.IsThere says so.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Kernels);
INSTANTIATE_TEST_SUITE_P(Cuda, Kernels, testing::ValuesIn(cases_on_device()), test_name);

/// After all cases: no compiled kernel was left out. Only where all of them ran.
class EveryArm : public testing::Environment {
 public:
  void SetUp() override { KernelArms::listen(); }
  void TearDown() override {
    const testing::UnitTest& all = *testing::UnitTest::GetInstance();
    const bool whole =
        all.test_to_run_count() == all.total_test_count() && std::getenv("SCANTAPE_TEST_DTYPES") == nullptr;
    if (!whole || !is_available(kCuda) || std::string(cuda_backend()) != "emulated") return;
    EXPECT_EQ(KernelArms::missed(), "") << "kernels that no case reaches";
  }
};

[[maybe_unused]] const testing::Environment* const kEveryArm =
    testing::AddGlobalTestEnvironment(new EveryArm);

}  // namespace
}  // namespace scantape::cases
