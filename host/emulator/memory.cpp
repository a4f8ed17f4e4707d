#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "executor.h"
#include "scantape_emulator.h"
#include "source_line.h"
#include "stream.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace scantape::emulator {
namespace {

// Device memory is opened and closed at every launch. In huge pages that costs 4 us; in pages of 4 KiB it
// would be 80 us for each MiB in use.
constexpr std::size_t kHugePage = std::size_t{2} << 20;
// How much freed memory is kept from being given out again, so that late uses of it are seen.
constexpr std::size_t kQuarantineBytes = std::size_t{32} << 20;

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

struct sigaction previous_segv;

void handle_segv(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  char text[640];
  text[0] = '\0';
  if (DeviceMemory::instance().contains(info->si_addr)) {
    std::strcpy(text, "scantape emulator: host code touched device memory: ");
    DeviceMemory::instance().describe_in_handler(address, text + std::strlen(text), sizeof(text) - 128);
    std::strcat(text, "\n");
  } else {
    describe_stack_overflow(address, text, sizeof(text));
  }
  if (text[0] != '\0') (void)!write(STDERR_FILENO, text, std::strlen(text));
  // Back to whoever was asked before: the access is made again and ends the process there.
  sigaction(SIGSEGV, &previous_segv, nullptr);
  (void)signal;
  (void)context;
}

void install_handler() {
  struct sigaction action {};
  action.sa_sigaction = handle_segv;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &previous_segv);
}

}  // namespace

void* map_pages(std::size_t bytes, bool accessible) {
  void* pages = mmap(nullptr, bytes, accessible ? PROT_READ | PROT_WRITE : PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  (void)madvise(pages, bytes, MADV_DONTDUMP);
  return pages;
}

#if defined(__SANITIZE_ADDRESS__)
void sanitizer_allow(const void* address, std::size_t bytes) {
  __asan_unpoison_memory_region(address, bytes);
}
void sanitizer_forbid(const void* address, std::size_t bytes) {
  __asan_poison_memory_region(address, bytes);
}
#else
void sanitizer_allow(const void*, std::size_t) {}
void sanitizer_forbid(const void*, std::size_t) {}
#endif

DeviceMemory& DeviceMemory::instance() {
  static auto* const memory =
      new DeviceMemory;  // never destroyed: objects with static storage free theirs late
  return *memory;
}

DeviceMemory::DeviceMemory() {
  void* bytes = map_pages(kDeviceBytes + kHugePage, false);
  void* state = map_pages(kDeviceBytes, true);
  void* cells = map_pages(kDeviceBytes / 4 * sizeof(Cell), true);
  if (bytes == nullptr || state == nullptr || cells == nullptr) return;
  region_ = {round_up(reinterpret_cast<std::uintptr_t>(bytes), kHugePage), kDeviceBytes,
             static_cast<std::uint8_t*>(state), static_cast<Cell*>(cells)};
  (void)madvise(reinterpret_cast<void*>(region_.base), kDeviceBytes, MADV_HUGEPAGE);
  install_handler();
}

std::size_t DeviceMemory::span_of(const Allocation& allocation) const {
  return kGuardBytes + round_up(allocation.bytes, kGuardBytes) + kGuardBytes;
}

void* DeviceMemory::allocate(std::size_t bytes) {
  if (!available() || bytes == 0 || bytes > kDeviceBytes / 2) return nullptr;
  Allocation allocation;
  allocation.bytes = bytes;
  allocation.call_stack = call_stack(2, 16);
  const DeviceAccess access;
  const std::lock_guard lock(mutex_);
  const std::size_t span = span_of(allocation);
  std::size_t start = 0;
  const auto fits = [&] {
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second < span) continue;
      start = it->first;
      const std::size_t rest = it->second - span;
      free_.erase(it);
      if (rest > 0) free_[start + span] = rest;
      return true;
    }
    if (high_water_ + span > kDeviceBytes) return false;
    start = high_water_;
    const std::size_t top = round_up(high_water_ + span, kHugePage);
    if (mprotect(reinterpret_cast<void*>(region_.base), top, PROT_READ | PROT_WRITE) != 0) return false;
    if (top > start + span) free_[start + span] = top - start - span;
    high_water_ = top;
    return true;
  };
  while (!fits()) {
    if (quarantine_.empty()) return nullptr;
    retire_oldest();
  }
  allocation.offset = start + kGuardBytes;
  allocation.number = ++allocations_;
  auto* const first = reinterpret_cast<unsigned char*>(region_.base + start);
  sanitizer_allow(first, span);
  // Whoever used these bytes before is none of the new owner's business.
  if (several_streams()) forget_accesses(start, span);
  std::memset(first, kGuardByte, span);
  std::memset(first + kGuardBytes, kNeverWrittenByte, bytes);
  std::memset(region_.state + start, kNoAccess, span);
  std::memset(region_.state + allocation.offset, kUnwritten, bytes);
  sanitizer_forbid(first, kGuardBytes);
  sanitizer_forbid(first + kGuardBytes + bytes, span - kGuardBytes - bytes);
  used_ += bytes;
  void* const result = first + kGuardBytes;
  live_.emplace(allocation.offset, std::move(allocation));
  return result;
}

