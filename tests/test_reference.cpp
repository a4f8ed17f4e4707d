/// The reference against central differences of itself, and the CPU's routed forms against the reference.

#include "case_tests.h"

namespace scantape::cases {
namespace {

class Differences : public CaseTest {};

TEST_P(Differences, MatchGradients) {
  expect_all_pass(finite_differences(*GetParam(), seed()));
}

INSTANTIATE_TEST_SUITE_P(Reference, Differences, testing::ValuesIn(tested_cases([](const Case& c) {
                           return c.backward && c.finite_differences;
                         })),
                         test_name);

class Cpu : public CaseTest {};

// In f32 this says how far plain loops are from the f64 truth; in f64, that a faster form is the same op.
TEST_P(Cpu, FollowsReference) {
  for (const DType dtype : tested_dtypes(*GetParam()))
    expect_all_pass(compare(*GetParam(), {kCpu, dtype}, seed()));
}

INSTANTIATE_TEST_SUITE_P(Reference, Cpu, testing::ValuesIn(tested_cases([](const Case&) { return true; })),
                         test_name);

}  // namespace
}  // namespace scantape::cases
