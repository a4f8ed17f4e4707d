#pragma once

#include <gtest/gtest.h>

#include <algorithm>
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

/// The types that a case runs in: all of its own, or those that SCANTAPE_TEST_DTYPES names ("f32,bf16") where it has any of
/// them.
inline std::vector<DType> tested_dtypes(const Case& c) {
  const char* const asked = std::getenv("SCANTAPE_TEST_DTYPES");
  if (asked == nullptr) return dtypes(c);
  const std::string text = "," + std::string(asked) + ",";
  for (std::size_t at = 1, end = 0; at < text.size(); at = end + 1) {
    end = text.find(',', at);
    const std::string word = text.substr(at, end - at);
    if (word != "f32" && word != "f64" && word != "bf16" && word != "f16")
      throw Error(Code::invalid_argument, "SCANTAPE_TEST_DTYPES is '" + std::string(asked) + "', of which '" +
                                              word + "' is none of f32, f64, bf16, f16");
  }
  std::vector<DType> list;
  for (const DType dtype : dtypes(c))
    if (text.find("," + std::string(name(dtype)) + ",") != std::string::npos) list.push_back(dtype);
  return list.empty() ? dtypes(c) : list;
}

/// The types that kernels run a case in. A GPU takes all; the emulator is slow, so that there it is f32 and, by turns, one of
/// the others.
inline std::vector<DType> kernel_dtypes(const Case& c) {
  std::vector<DType> others = tested_dtypes(c);
  const auto f32 = std::find(others.begin(), others.end(), DType::f32);
  if (std::string(cuda_backend()) != "emulated" || f32 == others.end() || others.size() < 3) return others;
  others.erase(f32);
  return {DType::f32, others[hash(c.name) % others.size()]};
}

/// Where cases run in this process: the CPU's routed form and its reference, and cuda where there is one. What is asked of a
/// case here takes many runs: the emulator takes each case in one type, by turns.
inline std::vector<Place> places(const Case& c) {
  std::vector<Place> list;
  const std::vector<DType> all = tested_dtypes(c);
  const bool emulated = std::string(cuda_backend()) == "emulated";
  const DType turn = all[hash(c.name) % all.size()];
  for (const DType dtype : all) {
    list.push_back({kCpu, dtype, Call::Implementation::routed});
    list.push_back({kCpu, dtype, Call::Implementation::reference});
    if (is_available(kCuda) && !c.cpu_only && (!emulated || dtype == turn))
      list.push_back({kCuda, dtype, Call::Implementation::routed});
  }
  return list;
}

inline void expect_all_pass(const Rows& rows) {
  EXPECT_TRUE(all_pass(rows)) << failures(rows, seed());
}

/// A fixture that holds one case.
class CaseTest : public testing::TestWithParam<const Case*> {};

}  // namespace scantape::cases
