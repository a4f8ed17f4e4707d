/// Device memory: one private mapping, closed to the host except while a kernel or a copy runs, with a state
/// for each byte and, for the access checks, a cell for each four bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "scantape_emulator.h"

namespace scantape::emulator {

/// What may be done with one byte of device or shared memory.
enum ByteState : std::uint8_t {
  kNoAccess = 0,
  kUnwritten = 1,
  kWritten = 2,
  kFreed = 3,
  kPromised = 4,  // given out in the order of a stream that has not come to it
};

/// Who touched four bytes last: `owner` is the block's serial number and its warp, `tick` the block's time.
/// One record stands for all lanes of a warp that read the same bytes at one time.
struct Access {
  std::uint32_t owner = 0;
  std::uint32_t tick = 0;
  std::uint32_t lanes = 0;
  std::uint32_t place =
      0;  // return address relative to the code (28 bits) and which of the four bytes (4 bits)
};

struct Cell {
  Access write;
  Access reads[2];  // of two warps: a later writer races with one of them if it races with any
};

/// Memory that is watched: its bytes, the state of each and the cells.
struct Region {
  std::uintptr_t base = 0;
  std::size_t bytes = 0;
  std::uint8_t* state = nullptr;
  Cell* cells = nullptr;

  bool contains(std::uintptr_t address) const { return address - base < bytes; }
};

/// Maps zeroed pages of which only the touched ones cost anything; null where that is refused.
void* map_pages(std::size_t bytes, bool accessible);

/// Tells the address sanitizer, where there is one, what may be touched.
void sanitizer_allow(const void* address, std::size_t bytes);
void sanitizer_forbid(const void* address, std::size_t bytes);

inline constexpr std::size_t kDeviceBytes = std::size_t{4} << 30;
inline constexpr std::size_t kGuardBytes = 256;
inline constexpr unsigned char kNeverWrittenByte = 0xff;  // a NaN in every float type, -1 in every integer
inline constexpr unsigned char kGuardByte = 0xa5;

struct Allocation {
  std::int64_t number = 0;
  std::size_t offset = 0;  // of the first byte, from the start of the region
  std::size_t bytes = 0;
  std::vector<std::uintptr_t> call_stack;
  bool is_leaving = false;  // a stream is to free it
};

class DeviceMemory {
 public:
  static DeviceMemory& instance();

  /// False where the machine refuses the address space.
  bool available() const { return region_.base != 0; }
  const Region& region() const { return region_; }

  /// Null where there is no room.
  void* allocate(std::size_t bytes);
  /// Empty on success, else what is wrong.
  std::string release(void* pointer);
  /// The size of the live allocation that starts here, 0 where none does.
  std::size_t size_of(const void* pointer) const;
  /// Notes that a stream is to free it; false where one is already.
  bool begin_release(void* pointer);
  /// Between promise and keep_promise nobody may touch it.
  void promise(void* pointer);
  void keep_promise(void* pointer);

  /// Empty where [address, address + bytes) lies in one live allocation, else what is wrong with it.
  std::string check_range(const void* address, std::size_t bytes) const;
  /// Where an address lies: "byte 4096 of device allocation 3 (4096 bytes), 0 behind its end".
  std::string describe(std::uintptr_t address) const;
  bool contains(const void* address) const {
    return region_.contains(reinterpret_cast<std::uintptr_t>(address));
  }
  bool all_written(const void* address, std::size_t bytes) const;
  void mark_written(const void* address, std::size_t bytes);
  void mark_unwritten(const void* address, std::size_t bytes);
  void copy_state(void* target, const void* source, std::size_t bytes);
  /// The first allocation whose guard bytes were overwritten, in words; empty where all are whole.
  std::string check_guards() const;

  std::vector<Allocation> live() const;
  std::size_t used_bytes() const;
  void forget_accesses();
  void forget_accesses(std::size_t offset, std::size_t bytes);

  /// Counted: device memory is open to this process while anybody holds it open.
  void open();
  void close();
  /// In a signal handler: like describe, into a buffer, without taking locks for good.
  void describe_in_handler(std::uintptr_t address, char* text, std::size_t size) const;

 private:
  DeviceMemory();
  std::size_t span_of(const Allocation& allocation) const;
  const Allocation* nearest(std::size_t offset, bool* live) const;
  std::string describe_locked(std::uintptr_t address) const;
  std::string guard_damage(const Allocation& allocation) const;
  void retire_oldest();

  mutable std::mutex mutex_;
  Region region_;
  std::size_t high_water_ = 0;
  int open_ = 0;
  std::int64_t allocations_ = 0;
  std::size_t used_ = 0;
  std::map<std::size_t, Allocation> live_;   // by offset
  std::map<std::size_t, std::size_t> free_;  // offset of the span -> its bytes
  std::deque<Allocation> quarantine_;        // freed lately, not given out again yet
  std::size_t quarantined_ = 0;
};

/// Opens device memory for as long as it lives.
class DeviceAccess {
 public:
  DeviceAccess() { DeviceMemory::instance().open(); }
  ~DeviceAccess() { DeviceMemory::instance().close(); }
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

}  // namespace scantape::emulator
