#pragma once

#include "common/matrix_product.h"

namespace scantape::cpu {

/// What the processor's vector units can do. `baseline` is whatever the compiler may assume anyway.
enum class InstructionSet { baseline, avx2, avx512 };

const char* name(InstructionSet set) noexcept;  // "avx512"

/// The best that this processor has: what matrix_product uses.
InstructionSet best_instruction_set() noexcept;

/// The same product by a given instruction set, which the processor must have. avx2 and avx512 give the same
/// bits; baseline rounds products before it adds them.
Status matrix_product(const MatrixProduct& product, InstructionSet set) noexcept;

}  // namespace scantape::cpu
