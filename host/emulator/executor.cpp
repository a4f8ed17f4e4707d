#include "executor.h"

#include <sys/mman.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#include "source_line.h"

inline namespace scantape_emulated {
constinit thread_local uint3 threadIdx{0, 0, 0};
constinit thread_local uint3 blockIdx{0, 0, 0};
constinit thread_local dim3 blockDim{0, 0, 0};
constinit thread_local dim3 gridDim{0, 0, 0};
}  // namespace scantape_emulated

namespace scantape::emulator {

constinit thread_local Worker* running_worker = nullptr;

namespace {

namespace context = boost::context::detail;

#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kStackBytes = 256 * 1024;
#else
constexpr std::size_t kStackBytes = 128 * 1024;
#endif
// Equal strides between stacks would make them fight for the same cache sets.
constexpr std::size_t kStagger = 192;
// Shared memory starts here in its pages, and its parts keep this distance: an overrun meets nothing.
constexpr std::size_t kSharedGap = 256;
constexpr std::size_t kSharedPages = 512 * 1024;

/// Thrown through threads that wait when their block ends early.
struct Unwind {};

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

constinit thread_local Worker* worker_of_thread = nullptr;

std::string text_of(Place place) {
  return std::string(place.file) + ":" + std::to_string(place.line);
}

const char* name_of(Meeting meeting) {
  switch (meeting) {
    case Meeting::none:
      return "nothing";
    case Meeting::barrier:
      return "__syncthreads";
    case Meeting::barrier_or:
      return "__syncthreads_or";
    case Meeting::barrier_and:
      return "__syncthreads_and";
    case Meeting::barrier_count:
      return "__syncthreads_count";
    case Meeting::warp_barrier:
      return "__syncwarp";
    case Meeting::shuffle_index:
      return "__shfl_sync";
    case Meeting::shuffle_up:
      return "__shfl_up_sync";
    case Meeting::shuffle_down:
      return "__shfl_down_sync";
    case Meeting::shuffle_xor:
      return "__shfl_xor_sync";
    case Meeting::ballot:
      return "__ballot_sync";
    case Meeting::any:
      return "__any_sync";
    case Meeting::all:
      return "__all_sync";
  }
  return "nothing";
}

bool is_block_meeting(Meeting meeting) {
  return meeting >= Meeting::barrier && meeting <= Meeting::barrier_count;
}

bool same_place(Place a, Place b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

/// While the engine works for a kernel the access checks are off: parts of the standard library that the
/// linker took from a kernel's object file would report the engine's own memory.
class Engine {
 public:
  explicit Engine(Worker* worker) : worker_(worker) { running_worker = nullptr; }
  ~Engine() { running_worker = worker_; }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

 private:
  Worker* worker_;
};

}  // namespace

std::string text_of(const uint3& index) {
  char text[48];
  std::snprintf(text, sizeof(text), "(%u, %u, %u)", index.x, index.y, index.z);
  return text;
}

// ---- launches ----

uint3 Launch::block_index(std::uint64_t position) const {
  const std::uint64_t linear = order.blocks == Direction::forward ? position : blocks - 1 - position;
  return {static_cast<unsigned>(linear % grid.x), static_cast<unsigned>(linear / grid.x % grid.y),
          static_cast<unsigned>(linear / grid.x / grid.y)};
}

uint3 Launch::thread_index(int thread) const {
  const auto linear = static_cast<unsigned>(thread);
  return {linear % block.x, linear / block.x % block.y, linear / block.x / block.y};
}

// ---- a worker and its fibers ----

Worker& Worker::of_this_thread() {
  static thread_local const std::unique_ptr<Worker> worker(new Worker);
  return *worker;
}

Worker::Worker() {
  std::memset(seen_, 0, sizeof(seen_));
  void* const bytes = map_pages(kSharedPages, true);
  void* const state = map_pages(kSharedPages, true);
  void* const cells = map_pages(kSharedPages / 4 * sizeof(Cell), true);
  if (bytes != nullptr && state != nullptr && cells != nullptr) {
    shared_ = {reinterpret_cast<std::uintptr_t>(bytes), kSharedPages, static_cast<std::uint8_t*>(state),
               static_cast<Cell*>(cells)};
    sanitizer_forbid(bytes, kSharedPages);
  }
  // A stack that overflowed cannot run the handler that says so.
  constexpr std::size_t kSignalStack = 64 * 1024;
  signal_stack_ = map_pages(kSignalStack, true);
  stack_t alternative{};
  alternative.ss_sp = signal_stack_;
  alternative.ss_size = kSignalStack;
  stack_t before{};
  if (signal_stack_ != nullptr && sigaltstack(nullptr, &before) == 0 && (before.ss_flags & SS_DISABLE) != 0) {
    sigaltstack(&alternative, nullptr);
  }
  worker_of_thread = this;
}

Worker::~Worker() {
  worker_of_thread = nullptr;
  stack_t current{};
  if (sigaltstack(nullptr, &current) == 0 && current.ss_sp == signal_stack_ && signal_stack_ != nullptr) {
    current.ss_flags = SS_DISABLE;
    sigaltstack(&current, nullptr);
    munmap(signal_stack_, 64 * 1024);
  }
  for (const auto& fiber : fibers_) munmap(fiber->stack - kGuard, fiber->stack_bytes + kGuard);
  if (shared_.base != 0) {
    sanitizer_allow(reinterpret_cast<void*>(shared_.base), kSharedPages);
    munmap(reinterpret_cast<void*>(shared_.base), kSharedPages);
    munmap(shared_.state, kSharedPages);
    munmap(shared_.cells, kSharedPages / 4 * sizeof(Cell));
  }
}

Fiber* Worker::fiber_for(int thread) {
  Fiber* fiber = nullptr;
  if (!idle_.empty()) {
    fiber = idle_.back();
    idle_.pop_back();
  } else {
    auto made = std::make_unique<Fiber>();
    auto* const pages = static_cast<char*>(map_pages(kStackBytes + kGuard, true));
    if (pages == nullptr || mprotect(pages, kGuard, PROT_NONE) != 0) {
      if (pages != nullptr) munmap(pages, kStackBytes + kGuard);
      return nullptr;
    }
    made->stack = pages + kGuard;
    made->stack_bytes = kStackBytes;
    made->stagger = fibers_.size() % 16 * kStagger;
    fibers_.push_back(std::move(made));
    fiber = fibers_.back().get();
  }
  if (fiber->context == nullptr) {
    sanitizer_allow(fiber->stack, fiber->stack_bytes);
    fiber->context = context::make_fcontext(fiber->stack + fiber->stack_bytes - fiber->stagger,
                                            fiber->stack_bytes - fiber->stagger, &Worker::fiber_entry);
  }
  fiber->thread = thread;
  threads_[thread].fiber = fiber;
  return fiber;
}

void Worker::switch_to(Fiber* fiber) {
  Fiber* const self = current_fiber_;
  previous_fiber_ = self;
  current_fiber_ = fiber;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&self->fake_stack, fiber->stack, fiber->stack_bytes);
#endif
  const context::transfer_t transfer = context::jump_fcontext(fiber->context, this);
  previous_fiber_->context = transfer.fctx;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(self->fake_stack, nullptr, nullptr);
#endif
}

void Worker::fiber_entry(context::transfer_t transfer) {
  auto* const worker = static_cast<Worker*>(transfer.data);
  worker->previous_fiber_->context = transfer.fctx;
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
  if (worker->previous_fiber_ == &worker->main_) {
    worker->main_.stack = static_cast<char*>(const_cast<void*>(bottom));
    worker->main_.stack_bytes = bytes;
  }
#endif
  worker->fiber_main();
}

void Worker::fiber_main() {
  Fiber* const self = current_fiber_;
  for (;;) {
    run_thread(self->thread);
    Fiber* next = &main_;
    if (!unwinding_ && fault_.kind == FaultKind::none) {
      const int thread = pick();
      if (thread >= 0 && threads_[thread].state == ThreadState::unstarted) {
        self->thread = thread;
        threads_[thread].fiber = self;
        continue;
      }
      if (thread >= 0) next = threads_[thread].fiber;
    }
    idle_.push_back(self);
    switch_to(next);  // comes back with another thread to run
  }
}

void Worker::run_thread(int thread) {
  Thread& self = threads_[thread];
  self.state = ThreadState::running;
  activate(thread);
  std::string escaped;
  try {
    const emulator_detail::KernelCall& call = launch_->call;
    call.run(call.kernel, call.arguments);
    running_worker = nullptr;
  } catch (const Unwind&) {
    running_worker = nullptr;
  } catch (const std::exception& error) {
    running_worker = nullptr;
    escaped = std::string("an exception left the kernel: ") + error.what();
  } catch (...) {
    running_worker = nullptr;
    escaped = "an exception left the kernel";
  }
  if (!escaped.empty()) record(FaultKind::exception, escaped + "; " + words_of(thread), site(thread, "", 0));
  self.state = ThreadState::done;
  ++done_;
}

/// Makes `thread` the one that runs: what it reads of itself, and whose accesses are noted.
void Worker::activate(int thread) {
  current_ = thread;
  ++activations_;
  threads_[thread].state = ThreadState::running;
  threadIdx = thread_indices_[thread];
  lane_ = static_cast<unsigned>(thread) % kWarpLanes;
  owner_ = serial_ << 5 | static_cast<std::uint32_t>(thread) / kWarpLanes;
  running_worker = this;
}

/// The next thread to run: ready, or not yet started; -1 where there is none.
int Worker::pick() {
  const bool forward = launch_->order.threads == Direction::forward;
  const bool fresh = started_ < threads_in_block_;
  if (fresh && (forward || queue_count_ == 0)) {
    const int position = started_++;
    return forward ? position : threads_in_block_ - 1 - position;
  }
  if (queue_count_ == 0) return -1;
  const int thread = queue_[queue_head_];
  queue_head_ = (queue_head_ + 1) % (kMaxThreads * 2);
  --queue_count_;
  return thread;
}

void Worker::release(int thread, bool to_the_front) {
  constexpr unsigned kCapacity = kMaxThreads * 2;
  threads_[thread].state = ThreadState::ready;
  if (to_the_front) {
    queue_head_ = (queue_head_ + kCapacity - 1) % kCapacity;
    queue_[queue_head_] = static_cast<std::uint16_t>(thread);
  } else {
    queue_[(queue_head_ + queue_count_) % kCapacity] = static_cast<std::uint16_t>(thread);
  }
  ++queue_count_;
}

/// Lets others run until the current thread is picked again.
void Worker::wait() {
  const int self = current_;
  const int next = pick();
  if (next != self) {
    Fiber* fiber = &main_;
    if (next >= 0) {
      fiber = threads_[next].state == ThreadState::unstarted ? fiber_for(next) : threads_[next].fiber;
    }
    if (fiber == nullptr) raise(FaultKind::limits, "no memory for the stack of a thread", site(self, "", 0));
    switch_to(fiber);
    if (unwinding_) throw Unwind{};
  }
  activate(self);
}

// ---- blocks ----

void Worker::begin_block(const Launch& launch, std::uint64_t position) {
  launch_ = &launch;
  position_ = position;
  threads_in_block_ = launch.threads;
  serial_ = launch.first_serial + static_cast<std::uint32_t>(position);
  if (generation_ != launch.generation) {
    generation_ = launch.generation;
    (void)madvise(shared_.cells, kSharedPages / 4 * sizeof(Cell), MADV_DONTNEED);
  }
  queue_head_ = queue_count_ = 0;
  started_ = done_ = arrived_ = predicates_ = 0;
  unwinding_ = false;
  fault_.kind = FaultKind::none;
  for (int i = 0; i < threads_in_block_; ++i) {
    threads_[i].state = ThreadState::unstarted;
    threads_[i].meeting = Meeting::none;
  }
  for (int i = 0; i * kWarpLanes < threads_in_block_; ++i) warps_[i].group_count = 0;
  // Time runs on through the blocks, so that what lanes saw in an earlier block means nothing in this one.
  if (tick_ > 1u << 30) {
    tick_ = 1;
    std::memset(seen_, 0, sizeof(seen_));
  }
  ++tick_;
  block_ordered_ = tick_;
  for (Warp& warp : warps_) warp.ordered = 0;
  const bool same_block = indexed_block_.x == launch.block.x && indexed_block_.y == launch.block.y &&
                          indexed_block_.z == launch.block.z;
  if (!same_block) {
    for (int i = 0; i < threads_in_block_; ++i) thread_indices_[i] = launch.thread_index(i);
    indexed_block_ = launch.block;
  }
  blockIdx = launch.block_index(position);
  blockDim = launch.block;
  gridDim = launch.grid;
  part_count_ = 0;
  shared_used_ = kSharedGap;
  dynamic_offset_ = 0;
  access_limit_ = accesses_ + launch.access_limit;
}

void Worker::end_block() {
  std::memset(shared_.state, kNoAccess, shared_used_ + kSharedGap);
  sanitizer_forbid(reinterpret_cast<void*>(shared_.base), shared_used_ + kSharedGap);
  ++statistics_.blocks;
  statistics_.threads += threads_in_block_;
  current_ = -1;
}

bool Worker::run_block(const Launch& launch, std::uint64_t position) {
  begin_block(launch, position);
  if (launch.dynamic_shared_bytes > 0) {
    static constexpr char kDynamicTag = 0;
    const void* const start = static_shared(&kDynamicTag, launch.dynamic_shared_bytes, 16);
    dynamic_offset_ = reinterpret_cast<std::uintptr_t>(start) - shared_.base;
  }
  current_fiber_ = &main_;
  const int first = pick();
  if (Fiber* const fiber = fiber_for(first); fiber != nullptr) {
    switch_to(fiber);
  } else {
    record(FaultKind::limits, "no memory for the stack of a thread", site(first, "", 0));
  }
  running_worker = nullptr;
  if (abandoned_ != nullptr) {
    abandoned_->context = nullptr;
    idle_.push_back(abandoned_);
    abandoned_ = nullptr;
  }
  if (fault_.kind == FaultKind::none && done_ < threads_in_block_) find_divergence();
  if (fault_.kind != FaultKind::none) unwind();
  end_block();
  return fault_.kind == FaultKind::none;
}

/// Ends every thread that has begun, by an exception out of the place where it waits.
void Worker::unwind() {
  unwinding_ = true;
  for (int i = 0; i < threads_in_block_; ++i) {
    const ThreadState state = threads_[i].state;
    if (state != ThreadState::waiting && state != ThreadState::ready) continue;
    switch_to(threads_[i].fiber);
  }
  running_worker = nullptr;
}

/// Nobody can run and somebody is not done: says who waits for whom.
void Worker::find_divergence() {
  const auto missing_words = [&](int thread) {
    const Thread& other = threads_[thread];
    const std::string who = "thread " + text_of(thread_indices_[thread]);
    if (other.state == ThreadState::done) return who + " has returned from the kernel";
    return who + " waits in " + name_of(other.meeting) + " at " + text_of(other.place);
  };
  const auto place_of = [&](int thread) {
    const bool done = threads_[thread].state == ThreadState::done;
    return site(thread, done ? "" : threads_[thread].place.file, done ? 0 : threads_[thread].place.line);
  };
  for (int i = 0; i < threads_in_block_; ++i) {
    const Thread& self = threads_[i];
    if (self.state != ThreadState::waiting || is_block_meeting(self.meeting)) continue;
    const int first = i / kWarpLanes * kWarpLanes;
    const Group* const group = group_of(i);
    if (group == nullptr) continue;
    const unsigned missing = self.mask & ~group->arrived;
    const int other = first + __builtin_ctz(missing);
    char mask[16];
    std::snprintf(mask, sizeof(mask), "0x%08x", self.mask);
    record(FaultKind::divergence,
           words_of(i) + " waits in " + name_of(self.meeting) + " at " + text_of(self.place) + " with mask " +
               mask + " for lane " + std::to_string(other - first) +
               ", which never comes: " + missing_words(other),
           site(i, self.place.file, self.place.line), place_of(other));
    return;
  }
  for (int i = 0; i < threads_in_block_; ++i) {
    const Thread& self = threads_[i];
    if (self.state != ThreadState::waiting) continue;
    for (int other = 0; other < threads_in_block_; ++other) {
      if (threads_[other].state == ThreadState::waiting && is_block_meeting(threads_[other].meeting))
        continue;
      record(FaultKind::divergence,
             words_of(i) + " waits in " + name_of(self.meeting) + " at " + text_of(self.place) +
                 ", which not all threads of its block reach: " + missing_words(other),
             site(i, self.place.file, self.place.line), place_of(other));
      return;
    }
  }
}

// ---- meetings ----

/// A loop around a barrier or a vote runs on and on as one around an access does.
void Worker::count_meeting(Place place) {
  if (++accesses_ <= access_limit_) return;
  raise(FaultKind::endless, words_of(current_) + " runs on and on, at " + text_of(place),
        site(current_, place.file, place.line));
}

int Worker::block_meeting(Meeting meeting, int predicate, Place place) {
  const Engine engine(this);
  count_meeting(place);
  Thread& self = threads_[current_];
  self.meeting = meeting;
  self.place = place;
  if (arrived_ == 0) {
    first_arrived_ = current_;
  } else if (const Thread& first = threads_[first_arrived_];
             first.meeting != meeting || !same_place(first.place, place)) {
    raise(FaultKind::divergence,
          words_of(current_) + " reached " + name_of(meeting) + " at " + text_of(place) + " while thread " +
              text_of(thread_indices_[first_arrived_]) + " waits in " + name_of(first.meeting) + " at " +
              text_of(first.place),
          site(current_, place.file, place.line), site(first_arrived_, first.place.file, first.place.line));
  }
  ++statistics_.thread_barriers;
  predicates_ += predicate != 0;
  self.state = ThreadState::waiting;
  if (++arrived_ == threads_in_block_) {
    barrier_result_ = meeting == Meeting::barrier_or      ? predicates_ > 0
                      : meeting == Meeting::barrier_and   ? predicates_ == threads_in_block_
                      : meeting == Meeting::barrier_count ? predicates_
                                                          : 0;
    arrived_ = predicates_ = 0;
    block_ordered_ = ++tick_;
    const bool forward = launch_->order.threads == Direction::forward;
    for (int i = 0; i < threads_in_block_; ++i) release(forward ? i : threads_in_block_ - 1 - i, false);
  }
  wait();
  self.meeting = Meeting::none;
  return barrier_result_;
}

std::uint64_t Worker::warp_meeting(Meeting meeting, unsigned mask, std::uint64_t bits, unsigned operand,
                                   int width, Place place) {
  const Engine engine(this);
  count_meeting(place);
  const int thread = current_;
  const int first = thread / kWarpLanes * kWarpLanes;
  Warp& warp = warps_[thread / kWarpLanes];
  Thread& self = threads_[thread];
  const auto fail = [&](FaultKind kind, const std::string& what, int other) {
    char words[48];
    std::snprintf(words, sizeof(words), " with mask 0x%08x: ", mask);
    raise(kind, words_of(thread) + " called " + name_of(meeting) + " at " + text_of(place) + words + what,
          site(thread, place.file, place.line),
          other < 0 ? FaultSite{} : site(other, threads_[other].place.file, threads_[other].place.line));
  };
  if ((mask >> lane_ & 1u) == 0) {
    fail(FaultKind::divergence, "its own lane " + std::to_string(lane_) + " is not in the mask", -1);
  }
  const int lanes = threads_in_block_ - first < kWarpLanes ? threads_in_block_ - first : kWarpLanes;
  if (lanes < kWarpLanes && mask >> lanes != 0) {
    fail(FaultKind::divergence,
         "the mask names lanes that its warp of " + std::to_string(lanes) + " threads lacks", -1);
  }
  if (width < 1 || width > kWarpLanes || (width & (width - 1)) != 0) {
    fail(FaultKind::bad_shuffle, "the width is " + std::to_string(width) + ", wants a power of two up to 32",
         -1);
  }
  Group* group = nullptr;
  for (int i = 0; i < warp.group_count; ++i) {
    Group& other = warp.groups[i];
    if (other.mask == mask && other.meeting == meeting && same_place(other.place, place)) {
      group = &other;
      continue;
    }
    // Each waits for the other: neither meeting can ever be complete. (If only one waits it may still work
    // out.)
    if ((other.arrived & mask) == 0 || (other.mask >> lane_ & 1u) == 0) continue;
    const int lane = __builtin_ctz(other.arrived & mask);
    char words[32];
    std::snprintf(words, sizeof(words), " with mask 0x%08x", other.mask);
    fail(FaultKind::divergence,
         "thread " + text_of(thread_indices_[first + lane]) + " waits in " + name_of(other.meeting) + " at " +
             text_of(other.place) + words,
         first + lane);
  }
  if (group == nullptr) {
    group = &warp.groups[warp.group_count++];  // at most one for each lane
    *group = {mask, 0, meeting, place};
  }
  self.meeting = meeting;
  self.place = place;
  self.mask = mask;
  self.bits = bits;
  self.operand = operand;
  self.width = width;
  self.state = ThreadState::waiting;
  ++statistics_.lane_exchanges;
  group->arrived |= 1u << lane_;
  if (group->arrived == mask) {
    *group = warp.groups[--warp.group_count];
    finish_warp_meeting(thread / kWarpLanes, meeting, mask);
  }
  wait();
  self.meeting = Meeting::none;
  return self.result;
}

/// The meeting of a warp in which a thread waits; null where it does not wait in one.
const Worker::Group* Worker::group_of(int thread) const {
  const Warp& warp = warps_[thread / kWarpLanes];
  for (int i = 0; i < warp.group_count; ++i) {
    if ((warp.groups[i].arrived >> thread % kWarpLanes & 1) != 0) return &warp.groups[i];
  }
  return nullptr;
}

/// What `lane` gets from a shuffle or vote in which all lanes of the mask have arrived. Where it would read a
/// lane outside the mask `fits` becomes false and `source` is that lane.
std::uint64_t Worker::exchanged(int lane, int warp, Meeting meeting, unsigned mask, bool* fits, int* source) {
  const Thread* const lanes = threads_ + warp * kWarpLanes;
  const Thread& self = lanes[lane];
  const int start = lane & ~(self.width - 1);
  const int last = start + self.width - 1;
  std::int64_t from = lane;
  const auto operand = static_cast<std::int64_t>(self.operand);
  switch (meeting) {
    case Meeting::shuffle_index:
      from = start | static_cast<int>(self.operand & static_cast<unsigned>(self.width - 1));
      break;
    case Meeting::shuffle_up:
      from = lane - operand < start ? lane : lane - operand;
      break;
    case Meeting::shuffle_down:
      from = lane + operand > last ? lane : lane + operand;
      break;
    case Meeting::shuffle_xor:
      from = static_cast<std::int64_t>(static_cast<unsigned>(lane) ^ self.operand);
      if (from > last) from = lane;
      break;
    default: {
      unsigned votes = 0;
      for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
        const int other = __builtin_ctz(rest);
        if (lanes[other].bits != 0) votes |= 1u << other;
      }
      if (meeting == Meeting::any) return votes != 0;
      if (meeting == Meeting::all) return votes == mask;
      return votes;
    }
  }
  *source = static_cast<int>(from);
  *fits = (mask >> from & 1u) != 0;
  return *fits ? lanes[from].bits : 0;
}

