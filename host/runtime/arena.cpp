#include "runtime/arena.h"

#include <string>

namespace scantape {

Stream current_stream() noexcept {
  return runtime::workplace().stream;
}

namespace runtime {
namespace {

constexpr std::int64_t kUnit = 256;

std::int64_t rounded(std::int64_t bytes) {
  return (bytes + kUnit - 1) / kUnit * kUnit;
}

Status no_host_memory() noexcept {
  return Status::fail(Code::out_of_memory, "graph: no memory on the host for its list of blocks");
}

}  // namespace

Workplace& workplace() noexcept {
  thread_local Workplace place;
  return place;
}

Arena::~Arena() {
  for (const auto& [data, bytes] : blocks_) deallocate(device_, data);
}

Status Arena::add(std::int64_t bytes, void** data) {
  SCANTAPE_TRY(allocate(device_, bytes, data));
  blocks_.emplace(*data, bytes);
  bytes_ += bytes;
  return {};
}

Status Arena::take(std::int64_t bytes, void** data) noexcept {
  *data = nullptr;
  if (bytes == 0) return {};
  try {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::int64_t size = rounded(bytes);
    std::vector<void*>& blocks = free_[size];
    if (!blocks.empty()) {
      *data = blocks.back();
      blocks.pop_back();
    } else if (sealed_) {
      return Status::fail(Code::cuda,
                          "graph: the step asked for " + std::to_string(bytes) +
                              " bytes of new memory while it was captured; it may use again what it "
                              "asked for when it ran before");
    } else {
      SCANTAPE_TRY(add(size, data));
    }
    out_.emplace(*data, size);
    return {};
  } catch (...) {
    return no_host_memory();
  }
}

void Arena::give_back(void* data) noexcept {
  if (data == nullptr) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto block = out_.find(data);
  if (block == out_.end()) return;
  try {
    free_[block->second].push_back(data);
  } catch (...) {
    // It stays out: it is freed with the arena.
  }
  out_.erase(block);
}

Status Arena::seal() noexcept {
  try {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [block, size] : out_) {
      void* twin = nullptr;
      SCANTAPE_TRY(add(size, &twin));
      free_[size].push_back(twin);
    }
    sealed_ = true;
    return {};
  } catch (...) {
    return no_host_memory();
  }
}

std::int64_t Arena::bytes() const noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return bytes_;
}

}  // namespace runtime
}  // namespace scantape
