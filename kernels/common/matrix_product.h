#pragma once

#include <cstdint>

#include "scantape/status.h"
#include "scantape/view.h"

namespace scantape {

/// C = op(A) op(B), or C + op(A) op(B) where `accumulate`; op is the transpose where asked. Row-major:
/// op(A) is [m, k], op(B) is [k, n], C is [m, n]; rows start lda, ldb, ldc elements apart in memory as stored.
/// Sums run over k in one fixed order that does not depend on m. Any size may be 0; k = 0 gives zero (or C unchanged).
struct MatrixProduct {
  /// bf16 and f16 (on CUDA alone) are summed in f32 and rounded once, where C is written.
  DType dtype = DType::f32;
  bool f32_result = false;  // C is f32 though A and B have 16 bits
  bool transpose_a = false, transpose_b = false;
  std::int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  std::int64_t lda = 0;
  const void* b = nullptr;
  std::int64_t ldb = 0;
  void* c = nullptr;
  std::int64_t ldc = 0;
  bool accumulate = false;
};

namespace cpu {
/// Our own blocked loop (host/cpu/matrix_product.cpp).
Status matrix_product(const MatrixProduct& product) noexcept;
}  // namespace cpu

namespace cuda {
/// A plain cuBLASLt product (host/runtime/matrix_product_cuda.cpp): no split over k, no TF32, no epilogue. Counts as
/// one kernel launch.
Status matrix_product(const MatrixProduct& product, Stream stream) noexcept;
}  // namespace cuda

}  // namespace scantape
