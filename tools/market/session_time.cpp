#include "market/session_time.h"

#include "market/dbn_format.h"

namespace scantape::market {
namespace {

constexpr int64_t kHour = 3'600;
constexpr int64_t kDaySeconds = 86'400;
constexpr int64_t kStandard = -6 * kHour;
constexpr int64_t kDaylight = -5 * kHour;

int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);
}

/// 0 Monday to 6 Sunday; 1970-01-01 was a Thursday.
int64_t day_of_week(int64_t days) {
  return ((days + 3) % 7 + 7) % 7;
}

/// The n-th Sunday on or after that date.
int64_t sunday_from(int64_t days, int64_t n) {
  return days + (6 - day_of_week(days)) + 7 * (n - 1);
}

struct Rule {
  int64_t begin;  // UTC seconds
  int64_t end;
};

Rule daylight_of(int64_t year) {
  const bool since_2007 = year >= 2007;
  const int64_t first =
      since_2007 ? sunday_from(days_from_civil(year, 3, 1), 2) : sunday_from(days_from_civil(year, 4, 1), 1);
  const int64_t last = since_2007 ? sunday_from(days_from_civil(year, 11, 1), 1)
                                  : sunday_from(days_from_civil(year, 10, 25), 1);
  return {first * kDaySeconds + 2 * kHour - kStandard, last * kDaySeconds + 2 * kHour - kDaylight};
}

}  // namespace

int64_t chicago_offset(int64_t utc_seconds) {
  int64_t year;
  unsigned month, day;
  civil_from_days(floor_div(utc_seconds, kDaySeconds), year, month, day);
  const Rule rule = daylight_of(year);
  return utc_seconds >= rule.begin && utc_seconds < rule.end ? kDaylight : kStandard;
}

SessionTime session_time(uint64_t ts) {
  const int64_t utc = static_cast<int64_t>(ts / static_cast<uint64_t>(kSecond));
  const int64_t since_open =
      utc + chicago_offset(utc) + 7 * kHour;  // 17:00 becomes midnight of the next date
  const int64_t days = floor_div(since_open, kDaySeconds);
  return {since_open - days * kDaySeconds, day_of_week(days), days};
}

int64_t chicago_to_utc(int64_t days, int64_t seconds_of_day) {
  const int64_t wall = days * kDaySeconds + seconds_of_day;
  const int64_t guess = wall - kDaylight;
  return chicago_offset(guess) == kDaylight ? guess : wall - kStandard;
}

}  // namespace scantape::market
