#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "scantape/op.h"

namespace scantape {

/// What the device `cuda` is in this build: "native" (a GPU), "emulated" (kernels run on the CPU) or "none".
const char* cuda_backend() noexcept;

/// The vector instructions that the CPU's matrix products use: "baseline", "avx2" or "avx512".
const char* cpu_instruction_set() noexcept;

struct DeviceInfo {
  Device device;
  std::string description;  // "NVIDIA H200", "emulated sm_80", the CPU's model name
  std::int64_t memory_bytes = 0;
  int compute_major = 0, compute_minor = 0;  // cuda only
};

/// The CPU first, then each cuda device that answers.
std::vector<DeviceInfo> devices();

/// True where `device` exists in this process.
bool is_available(Device device) noexcept;

/// Bytes on a device, aligned to 256; nullptr for 0 bytes. Stream-ordered on the default stream.
Status allocate(Device device, std::int64_t bytes, void** data) noexcept;
void deallocate(Device device, void* data) noexcept;

/// Copies between any two devices, in the order of `stream`; waits for nothing unless the host's memory is involved,
/// then until the copy is complete.
Status copy_bytes(Device to, void* destination, Device from, const void* source, std::int64_t bytes,
                  Stream stream = {}) noexcept;
Status zero_bytes(Device device, void* data, std::int64_t bytes, Stream stream = {}) noexcept;

/// Waits until everything enqueued on the stream is done and reports what failed.
Status synchronize(Device device, Stream stream = {}) noexcept;

}  // namespace scantape
