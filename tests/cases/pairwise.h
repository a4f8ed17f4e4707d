#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace scantape::cases {

/// One row of a covering set: for each axis the index of its value.
using PairwiseRow = std::vector<int>;

/// Rows such that any two values of any two axes stand together in at least one row: faults that depend on
/// one or two circumstances are met with few cases. `sizes` holds the number of values of each axis.
///
/// `allowed` may rule rows out (too expensive, say). It must allow a row whenever it allows the same row with
/// a larger index somewhere, so order an axis from its cheapest value. Throws std::logic_error for a pair
/// that no allowed row can hold, so the set is complete or there is none. The same arguments give the same
/// rows.
std::vector<PairwiseRow> pairwise(const std::vector<int>& sizes,
                                  const std::function<bool(const PairwiseRow&)>& allowed = {},
                                  std::uint64_t seed = 1);

}  // namespace scantape::cases
