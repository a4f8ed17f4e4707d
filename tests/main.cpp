/// The main of every test program. Exit codes: 0 all that ran passed, 1 something failed, 77 nothing ran.
/// Skipped tests are named at the end, so that nothing passes by not running. Where the device is emulated,
/// the emulator must first find the faults that were planted for it; if it does not, the program fails
/// whatever its tests say.

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#if SCANTAPE_EMULATED
#include "scantape_emulator.h"
#endif

namespace {

std::string check_environment() {
#if SCANTAPE_EMULATED
  return scantape::emulator::self_test();
#else
  return "";
#endif
}

std::string leaks() {
#if SCANTAPE_EMULATED
  return scantape::emulator::leak_report();
#else
  return "";
#endif
}

int report_skipped(const testing::UnitTest& all) {
  int skipped = 0;
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const testing::TestInfo& test = *suite.GetTestInfo(j);
      if (!test.should_run() || !test.result()->Skipped()) continue;
      ++skipped;
      const int parts = test.result()->total_part_count();
      const char* const why = parts > 0 ? test.result()->GetTestPartResult(parts - 1).message() : "";
      std::printf("SKIPPED %s.%s: %s\n", suite.name(), test.name(), why);
    }
  }
  return skipped;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  // A death test of the "threadsafe" style runs this main again, in the child.
  const std::string problem = check_environment();
  if (!problem.empty()) std::fprintf(stderr, "FAILED %s\n", problem.c_str());
  const int result = RUN_ALL_TESTS();
  if (testing::GTEST_FLAG(list_tests)) return result;

  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  const int skipped = report_skipped(all);
  const std::string leaked = leaks();
  if (!leaked.empty()) std::fprintf(stderr, "FAILED device memory outlives the tests:\n%s", leaked.c_str());
  if (result != 0 || !problem.empty() || !leaked.empty()) return 1;
  if (all.test_to_run_count() - skipped <= 0) {
    std::printf("SKIPPED everything: no test ran\n");
    return 77;
  }
  return 0;
}
