/// What tests and tools may ask the emulator. Only emulated builds have this header.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace scantape::emulator {

enum class FaultKind {
  none,
  race,           // two accesses, one of them a write, that no barrier orders
  out_of_bounds,  // outside every allocation, or outside shared memory
  use_after_free,
  never_written,  // a read of device or shared memory that nobody wrote
  host_pointer,   // memory of the host, or of another thread's stack
  misaligned,
  divergence,    // a barrier, shuffle or vote that not all its threads reach
  bad_shuffle,   // a source lane outside the mask, a width that is no power of two, ...
  exception,     // a C++ exception left the kernel
  limits,        // more shared memory, threads or blocks than the device has
  endless,       // a thread that runs on and on
  stream_order,  // two streams touch the same memory, and no event or synchronisation orders them
  host_buffer,   // the host changed its side of a copy that was still on its way
};

const char* name(FaultKind kind) noexcept;

/// One thread of a launch, and where in the source it was. An empty file: not known.
struct FaultSite {
  std::array<unsigned, 3> block{};
  std::array<unsigned, 3> thread{};
  std::string file;
  int line = 0;
};

/// The first thing that went wrong in a launch; the launch ended there.
struct Fault {
  FaultKind kind = FaultKind::none;
  std::string text;  // all of it in one sentence
  FaultSite here;    // who was caught
  FaultSite other;   // the other party of a race or a divergence
};

/// The fault of what this host thread last launched or waited for; kind none where that went well.
const Fault& last_fault() noexcept;

/// Streams are queues that run when somebody waits for them, and then no further than is waited for. Blocking
/// launches run at once instead, and return their own fault. To begin with the environment's
/// CUDA_LAUNCH_BLOCKING=1 says so, as it does to CUDA.
void set_blocking(bool blocking) noexcept;
bool blocking() noexcept;

/// In which order the threads of a block and the blocks of a grid run. Results must not depend on it.
/// Backward threads also run ahead: those that a shuffle or a warp's barrier lets go run before any other.
enum class Direction { forward, backward };
struct Order {
  Direction threads = Direction::forward;
  Direction blocks = Direction::forward;
};

/// The order of all later launches. To begin with it is that of the environment's SCANTAPE_EMULATOR_ORDER:
/// "forward", "backward", or one word for the threads and one for the blocks, as in "backward,forward".
void set_order(Order order) noexcept;
Order order() noexcept;

/// How many OS threads run the blocks of a launch, 1 to 8. To begin with the environment's
/// SCANTAPE_EMULATOR_WORKERS, else 1. Results do not depend on it; of several faults that blocks cause in each
/// other another one may be told.
void set_workers(int workers);
int workers() noexcept;

/// How many accesses and meetings one block may make before it is taken to wait for something that never comes;
/// 0: the default.
void set_access_limit(std::int64_t accesses) noexcept;
/// How many seconds of a processor's time one thread may compute without an access or a meeting; 0: the default.
void set_time_limit(double seconds) noexcept;

/// What cudaGetDeviceCount tells from now on: a number of devices or, where `error` is not 0, that
/// cudaError_t. One at the start. More than one share one memory: they are there to see which of them host
/// code takes.
void set_devices(int count, int error = 0) noexcept;
/// The device that was current when this host thread last gave work to a stream: a launch, an allocation, a
/// release, a copy, a fill, a wait.
int device_of_last_work() noexcept;

/// Takes back that anybody has written these bytes of device memory. They keep their values, but a kernel that
/// reads one is at fault: so guard bands inside an allocation are closed. False where the bytes are not in
/// one live allocation.
bool forget_written(const void* address, std::size_t bytes) noexcept;

/// What this process has run so far.
struct Statistics {
  std::int64_t launches = 0;
  std::int64_t blocks = 0;
  std::int64_t threads = 0;
  std::int64_t thread_barriers = 0;  // arrivals at block barriers
  std::int64_t lane_exchanges = 0;   // arrivals at shuffles, votes and barriers of a warp
  std::int64_t accesses = 0;         // loads and stores that were checked
};
Statistics statistics() noexcept;

/// One allocation of device memory that was not freed.
struct LiveAllocation {
  std::int64_t number = 0;  // counts cudaMalloc calls from 1
  const void* address = nullptr;
  std::size_t bytes = 0;
  std::vector<std::string> allocated_at;  // source lines, innermost first
};
std::vector<LiveAllocation> live_allocations();
/// The live allocations in words, one line each; empty where there are none.
std::string leak_report();

/// False in builds with the address sanitizer, which takes the place of the access checks: races and
/// unwritten memory go unseen there, bad addresses end the process.
bool checks_accesses() noexcept;

/// Runs a kernel with a planted race, one with a planted divergence and a right one, and says what it should
/// have found and did not; empty where all is well. It lies beside the kernels and is compiled with their
/// flags.
std::string self_test();

}  // namespace scantape::emulator
