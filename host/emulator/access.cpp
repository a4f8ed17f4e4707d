/// Answers the call-backs that the compiler puts before each access of a kernel (-fsanitize=thread without
/// its runtime): is the address one that a kernel may touch, was it written, and does a barrier lie between
/// this access and the last one by another thread? And those of -fsanitize=alignment,bounds, which see what a
/// compiler that splits a vector into its parts, or an array inside a struct, would hide.
///
/// Time in a block is a counter of finished barriers. A barrier of the block orders everything before it; a
/// barrier of lanes orders what those lanes did, and what they had seen; a shuffle orders nothing.

#include <link.h>
#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "executor.h"
#include "memory.h"
#include "source_line.h"

namespace scantape::emulator {
namespace {

constexpr std::uintptr_t kPlaceRange = std::uintptr_t{1} << 27;

void code_anchor() {}

std::uintptr_t code_base() {
  return reinterpret_cast<std::uintptr_t>(&code_anchor) - kPlaceRange;
}

const Region& device_region() {
  static const Region& region = DeviceMemory::instance().region();
  return region;
}

struct Segment {
  std::uintptr_t start, end;
};

int add_constant_segments(dl_phdr_info* info, std::size_t, void* data) {
  auto& segments = *static_cast<std::vector<Segment>*>(data);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    const bool constant =
        (header.p_type == PT_LOAD && (header.p_flags & PF_W) == 0) || header.p_type == PT_GNU_RELRO;
    if (!constant) continue;
    const std::uintptr_t start = info->dlpi_addr + header.p_vaddr;
    segments.push_back({start, start + header.p_memsz});
  }
  return 0;
}

/// True for what a program file holds and nobody may change: tables of constants in kernels.
bool is_constant_data(std::uintptr_t address) {
  Worker* const worker = running_worker;
  running_worker = nullptr;  // the standard library's code may come from a kernel's object file
  static thread_local std::vector<Segment> segments;
  if (segments.empty()) dl_iterate_phdr(add_constant_segments, &segments);
  bool found = false;
  for (const Segment& segment : segments)
    found = found || (address >= segment.start && address < segment.end);
  running_worker = worker;
  return found;
}

// Where several workers run blocks at the same time, each record of device memory has a lock that it shares
// with some others.
constexpr std::size_t kLocks = 4096;
std::atomic_flag locks[kLocks];

std::atomic_flag* lock_of(std::size_t cell) {
  return &locks[cell % kLocks];
}

void acquire(std::atomic_flag& lock) {
  // Held for a few instructions; who finds it taken for longer waits for one that has lost its core.
  for (int tries = 0; lock.test_and_set(std::memory_order_acquire); ++tries)
    if (tries >= 100) std::this_thread::yield();
}

}  // namespace

std::uint32_t packed_place(std::uintptr_t return_address) {
  const std::uintptr_t distance = return_address - code_base();
  return distance < 2 * kPlaceRange ? static_cast<std::uint32_t>(distance) << 4 : 0;
}

std::uintptr_t unpacked_place(std::uint32_t place) {
  return place >> 4 == 0 ? 0 : code_base() + (place >> 4);
}

/// True where `earlier` happened before what the current lane does now: in a launch that comes before (or, for
/// shared memory, an earlier block), before a barrier that both passed, or by itself.
__attribute__((always_inline)) inline bool Worker::ordered(const Access& earlier,
                                                           std::uint32_t ordered_below) const {
  const std::uint32_t serial = earlier.owner >> 5;
  if (serial < ordered_below) return true;
  if (serial != serial_) return serial < launch_->first_serial && launch_->past.ordered(serial);
  if (earlier.tick < block_ordered_) return true;
  if (earlier.owner != owner_) return false;
  const unsigned warp = owner_ & 31u;
  if (earlier.tick < warps_[warp].ordered) return true;
  for (unsigned rest = earlier.lanes & ~(1u << lane_); rest != 0; rest &= rest - 1) {
    if (!(earlier.tick < seen_[warp][lane_][__builtin_ctz(rest)])) return false;
  }
  return true;
}

inline void Worker::note_read(Cell& cell, unsigned bytes, std::uint32_t ordered_below, std::uint32_t place) {
  const Access now{owner_, tick_, 1u << lane_, place | bytes};
  for (Access& read : cell.reads) {
    // Lanes that read different bytes of the word have records of their own: in one it would be lost who read which.
    if (read.owner != owner_ || (read.place & 15u) != bytes) continue;
    if (read.tick == tick_) {
      read.lanes |= now.lanes;
    } else if (ordered(read, ordered_below)) {
      read = now;
    } else {
      read.lanes |= now.lanes;  // the older tick stays: it may miss a race, it never invents one
    }
    return;
  }
  for (Access& read : cell.reads) {
    if (ordered(read, ordered_below)) {
      read = now;
      return;
    }
  }
  // Two other warps: keep them, unless they are of one block and this is another.
  const std::uint32_t serial = cell.reads[0].owner >> 5;
  if (serial == cell.reads[1].owner >> 5 && serial != serial_) cell.reads[1] = now;
}

