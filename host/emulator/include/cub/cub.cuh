/// There is no stand-in for CUB: what would be tested here is the stand-in, not what a GPU runs.
#pragma once

#error "CUB is not emulated: kernels scan and reduce with common/affine.cuh and common/reduce.cuh"