void Worker::finish_warp_meeting(int warp, Meeting meeting, unsigned mask) {
  const int first = warp * kWarpLanes;
  if (meeting == Meeting::warp_barrier) {
    join(warp, mask);
  } else {
    for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
      const int lane = __builtin_ctz(rest);
      bool fits = true;
      int source = 0;
      threads_[first + lane].result = exchanged(lane, warp, meeting, mask, &fits, &source);
      if (!fits) {
        const Thread& reader = threads_[first + lane];
        raise(FaultKind::bad_shuffle,
              words_of(first + lane) + " reads lane " + std::to_string(source) + " in " + name_of(meeting) +
                  " at " + text_of(reader.place) + ", which is not in the mask",
              site(first + lane, reader.place.file, reader.place.line));
      }
    }
  }
  const bool forward = launch_->order.threads == Direction::forward;
  for (unsigned rest = mask; rest != 0; rest &= rest - 1) release(first + __builtin_ctz(rest), !forward);
}

/// After a barrier of the lanes in `mask` each has seen what any of them had seen or done.
void Worker::join(int warp, unsigned mask) {
  const int lanes_here = threads_in_block_ - warp * kWarpLanes;
  const unsigned everybody = lanes_here >= kWarpLanes ? 0xffffffffu : (1u << lanes_here) - 1;
  ++tick_;
  if (mask == everybody) {
    warps_[warp].ordered = tick_;
    return;
  }
  auto& seen = seen_[warp];
  std::uint32_t joined[kWarpLanes];
  for (int other = 0; other < kWarpLanes; ++other) {
    joined[other] = mask >> other & 1u ? tick_ : 0;
    if (joined[other] != 0) continue;
    for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
      const std::uint32_t tick = seen[__builtin_ctz(rest)][other];
      if (tick > joined[other]) joined[other] = tick;
    }
  }
  for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
    std::memcpy(seen[__builtin_ctz(rest)], joined, sizeof(joined));
  }
}

