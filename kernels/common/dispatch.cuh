#pragma once

#include <type_traits>

#include "common/storage.cuh"
#include "scantape/status.h"
#include "scantape/view.h"

// From run-time choices to template arguments. A choice without an arm is an error, never a call that does
// nothing.

namespace scantape::cuda {

/// Calls `body(T{})` with the C++ type of `dtype`, one that is computed in.
template <class Body>
Status dispatch_dtype(DType dtype, const char* missing, Body&& body) {
  switch (dtype) {
    case DType::f32:
      return body(float{});
    case DType::f64:
      return body(double{});
    case DType::bf16:
    case DType::f16:
    case DType::i32:
      break;
  }
  return Status::fail(Code::unsupported, missing);
}

/// The same for ops that also store in 16 bits.
template <class Body>
Status dispatch_storage(DType dtype, const char* missing, Body&& body) {
  switch (dtype) {
    case DType::bf16:
      return body(__nv_bfloat16{});
    case DType::f16:
      return body(__half{});
    default:
      return dispatch_dtype(dtype, missing, body);
  }
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
