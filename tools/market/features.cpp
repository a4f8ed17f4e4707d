#include "market/features.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "market/session_time.h"
#include "scantape/error.h"

namespace scantape::market {
namespace {

constexpr int64_t kSpans[] = {5, 15, 60, 240};
static_assert(kSpans[3] == kWarmUpBars);

/// What rolling statistics need of every bar: prefix-only, so a later bar changes nothing here.
struct Column {
  std::vector<double> log_return;
  std::vector<uint8_t> has_return;
  std::vector<double> log_volume;
};

struct Moments {
  double mean = 0;
  double rms = 0;  // about zero: over minutes the mean is noise beside it
};

/// Over the returns present among the last `span` bars up to `row`; zeros where there is none. Summed afresh
/// for each row: a running sum would carry the rounding of old bars along.
Moments moments(const Column& column, int64_t row, int64_t span) {
  double sum = 0, squares = 0;
  int64_t count = 0;
  for (int64_t i = std::max<int64_t>(0, row - span + 1); i <= row; ++i) {
    if (!column.has_return[i]) continue;
    sum += column.log_return[i];
    squares += column.log_return[i] * column.log_return[i];
    ++count;
  }
  if (count == 0) return {};
  return {sum / static_cast<double>(count), std::sqrt(squares / static_cast<double>(count))};
}

double mean_log_volume(const Column& column, int64_t row, int64_t span) {
  const int64_t first = std::max<int64_t>(0, row - span + 1);
  double sum = 0;
  for (int64_t i = first; i <= row; ++i) sum += column.log_volume[i];
  return sum / static_cast<double>(row - first + 1);
}

Column make_column(std::span<const Bar> bars, int64_t max_gap) {
  Column column;
  for (size_t i = 0; i < bars.size(); ++i) {
    LogRatio ratio;
    if (i > 0 && static_cast<int64_t>(bars[i].ts_event - bars[i - 1].ts_event) <= max_gap)
      ratio = log_ratio(bars[i].close, bars[i - 1].close);
    column.log_return.push_back(ratio.value);
    column.has_return.push_back(ratio.missing ? 0 : 1);
    column.log_volume.push_back(std::log1p(static_cast<double>(bars[i].volume)));
  }
  return column;
}

/// Where the close lies between low and high: -0.5 to 0.5, 0 for a bar without range.
double close_position(const Bar& bar) {
  // In double before the difference: two prices of a spread may be further apart than an int64 holds.
  const double range = static_cast<double>(bar.high) - static_cast<double>(bar.low);
  if (!(range > 0)) return 0;
  return (static_cast<double>(bar.close) - static_cast<double>(bar.low)) / range - 0.5;
}

/// The columns in the order of feature_schema().
class RowWriter {
 public:
  explicit RowWriter(float* row) : at_(row) {}
  void put(double value) { *at_++ = static_cast<float>(value); }
  void put_angle(double turns) {
    put(std::sin(2 * std::numbers::pi * turns));
    put(std::cos(2 * std::numbers::pi * turns));
  }
  const float* at() const { return at_; }