template <bool kIsWrite>
__attribute__((always_inline)) inline void Worker::check(std::uintptr_t address, std::size_t bytes,
                                                         bool aligned, std::uintptr_t return_address) {
  const Region* region = &shared_;
  std::uint32_t ordered_below = serial_;
  if (!shared_.contains(address)) {
    const auto stack = reinterpret_cast<std::uintptr_t>(current_fiber_->stack);
    if (address - stack < current_fiber_->stack_bytes) return;
    region = &device_region();
    ordered_below = launch_->past.ordered_below;
    if (!device_region().contains(address)) return check_elsewhere(address, bytes, kIsWrite, return_address);
  }
  if (++accesses_ > access_limit_) [[unlikely]]
    endless(return_address);
  if (aligned && address % bytes != 0) [[unlikely]]
    misaligned(address, bytes, kIsWrite, return_address);

  const std::size_t offset = address - region->base;
  std::uint8_t* const state = region->state + offset;
  if (offset + bytes > region->bytes) [[unlikely]]
    bad_state(address, bytes, *region, kIsWrite, return_address);
  bool written = true, accessible = true;
  for (std::size_t i = 0; i < bytes; ++i) {
    const std::uint8_t now = __atomic_load_n(state + i, __ATOMIC_RELAXED);
    written = written && now == kWritten;
    accessible = accessible && (now == kWritten || now == kUnwritten);
  }
  if (!written) [[unlikely]] {
    if (!kIsWrite || !accessible) bad_state(address, bytes, *region, kIsWrite, return_address);
    for (std::size_t i = 0; i < bytes; ++i) __atomic_store_n(state + i, kWritten, __ATOMIC_RELAXED);
  }

  const std::uint32_t place = packed_place(return_address);
  const bool has_company = launch_->has_company && region != &shared_;
  for (std::size_t at = offset; at < offset + bytes;) {
    const std::size_t first_byte = at % 4;
    const std::size_t count = 4 - first_byte < offset + bytes - at ? 4 - first_byte : offset + bytes - at;
    const unsigned touched = ((1u << count) - 1) << first_byte;
    Cell& cell = region->cells[at / 4];
    std::atomic_flag* const lock = has_company ? lock_of(at / 4) : nullptr;
    if (lock != nullptr) acquire(*lock);
    const Access* conflict = nullptr;
    if ((cell.write.place & touched) != 0 && !ordered(cell.write, ordered_below)) [[unlikely]]
      conflict = &cell.write;
    if (kIsWrite) {
      for (const Access& read : cell.reads) {
        if ((read.place & touched) != 0 && conflict == nullptr && !ordered(read, ordered_below)) [[unlikely]]
          conflict = &read;
      }
    }
    if (conflict != nullptr) [[unlikely]] {
      const Access earlier = *conflict;
      const bool wrote = conflict == &cell.write;
      if (lock != nullptr) lock->clear(std::memory_order_release);
      race(address, bytes, kIsWrite, earlier, wrote, return_address);
    }
    if (kIsWrite) {
      cell.write = {owner_, tick_, 1u << lane_, place | touched};
    } else {
      note_read(cell, touched, ordered_below, place);
    }
    if (lock != nullptr) lock->clear(std::memory_order_release);
    at += count;
  }
}

void Worker::endless(std::uintptr_t return_address) {
  running_worker = nullptr;
  std::string place;
  FaultSite here = site(current_, return_address, &place);
  record(FaultKind::endless, words_of(current_) + " runs on and on, at " + place, std::move(here));
  abandon();
}

void Worker::tick(std::uintptr_t address) {
  const std::uint64_t progress = accesses_ + activations_;
  if (progress != seen_progress_) {
    seen_progress_ = progress;
    idle_ticks_ = 0;
  } else if (++idle_ticks_ >= kIdleTicks) {
    idle_ticks_ = 0;
    endless(address + 1);  // like a return address: just behind
  }
}

