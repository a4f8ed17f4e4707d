#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "market/dbn_format.h"

namespace scantape::market {

/// log(a / b) from the integer difference, so that no tick is lost. `missing` where a price is not positive
/// or the result not finite.
struct LogRatio {
  double value = 0;
  bool missing = true;
};
LogRatio log_ratio(int64_t a, int64_t b);

/// Which columns a model was trained on. A change of any formula is a new version.
struct FeatureSchema {
  int version = 0;
  std::vector<std::string> names;

  bool operator==(const FeatureSchema&) const = default;
};
const FeatureSchema& feature_schema();

inline constexpr int64_t kFeatureCount = 22;

/// Bars at the front of a contract whose longest rolling features do not cover their whole span yet.
inline constexpr int64_t kWarmUpBars = 240;

/// The features of each bar of one contract, [bars, kFeatureCount] row after row, before any scaling.
///
/// Causal: row t depends on bars up to t alone, and bit for bit so: a file cut after t gives the same row.
/// They are known at ts_event + interval. Rolling features run over the last N bars whatever breaks lie
/// between; a return over a gap longer than `max_gap` is missing: 0 where it is a feature itself, left out of
/// rolling statistics. Differences are taken in integers or double; float comes last.
std::vector<float> compute_features(std::span<const Bar> bars, int64_t max_gap);

/// Scales each feature to mean 0 and standard deviation 1 over the training part, then clips it.
struct Scaler {
  std::vector<double> mean;
  std::vector<double> std;  // 0 where the feature was constant: it becomes 0
  double clip = 8;

  /// In place, rows of mean.size().
  void apply(std::span<float> rows) const;
};

/// Fits over the rows named by `keep` (one flag a row). Throws corrupt_data where no row is kept.
Scaler fit_scaler(std::span<const float> rows, std::span<const uint8_t> keep, int64_t feature_count);

}  // namespace scantape::market
