#pragma once

#include <vector>

#include "scantape/device.h"

/// The device `cuda` as host/device.cpp needs it: runtime/device_cuda.cpp over the CUDA runtime (a GPU's or the
/// emulator's: the same text), runtime/device_none.cpp where a build has neither.
namespace scantape::runtime {

/// Makes a device current for the calling thread, and the caller's own again when it goes.
class CurrentDevice {
 public:
  explicit CurrentDevice(int index) noexcept;
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice();
  const Status& status() const noexcept { return status_; }

 private:
  int callers_ = -1;  // to go back to; none where it was current already
  Status status_;
};

std::vector<DeviceInfo> cuda_devices();
Status cuda_allocate(int index, std::int64_t bytes, void** data) noexcept;
void cuda_deallocate(int index, void* data) noexcept;
Status cuda_copy(Device to, void* destination, Device from, const void* source, std::int64_t bytes,
                 Stream stream) noexcept;
Status cuda_zero(int index, void* data, std::int64_t bytes, Stream stream) noexcept;
Status cuda_synchronize(int index, Stream stream) noexcept;

/// CUDA's handles of a graph, in the making and made.
struct CudaGraph {
  Stream stream;               // on which it is captured
  void* executable = nullptr;  // null until it is captured
  std::int64_t nodes = 0;
};
Status cuda_begin_capture(int index, CudaGraph& graph) noexcept;
/// Ends a capture that went wrong, too; that is an error then.
Status cuda_end_capture(int index, CudaGraph& graph) noexcept;
Status cuda_launch_graph(int index, const CudaGraph& graph, Stream stream) noexcept;
void cuda_destroy_graph(int index, CudaGraph& graph) noexcept;

}  // namespace scantape::runtime