Statistics Worker::statistics() const {
  Statistics result = statistics_;
  result.accesses = static_cast<std::int64_t>(accesses_);
  return result;
}

// ---- shared memory ----

void* Worker::static_shared(const void* tag, std::size_t bytes, std::size_t alignment) {
  for (int i = 0; i < part_count_; ++i) {
    if (parts_[i].tag == tag) return reinterpret_cast<void*>(shared_.base + parts_[i].offset);
  }
  const bool in_kernel = current_ >= 0;
  running_worker = nullptr;
  std::size_t total = launch_->dynamic_shared_bytes;
  for (int i = dynamic_offset_ != 0 ? 1 : 0; i < part_count_; ++i) total += parts_[i].bytes;
  if (in_kernel && (part_count_ == kMaxParts || total + bytes > launch_->shared_limit)) {
    const Engine engine(this);
    raise(FaultKind::limits,
          words_of(current_) + " wants " + std::to_string(bytes) +
              " bytes of static shared memory besides the " + std::to_string(total) +
              " that its block has; the limit is " + std::to_string(launch_->shared_limit),
          site(current_, "", 0));
  }
  const std::size_t offset = round_up(shared_used_, alignment < 16 ? 16 : alignment);
  void* const result = reinterpret_cast<void*>(shared_.base + offset);
  sanitizer_allow(result, bytes);
  std::memset(result, kNeverWrittenByte, bytes);
  std::memset(shared_.state + offset, kUnwritten, bytes);
  shared_used_ = offset + bytes + kSharedGap;
  parts_[part_count_++] = {tag, offset, bytes};
  if (in_kernel) running_worker = this;
  return result;
}

