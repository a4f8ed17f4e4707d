#pragma once

#include "case.h"
#include "scantape/norm.h"

namespace scantape::cases {

/// One of the norms: what its cases call, and what it does with the mean.
struct NormOp {
  const char* name;
  bool centred;  ///< takes the mean off, and saves three numbers a row
  Direction<NormForward> forward;
  Direction<NormBackward> backward;
};

std::vector<Case> norm_cases(const NormOp& op);

}  // namespace scantape::cases
