#include "market/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

namespace scantape::market {
namespace {

using Json = nlohmann::ordered_json;

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

Json time_or_null(bool known, uint64_t ts) {
  return known && ts != kUndefinedTimestamp ? Json(ts) : Json();
}

Json to_json(const InstrumentSummary& instrument) {
  const BarSummary& bars = instrument.bars;
  return {{"instrument_id", instrument.instrument_id},
          {"symbol", text_or_null(instrument.symbol)},
          {"bars", bars.count},
          {"first_ts", time_or_null(bars.count > 0, bars.first_ts)},
          {"last_ts", time_or_null(bars.count > 0, bars.last_ts)}};
}

Json to_json(const BarSummary& bars) {
  return {{"count", bars.count},
          {"sum_close", to_decimal(bars.sum_close)},
          {"sum_volume", to_decimal(bars.sum_volume)},
          {"first_ts", time_or_null(bars.count > 0, bars.first_ts)},
          {"last_ts", time_or_null(bars.count > 0, bars.last_ts)}};
}

Json to_json(const FileSummary& file) {
  const Metadata& metadata = file.metadata;
  Json records = Json::object();
  for (const auto& [type, count] : file.records) records[fmt::format("0x{:02x}", type)] = count;
  Json instruments = Json::array();
  for (const InstrumentSummary& instrument : file.instruments) instruments.push_back(to_json(instrument));
  return {{"path", file.path},
          {"version", metadata.version},
          {"dataset", text_or_null(metadata.dataset)},
          {"schema", text_or_null(schema_name(metadata.schema))},
          {"stype_in", file.has_metadata ? text_or_null(stype_name(metadata.stype_in)) : Json()},
          {"stype_out", file.has_metadata ? text_or_null(stype_name(metadata.stype_out)) : Json()},
          {"start", time_or_null(file.has_metadata, metadata.start)},
          {"end", time_or_null(file.has_metadata, metadata.end)},
          {"records", records},
          {"instruments", instruments},
          {"bars", to_json(file.bars)},
          {"warnings", file.warnings}};
}

/// Counts of what is odd in the values of bars, for the warnings.
class FaultCounts {
 public:
  void add(const Record& record, const Bar& bar) {
    for (const BarFault fault : kBarFaults) {
      if (!has_fault(bar, fault)) continue;
      BarCount& count = counts_[name(fault)];
      if (count.count++ == 0)
        count.first = fmt::format("record {}, instrument {} at {}", record.number, record.instrument_id,
                                  format_time(bar.ts_event));
    }
  }

  void report(std::vector<std::string>& warnings) const {
    for (const auto& [fault, count] : counts_)
      warnings.push_back(fmt::format("{} bars with {}, the first is {}", count.count, fault, count.first));
  }