void* Worker::dynamic_shared() {
  if (dynamic_offset_ == 0) {
    const Engine engine(this);
    raise(FaultKind::limits, words_of(current_) + " asks for dynamic shared memory; the launch gave none",
          site(current_, "", 0));
  }
  return reinterpret_cast<void*>(shared_.base + dynamic_offset_);
}

std::string Worker::describe_shared(std::uintptr_t address) const {
  const std::size_t offset = address - shared_.base;
  const SharedPart* best = nullptr;
  std::size_t best_distance = ~std::size_t{0};
  for (int i = 0; i < part_count_; ++i) {
    const std::size_t end = parts_[i].offset + parts_[i].bytes;
    const std::size_t distance =
        offset < parts_[i].offset ? parts_[i].offset - offset : (offset < end ? 0 : offset - end + 1);
    if (distance < best_distance) {
      best = &parts_[i];
      best_distance = distance;
    }
  }
  if (best == nullptr) return "shared memory of which the block has none";
  const char* const kind = dynamic_offset_ != 0 && best == &parts_[0] ? "dynamic" : "static";
  const std::size_t end = best->offset + best->bytes;
  char text[160];
  if (offset < best->offset) {
    std::snprintf(text, sizeof(text), "%zu bytes before the start of %s shared memory (%zu bytes)",
                  best->offset - offset, kind, best->bytes);
  } else if (offset >= end) {
    std::snprintf(text, sizeof(text), "%zu bytes behind the end of %s shared memory (%zu bytes)",
                  offset - end, kind, best->bytes);
  } else {
    std::snprintf(text, sizeof(text), "byte %zu of %s shared memory (%zu bytes)", offset - best->offset, kind,
                  best->bytes);
  }
  return text;
}

