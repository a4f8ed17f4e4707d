#pragma once

#include "scantape/discretize.h"

#include "case.h"

namespace scantape::cases {

/// The adapters of all three forms.
Status discretize_forward_call(DiscretizeMethod method, const Call& call);
Status discretize_backward_call(DiscretizeMethod method, const Call& call);

/// The cases with a dense A.
std::vector<Case> dense_discretize_cases();

}  // namespace scantape::cases