void DeviceMemory::retire_oldest() {
  const Allocation& oldest = quarantine_.front();
  std::size_t start = oldest.offset - kGuardBytes;
  std::size_t bytes = span_of(oldest);
  std::memset(region_.state + oldest.offset, kNoAccess, oldest.bytes);
  quarantined_ -= oldest.bytes;
  quarantine_.pop_front();
  auto next = free_.lower_bound(start);
  if (next != free_.end() && next->first == start + bytes) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == start) {
      before->second += bytes;
      return;
    }
  }
  free_[start] = bytes;
}

std::string DeviceMemory::guard_damage(const Allocation& allocation) const {
#if defined(__SANITIZE_ADDRESS__)
  (void)allocation;  // the guards are forbidden there: whoever writes them is caught in the act
#else
  const auto* const first = reinterpret_cast<const unsigned char*>(region_.base + allocation.offset);
  const auto* const last = first + round_up(allocation.bytes, kGuardBytes) + kGuardBytes;
  for (const unsigned char* byte = first - kGuardBytes; byte < last; ++byte) {
    if (byte == first) byte += allocation.bytes;
    if (*byte != kGuardByte) {
      return "a guard byte was overwritten: " + describe_locked(reinterpret_cast<std::uintptr_t>(byte));
    }
  }
#endif
  return "";
}

std::string DeviceMemory::release(void* pointer) {
  const DeviceAccess access;
  const std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const auto it = region_.contains(address) ? live_.find(address - region_.base) : live_.end();
  if (it == live_.end()) return "this is not the start of a live allocation: " + describe_locked(address);
  Allocation allocation = std::move(it->second);
  live_.erase(it);
  used_ -= allocation.bytes;
  std::string damage = guard_damage(allocation);
  std::memset(pointer, kNeverWrittenByte, allocation.bytes);
  std::memset(region_.state + allocation.offset, kFreed, allocation.bytes);
  sanitizer_forbid(pointer, allocation.bytes);
  quarantined_ += allocation.bytes;
  quarantine_.push_back(std::move(allocation));
  while (quarantined_ > kQuarantineBytes) retire_oldest();
  return damage;
}

std::size_t DeviceMemory::size_of(const void* pointer) const {
  const std::lock_guard lock(mutex_);
  const auto it = live_.find(reinterpret_cast<std::uintptr_t>(pointer) - region_.base);
  return it == live_.end() ? 0 : it->second.bytes;
}

bool DeviceMemory::begin_release(void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto it = live_.find(reinterpret_cast<std::uintptr_t>(pointer) - region_.base);
  if (it == live_.end() || it->second.is_leaving) return false;
  return it->second.is_leaving = true;
}

void DeviceMemory::promise(void* pointer) {
  std::memset(region_.state + (reinterpret_cast<std::uintptr_t>(pointer) - region_.base), kPromised,
              size_of(pointer));
}

