#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "market/dbn_reader.h"

namespace scantape::market {

/// What can be odd about the values of a bar.
enum class BarFault {
  undefined_price,     // a price is the sentinel: the bar counts as missing
  inconsistent,        // high below, or low above, another price: an error, or dropped by policy
  zero_volume,         // kept
  non_positive_price,  // kept (spreads trade there), but its log return is missing
};
inline constexpr BarFault kBarFaults[] = {BarFault::undefined_price, BarFault::inconsistent,
                                          BarFault::zero_volume, BarFault::non_positive_price};
const char* name(BarFault fault);
bool has_fault(const Bar& bar, BarFault fault);

/// How many bars, and where the first one stands.
struct BarCount {
  uint64_t count = 0;
  std::string first;
};

/// The rules for the bars of one file, whatever is done with them: one cadence, a time on its grid, time
/// going forward in each instrument, no second version of a bar. Breaking one is corrupt_data.
class BarRules {
 public:
  /// `wanted` picks the cadence where a file has several, and gives it to bars of rtype 0x11, which state
  /// none. `any_order` allows an instrument's time to go back; the caller then sorts and looks for second
  /// versions.
  BarRules(std::string file, uint16_t schema, std::optional<Cadence> wanted, bool any_order);

  enum class Verdict { take, duplicate, other_cadence };
  Verdict check(const Record& record, const Bar& bar);

  /// Of the bars taken; none before the first.
  std::optional<Cadence> cadence() const { return cadence_; }
  uint64_t duplicates() const { return duplicates_; }
  uint64_t other_cadence() const { return other_cadence_; }

 private:
  Cadence cadence_of(const Record& record) const;

  std::string file_;
  uint16_t schema_;
  std::optional<Cadence> wanted_;
  bool any_order_;
  std::optional<Cadence> cadence_;
  std::unordered_map<uint64_t, Bar> last_;  // by instrument and publisher
  uint64_t duplicates_ = 0;
  uint64_t other_cadence_ = 0;
};

enum class BadBars { error, drop };

struct LoadOptions {
  std::optional<Cadence> cadence;
  BadBars bad_bars = BadBars::error;
  bool allow_truncated = false;
  bool sort = false;  // accept files in which the time of an instrument goes back
  std::optional<int> fragment_version;
};

/// The bars of one instrument at one publisher under one symbol, in time order, one a stamp.
struct Contract {
  uint32_t instrument_id = 0;
  uint16_t publisher_id = 0;
  std::string symbol;  // the id in decimal where no mapping names it
  bool mapped = false;
  std::vector<Bar> bars;

  /// An outright, as opposed to a spread, an option or a user-defined strategy, judged by its symbol.
  bool outright() const;
  /// "ESZ3 (instrument 1000, publisher 1)".
  std::string describe() const;
};

struct FileReport {
  std::string path;
  int version = 0;
  std::string dataset;
  uint64_t bars = 0;  // as they stand in the file
  std::vector<std::string> warnings;
};

struct LoadReport {
  std::vector<FileReport> files;
  uint64_t bars_read = 0;
  uint64_t duplicates = 0;                  // equal second versions, dropped
  std::map<std::string, BarCount> dropped;  // by BarFault name
  std::map<std::string, BarCount> odd;      // kept, by BarFault name
  BarCount unmapped;                        // bars whose instrument has no symbol
};

/// All bars of some files.
struct BarStore {
  Cadence cadence = Cadence::minute;
  std::vector<Contract> contracts;  // by symbol, then instrument and publisher
  LoadReport report;

  /// A hash over every bar and its contract, the same whatever files the bars came from.
  std::string fingerprint() const;
};

/// The *.dbn and *.dbn.zst in a folder (not below it), sorted by name; a path of a file is taken as it is.
/// Throws invalid_argument where there is no such path, corrupt_data where the folder has no such file.
std::vector<std::string> find_data_files(const std::string& path);

/// Reads files and merges what overlaps by (instrument, publisher, time); of several symbols that files give
/// to one bar, the first in the alphabet is kept. Throws corrupt_data where there is no bar at all or none is
/// left, where files differ in cadence or in the values of one bar, and for what DbnReader and BarRules
/// refuse.
BarStore load_bars(const std::vector<std::string>& paths, const LoadOptions& options = {});

}  // namespace scantape::market
