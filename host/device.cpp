#include "scantape/device.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>

#include "cpu/matrix_product.h"
#include "runtime/cuda_device.h"

namespace scantape {
namespace {

constexpr std::size_t kAlignment = 256;

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0 && line.find(':') + 2 < line.size())
      return line.substr(line.find(':') + 2);
  return "CPU";
}

}  // namespace

const char* cuda_backend() noexcept {
  return SCANTAPE_GPU;
}

const char* cpu_instruction_set() noexcept {
  return cpu::name(cpu::best_instruction_set());
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> all{{kCpu, cpu_model(), 0, 0, 0}};
  for (DeviceInfo& device : runtime::cuda_devices()) all.push_back(std::move(device));
  return all;
}

bool is_available(Device device) noexcept {
  try {
    for (const DeviceInfo& known : devices())
      if (known.device == device) return true;
  } catch (...) {
    // A device that cannot even be asked is not available.
  }
  return false;
}

Status allocate(Device device, std::int64_t bytes, void** data) noexcept {
  *data = nullptr;
  if (bytes == 0) return {};
  if (bytes < 0) return Status::fail(Code::invalid_argument, "allocate: a negative number of bytes");
  if (!device.is_cpu()) return runtime::cuda_allocate(device.index, bytes, data);
  const std::size_t rounded = (static_cast<std::size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
  *data = std::aligned_alloc(kAlignment, rounded);
  if (*data != nullptr) return {};
  try {
    return Status::fail(Code::out_of_memory,
                        "allocating " + std::to_string(bytes) + " bytes on the cpu failed");
  } catch (...) {
    return Status::fail(Code::out_of_memory, "allocating on the cpu failed");
  }
}

void deallocate(Device device, void* data) noexcept {
  if (data == nullptr) return;
  if (device.is_cpu())
    std::free(data);
  else
    runtime::cuda_deallocate(device.index, data);
}

Status copy_bytes(Device to, void* destination, Device from, const void* source, std::int64_t bytes,
                  Stream stream) noexcept {
  if (bytes == 0) return {};
  if (!to.is_cpu() || !from.is_cpu()) return runtime::cuda_copy(to, destination, from, source, bytes, stream);
  std::memcpy(destination, source, static_cast<std::size_t>(bytes));
  return {};
}

Status zero_bytes(Device device, void* data, std::int64_t bytes, Stream stream) noexcept {
  if (bytes == 0) return {};
  if (!device.is_cpu()) return runtime::cuda_zero(device.index, data, bytes, stream);
  std::memset(data, 0, static_cast<std::size_t>(bytes));
  return {};
}

Status synchronize(Device device, Stream stream) noexcept {
  return device.is_cpu() ? Status() : runtime::cuda_synchronize(device.index, stream);
}

}  // namespace scantape
