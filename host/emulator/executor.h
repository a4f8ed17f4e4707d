/// Runs the blocks of a launch: one fiber for each thread that has to wait, handed over to directly.
///
/// A worker belongs to one OS thread and runs one block at a time. Its fibers are kept between blocks. A
/// fiber runs thread after thread; only when a thread waits is another fiber started, so that kernels without
/// barriers never switch.
#pragma once

#include <boost/context/detail/fcontext.hpp>

#include <cuda_runtime.h>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "memory.h"
#include "scantape_emulator.h"
#include "stream.h"

namespace scantape::emulator {

inline constexpr int kWarpLanes = 32;
inline constexpr int kMaxThreads = 1024;
inline constexpr int kMaxWarps = kMaxThreads / kWarpLanes;
inline constexpr std::size_t kStaticSharedBytes = 48 * 1024;
inline constexpr std::size_t kSharedOptInBytes = 163 * 1024;

/// Blocks are numbered through all launches in 27 bits; before the numbers run out all cells are forgotten.
inline constexpr std::uint32_t kMaxSerial = (1u << 27) - 1;

struct Launch {
  dim3 grid, block;
  std::size_t dynamic_shared_bytes = 0;
  std::size_t shared_limit = kStaticSharedBytes;  // of static and dynamic shared memory together
  emulator_detail::KernelCall call{};
  Order order;
  std::uint64_t access_limit = 0;  // for each block
  std::uint32_t first_serial = 0;
  std::uint32_t generation = 0;  // of serial numbers
  Past past;                     // what has run before, and whether it is ordered
  std::uint64_t blocks = 0;
  int threads = 0;
  bool has_company = false;  // other workers run blocks of it at the same time

  uint3 block_index(std::uint64_t position) const;  // of the block that runs as number `position`
  uint3 thread_index(int thread) const;
};

std::string text_of(const uint3& index);

/// Where threads meet.
enum class Meeting : std::uint8_t {
  none,
  barrier,
  barrier_or,
  barrier_and,
  barrier_count,
  warp_barrier,
  shuffle_index,
  shuffle_up,
  shuffle_down,
  shuffle_xor,
  ballot,
  any,
  all,
};

struct Place {
  const char* file = "";
  int line = 0;
};

struct Fiber {
  boost::context::detail::fcontext_t context = nullptr;  // null: to be made when it is next needed
  char* stack = nullptr;
  std::size_t stack_bytes = 0;
  std::size_t stagger = 0;     // unused bytes at the top
  void* fake_stack = nullptr;  // of the address sanitizer
  int thread = -1;
};

enum class ThreadState : std::uint8_t { unstarted, running, ready, waiting, done };

struct Thread {
  ThreadState state = ThreadState::unstarted;
  Meeting meeting = Meeting::none;
  Fiber* fiber = nullptr;
  Place place;
  // of a meeting of a warp
  unsigned mask = 0;
  unsigned operand = 0;
  int width = 0;
  std::uint64_t bits = 0;
  std::uint64_t result = 0;
};

/// Where code was, in 28 bits of Access::place; 0 where it is too far away for that.
std::uint32_t packed_place(std::uintptr_t return_address);
std::uintptr_t unpacked_place(std::uint32_t place);

class Worker {
 public:
  static Worker& of_this_thread();
  ~Worker();

  /// Runs the block that is number `position` in this launch. False: there was a fault, see fault().
  bool run_block(const Launch& launch, std::uint64_t position);
  const Fault& fault() const { return fault_; }

  // What kernels call.
  int block_meeting(Meeting meeting, int predicate, Place place);
  std::uint64_t warp_meeting(Meeting meeting, unsigned mask, std::uint64_t bits, unsigned operand, int width,
                             Place place);
  void* static_shared(const void* tag, std::size_t bytes, std::size_t alignment);
  void* dynamic_shared();
  /// What the compiler reports before each access of a kernel.
  template <bool kIsWrite>
  void check(std::uintptr_t address, std::size_t bytes, bool aligned, std::uintptr_t return_address);

  [[noreturn]] void bad_alignment(std::uintptr_t address, std::size_t alignment, const char* type,
                                  Place place);
  [[noreturn]] void bad_index(std::int64_t index, const char* type, Place place);

  /// In a signal handler, while a kernel computes at `address`: ends a thread that did nothing that is seen
  /// for too many ticks.
  void tick(std::uintptr_t address);

  bool in_stack_guard(std::uintptr_t address, int* thread) const;
  Statistics statistics() const;

  static constexpr std::size_t kGuard = 16 * 1024;  // below each stack

 private:
  struct SharedPart {
    const void* tag;
    std::size_t offset, bytes;
  };
  struct Group {  // lanes that wait for each other
    unsigned mask = 0, arrived = 0;
    Meeting meeting = Meeting::none;
    Place place;
  };
  struct Warp {
    Group groups[kWarpLanes];
    int group_count = 0;
    std::uint32_t ordered = 0;  // accesses of its lanes before this tick are ordered
  };