// ---- faults ----

std::string Worker::words_of(int thread) const {
  return "thread " + text_of(thread_indices_[thread]) + " of block " +
         text_of(launch_->block_index(position_));
}

FaultSite Worker::site(int thread, const char* file, int line) const {
  const uint3 block = launch_->block_index(position_);
  const uint3 index = thread_indices_[thread];
  return {{block.x, block.y, block.z}, {index.x, index.y, index.z}, file, line};
}

FaultSite Worker::site(int thread, std::uintptr_t return_address, std::string* words) const {
  const std::vector<SourceLine> places = source_lines(return_address);
  *words = to_text(places);
  return site(thread, places.front().file.c_str(), places.front().line);
}

void Worker::record(FaultKind kind, std::string text, FaultSite here, FaultSite other) {
  if (fault_.kind != FaultKind::none) return;  // the first one counts; later ones follow from it
  fault_ = {kind, std::string(name(kind)) + ": " + std::move(text), std::move(here), std::move(other)};
}

/// Ends the current thread where an exception may pass: in what kernels call, not in the compiler's
/// call-backs.
void Worker::raise(FaultKind kind, std::string text, FaultSite here, FaultSite other) {
  record(kind, std::move(text), std::move(here), std::move(other));
  threads_[current_].state = ThreadState::running;
  throw Unwind{};
}

