#pragma once

#include <malloc.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

/// The memory that this process has and had at most, as Linux counts it: resident bytes.
namespace scantape::bench {

/// A line of /proc/self/status in bytes; none where the system does not say.
inline std::optional<std::int64_t> process_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind(field + ":", 0) == 0) return std::stoll(line.substr(field.size() + 1)) * 1024;
  return std::nullopt;
}

inline std::optional<std::int64_t> resident_bytes() {
  malloc_trim(0);  // what was freed before is not what comes now
  return process_bytes("VmRSS");
}

/// From now on the peak is counted anew. False where the system does not allow that: its peak is then of all that was.
inline bool forget_peak() {
  malloc_trim(0);
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

/// The most since the latest forget_peak().
inline std::optional<std::int64_t> peak_bytes() {
  return process_bytes("VmHWM");
}

}  // namespace scantape::bench
