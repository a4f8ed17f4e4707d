#pragma once

#include <cuda_runtime.h>

#include <string>

namespace scantape::emulator {

/// Notes this thread's failure, with more to say than its code, and returns the code.
cudaError_t fail(cudaError_t error, const std::string& text);

/// True for the default stream and for streams that were created and not destroyed.
bool is_stream(cudaStream_t stream);

/// Notes which device is current, for device_of_last_work.
void note_device();

/// Gives `operation` to a stream. Streams are eager: it runs now, which is one of the orders a GPU may
/// choose.
template <class Operation>
cudaError_t enqueue(cudaStream_t stream, Operation operation) {
  note_device();
  if (!is_stream(stream)) return fail(cudaErrorInvalidResourceHandle, "this is not a live stream");
  return operation();
}

}  // namespace scantape::emulator
