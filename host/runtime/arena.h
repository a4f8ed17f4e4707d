#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "scantape/device.h"

namespace scantape::runtime {

/// Device memory that a graph keeps: what was given back is given out again, block for block, and once it is sealed
/// nothing new is asked of the device. Thread-safe.
class Arena {
 public:
  explicit Arena(Device device) : device_(device) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  Device device() const noexcept { return device_; }
  Status take(std::int64_t bytes, void** data) noexcept;
  void give_back(void* data) noexcept;
  /// From here on only what there is. Blocks that are still out get a double: who asks for them again need not
  /// have given them back.
  Status seal() noexcept;
  std::int64_t bytes() const noexcept;

 private:
  Status add(std::int64_t bytes, void** data);

  const Device device_;
  mutable std::mutex mutex_;
  std::map<std::int64_t, std::vector<void*>> free_;  // by size
  std::map<void*, std::int64_t> blocks_;             // all there are
  std::map<void*, std::int64_t> out_;
  std::int64_t bytes_ = 0;
  bool sealed_ = false;
};

/// Where tensors and tapes of this thread work: the default stream and the device's own memory, but inside
/// Graph::capture.
struct Workplace {
  Stream stream;
  std::shared_ptr<Arena> arena;
};
Workplace& workplace() noexcept;

}  // namespace scantape::runtime
