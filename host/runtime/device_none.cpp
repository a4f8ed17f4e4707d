#include "runtime/cuda_device.h"

namespace scantape::runtime {
namespace {

Status no_cuda() noexcept {
  return Status::fail(Code::unsupported, "this build of scantape has no device cuda");
}

}  // namespace

std::vector<DeviceInfo> cuda_devices() {
  return {};
}
Status cuda_allocate(int, std::int64_t, void**) noexcept {
  return no_cuda();
}
void cuda_deallocate(int, void*) noexcept {}
Status cuda_copy(Device, void*, Device, const void*, std::int64_t, Stream) noexcept {
  return no_cuda();
}
Status cuda_zero(int, void*, std::int64_t, Stream) noexcept {
  return no_cuda();
}
Status cuda_synchronize(int, Stream) noexcept {
  return no_cuda();
}
Status cuda_begin_capture(int, CudaGraph&) noexcept {
  return no_cuda();
}
Status cuda_end_capture(int, CudaGraph&) noexcept {
  return no_cuda();
}
Status cuda_launch_graph(int, const CudaGraph&, Stream) noexcept {
  return no_cuda();
}
void cuda_destroy_graph(int, CudaGraph&) noexcept {}

}  // namespace scantape::runtime
