#pragma once

#include <cstdint>

#include "scantape/view.h"

namespace scantape::cases {

/// Hands out views of addresses that nothing lies behind, one after another: for questions that look at shapes and
/// addresses alone, such as how much workspace an op wants.
class Unbacked {
 public:
  Unbacked(DType dtype, Device device) : dtype_(dtype), device_(device) {}

  View operator()(const Shape& shape) {
    const View view(reinterpret_cast<void*>(next_), dtype_, device_, shape);
    next_ += static_cast<std::uintptr_t>((shape.elements() * size_of(dtype_) + 255) / 256 * 256);
    return view;
  }

 private:
  DType dtype_;
  Device device_;
  std::uintptr_t next_ = 1 << 20;
};

}  // namespace scantape::cases