void DeviceMemory::keep_promise(void* pointer) {
  std::memset(region_.state + (reinterpret_cast<std::uintptr_t>(pointer) - region_.base), kUnwritten,
              size_of(pointer));
}

std::string DeviceMemory::check_range(const void* address, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  if (region_.contains(first)) {
    auto it = live_.upper_bound(first - region_.base);
    if (it != live_.begin()) {
      const Allocation& allocation = std::prev(it)->second;
      const std::size_t within = first - region_.base - allocation.offset;
      if (within <= allocation.bytes && bytes <= allocation.bytes - within) return "";
    }
  }
  return std::to_string(bytes) + " bytes from " + describe_locked(first) + " are not in one live allocation";
}

const Allocation* DeviceMemory::nearest(std::size_t offset, bool* live) const {
  const Allocation* best = nullptr;
  std::size_t best_distance = ~std::size_t{0};
  const auto consider = [&](const Allocation& allocation, bool is_live) {
    const std::size_t end = allocation.offset + allocation.bytes;
    const std::size_t distance =
        offset < allocation.offset ? allocation.offset - offset : (offset < end ? 0 : offset - end + 1);
    if (distance < best_distance || (distance == best_distance && is_live)) {
      best = &allocation;
      best_distance = distance;
      *live = is_live;
    }
  };
  for (const auto& [start, allocation] : live_) consider(allocation, true);
  for (const Allocation& allocation : quarantine_) consider(allocation, false);
  return best;
}

std::string DeviceMemory::describe_locked(std::uintptr_t address) const {
  char text[256];
  if (!region_.contains(address)) {
    std::snprintf(text, sizeof(text), "0x%zx, which is not device memory", static_cast<std::size_t>(address));
    return text;
  }
  const std::size_t offset = address - region_.base;
  bool live = false;
  const Allocation* const allocation = nearest(offset, &live);
  if (allocation == nullptr) return "device memory in which nothing was allocated";
  const char* const freed = live ? "" : "freed ";
  const std::size_t end = allocation->offset + allocation->bytes;
  if (offset < allocation->offset) {
    std::snprintf(text, sizeof(text), "%zu bytes before the start of %sdevice allocation %lld (%zu bytes)",
                  allocation->offset - offset, freed, static_cast<long long>(allocation->number),
                  allocation->bytes);
  } else if (offset >= end) {
    std::snprintf(text, sizeof(text), "%zu bytes behind the end of %sdevice allocation %lld (%zu bytes)",
                  offset - end, freed, static_cast<long long>(allocation->number), allocation->bytes);
  } else {
    std::snprintf(text, sizeof(text), "byte %zu of %sdevice allocation %lld (%zu bytes)",
                  offset - allocation->offset, freed, static_cast<long long>(allocation->number),
                  allocation->bytes);
  }
  return text;
}

std::string DeviceMemory::describe(std::uintptr_t address) const {
  const std::lock_guard lock(mutex_);
  return describe_locked(address);
}

void DeviceMemory::describe_in_handler(std::uintptr_t address, char* text, std::size_t size) const {
  // The process is dying; if somebody else holds the lock the name is all that is lost.
  if (!mutex_.try_lock()) {
    std::snprintf(text, size, "0x%zx", static_cast<std::size_t>(address));
    return;
  }
  std::snprintf(text, size, "%s", describe_locked(address).c_str());
  mutex_.unlock();
}

bool DeviceMemory::all_written(const void* address, std::size_t bytes) const {
  if (!checks_accesses()) return true;  // what kernels write is not reported, so nothing is known
  const std::uint8_t* const state =
      region_.state + (reinterpret_cast<std::uintptr_t>(address) - region_.base);
  for (std::size_t i = 0; i < bytes; ++i) {
    if (state[i] != kWritten) return false;
  }
  return true;
}

void DeviceMemory::mark_written(const void* address, std::size_t bytes) {
  std::memset(region_.state + (reinterpret_cast<std::uintptr_t>(address) - region_.base), kWritten, bytes);
}

void DeviceMemory::mark_unwritten(const void* address, std::size_t bytes) {
  std::memset(region_.state + (reinterpret_cast<std::uintptr_t>(address) - region_.base), kUnwritten, bytes);
}

