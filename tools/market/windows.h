#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "market/dbn_format.h"

namespace scantape::market {

/// The greatest length and stride of windows: far more than there are bars, and sums of rows and lengths stay
/// far from what an int64 holds. The functions below expect lengths and strides of 1 to this.
inline constexpr int64_t kMaxLength = int64_t{1} << 31;

/// A run of bars of one contract without a gap longer than max_gap. Indices count rows of all chosen
/// contracts, one contract behind the other.
struct Stretch {
  int64_t contract = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t usable = 0;  // first row behind the contract's warm-up; `end` where none is
};

/// Appends the stretches of one contract whose rows start at `first_row`. The first `warm_up` rows are not
/// usable.
void append_stretches(std::span<const Bar> bars, int64_t contract, int64_t first_row, int64_t max_gap,
                      int64_t warm_up, std::vector<Stretch>& stretches);

/// A range of time, [begin, end): the stamps of its bars, the label's among them.
struct TimeRange {
  uint64_t begin = 0;
  uint64_t end = std::numeric_limits<uint64_t>::max();
};

/// Rows [begin, end) of one stretch that have their label bar (the next row) in it, too.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end > begin ? end - begin : 0; }
};

/// The rows of a stretch whose own stamp and whose label's stamp lie in `range`. `ts` is indexed by row.
RowRange rows_in(const Stretch& stretch, std::span<const uint64_t> ts, TimeRange range);

/// `length` inputs from `first_bar` on, and those of them, [score_begin, score_end), that count.
struct Window {
  int64_t first_bar = 0;
  int64_t score_begin = 0;
  int64_t score_end = 0;

  bool operator==(const Window&) const = default;
};

/// How a month of bars falls apart.
struct WindowCounts {
  int64_t windows = 0;
  int64_t train = 0;
  int64_t validation = 0;
  int64_t test = 0;
  int64_t fresh = 0;   // behind the data that a model was trained with
  int64_t purged = 0;  // across a cut
  int64_t before = 0;  // before that data

  bool operator==(const WindowCounts&) const = default;
};

/// "80/20" or "70/15/15": percentages of the windows in time order, which must add up to 100. Throws
/// invalid_argument.
std::vector<int> parse_split(const std::string& text);

/// First input stamps of windows of `length` inputs and a label every `stride` rows from the start of each
/// stretch. `whole` takes the rows before the warm-up as well.
std::vector<uint64_t> window_starts(std::span<const Stretch> stretches, std::span<const uint64_t> ts,
                                    int64_t length, int64_t stride, bool whole);

/// Where the parts begin: with W windows in time order, the first input stamp of window floor(share * W) for
/// the running sums of the shares. One cut for all instruments. Reorders `starts`, which must not be empty.
std::vector<uint64_t> cut_times(std::vector<uint64_t>& starts, std::span<const int> split);

/// Windows every `stride` rows by the part that holds their first input and their last label; what lies in
/// none is purged. `parts` are before, train, validation, test and fresh.
WindowCounts count_windows(std::span<const Stretch> stretches, std::span<const uint64_t> ts, int64_t length,
                           int64_t stride, std::span<const TimeRange, 5> parts, bool whole);

/// Windows of a part at a fixed stride, counted from the start of the usable rows of each stretch.
std::vector<Window> strided_windows(std::span<const Stretch> stretches, std::span<const uint64_t> ts,
                                    int64_t length, int64_t stride, TimeRange part);

/// Windows of a part that touch each other, starting at a phase drawn for each stretch: no row twice.
std::vector<Window> tiled_windows(std::span<const Stretch> stretches, std::span<const uint64_t> ts,
                                  int64_t length, TimeRange part, uint64_t seed, uint64_t epoch);

/// Windows that score each row of a part once, among those that have `burn_in` rows before them in the same
/// stretch and part. The last window of a stretch overlaps the one before it and scores only what is left.
std::vector<Window> scoring_windows(std::span<const Stretch> stretches, std::span<const uint64_t> ts,
                                    int64_t length, int64_t burn_in, TimeRange part);

/// Shuffles by (seed, epoch) alone.
void shuffle(std::vector<Window>& windows, uint64_t seed, uint64_t epoch);

}  // namespace scantape::market
