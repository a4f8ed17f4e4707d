#pragma once

#include <cstdint>

namespace scantape::market {

/// Seconds to add to UTC for the wall clock of Chicago: -6 h, or -5 h while daylight saving time holds. The
/// rule of the United States: since 2007 from the second Sunday of March to the first Sunday of November,
/// from 1987 to 2006 from the first Sunday of April to the last of October, each time at 2:00 on the wall
/// clock. Earlier years: as 1987.
int64_t chicago_offset(int64_t utc_seconds);

/// Where a moment lies in Globex time. The trading day begins at 17:00 in Chicago on the day before its date.
struct SessionTime {
  int64_t seconds_of_day;  // since 17:00, 0 to 86,399 (wall clock)
  int64_t day_of_week;     // of the trading day, 0 Monday to 6 Sunday
  int64_t trading_day;     // days since 1970-01-01 of the trading day's date
};
SessionTime session_time(uint64_t ts);

/// The UTC second at which the wall clock of Chicago shows that second of that date.
int64_t chicago_to_utc(int64_t days, int64_t seconds_of_day);

}  // namespace scantape::market
