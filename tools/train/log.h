#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace scantape::train {

/// Says what a run does: lines to stderr and, once it has a file, to the run's log. On a terminal a progress line stands
/// below them; piped, progress is silent.
class Log {
 public:
  explicit Log(bool quiet = false);

  void open(const std::filesystem::path& path) { path_ = path; }
  void line(const std::string& text);
  /// A line for the log's file alone; never throws.
  void note(const std::string& text) noexcept;
  /// Replaces the progress line; at most ten a second are drawn.
  void progress(const std::string& text);

 private:
  void clear_progress();

  bool quiet_, terminal_;
  std::optional<std::filesystem::path> path_;
  bool drawn_ = false;
  double last_drawn_ = 0;
};

/// Seconds on a clock that only goes forward.
double seconds_now();

/// "1 h 02 min", "3 min 20 s", "4.2 s".
std::string duration_text(double seconds);

/// "2024-01-25 14:03:00" of a stamp in ns since 1970, UTC.
std::string time_text(std::uint64_t ts);

}  // namespace scantape::train
