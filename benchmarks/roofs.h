#pragma once

#include <string>

#include "scantape/view.h"

/// What this machine can do at most, measured in the same run as the ops: the rates to which their timings
/// are compared.
namespace scantape::bench {

struct Roofs {
  double copy_bytes_per_s = 0;         ///< large copy, bytes read plus bytes written
  double multiply_adds_f32_per_s = 0;  ///< additions and multiplications: 2 for each multiply-add
  double multiply_adds_f64_per_s = 0;
  std::string copy_size;     ///< "256 MiB"
  std::string instructions;  ///< of the multiply-add loop: "avx512f", "sm_90"

  double operations_per_s(DType dtype) const noexcept {
    return dtype == DType::f32 ? multiply_adds_f32_per_s : multiply_adds_f64_per_s;
  }
};

/// The better of two measurements of one device: what disturbed one of them is no property of the machine.
Roofs better_of(const Roofs& a, const Roofs& b);

/// On `omp_get_max_threads()` threads, with the widest multiply-add that the processor has: what the build's
/// own instruction set leaves out counts against an op, not for it.
Roofs measure_cpu_roofs();

/// On the GPU of a native build. Throws Error where the device fails.
Roofs measure_cuda_roofs();

}  // namespace scantape::bench
