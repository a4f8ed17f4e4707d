#pragma once

#include <type_traits>

#include "scantape/status.h"
#include "scantape/view.h"

// From run-time choices to template arguments. A choice without an arm is an error, never a call that does
// nothing.

namespace scantape::cuda {

/// Calls `body(T{})` with the C++ type of `dtype`.
template <class Body>
Status dispatch_dtype(DType dtype, const char* missing, Body&& body) {
  switch (dtype) {
    case DType::f32:
      return body(float{});
    case DType::f64:
      return body(double{});
  }
  return Status::fail(Code::unsupported, missing);
}

/// Calls `body(std::integral_constant<...>)` with that one of kValues which equals `value`.
template <auto... kValues, class Value, class Body>
Status dispatch_value(Value value, const char* missing, Body&& body) {
  bool found = false;
  Status status;
  const auto try_arm = [&](auto constant) {
    if (found || value != constant.value) return;
    found = true;
    static_cast<void>(status = body(constant));  // nvcc takes an assignment for a dropped result
  };
  (try_arm(std::integral_constant<decltype(kValues), kValues>{}), ...);
  return found ? status : Status::fail(Code::unsupported, missing);
}

}  // namespace scantape::cuda
