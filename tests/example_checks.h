#pragma once

#include <cmath>
#include <cstdio>
#include <exception>
#include <initializer_list>
#include <vector>

#include "scantape/tensor.h"

/// What the program made by examples.py calls: counts what ran and what was claimed.
namespace example {

inline int ran = 0, claims = 0, failures = 0;

inline std::vector<double> numbers(const scantape::Tensor& tensor) {
  return tensor.to(scantape::kCpu).to(scantape::DType::f64).values<double>();
}
inline std::vector<double> numbers(double number) {
  return {number};
}

inline void fail(const char* where, const char* what) {
  std::printf("FAILED %s: %s\n", where, what);
  ++failures;
}

/// Four digits are written after the point, so that much must be true.
template <class T>
void check(const char* where, const char* name, const T& value, std::initializer_list<double> wanted) {
  ++claims;
  const std::vector<double> got = numbers(value), want = wanted;
  bool right = got.size() == want.size();
  for (std::size_t i = 0; right && i < got.size(); ++i)
    right = std::abs(got[i] - want[i]) <= 6e-5 * std::fmax(1, std::abs(want[i]));
  if (right) return;
  fail(where, name);
  std::printf("  is");
  for (double number : got) std::printf(" %.6g", number);
  std::printf("\n");
}

inline void run(const char* header, void (*function)()) {
  ++ran;
  try {
    function();
  } catch (const std::exception& error) {
    fail(header, error.what());
  }
}

inline void program(const char* name, int (*function)()) {
  ++ran;
  try {
    if (function() != 0) fail(name, "does not return 0");
  } catch (const std::exception& error) {
    fail(name, error.what());
  }
}

inline int end() {
  std::printf("%d examples ran, %d numbers checked, %d failures\n", ran, claims, failures);
  return failures == 0 && ran > 0 && claims > 0 ? 0 : 1;
}

}  // namespace example
