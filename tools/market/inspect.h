#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "market/bars.h"

namespace scantape::market {

__extension__ using Int128 = __int128;

std::string to_decimal(Int128 value);

/// Bars as they stand in a file, before anything is dropped.
struct BarSummary {
  uint64_t count = 0;
  Int128 sum_close = 0;  // in units of 1e-9
  Int128 sum_volume = 0;
  uint64_t first_ts = 0;  // the least and the greatest ts_event
  uint64_t last_ts = 0;

  void add(const Bar& bar);
};

/// Only where `bars.count` > 0 do its times mean anything.
struct InstrumentSummary {
  uint32_t instrument_id = 0;
  std::string symbol;  // empty where no mapping names it
  BarSummary bars;
};

struct FileSummary {
  std::string path;
  bool has_metadata = true;
  Metadata metadata;
  std::map<uint8_t, uint64_t> records;
  std::vector<InstrumentSummary> instruments;  // by id, then symbol
  BarSummary bars;
  std::vector<std::string> warnings;
};

struct InspectOptions {
  std::vector<std::string> paths;  // files, or folders of .dbn and .dbn.zst
  bool json = false;
  bool records = false;  // every record as CSV instead of the summary
  std::optional<int> fragment_version;
  std::optional<Cadence> cadence;
  bool allow_truncated = false;
  bool sort = false;  // accept files in which the time of an instrument goes back
};

/// Reads one file to its end. Throws what DbnReader and BarRules throw.
FileSummary inspect_file(const std::string& path, const InspectOptions& options = {});

std::string to_json(const std::vector<FileSummary>& files);
std::string to_text(const FileSummary& file);

/// "number,rtype,publisher_id,instrument_id,ts_event,open,high,low,close,volume", one line a record; the last
/// five are empty where the record is not a bar. Written as it is read.
void write_records(const std::string& path, const InspectOptions& options, std::ostream& out);

}  // namespace scantape::market
