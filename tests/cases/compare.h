#pragma once

#include "case.h"

namespace scantape::cases {

/// Largest error of `got` against `want` under the rule; NaN where either holds one, or where the sizes
/// differ, so write  if (!(error <= tolerance)) fail.  An all-zero `want` asks for exact zeros.
double relative_error(const Values& got, const Values& want, const Shape& shape, DType dtype, ErrorRule rule);

/// For what is stored in 16 bits: the root mean square error of a slice, in units of that of the nearest numbers of the
/// type, for the worst slice. 1 is the best there is (0 where `want` can be stored exactly). Where `want` is beyond the
/// type's largest number `got` must be that infinity. NaN as above.
double rounding_error(const Values& got, const Values& want, const Shape& shape, DType dtype);

/// True where every value is 0 (of either sign).
bool all_zero(const Values& values) noexcept;

/// Whether `got` is old + gradient: each element within 4 u (|old| + |gradient|), u half the distance from 1
/// to the next number of the type. The sum itself costs one rounding; the gradient may not have been rounded
/// before it. Returns what is wrong or nothing.
std::string accumulation_fault(const Values& got, const Values& old, const Values& gradient, DType dtype);

}  // namespace scantape::cases
