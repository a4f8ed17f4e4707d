/// Every kernel, on the device `cuda` that this build has, against the f64 reference; and every compiled
/// kernel is reached. Skipped where there is no such device.

#include "case_tests.h"
#include "kernel_arms.h"

namespace scantape::cases {
namespace {

TEST(Device, IsThere) {
  if (!is_available(kCuda)) GTEST_SKIP() << "no cuda device: " << cuda_backend();
  SUCCEED();
}

class Kernels : public CaseTest {};

TEST_P(Kernels, FollowReference) {
  for (const DType dtype : dtypes(*GetParam())) expect_all_pass(compare(*GetParam(), {kCuda, dtype}, seed()));
}

std::vector<const Case*> cases_on_device() {
  return tested_cases([available = is_available(kCuda)](const Case&) { return available; });
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
    const bool whole = all.test_to_run_count() == all.total_test_count();
    if (!whole || !is_available(kCuda) || std::string(cuda_backend()) != "emulated") return;
    EXPECT_EQ(KernelArms::missed(), "") << "kernels that no case reaches";
  }
};

[[maybe_unused]] const testing::Environment* const kEveryArm =
    testing::AddGlobalTestEnvironment(new EveryArm);

}  // namespace
}  // namespace scantape::cases
