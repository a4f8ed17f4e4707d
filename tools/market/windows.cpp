#include "market/windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "market/counter_rng.h"
#include "scantape/error.h"

namespace scantape::market {
namespace {

/// Streams of the random numbers, so that no two uses share one.
constexpr uint64_t kPhaseStream = 1;
constexpr uint64_t kShuffleStream = 2;

uint64_t stream_of(uint64_t kind, uint64_t epoch) {
  return kind << 32 | (epoch & 0xFFFFFFFF);
}

/// Calls `use` with the first row of every window of `stretch`.
template <typename Use>
void each_start(const Stretch& stretch, int64_t length, int64_t stride, bool whole, Use use) {
  for (int64_t row = whole ? stretch.begin : stretch.usable; row < stretch.end - length; row += stride)
    use(row);
}

}  // namespace

void append_stretches(std::span<const Bar> bars, int64_t contract, int64_t first_row, int64_t max_gap,
                      int64_t warm_up, std::vector<Stretch>& stretches) {
  const int64_t count = static_cast<int64_t>(bars.size());
  for (int64_t begin = 0; begin < count;) {
    int64_t end = begin + 1;
    while (end < count && static_cast<int64_t>(bars[end].ts_event - bars[end - 1].ts_event) <= max_gap) ++end;
    const int64_t usable = std::clamp(warm_up, begin, end);
    stretches.push_back({contract, first_row + begin, first_row + end, first_row + usable});
    begin = end;
  }
}

RowRange rows_in(const Stretch& stretch, std::span<const uint64_t> ts, TimeRange range) {
  const auto at = [&](int64_t row) { return ts.begin() + row; };
  const int64_t begin = std::lower_bound(at(stretch.usable), at(stretch.end), range.begin) - ts.begin();
  const int64_t end = std::lower_bound(at(stretch.usable), at(stretch.end), range.end) - ts.begin();
  return {begin, std::max(begin, end - 1)};  // the last row is a label only
}

std::vector<int> parse_split(const std::string& text) {
  std::vector<int> parts;
  int sum = 0;
  bool good = !text.empty() && text.back() != '/';
  for (const char *at = text.data(), *end = at + text.size(); good && at < end;) {
    int value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    good = error == std::errc() && value > 0 && value <= 100 && (next == end || *next == '/');
    parts.push_back(value);
    sum += value;
    at = next < end ? next + 1 : end;
  }
  if (!good || sum != 100 || parts.size() < 2 || parts.size() > 3)
    throw Error(Code::invalid_argument, fmt::format("split '{}' is not understood; wants two or three "
                                                    "percentages that add up to 100, such as 80/20 or "
                                                    "70/15/15",
                                                    text));
  return parts;
}

std::vector<uint64_t> window_starts(std::span<const Stretch> stretches, std::span<const uint64_t> ts,
                                    int64_t length, int64_t stride, bool whole) {
  std::vector<uint64_t> starts;
  for (const Stretch& stretch : stretches)
    each_start(stretch, length, stride, whole, [&](int64_t row) { starts.push_back(ts[row]); });
  return starts;
}

std::vector<uint64_t> cut_times(std::vector<uint64_t>& starts, std::span<const int> split) {
  std::vector<uint64_t> cuts;
  uint64_t share = 0;
  for (size_t part = 0; part + 1 < split.size(); ++part) {
    share += static_cast<uint64_t>(split[part]);
    const auto nth = starts.begin() + static_cast<int64_t>(starts.size() * share / 100);
    std::nth_element(starts.begin(), nth, starts.end());
    cuts.push_back(*nth);
  }
  return cuts;
}

WindowCounts count_windows(std::span<const Stretch> stretches, std::span<const uint64_t> ts, int64_t length,
                           int64_t stride, std::span<const TimeRange, 5> parts, bool whole) {
  WindowCounts counts;
  int64_t* const counters[] = {&counts.before, &counts.train, &counts.validation, &counts.test,
                               &counts.fresh};
  for (const Stretch& stretch : stretches) {
    each_start(stretch, length, stride, whole, [&](int64_t row) {
      ++counts.windows;
      int64_t* counter = &counts.purged;
      for (size_t part = 0; part < parts.size(); ++part)
        if (ts[row] >= parts[part].begin && ts[row + length] < parts[part].end) counter = counters[part];
      ++*counter;
    });
  }
  return counts;
}

std::vector<Window> strided_windows(std::span<const Stretch> stretches, std::span<const uint64_t> ts,
                                    int64_t length, int64_t stride, TimeRange part) {
  std::vector<Window> windows;
  for (const Stretch& stretch : stretches) {
    const RowRange rows = rows_in(stretch, ts, part);
    const int64_t first = stretch.usable + (rows.begin - stretch.usable + stride - 1) / stride * stride;
    for (int64_t row = first; row + length <= rows.end; row += stride) windows.push_back({row, 0, length});
  }
  return windows;
}

std::vector<Window> tiled_windows(std::span<const Stretch> stretches, std::span<const uint64_t> ts,
                                  int64_t length, TimeRange part, uint64_t seed, uint64_t epoch) {
  std::vector<Window> windows;
  for (size_t i = 0; i < stretches.size(); ++i) {
    const RowRange rows = rows_in(stretches[i], ts, part);
    if (rows.size() < length) continue;
    // A phase beyond the last start that fits would lose a short stretch for the epoch.
    const int64_t phases = std::min(length, rows.size() - length + 1);
    const int64_t phase = static_cast<int64_t>(
        random_below(static_cast<uint64_t>(phases), seed, stream_of(kPhaseStream, epoch), i));
    for (int64_t row = rows.begin + phase; row + length <= rows.end; row += length)
      windows.push_back({row, 0, length});
  }
  return windows;
}

std::vector<Window> scoring_windows(std::span<const Stretch> stretches, std::span<const uint64_t> ts,
                                    int64_t length, int64_t burn_in, TimeRange part) {
  std::vector<Window> windows;
  for (const Stretch& stretch : stretches) {
    const RowRange rows = rows_in(stretch, ts, part);
    if (rows.size() < length) continue;
    for (int64_t next = rows.begin + burn_in; next < rows.end;) {  // the first row not scored yet
      const int64_t first = std::min(next - burn_in, rows.end - length);
      windows.push_back({first, next - first, length});
      next = first + length;
    }
  }
  return windows;
}

void shuffle(std::vector<Window>& windows, uint64_t seed, uint64_t epoch) {
  for (uint64_t i = windows.size(); i > 1; --i)
    std::swap(windows[i - 1], windows[random_below(i, seed, stream_of(kShuffleStream, epoch), i)]);
}

}  // namespace scantape::market