void Worker::check_elsewhere(std::uintptr_t address, std::size_t bytes, bool write,
                             std::uintptr_t return_address) {
  // The kernel's arguments, what a thread knows of itself, constants.
  const auto arguments = reinterpret_cast<std::uintptr_t>(launch_->call.arguments);
  const auto within = [&](const void* start, std::size_t size) {
    return address - reinterpret_cast<std::uintptr_t>(start) < size;
  };
  if (!write) {
    if (address - arguments < launch_->call.argument_bytes) return;
    if (within(&threadIdx, sizeof(threadIdx)) || within(&blockIdx, sizeof(blockIdx)) ||
        within(&blockDim, sizeof(blockDim)) || within(&gridDim, sizeof(gridDim))) {
      return;
    }
    if (is_constant_data(address)) return;
  }
  running_worker = nullptr;
  std::string place;
  FaultSite here = site(current_, return_address, &place);
  std::string what = "memory of the host";
  for (const auto& fiber : fibers_) {
    if (address - reinterpret_cast<std::uintptr_t>(fiber->stack) < fiber->stack_bytes) {
      what = "the stack of another thread";
    }
  }
  if (address < 4096) what = "a null pointer's memory";
  char words[96];
  std::snprintf(words, sizeof(words), "%zu bytes at 0x%zx, ", bytes, static_cast<std::size_t>(address));
  const FaultKind kind = address < 4096 ? FaultKind::out_of_bounds : FaultKind::host_pointer;
  record(kind, words_of(current_) + (write ? " writes " : " reads ") + words + what + ", at " + place,
         std::move(here));
  abandon();
}

void Worker::bad_alignment(std::uintptr_t address, std::size_t alignment, const char* type, Place place) {
  running_worker = nullptr;
  char words[64];
  std::snprintf(words, sizeof(words), " at address 0x%zx, wants a multiple of %zu",
                static_cast<std::size_t>(address), alignment);
  record(FaultKind::misaligned,
         words_of(current_) + " uses a " + type + words + ", at " + place.file + ":" +
             std::to_string(place.line),
         site(current_, place.file, place.line));
  abandon();
}

void Worker::bad_index(std::int64_t index, const char* type, Place place) {
  running_worker = nullptr;
  record(FaultKind::out_of_bounds,
         words_of(current_) + " uses index " + std::to_string(index) + " of an array " + type + ", at " +
             place.file + ":" + std::to_string(place.line),
         site(current_, place.file, place.line));
  abandon();
}

}  // namespace scantape::emulator

// ---- the compiler's call-backs ----

namespace {

using scantape::emulator::running_worker;

template <bool kIsWrite>
__attribute__((always_inline)) inline void access(void* address, std::size_t bytes, bool aligned,
                                                  void* caller) {
  if (running_worker == nullptr) return;
  running_worker->check<kIsWrite>(reinterpret_cast<std::uintptr_t>(address), bytes, aligned,
                                  reinterpret_cast<std::uintptr_t>(caller));
}

template <bool kIsWrite>
void access_range(void* address, std::size_t bytes, void* caller) {
  auto* byte = static_cast<char*>(address);
  for (std::size_t i = 0; i < bytes; i += 16) {
    access<kIsWrite>(byte + i, bytes - i < 16 ? bytes - i : 16, false, caller);
  }
}

}  // namespace

#define SCANTAPE_CALLER __builtin_extract_return_addr(__builtin_return_address(0))

extern "C" {

void __tsan_init();
void __tsan_func_entry(void*);
void __tsan_func_exit();
void __tsan_vptr_read(void**);
void __tsan_vptr_update(void**, void*);
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}

#define SCANTAPE_ACCESS(name, bytes, is_write, aligned)         \
  void name(void* address);                                     \
  void name(void* address) {                                    \
    access<is_write>(address, bytes, aligned, SCANTAPE_CALLER); \
  }
