/// Every kernel, on the device `cuda` that this build has, against the f64 reference. Skipped where there is none.

#include "case_tests.h"

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

INSTANTIATE_TEST_SUITE_P(Cuda, Kernels, testing::ValuesIn(cases_on_device()), test_name);

}  // namespace
}  // namespace scantape::cases