/// Ends the current thread where no exception may pass: its stack is left as it is and begun anew by the next
/// thread.
void Worker::abandon() {
  abandoned_ = current_fiber_;
  threads_[current_].state = ThreadState::done;
  ++done_;
  switch_to(&main_);
  std::abort();  // never reached: the fiber's context is dropped
}

void Worker::bad_state(std::uintptr_t address, std::size_t bytes, const Region& region, bool write,
                       std::uintptr_t return_address) {
  running_worker = nullptr;
  std::uint8_t worst = kWritten;
  std::uintptr_t at = address;
  for (std::size_t i = 0; i < bytes; ++i) {
    if (address + i - region.base >= region.bytes) break;
    const std::uint8_t state = region.state[address + i - region.base];
    const bool bad =
        state == kNoAccess || state == kFreed || state == kPromised || (state == kUnwritten && !write);
    if (bad && (worst == kWritten || (worst == kUnwritten && state != kUnwritten))) {
      worst = state;
      at = address + i;
    }
  }
  const bool is_shared = &region == &shared_;
  const FaultKind kind = worst == kFreed       ? FaultKind::use_after_free
                         : worst == kPromised  ? FaultKind::stream_order
                         : worst == kUnwritten ? FaultKind::never_written
                                               : FaultKind::out_of_bounds;
  std::string place;
  FaultSite here = site(current_, return_address, &place);
  std::string text = words_of(current_) + (write ? " writes " : " reads ") + std::to_string(bytes) +
                     " bytes at " +
                     (is_shared ? describe_shared(at) : DeviceMemory::instance().describe(at)) +
                     (worst == kUnwritten  ? ", which nobody has written"
                      : worst == kPromised ? ", which another stream is to allocate and has not come to"
                                           : "") +
                     ", at " + place;
  record(kind, std::move(text), std::move(here));
  abandon();
}

