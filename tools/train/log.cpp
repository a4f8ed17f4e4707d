#include "train/log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <ctime>

#include "train/files.h"

namespace scantape::train {
namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr std::uint64_t kNanosecondsPerSecond = 1'000'000'000;

}  // namespace

Log::Log(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0) {}

void Log::line(const std::string& text) {
  if (!quiet_) {
    clear_progress();
    std::fprintf(stderr, "%s\n", text.c_str());
  }
  if (path_) append_line(*path_, text);
}

void Log::note(const std::string& text) noexcept {
  try {
    if (path_) append_line(*path_, text);
  } catch (...) {
    // It says why a run ended, and the disk may be the reason.
  }
}

void Log::progress(const std::string& text) {
  if (quiet_ || !terminal_ || seconds_now() - last_drawn_ < kRedrawSeconds) return;
  clear_progress();
  std::fprintf(stderr, "%s", text.c_str());
  std::fflush(stderr);
  drawn_ = true;
  last_drawn_ = seconds_now();
}

void Log::clear_progress() {
  if (drawn_) std::fprintf(stderr, "\r\033[K");
  drawn_ = false;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string duration_text(double seconds) {
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<long>(seconds);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::string time_text(std::uint64_t ts) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S}",
                     fmt::gmtime(static_cast<std::time_t>(ts / kNanosecondsPerSecond)));
}

}  // namespace scantape::train
