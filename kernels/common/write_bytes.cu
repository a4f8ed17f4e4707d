// A few bytes from the host to the device, as an argument of a kernel: one thread a byte.

#include "common/write_bytes.h"

#include <cstring>

#include "common/launch.cuh"

namespace scantape::cuda {
namespace {

struct Bytes {
  unsigned char values[kWriteBytesLimit];
};

__global__ void __launch_bounds__(kWriteBytesLimit)
    write_bytes_kernel(unsigned char* target, const __grid_constant__ Bytes bytes) {
  target[threadIdx.x] = bytes.values[threadIdx.x];
}

}  // namespace

Status write_bytes(void* target, const void* source, std::int64_t bytes, Stream stream) noexcept {
  Bytes copy{};
  std::memcpy(copy.values, source, static_cast<std::size_t>(bytes));
  return launch("write_bytes_kernel", write_bytes_kernel, dim3(1), dim3(static_cast<unsigned int>(bytes)), 0,
                stream, static_cast<unsigned char*>(target), copy);
}

}  // namespace scantape::cuda