#define SCANTAPE_ACCESSES(bytes)                                     \
  SCANTAPE_ACCESS(__tsan_read##bytes, bytes, false, true)            \
  SCANTAPE_ACCESS(__tsan_write##bytes, bytes, true, true)            \
  SCANTAPE_ACCESS(__tsan_volatile_read##bytes, bytes, false, true)   \
  SCANTAPE_ACCESS(__tsan_volatile_write##bytes, bytes, true, true)   \
  SCANTAPE_ACCESS(__tsan_unaligned_read##bytes, bytes, false, false) \
  SCANTAPE_ACCESS(__tsan_unaligned_write##bytes, bytes, true, false)
SCANTAPE_ACCESSES(1)
SCANTAPE_ACCESSES(2)
SCANTAPE_ACCESSES(4)
SCANTAPE_ACCESSES(8)
SCANTAPE_ACCESSES(16)

void __tsan_read_range(void* address, unsigned long bytes);
void __tsan_write_range(void* address, unsigned long bytes);
void __tsan_read_range(void* address, unsigned long bytes) {
  access_range<false>(address, bytes, SCANTAPE_CALLER);
}
void __tsan_write_range(void* address, unsigned long bytes) {
  access_range<true>(address, bytes, SCANTAPE_CALLER);
}

// Atomics of host code that stands beside the kernels. Kernels have none (nvcc refuses std::atomic in them).
#define SCANTAPE_ATOMIC(bits, T)                                                                   \
  T __tsan_atomic##bits##_load(const volatile T* a, int);                                          \
  T __tsan_atomic##bits##_load(const volatile T* a, int) {                                         \
    return __atomic_load_n(a, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                \
  void __tsan_atomic##bits##_store(volatile T* a, T v, int);                                       \
  void __tsan_atomic##bits##_store(volatile T* a, T v, int) {                                      \
    __atomic_store_n(a, v, __ATOMIC_SEQ_CST);                                                      \
  }                                                                                                \
  SCANTAPE_ATOMIC_CHANGE(bits, T, exchange, __atomic_exchange_n)                                   \
  SCANTAPE_ATOMIC_CHANGE(bits, T, fetch_add, __atomic_fetch_add)                                   \
  SCANTAPE_ATOMIC_CHANGE(bits, T, fetch_sub, __atomic_fetch_sub)                                   \
  SCANTAPE_ATOMIC_CHANGE(bits, T, fetch_and, __atomic_fetch_and)                                   \
  SCANTAPE_ATOMIC_CHANGE(bits, T, fetch_or, __atomic_fetch_or)                                     \
  SCANTAPE_ATOMIC_CHANGE(bits, T, fetch_xor, __atomic_fetch_xor)                                   \
  SCANTAPE_ATOMIC_CHANGE(bits, T, fetch_nand, __atomic_fetch_nand)                                 \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* a, T* expected, T v, int, int);    \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* a, T* expected, T v, int, int) {   \
    return __atomic_compare_exchange_n(a, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }                                                                                                \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* a, T* expected, T v, int, int);      \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* a, T* expected, T v, int, int) {     \
    return __atomic_compare_exchange_n(a, expected, v, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);  \
  }                                                                                                \
  T __tsan_atomic##bits##_compare_exchange_val(volatile T* a, T expected, T v, int, int);          \
  T __tsan_atomic##bits##_compare_exchange_val(volatile T* a, T expected, T v, int, int) {         \
    __atomic_compare_exchange_n(a, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);       \
    return expected;                                                                               \
  }
#define SCANTAPE_ATOMIC_CHANGE(bits, T, name, builtin)      \
  T __tsan_atomic##bits##_##name(volatile T* a, T v, int);  \
  T __tsan_atomic##bits##_##name(volatile T* a, T v, int) { \
    return builtin(a, v, __ATOMIC_SEQ_CST);                 \
  }
SCANTAPE_ATOMIC(8, unsigned char)
SCANTAPE_ATOMIC(16, unsigned short)
SCANTAPE_ATOMIC(32, unsigned int)
SCANTAPE_ATOMIC(64, unsigned long)

void __tsan_atomic_thread_fence(int);
void __tsan_atomic_signal_fence(int);
void __tsan_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"

// The undefined-behaviour sanitizer's own runtime, where it is linked, answers instead.
#if !SCANTAPE_UBSAN_RUNTIME

namespace {

// What the compiler hands to the call-backs of -fsanitize=alignment,bounds.
struct CheckedPlace {
  const char* file;
  std::uint32_t line, column;
};
struct CheckedType {
  std::uint16_t kind, details;
  char name[1];
};
struct AlignmentCheck {
  CheckedPlace place;
  const CheckedType* type;
  unsigned char log_alignment;
  unsigned char kind;
};
struct IndexCheck {
  CheckedPlace place;
  const CheckedType* array;
  const CheckedType* index;
};

}  // namespace

extern "C" {
void __ubsan_handle_type_mismatch_v1(AlignmentCheck* check, std::uintptr_t address);
void __ubsan_handle_out_of_bounds(IndexCheck* check, std::uintptr_t index);

void __ubsan_handle_type_mismatch_v1(AlignmentCheck* check, std::uintptr_t address) {
  if (running_worker == nullptr) return;
  const std::size_t alignment = std::size_t{1} << check->log_alignment;
  running_worker->bad_alignment(address, alignment, check->type->name,
                                {check->place.file, static_cast<int>(check->place.line)});
}

void __ubsan_handle_out_of_bounds(IndexCheck* check, std::uintptr_t index) {
  if (running_worker == nullptr) return;
  running_worker->bad_index(static_cast<std::int64_t>(index), check->array->name,
                            {check->place.file, static_cast<int>(check->place.line)});
}
}  // extern "C"

#endif