void DeviceMemory::copy_state(void* target, const void* source, std::size_t bytes) {
  std::memmove(region_.state + (reinterpret_cast<std::uintptr_t>(target) - region_.base),
               region_.state + (reinterpret_cast<std::uintptr_t>(source) - region_.base), bytes);
}

std::string DeviceMemory::check_guards() const {
  const DeviceAccess access;
  const std::lock_guard lock(mutex_);
  for (const auto& [start, allocation] : live_) {
    std::string damage = guard_damage(allocation);
    if (!damage.empty()) return damage;
  }
  return "";
}

std::vector<Allocation> DeviceMemory::live() const {
  const std::lock_guard lock(mutex_);
  std::vector<Allocation> result;
  for (const auto& [start, allocation] : live_) result.push_back(allocation);
  return result;
}

std::size_t DeviceMemory::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

/// Whole pages are given back, which is faster than clearing them.
void DeviceMemory::forget_accesses(std::size_t offset, std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  auto* const first = reinterpret_cast<char*>(region_.cells + offset / 4);
  auto* const last = first + bytes / 4 * sizeof(Cell);
  const auto address = reinterpret_cast<std::uintptr_t>(first);
  char* const first_page = first + (round_up(address, kPage) - address);
  char* const last_page = last - reinterpret_cast<std::uintptr_t>(last) % kPage;
  if (first_page >= last_page ||
      madvise(first_page, static_cast<std::size_t>(last_page - first_page), MADV_DONTNEED) != 0) {
    std::memset(first, 0, static_cast<std::size_t>(last - first));
    return;
  }
  std::memset(first, 0, static_cast<std::size_t>(first_page - first));
  std::memset(last_page, 0, static_cast<std::size_t>(last - last_page));
}

void DeviceMemory::forget_accesses() {
  (void)madvise(region_.cells, kDeviceBytes / 4 * sizeof(Cell), MADV_DONTNEED);
}

void DeviceMemory::open() {
  const std::lock_guard lock(mutex_);
  if (open_++ == 0 && high_water_ > 0) {
    (void)mprotect(reinterpret_cast<void*>(region_.base), high_water_, PROT_READ | PROT_WRITE);
  }
}

void DeviceMemory::close() {
  const std::lock_guard lock(mutex_);
  if (--open_ == 0 && high_water_ > 0) {
    (void)mprotect(reinterpret_cast<void*>(region_.base), high_water_, PROT_NONE);
  }
}

bool forget_written(const void* address, std::size_t bytes) noexcept {
  drain();  // what is on its way would write them again
  DeviceMemory& memory = DeviceMemory::instance();
  if (!memory.check_range(address, bytes).empty()) return false;
  memory.mark_unwritten(address, bytes);
  return true;
}

std::vector<LiveAllocation> live_allocations() {
  drain();  // what is on its way may free some
  const DeviceMemory& memory = DeviceMemory::instance();
  std::vector<LiveAllocation> result;
  for (const Allocation& allocation : memory.live()) {
    LiveAllocation entry;
    entry.number = allocation.number;
    entry.address = reinterpret_cast<const void*>(memory.region().base + allocation.offset);
    entry.bytes = allocation.bytes;
    for (const std::uintptr_t address : allocation.call_stack) {
      for (const SourceLine& place : source_lines(address)) {
        if (!place.file.empty()) entry.allocated_at.push_back(to_text(place));
      }
    }
    result.push_back(std::move(entry));
  }
  return result;
}

std::string leak_report() {
  std::string text;
  for (const LiveAllocation& allocation : live_allocations()) {
    text += "device allocation " + std::to_string(allocation.number) + " of " +
            std::to_string(allocation.bytes) + " bytes was not freed; allocated";
    if (allocation.allocated_at.empty()) text += " at an unknown line";
    for (std::size_t i = 0; i < allocation.allocated_at.size() && i < 6; ++i) {
      text += (i == 0 ? " at " : ", from ") + allocation.allocated_at[i];
    }
    text += "\n";
  }
  return text;
}

}  // namespace scantape::emulator
