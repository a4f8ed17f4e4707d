/// Streams as queues: what is given to a stream waits there until somebody waits for it.
///
/// Each operation carries a clock: how many operations of each stream come before it, by the order of its own
/// stream, by events, by the default stream's rules, and by what the host had waited for when it was given.
/// Waiting for a clock runs what it names and nothing else, in the order in which it was given: work of other
/// streams stays where it is for as long as the program allows.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "memory.h"
#include "scantape_emulator.h"

namespace scantape::emulator {

/// Number of a stream -> how many of its operations come before.
using Clock = std::map<std::uint64_t, std::uint64_t>;
void merge(Clock& clock, const Clock& other);

/// What an operation is told when it runs.
struct Moment {
  std::uint64_t stream = 0, position = 0;  // it is this operation of this stream
  const Clock* clock = nullptr;
  std::uintptr_t place = 0;  // who gave it: a return address
};

struct Operation {
  /// Each time it is given to a stream, be it in a graph: looks at the host's memory. May be empty.
  std::function<cudaError_t()> prepare;
  std::function<cudaError_t(const Moment&)> run;
  /// Runs although something before it failed: what hands out and takes back memory, and marks of time.
  bool in_any_case = false;
  std::uintptr_t place = 0;
  /// Host memory that it reads or writes.
  const void* host = nullptr;
  std::size_t host_bytes = 0;
};

/// One lock for streams, events, graphs and launches: one operation runs at a time.
std::recursive_mutex& device_mutex();

/// Gives an operation to a stream, or to the graph that is being captured from it.
cudaError_t enqueue(cudaStream_t stream, Operation operation);
/// Runs all that was given before on this stream and waits for it.
cudaError_t wait_for_stream(cudaStream_t stream);
/// The same for every stream.
cudaError_t wait_for_device();
/// Runs what a stream was given; the host does not know that it has run.
cudaError_t run_stream(cudaStream_t stream);
/// Like wait_for_device, but for calls that cannot fail and must not touch a capture: the next wait fails instead.
void drain();

/// Success outside captures; inside one the capture is spoilt, and `what` was not permitted.
cudaError_t refuse_in_capture(const char* what);

/// The same for a call that concerns one stream, where that is captured.
cudaError_t refuse_captured(cudaStream_t stream, const char* what);

/// True where streams other than the default one have been made: then the order of operations is watched.
bool several_streams();

/// What is known of the order of operations that have run, for the checks of accesses: an operation of which
/// all blocks have numbers below `ordered_below` comes before the current one.
struct Record {
  std::uint32_t first = 0, count = 0;  // numbers of its blocks
  std::uint64_t stream = 0, position = 0;
  std::uintptr_t place = 0;
  dim3 grid, block;
  bool is_kernel = false;
  Direction direction = Direction::forward;
};

class Past {
 public:
  std::uint32_t ordered_below = 0;
  const Clock* clock = nullptr;

  bool ordered(std::uint32_t serial) const;
  static const Record* find(std::uint32_t serial);
};

/// Gives numbers to the blocks of an operation that begins now.
struct Numbers {
  std::uint32_t first = 0;
  std::uint32_t generation = 0;
  Past past;
};
Numbers take_numbers(const Moment& moment, std::uint32_t blocks, dim3 grid, dim3 block, bool is_kernel,
                     Direction direction);

/// What an access of another stream was, in words; its thread where it was a kernel's.
std::string earlier_access(const Access& earlier, bool wrote, FaultSite* site);

/// An operation that is not a kernel touches device memory: empty, or what of it is not ordered after the
/// access of another stream. Looks at nothing where there is one stream only.
std::string touch(const Moment& moment, const void* address, std::size_t pitch, std::size_t width,
                  std::size_t height, bool write);

}  // namespace scantape::emulator
