#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "cases/runner.h"

/// What the test programs over the cases share: which cases, their names, the seed and how a verdict is told.
namespace scantape::cases {

/// SCANTAPE_SEED, else 1. Every failure prints it.
inline std::uint64_t seed() {
  const char* text = std::getenv("SCANTAPE_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

/// The cases that are tests, not benchmarks, and that `wanted` picks.
inline std::vector<const Case*> tested_cases(const std::function<bool(const Case&)>& wanted) {
  std::vector<const Case*> list;
  for (const Case& c : all_cases())
    if (!c.benchmark && wanted(c)) list.push_back(&c);
  return list;
}

/// The case's name as GoogleTest takes it: letters, digits and underscores.
inline std::string test_name(const testing::TestParamInfo<const Case*>& info) {
  std::string text = info.param->name;
  for (char& letter : text)
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  return text;
}

/// Where cases run in this process: the CPU's routed form and its reference, and cuda where there is one.
inline std::vector<Place> places(const Case& c) {
  std::vector<Place> list;
  for (const DType dtype : dtypes(c)) {
    list.push_back({kCpu, dtype, Call::Implementation::routed});
    list.push_back({kCpu, dtype, Call::Implementation::reference});
    if (is_available(kCuda) && !c.cpu_only) list.push_back({kCuda, dtype, Call::Implementation::routed});
  }
  return list;
}

inline void expect_all_pass(const Rows& rows) {
  EXPECT_TRUE(all_pass(rows)) << failures(rows, seed());
}

/// A fixture that holds one case.
class CaseTest : public testing::TestWithParam<const Case*> {};

}  // namespace scantape::cases
