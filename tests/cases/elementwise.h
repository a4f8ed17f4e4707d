#pragma once

#include "case.h"
#include "pairwise.h"

namespace scantape::cases {

/// Inputs of an elementwise op: which numbers, and how closely results must follow there.
struct ElementwiseRegime {
  const char* name;
  Fill x;
  ErrorRule rule = ErrorRule::slice;
  Budget forward{1e-14, 1e-6}, backward{1e-13, 1e-5};
  ErrorRule backward_rule = ErrorRule::slice;
  bool zero_gradient = false, zero = false;
  bool differences = true;
  double step = 1;
};

/// The cases of an op  x -> y  of any shape.
std::vector<Case> elementwise_cases(const std::string& op, const std::vector<ElementwiseRegime>& regimes,
                                    Status (*forward)(const Call&), Status (*backward)(const Call&));

}  // namespace scantape::cases