void Worker::misaligned(std::uintptr_t address, std::size_t bytes, bool write,
                        std::uintptr_t return_address) {
  running_worker = nullptr;
  std::string place;
  FaultSite here = site(current_, return_address, &place);
  char words[96];
  std::snprintf(words, sizeof(words), "%zu bytes at address 0x%zx, which is not a multiple of %zu", bytes,
                static_cast<std::size_t>(address), bytes);
  record(FaultKind::misaligned,
         words_of(current_) + (write ? " writes " : " reads ") + words + ", at " + place, std::move(here));
  abandon();
}

void Worker::race(std::uintptr_t address, std::size_t bytes, bool write, const Access& earlier,
                  bool earlier_wrote, std::uintptr_t return_address) {
  running_worker = nullptr;
  const bool of_another_stream = !shared_.contains(address) && earlier.owner >> 5 < launch_->first_serial;
  if (of_another_stream) {
    std::string place;
    FaultSite here = site(current_, return_address, &place);
    FaultSite there;
    const std::string party = earlier_access(earlier, earlier_wrote, &there);
    record(FaultKind::stream_order,
           words_of(current_) + (write ? " writes " : " reads ") + std::to_string(bytes) + " bytes at " +
               DeviceMemory::instance().describe(address) + ", at " + place +
               ", and no event or synchronisation orders this after the " + party,
           std::move(here), std::move(there));
    abandon();
  }
  // Of the lanes in the record, one that is not ordered before this access.
  const std::uint64_t other_position = (earlier.owner >> 5) - launch_->first_serial;
  const int warp_start = static_cast<int>(earlier.owner & 31u) * kWarpLanes;
  unsigned lanes = earlier.lanes;
  if (earlier.owner == owner_) {
    unsigned open = 0;
    for (unsigned rest = lanes & ~(1u << lane_); rest != 0; rest &= rest - 1) {
      const int lane = __builtin_ctz(rest);
      if (!(earlier.tick < seen_[earlier.owner & 31u][lane_][lane])) open |= 1u << lane;
    }
    if (open != 0) lanes = open;
  }
  const int other = warp_start + __builtin_ctz(lanes);
  std::string place, other_place;
  FaultSite here = site(current_, return_address, &place);
  FaultSite there = site(other, unpacked_place(earlier.place), &other_place);
  const uint3 other_block = launch_->block_index(other_position);
  there.block = {other_block.x, other_block.y, other_block.z};
  const bool is_shared = shared_.contains(address);
  std::string text =
      words_of(current_) + (write ? " writes " : " reads ") + std::to_string(bytes) + " bytes at " +
      (is_shared ? describe_shared(address) : DeviceMemory::instance().describe(address)) + ", at " + place +
      ", and no barrier orders this after the " + (earlier_wrote ? "write" : "read") + " by thread " +
      text_of(thread_indices_[other]) + " of block " + text_of(other_block) + ", at " + other_place;
  record(FaultKind::race, std::move(text), std::move(here), std::move(there));
  abandon();
}

