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

/// What is known of one device.
struct DeviceInfo {
  Device device;
  std::string description;  // "NVIDIA H200", "emulated sm_80", the CPU's model name
  std::int64_t memory_bytes = 0;
  int compute_major = 0, compute_minor = 0;  // cuda only
};

/// The CPU first, then each cuda device that answers.
/// Example
///   const std::vector<DeviceInfo> all = devices();
///   const bool cpu_first = all[0].device == kCpu && is_available(kCpu);  // cpu_first is 1
std::vector<DeviceInfo> devices();

/// True where `device` exists in this process.
bool is_available(Device device) noexcept;

/// Bytes on a device, aligned to 256; nullptr for 0 bytes. Stream-ordered on the default stream.
/// Example
///   void* data = nullptr;
///   require(allocate(kCpu, 16, &data));
///   require(zero_bytes(kCpu, data, 16));
///   const double first = *static_cast<double*>(data);  // first is 0
///   deallocate(kCpu, data);
Status allocate(Device device, std::int64_t bytes, void** data) noexcept;
void deallocate(Device device, void* data) noexcept;

/// The stream on which tensors and tapes of this thread work: the default stream, or the one that Graph::capture
/// records.
Stream current_stream() noexcept;

/// Copies between any two devices, in the order of `stream`; waits for nothing unless the host's memory is involved,
/// then until the copy is complete. Up to 64 bytes from the host wait for nothing either: `source` may change at once.
Status copy_bytes(Device to, void* destination, Device from, const void* source, std::int64_t bytes,
                  Stream stream = {}) noexcept;
Status zero_bytes(Device device, void* data, std::int64_t bytes, Stream stream = {}) noexcept;

/// Waits until everything enqueued on the stream is done and reports what failed.
Status synchronize(Device device, Stream stream = {}) noexcept;

}  // namespace scantape
