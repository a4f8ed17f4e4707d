#pragma once

#include <cuda_runtime.h>

#include <string>

#include "scantape_emulator.h"

namespace scantape::emulator {

/// Notes this thread's failure, with more to say than its code, and returns the code.
cudaError_t fail(cudaError_t error, const std::string& text);

/// The same for something that a GPU would not have told: it is also this thread's last_fault().
cudaError_t fail(FaultKind kind, const std::string& text);

/// True for the default stream and for streams that were created and not destroyed.
bool is_stream(cudaStream_t stream);

/// Notes which device is current, for device_of_last_work.
void note_device();

/// Success, or the failure that names the guard bytes that were overwritten.
cudaError_t check_guards();

}  // namespace scantape::emulator