bool Worker::in_stack_guard(std::uintptr_t address, int* thread) const {
  for (const auto& fiber : fibers_) {
    const auto guard = reinterpret_cast<std::uintptr_t>(fiber->stack) - kGuard;
    if (address - guard < kGuard) {
      *thread = fiber->thread;
      return true;
    }
  }
  return false;
}

void describe_stack_overflow(std::uintptr_t address, char* text, std::size_t size) {
  int thread = 0;
  if (worker_of_thread == nullptr || !worker_of_thread->in_stack_guard(address, &thread)) return;
  std::snprintf(text, size,
                "scantape emulator: the stack of thread %d (linear) of block (%u, %u, %u) overflowed\n",
                thread, blockIdx.x, blockIdx.y, blockIdx.z);
}

}  // namespace scantape::emulator

// ---- what the headers call ----

namespace {
using scantape::emulator::Meeting;
using scantape::emulator::Place;
using scantape::emulator::Worker;

Worker& here() {
  // Kernels run inside launches only; a direct call of device code from the host ends up here.
  Worker* const worker = scantape::emulator::running_worker;
  if (worker == nullptr) throw std::logic_error("device code was called outside a launch");
  return *worker;
}
}  // namespace

inline namespace scantape_emulated {

void __syncthreads(const char* file, int line) {
  here().block_meeting(Meeting::barrier, 0, {file, line});
}
int __syncthreads_or(int predicate, const char* file, int line) {
  return here().block_meeting(Meeting::barrier_or, predicate, {file, line});
}
int __syncthreads_and(int predicate, const char* file, int line) {
  return here().block_meeting(Meeting::barrier_and, predicate, {file, line});
}
int __syncthreads_count(int predicate, const char* file, int line) {
  return here().block_meeting(Meeting::barrier_count, predicate, {file, line});
}
void __syncwarp(unsigned int mask, const char* file, int line) {
  here().warp_meeting(Meeting::warp_barrier, mask, 0, 0, 32, {file, line});
}
unsigned int __ballot_sync(unsigned int mask, int predicate, const char* file, int line) {
  return static_cast<unsigned int>(
      here().warp_meeting(Meeting::ballot, mask, predicate != 0, 0, 32, {file, line}));
}
int __any_sync(unsigned int mask, int predicate, const char* file, int line) {
  return static_cast<int>(here().warp_meeting(Meeting::any, mask, predicate != 0, 0, 32, {file, line}));
}
int __all_sync(unsigned int mask, int predicate, const char* file, int line) {
  return static_cast<int>(here().warp_meeting(Meeting::all, mask, predicate != 0, 0, 32, {file, line}));
}

namespace emulator_detail {
std::uint64_t shuffle(Shuffle kind, unsigned int mask, std::uint64_t bits, unsigned int operand, int width,
                      const char* file, int line) {
  constexpr Meeting kMeetings[] = {Meeting::shuffle_index, Meeting::shuffle_up, Meeting::shuffle_down,
                                   Meeting::shuffle_xor};
  return here().warp_meeting(kMeetings[static_cast<int>(kind)], mask, bits, operand, width, {file, line});
}
}  // namespace emulator_detail

}  // namespace scantape_emulated

namespace scantape::cuda::backend {
void* static_shared_memory(const void* tag, std::size_t bytes, std::size_t alignment) {
  return here().static_shared(tag, bytes, alignment);
}
void* dynamic_shared_memory() {
  return here().dynamic_shared();
}
}  // namespace scantape::cuda::backend