 private:
  std::map<std::string, BarCount> counts_;
};

/// True for the records that belong to an instrument, as opposed to messages of the sender.
bool has_instrument(const Record& record) {
  return record.known && record.type != rtype::kError && record.type != rtype::kSystem;
}

}  // namespace

std::string to_decimal(Int128 value) {
  const bool negative = value < 0;
  std::string digits;
  do {
    const int digit = static_cast<int>(value % 10);
    digits += static_cast<char>('0' + (digit < 0 ? -digit : digit));
    value /= 10;
  } while (value != 0);
  if (negative) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

void BarSummary::add(const Bar& bar) {
  first_ts = count == 0 ? bar.ts_event : std::min(first_ts, bar.ts_event);
  last_ts = count == 0 ? bar.ts_event : std::max(last_ts, bar.ts_event);
  ++count;
  sum_close += bar.close;
  sum_volume += bar.volume;
}

FileSummary inspect_file(const std::string& path, const InspectOptions& options) {
  DbnReader reader(path, {options.allow_truncated, options.fragment_version});
  FileSummary file;
  file.path = path;
  std::vector<std::string> own_warnings;
  SymbolTable symbols(reader.metadata(), path, own_warnings);
  BarRules rules(path, reader.metadata().schema, options.cadence, options.sort);
  std::map<std::pair<uint32_t, std::string>, BarSummary> instruments;
  std::map<uint32_t, std::pair<uint32_t, BarSummary*>> cache;  // by id: the date it holds for, the entry
  FaultCounts faults;
  BarCount unmapped;
  Record record;
  while (reader.next(record)) {
    if (record.type == rtype::kSymbolMapping) {
      symbols.add_live(parse_live_mapping(record));
      cache.clear();
    }
    if (!has_instrument(record)) continue;
    const bool dated = record.index_ts() != kUndefinedTimestamp;
    auto& [date, summary] = cache[record.instrument_id];
    if (const uint32_t today = dated ? utc_date(record.index_ts()) : 0; !summary || date != today) {
      date = today;
      summary = &instruments[{record.instrument_id, symbols.find(record.instrument_id, today)}];
      if (dated && reader.has_metadata() && symbols.find(record.instrument_id, today).empty() &&
          unmapped.count++ == 0)
        unmapped.first =
            fmt::format("instrument {} on {} (record {})", record.instrument_id, today, record.number);
    }
    if (!is_bar(record.type)) continue;
    const Bar bar = record.bar();
    if (rules.check(record, bar) == BarRules::Verdict::other_cadence) continue;
    faults.add(record, bar);
    summary->add(bar);
    file.bars.add(bar);
  }
  file.has_metadata = reader.has_metadata();
  file.metadata = reader.metadata();
  file.records = reader.counts();
  for (auto& [key, bars] : instruments) file.instruments.push_back({key.first, key.second, bars});
  file.warnings = reader.warnings();
  file.warnings.insert(file.warnings.end(), own_warnings.begin(), own_warnings.end());
  if (unmapped.count > 0)
    file.warnings.push_back(fmt::format("{} times an instrument is in no mapping for its date, first {}",
                                        unmapped.count, unmapped.first));
  if (rules.duplicates() > 0)
    file.warnings.push_back(fmt::format(
        "{} bars are equal second versions; they are counted here, training drops them", rules.duplicates()));
  if (rules.other_cadence() > 0)
    file.warnings.push_back(fmt::format("{} bars of another cadence are not counted", rules.other_cadence()));
  faults.report(file.warnings);
  return file;
}

std::string to_json(const std::vector<FileSummary>& files) {
  Json list = Json::array();
  for (const FileSummary& file : files) list.push_back(to_json(file));
  const Json document = {{"format_version", 1}, {"files", list}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string to_text(const FileSummary& file) {
  const Metadata& metadata = file.metadata;
  const auto named = [](const std::string& text) { return text.empty() ? "none" : text; };
  std::string text = fmt::format("{}\n  DBN version {}{}\n", file.path, metadata.version,
                                 file.has_metadata ? "" : " (fragment, without metadata)");
  if (file.has_metadata)
    text += fmt::format("  dataset {}, schema {}, symbols {} -> {}\n  [{}, {})\n", named(metadata.dataset),
                        named(schema_name(metadata.schema)), named(stype_name(metadata.stype_in)),
                        named(stype_name(metadata.stype_out)), format_time(metadata.start),
                        format_time(metadata.end));
  for (const auto& [type, count] : file.records)
    text += fmt::format("  {} records of rtype 0x{:02x} ({})\n", count, type, rtype_name(type));
  if (file.bars.count > 0)
    text += fmt::format("  {} bars from {} to {}, sum of close {}, sum of volume {}\n", file.bars.count,
                        format_time(file.bars.first_ts), format_time(file.bars.last_ts),
                        to_decimal(file.bars.sum_close), to_decimal(file.bars.sum_volume));
  for (const InstrumentSummary& instrument : file.instruments) {
    text += fmt::format("  instrument {} {}", instrument.instrument_id, named(instrument.symbol));
    if (instrument.bars.count > 0)
      text += fmt::format(": {} bars from {} to {}", instrument.bars.count,
                          format_time(instrument.bars.first_ts), format_time(instrument.bars.last_ts));
    text += "\n";
  }
  for (const std::string& warning : file.warnings) text += fmt::format("  warning: {}\n", warning);
  return text;
}

void write_records(const std::string& path, const InspectOptions& options, std::ostream& out) {
  DbnReader reader(path, {options.allow_truncated, options.fragment_version});
  Record record;
  while (reader.next(record)) {
    out << fmt::format("{},{},{},{},{},", record.number, record.type, record.publisher_id,
                       record.instrument_id, record.ts_event);
    if (is_bar(record.type)) {
      const Bar bar = record.bar();
      out << fmt::format("{},{},{},{},{}\n", bar.open, bar.high, bar.low, bar.close, bar.volume);
    } else {
      out << ",,,,\n";
    }
  }
}

}  // namespace scantape::market