 private:
  float* at_;
};

}  // namespace

LogRatio log_ratio(int64_t a, int64_t b) {
  if (a <= 0 || b <= 0 || a == kUndefinedPrice || b == kUndefinedPrice) return {};
  // Of a rise from 1 to 9e18 units the double is there, of the fall back it is not: 1 - 9e18 is rounded to
  // -9e18.
  const double value = std::log1p(static_cast<double>(a - b) / static_cast<double>(b));
  return std::isfinite(value) ? LogRatio{value, false} : LogRatio{};
}

const FeatureSchema& feature_schema() {
  static const FeatureSchema schema = {1,
                                       {"log_return",
                                        "open_gap",
                                        "body",
                                        "range",
                                        "close_position",
                                        "log_volume",
                                        "log_volume_change",
                                        "relative_log_volume_60",
                                        "return_mean_5",
                                        "return_mean_15",
                                        "return_mean_60",
                                        "return_mean_240",
                                        "volatility_5",
                                        "volatility_15",
                                        "volatility_60",
                                        "volatility_240",
                                        "log_minutes_since_last_bar",
                                        "log_bars_since_break",
                                        "session_time_sin",
                                        "session_time_cos",
                                        "week_day_sin",
                                        "week_day_cos"}};
  return schema;
}

std::vector<float> compute_features(std::span<const Bar> bars, int64_t max_gap) {
  const Column column = make_column(bars, max_gap);
  std::vector<float> rows(bars.size() * kFeatureCount);
  int64_t since_break = 0;
  for (size_t i = 0; i < bars.size(); ++i) {
    const Bar& bar = bars[i];
    const int64_t row = static_cast<int64_t>(i);
    const int64_t gap = i > 0 ? static_cast<int64_t>(bar.ts_event - bars[i - 1].ts_event) : 0;
    const bool joined = i > 0 && gap <= max_gap;
    since_break = joined ? since_break + 1 : 0;
    RowWriter out(rows.data() + i * kFeatureCount);
    out.put(column.log_return[i]);
    out.put(joined ? log_ratio(bar.open, bars[i - 1].close).value : 0);
    out.put(log_ratio(bar.close, bar.open).value);
    out.put(log_ratio(bar.high, bar.low).value);
    out.put(close_position(bar));
    out.put(column.log_volume[i]);
    out.put(joined ? column.log_volume[i] - column.log_volume[i - 1] : 0);
    out.put(column.log_volume[i] - mean_log_volume(column, row, 60));
    Moments spans[4];
    for (int s = 0; s < 4; ++s) spans[s] = moments(column, row, kSpans[s]);
    for (const Moments& span : spans) out.put(span.mean);
    for (const Moments& span : spans) out.put(span.rms);
    // Capped, so that one long closure does not set the scale: a week of minutes, a rolling span of bars.
    out.put(std::log1p(std::min(static_cast<double>(gap) / static_cast<double>(kMinute), 10'080.0)));
    out.put(std::log1p(static_cast<double>(std::min(since_break, kWarmUpBars))));
    const SessionTime time = session_time(bar.ts_event);
    out.put_angle(static_cast<double>(time.seconds_of_day) / 86'400);
    out.put_angle(static_cast<double>(time.day_of_week) / 7);
    if (out.at() != rows.data() + (i + 1) * kFeatureCount)
      throw Error(Code::invalid_argument, "features: a row has another number of columns than the schema");
  }
  return rows;
}

void Scaler::apply(std::span<float> rows) const {
  const size_t width = mean.size();
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t column = i % width;
    if (std[column] == 0) {
      rows[i] = 0;
      continue;
    }
    const double scaled = (static_cast<double>(rows[i]) - mean[column]) / std[column];
    rows[i] = static_cast<float>(std::clamp(scaled, -clip, clip));
  }
}

Scaler fit_scaler(std::span<const float> rows, std::span<const uint8_t> keep, int64_t feature_count) {
  const size_t width = static_cast<size_t>(feature_count);
  Scaler scaler;
  scaler.mean.assign(width, 0);
  scaler.std.assign(width, 0);
  double count = 0;
  for (size_t row = 0; row < keep.size(); ++row) {
    if (!keep[row]) continue;
    ++count;
    for (size_t j = 0; j < width; ++j) scaler.mean[j] += rows[row * width + j];
  }
  if (count == 0)
    throw Error(Code::corrupt_data, "features: the training part has no bar to fit the scaler on");
  for (double& mean : scaler.mean) mean /= count;
  for (size_t row = 0; row < keep.size(); ++row) {
    if (!keep[row]) continue;
    for (size_t j = 0; j < width; ++j) {
      const double centred = rows[row * width + j] - scaler.mean[j];
      scaler.std[j] += centred * centred;
    }
  }
  // Equal floats have a variance of exactly 0: their sum in double is exact for up to 2^29 of them, hence
  // their mean.
  for (double& std : scaler.std) std = std::sqrt(std / count);
  return scaler;
}

}  // namespace scantape::market