  Worker();
  void fiber_main();
  static void fiber_entry(boost::context::detail::transfer_t transfer);
  void run_thread(int thread);
  void activate(int thread);
  int pick();
  Fiber* fiber_for(int thread);
  void switch_to(Fiber* fiber);
  void wait();
  void release(int thread, bool to_the_front);
  void finish_warp_meeting(int warp, Meeting meeting, unsigned mask);
  std::uint64_t exchanged(int lane, int warp, Meeting meeting, unsigned mask, bool* fits, int* source);
  const Group* group_of(int thread) const;
  void join(int warp, unsigned mask);
  void begin_block(const Launch& launch, std::uint64_t position);
  void end_block();
  void unwind();
  void find_divergence();

  FaultSite site(int thread, const char* file, int line) const;
  FaultSite site(int thread, std::uintptr_t return_address, std::string* words) const;
  std::string words_of(int thread) const;
  void record(FaultKind kind, std::string text, FaultSite here, FaultSite other = {});
  [[noreturn]] void raise(FaultKind kind, std::string text, FaultSite here, FaultSite other = {});
  [[noreturn]] void abandon();
  [[noreturn]] void bad_state(std::uintptr_t address, std::size_t bytes, const Region& region, bool write,
                              std::uintptr_t return_address);
  [[noreturn]] void race(std::uintptr_t address, std::size_t bytes, bool write, const Access& earlier,
                         bool earlier_wrote, std::uintptr_t return_address);
  [[noreturn]] void endless(std::uintptr_t return_address);
  void count_meeting(Place place);
  [[noreturn]] void misaligned(std::uintptr_t address, std::size_t bytes, bool write,
                               std::uintptr_t return_address);
  void check_elsewhere(std::uintptr_t address, std::size_t bytes, bool write, std::uintptr_t return_address);
  std::string describe_shared(std::uintptr_t address) const;
  bool ordered(const Access& earlier, std::uint32_t ordered_below) const;
  void note_read(Cell& cell, unsigned bytes, std::uint32_t ordered_below, std::uint32_t place);

  const Launch* launch_ = nullptr;
  std::uint64_t position_ = 0;
  int threads_in_block_ = 0;
  int current_ = -1;
  Fiber main_;
  Fiber* current_fiber_ = nullptr;
  Fiber* previous_fiber_ = nullptr;
  Fiber* abandoned_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  Thread threads_[kMaxThreads];
  Warp warps_[kMaxWarps];
  uint3 thread_indices_[kMaxThreads];
  dim3 indexed_block_{0, 0, 0};

  // the queue of threads that may go on
  std::uint16_t queue_[kMaxThreads * 2];
  unsigned queue_head_ = 0, queue_count_ = 0;
  int started_ = 0, done_ = 0;
  bool unwinding_ = false;

  // the block's barrier
  int arrived_ = 0, predicates_ = 0, barrier_result_ = 0, first_arrived_ = -1;

  // order of accesses
  std::uint32_t serial_ = 0;
  std::uint32_t generation_ = 0;
  std::uint32_t tick_ = 1;
  std::uint32_t block_ordered_ = 0;
  std::uint32_t owner_ = 0;  // serial and warp, as in Access
  unsigned lane_ = 0;
  std::uint32_t seen_[kMaxWarps][kWarpLanes]
                     [kWarpLanes];  // up to which tick a lane has seen another's accesses

  // shared memory
  Region shared_;
  static constexpr int kMaxParts = 16;
  SharedPart parts_[kMaxParts];
  int part_count_ = 0;
  std::size_t shared_used_ = 0;
  std::size_t dynamic_offset_ = 0;

  std::uint64_t accesses_ = 0;  // and meetings
  std::uint64_t access_limit_ = 0;
  std::uint64_t activations_ = 0;
  // What the watchdog saw: how often nothing had happened since.
  std::uint64_t seen_progress_ = 0;
  int idle_ticks_ = 0;
  void* signal_stack_ = nullptr;
  Fault fault_;
  Statistics statistics_;
};

/// The worker whose kernel runs on this OS thread right now; null outside kernels and while the engine works
/// for one.
extern constinit thread_local Worker* running_worker;

/// Runs all blocks of a launch, on this OS thread and on others where several workers are asked for. The fault
/// of the earliest block that has one; kind none where all went well.
Fault run_blocks(const Launch& launch, int workers);

/// Looks at this OS thread from time to time while it lives: a thread of a kernel that neither touches memory
/// nor meets others would run for ever unseen.
class Watchdog {
 public:
  Watchdog();
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
};
inline constexpr int kIdleTicks = 4;  // of a quarter of the limit each

/// In a signal handler: names the thread whose stack overflowed at `address`; nothing where none did.
void describe_stack_overflow(std::uintptr_t address, char* text, std::size_t size);

}  // namespace scantape::emulator
