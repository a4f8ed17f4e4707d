#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "market/dbn_format.h"

namespace scantape::market {

/// What drives the log returns of simulated bars.
///
///   ar           r(t+1) = 0.6 r(t) - 0.6 r(t-1) + noise: what can be known of the next return is in the last
///   two. With
///                phi1 = 0.6, phi2 = -0.6 the noise has (1 + phi2) ((1 - phi2)^2 - phi1^2) / (1 - phi2) =
///                0.55 of the variance of the returns, so 0.55 of the zero predictor's loss is the best that
///                there is.
///   random_walk  r(t+1) = noise: nothing can be known.
enum class Process { ar, random_walk };
const char* name(Process process);
Process process_from_name(const std::string& text);  // throws invalid_argument

struct SynthOptions {
  std::string out;
  int days = 20;                                    // trading days
  std::vector<std::string> symbols = {"ES", "6E"};  // roots
  Process process = Process::ar;
  uint64_t seed = 0;
};

struct SynthResult {
  std::vector<std::string> files;
  std::string truth;
  uint64_t bars = 0;
};

/// One simulated bar and what was known about the next one when it closed.
struct SynthBar {
  Bar bar;
  double conditional_mean = 0;  // of log(next close / close)
};

struct SynthContract {
  std::string symbol;  // e.g. ESH4
  uint32_t instrument_id = 0;
  std::vector<SynthBar> bars;
};

/// Minute bars of Globex-like sessions (17:00 to 16:00 in Chicago, Monday to Friday trading days from
/// 2024-01-08 on); about one minute in a hundred has no trade, hence no bar.
///
/// The recursion runs on the returns of the file's own tick-rounded closes: mean(t) = phi1 y(t) + phi2 y(t-1)
/// with y(t) = log(close(t) / close(t-1)), then close(t+1) = round(close(t) exp(mean(t) + noise)). Hence
/// mean(t) can be computed from the file alone and nothing hidden carries on. The noise is at least eight
/// ticks wide, so that rounding adds 0.13% to its variance at the start and shifts its mean by less than a
/// millionth of its width. A return across a break of the session counts as 0 in the recursion, and is noise
/// itself, because features do not see it either.
///
/// A function of the options alone, on any machine: random numbers are a hash of (seed, symbol, bar), and the
/// logarithms and exponentials in the chain are computed with additions, products and divisions only.
std::vector<SynthContract> simulate(const SynthOptions& options);

/// Writes one file a UTC day, synth-YYYYMMDD.ohlcv-1m.dbn.zst, and truth.csv (ts_event, symbol,
/// instrument_id, close, conditional_mean) into `out`, which is made if need be. Throws invalid_argument for
/// the options, io for the disk.
SynthResult synthesize(const SynthOptions& options);

}  // namespace scantape::market
