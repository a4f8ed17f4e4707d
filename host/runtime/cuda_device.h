#pragma once

#include <vector>

#include "scantape/device.h"

/// The device `cuda` as host/device.cpp needs it: runtime/device_cuda.cpp over the CUDA runtime (a GPU's or the
/// emulator's: the same text), runtime/device_none.cpp where a build has neither.
namespace scantape::runtime {

std::vector<DeviceInfo> cuda_devices();
Status cuda_allocate(int index, std::int64_t bytes, void** data) noexcept;
void cuda_deallocate(int index, void* data) noexcept;
Status cuda_copy(Device to, void* destination, Device from, const void* source, std::int64_t bytes,
                 Stream stream) noexcept;
Status cuda_zero(int index, void* data, std::int64_t bytes, Stream stream) noexcept;
Status cuda_synchronize(int index, Stream stream) noexcept;

}  // namespace scantape::runtime
