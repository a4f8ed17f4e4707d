/// The element types of CUDA's libraries, as far as scantape uses them.
#pragma once

inline namespace scantape_emulated {

enum cudaDataType_t {
  CUDA_R_32F = 0,
  CUDA_R_64F = 1,
  CUDA_R_16F = 2,
  CUDA_R_16BF = 14,
};
using cudaDataType = cudaDataType_t;

}  // namespace scantape_emulated
