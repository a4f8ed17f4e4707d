#include "market/bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "scantape/error.h"

namespace scantape::market {
namespace {

std::string describe(const Bar& bar) {
  return fmt::format("open {} high {} low {} close {} volume {}", format_price(bar.open),
                     format_price(bar.high), format_price(bar.low), format_price(bar.close), bar.volume);
}

/// Takes the bars of files one after the other and leaves contracts.
class Loader {
 public:
  explicit Loader(const LoadOptions& options) : options_(options) {}

  void read(const std::string& path);
  BarStore finish();

 private:
  struct Pending {
    Contract contract;
    std::vector<uint32_t> file;  // of each bar, for messages
    bool in_order = true;
  };
  struct Cached {
    uint32_t date = 0;
    size_t index = 0;
  };

  Pending& contract_of(const Record& record, const SymbolTable& symbols);
  bool keep(const Record& record, const Bar& bar);
  void take(const Record& record, const Bar& bar, const SymbolTable& symbols);
  void settle_cadence(const BarRules& rules, const std::string& path);
  void merge(Pending& pending);
  void merge_names(const std::vector<Pending*>& names);
  [[noreturn]] void fail_differing(const Pending& a, size_t bar_a, const Pending& b, size_t bar_b) const;
  [[noreturn]] void fail_empty() const;

  LoadOptions options_;
  LoadReport report_;
  uint64_t other_cadence_ = 0;
  std::optional<Cadence> cadence_;
  std::string cadence_file_;
  std::map<std::tuple<std::string, uint32_t, uint16_t>, size_t> index_;
  std::vector<Pending> pending_;
  std::unordered_map<uint64_t, Cached> cache_;  // by instrument and publisher, of the file being read
};

Loader::Pending& Loader::contract_of(const Record& record, const SymbolTable& symbols) {
  const uint32_t date = utc_date(record.ts_event);
  Cached& cached = cache_[uint64_t{record.publisher_id} << 32 | record.instrument_id];
  if (cached.date == date) return pending_[cached.index];
  const std::string& symbol = symbols.find(record.instrument_id, date);
  const std::string name = symbol.empty() ? std::to_string(record.instrument_id) : symbol;
  const auto [found, fresh] =
      index_.try_emplace({name, record.instrument_id, record.publisher_id}, pending_.size());
  if (fresh) {
    pending_.emplace_back();
    Contract& contract = pending_.back().contract;
    contract.instrument_id = record.instrument_id;
    contract.publisher_id = record.publisher_id;
    contract.symbol = name;
    contract.mapped = !symbol.empty();
  }
  cached = {date, found->second};
  return pending_[found->second];
}

bool Loader::keep(const Record& record, const Bar& bar) {
  const std::string& path = report_.files.back().path;
  for (const BarFault fault : kBarFaults) {
    if (!has_fault(bar, fault)) continue;
    const bool bad = fault == BarFault::inconsistent;
    const bool drops = bad || fault == BarFault::undefined_price;
    const auto where = [&] {
      return fmt::format("{}: record {} at byte {}, instrument {} at {}: {}", path, record.number,
                         record.offset, record.instrument_id, format_time(bar.ts_event), describe(bar));
    };
    if (bad && options_.bad_bars == BadBars::error)
      throw Error(
          Code::corrupt_data,
          fmt::format("{}; wants low <= open, close <= high. Drop such bars with --bad-bars drop", where()));
    BarCount& count = (drops ? report_.dropped : report_.odd)[name(fault)];
    if (count.count++ == 0) count.first = where();
    if (drops) return false;
  }
  return true;
}

void Loader::take(const Record& record, const Bar& bar, const SymbolTable& symbols) {
  Pending& pending = contract_of(record, symbols);
  Contract& contract = pending.contract;
  if (!contract.mapped && report_.unmapped.count++ == 0)
    report_.unmapped.first = fmt::format("{}: record {}, instrument {} at {}", report_.files.back().path,
                                         record.number, record.instrument_id, format_time(bar.ts_event));
  if (!contract.bars.empty() && bar.ts_event <= contract.bars.back().ts_event) pending.in_order = false;
  contract.bars.push_back(bar);
  pending.file.push_back(static_cast<uint32_t>(report_.files.size() - 1));
}

void Loader::settle_cadence(const BarRules& rules, const std::string& path) {
  if (!rules.cadence()) return;
  if (cadence_ && *cadence_ != *rules.cadence())
    throw Error(
        Code::corrupt_data,
        fmt::format("{}: holds bars of {}, {} holds bars of {}; wants one cadence, choose it with --cadence",
                    path, name(*rules.cadence()), cadence_file_, name(*cadence_)));
  cadence_ = rules.cadence();
  cadence_file_ = path;
}

void Loader::read(const std::string& path) {
  DbnReader reader(path, {options_.allow_truncated, options_.fragment_version});
  report_.files.push_back({path, reader.metadata().version, reader.metadata().dataset, 0, {}});
  std::vector<std::string> own_warnings;
  SymbolTable symbols(reader.metadata(), path, own_warnings);
  BarRules rules(path, reader.metadata().schema, options_.cadence, options_.sort);
  cache_.clear();
  Record record;
  while (reader.next(record)) {
    if (record.type == rtype::kSymbolMapping) {
      symbols.add_live(parse_live_mapping(record));
      cache_.clear();
    }
    if (!is_bar(record.type)) continue;
    const Bar bar = record.bar();
    const BarRules::Verdict verdict = rules.check(record, bar);
    if (verdict == BarRules::Verdict::other_cadence) continue;
    settle_cadence(rules, path);
    ++report_.files.back().bars;
    if (verdict == BarRules::Verdict::take && keep(record, bar)) take(record, bar, symbols);
  }
  FileReport& file = report_.files.back();
  file.warnings = reader.warnings();
  file.warnings.insert(file.warnings.end(), own_warnings.begin(), own_warnings.end());
  if (file.bars == 0) file.warnings.push_back("holds no bar that is wanted");
  report_.bars_read += file.bars;
  report_.duplicates += rules.duplicates();
  other_cadence_ += rules.other_cadence();
}

/// Sorts by time and drops equal second versions of a bar.
void Loader::merge(Pending& pending) {
  std::vector<Bar>& bars = pending.contract.bars;
  std::vector<size_t> order(bars.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return bars[a].ts_event < bars[b].ts_event; });
  std::vector<Bar> merged;
  std::vector<uint32_t> file;
  merged.reserve(bars.size());
  file.reserve(bars.size());
  size_t first = 0;  // where the bar kept last stood
  for (const size_t i : order) {
    if (merged.empty() || merged.back().ts_event != bars[i].ts_event) {
      merged.push_back(bars[i]);
      file.push_back(pending.file[i]);
      first = i;
      continue;
    }
    if (merged.back() != bars[i]) fail_differing(pending, i, pending, first);
    ++report_.duplicates;
  }
  bars = std::move(merged);
  pending.file = std::move(file);
}

void Loader::fail_differing(const Pending& a, size_t bar_a, const Pending& b, size_t bar_b) const {
  const Bar &now = a.contract.bars[bar_a], &before = b.contract.bars[bar_b];
  throw Error(Code::corrupt_data,
              fmt::format("{}: {} at {} has {}, but {} has {}{}; wants the same values in both",
                          report_.files[a.file[bar_a]].path, a.contract.describe(), format_time(now.ts_event),
                          describe(now), report_.files[b.file[bar_b]].path,
                          &a == &b ? "" : fmt::format("{} with ", b.contract.describe()), describe(before)));
}

/// Drops equal second versions of bars that files give to one instrument under different symbols. `names` are
/// its contracts, each in time order; the first one that has a bar keeps it.
void Loader::merge_names(const std::vector<Pending*>& names) {
  std::unordered_map<uint64_t, std::pair<const Pending*, size_t>> kept;  // by time
  for (Pending* pending : names) {
    std::vector<Bar>& bars = pending->contract.bars;
    std::vector<size_t> own;
    for (size_t i = 0; i < bars.size(); ++i) {
      const auto found = kept.find(bars[i].ts_event);
      if (found == kept.end()) {
        own.push_back(i);
        continue;
      }
      const auto& [other, at] = found->second;
      if (other->contract.bars[at] != bars[i]) fail_differing(*pending, i, *other, at);
      ++report_.duplicates;
      if (!pending->contract.mapped) --report_.unmapped.count;
    }
    for (size_t i = 0; i < own.size(); ++i) {
      bars[i] = bars[own[i]];
      pending->file[i] = pending->file[own[i]];
      kept.emplace(bars[i].ts_event, std::pair(pending, i));
    }
    bars.resize(own.size());
  }
}

/// Bars of a wanted cadence there were, and none is left.
void Loader::fail_empty() const {
  std::string reasons;
  for (const auto& [fault, count] : report_.dropped) reasons += (reasons.empty() ? "" : ", ") + fault;
  std::replace(reasons.begin(), reasons.end(), '_', ' ');
  throw Error(Code::corrupt_data,
              fmt::format("all {} bars were dropped: {}; the first is {}", report_.bars_read, reasons,
                          report_.dropped.begin()->second.first));
}

BarStore Loader::finish() {
  if (!cadence_) {
    std::string files;
    for (const FileReport& file : report_.files) files += (files.empty() ? "" : ", ") + file.path;
    throw Error(
        Code::corrupt_data,
        fmt::format("no bar in {}; wants files of a bar schema, such as ohlcv-1m{}",
                    report_.files.size() > 3 ? fmt::format("any of {} files", report_.files.size()) : files,
                    other_cadence_ > 0
                        ? fmt::format(" ({} bars of another cadence than {} were left out: see --cadence)",
                                      other_cadence_, name(*options_.cadence))
                        : ""));
  }
  BarStore store;
  store.cadence = *cadence_;
  std::map<std::pair<uint32_t, uint16_t>, std::vector<Pending*>> instruments;
  for (Pending& pending : pending_) {
    if (!pending.in_order) merge(pending);
    instruments[{pending.contract.instrument_id, pending.contract.publisher_id}].push_back(&pending);
  }
  for (auto& [key, names] : instruments) {
    if (names.size() == 1) continue;
    // A symbol before none, and then by the alphabet, whatever the order of the files.
    std::sort(names.begin(), names.end(), [](const Pending* a, const Pending* b) {
      return std::tuple(!a->contract.mapped, a->contract.symbol) <
             std::tuple(!b->contract.mapped, b->contract.symbol);
    });
    merge_names(names);
  }
  for (Pending& pending : pending_)
    if (!pending.contract.bars.empty()) store.contracts.push_back(std::move(pending.contract));
  if (store.contracts.empty()) fail_empty();
  std::sort(store.contracts.begin(), store.contracts.end(), [](const Contract& a, const Contract& b) {
    return std::tie(a.symbol, a.instrument_id, a.publisher_id) <
           std::tie(b.symbol, b.instrument_id, b.publisher_id);
  });
  store.report = std::move(report_);
  return store;
}

/// FNV-1a, 64 bits.
class Hash {
 public:
  void add(const void* data, size_t size) {
    const auto* bytes = static_cast<const uint8_t*>(data);
    for (size_t i = 0; i < size; ++i) value_ = (value_ ^ bytes[i]) * 0x100000001B3;
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xCBF29CE484222325;
};

}  // namespace

const char* name(BarFault fault) {
  switch (fault) {
    case BarFault::undefined_price:
      return "undefined_price";
    case BarFault::inconsistent:
      return "inconsistent";
    case BarFault::zero_volume:
      return "zero_volume";
    case BarFault::non_positive_price:
      return "non_positive_price";
  }
  return "";
}

bool has_fault(const Bar& bar, BarFault fault) {
  const auto any = [&](auto test) {
    return test(bar.open) || test(bar.high) || test(bar.low) || test(bar.close);
  };
  switch (fault) {
    case BarFault::undefined_price:
      return any([](int64_t price) { return price == kUndefinedPrice; });
    case BarFault::inconsistent:
      return bar.high < std::max({bar.open, bar.low, bar.close}) || bar.low > std::min(bar.open, bar.close);
    case BarFault::zero_volume:
      return bar.volume == 0;
    case BarFault::non_positive_price:
      return any([](int64_t price) { return price <= 0; });
  }
  return false;
}

BarRules::BarRules(std::string file, uint16_t schema, std::optional<Cadence> wanted, bool any_order)
    : file_(std::move(file)), schema_(schema), wanted_(wanted), any_order_(any_order) {}

Cadence BarRules::cadence_of(const Record& record) const {
  if (const auto stated = cadence_of_rtype(record.type)) return *stated;
  if (const auto stated = cadence_of_schema(schema_)) return *stated;
  if (wanted_) return *wanted_;
  throw Error(
      Code::corrupt_data,
      fmt::format(
          "{}: record {} at byte {} is a bar of rtype 0x11, which states no cadence, and neither does the "
          "metadata's schema; name it with --cadence",
          file_, record.number, record.offset));
}

BarRules::Verdict BarRules::check(const Record& record, const Bar& bar) {
  const Cadence cadence = cadence_of(record);
  if (wanted_ && cadence != *wanted_) {
    ++other_cadence_;
    return Verdict::other_cadence;
  }
  const auto fail = [&](const std::string& text) {
    throw Error(Code::corrupt_data, fmt::format("{}: record {} at byte {}, instrument {}: {}", file_,
                                                record.number, record.offset, record.instrument_id, text));
  };
  if (cadence_ && cadence != *cadence_)
    fail(fmt::format("is a bar of {} after bars of {}; wants one cadence, choose it with --cadence",
                     name(cadence), name(*cadence_)));
  cadence_ = cadence;
  if (bar.ts_event == kUndefinedTimestamp)
    fail("ts_event is undefined; wants the start of the bar's interval");
  if (bar.ts_event > static_cast<uint64_t>(INT64_MAX))
    fail(fmt::format("ts_event is {}; wants nanoseconds before the year 2262", bar.ts_event));
  const uint64_t interval = static_cast<uint64_t>(interval_ns(cadence));
  if (cadence <= Cadence::hour && bar.ts_event % interval != 0)
    fail(fmt::format("ts_event {} is off the grid of {} bars; wants a multiple of {} ns", bar.ts_event,
                     name(cadence), interval));
  const uint64_t key = uint64_t{record.publisher_id} << 32 | record.instrument_id;
  const auto [found, fresh] = last_.try_emplace(key, bar);
  Bar& last = found->second;
  if (fresh || bar.ts_event > last.ts_event) {
    last = bar;
    return Verdict::take;
  }
  if (bar.ts_event == last.ts_event) {
    if (bar == last) {
      ++duplicates_;
      return Verdict::duplicate;
    }
    fail(fmt::format("a second bar at {} differs: {} before, {} now; wants the same values",
                     format_time(bar.ts_event), describe(last), describe(bar)));
  }
  if (!any_order_)
    fail(fmt::format("time goes back from {} to {}; wants time order within an instrument, or --sort",
                     format_time(last.ts_event), format_time(bar.ts_event)));
  last = bar;
  return Verdict::take;
}

bool Contract::outright() const {
  return symbol.find_first_of("-: ,") == std::string::npos;
}

std::string Contract::describe() const {
  return fmt::format("{} (instrument {}, publisher {})", symbol, instrument_id, publisher_id);
}

std::string BarStore::fingerprint() const {
  Hash hash;
  for (const Contract& contract : contracts) {
    hash.add(contract.symbol.data(), contract.symbol.size() + 1);
    hash.add(&contract.instrument_id, sizeof contract.instrument_id);
    hash.add(&contract.publisher_id, sizeof contract.publisher_id);
    for (const Bar& bar : contract.bars) hash.add(&bar, sizeof bar);
  }
  return fmt::format("{:016x}", hash.value());
}

std::vector<std::string> find_data_files(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::is_regular_file(path, error)) return {path};
  if (!fs::is_directory(path, error))
    throw Error(
        Code::invalid_argument,
        fmt::format("{}: there is no such folder or file; wants a folder of .dbn or .dbn.zst files", path));
  std::vector<std::string> files;
  size_t legacy = 0;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    const std::string file = it->path().filename().string();
    legacy += file.ends_with(".dbz") ? 1 : 0;
    if ((file.ends_with(".dbn") || file.ends_with(".dbn.zst")) && !it->is_directory(error))
      files.push_back(it->path().string());
  }
  if (error) throw Error(Code::io, fmt::format("{}: cannot be listed: {}", path, error.message()));
  if (files.empty())
    throw Error(
        Code::corrupt_data,
        fmt::format(
            "{}: holds no .dbn or .dbn.zst file{}; point to a folder with Databento bars, or make some with "
            "'scantape synth --out DIR'",
            path, legacy ? fmt::format(" ({} .dbz files, which are not supported)", legacy) : ""));
  std::sort(files.begin(), files.end());
  return files;
}

BarStore load_bars(const std::vector<std::string>& paths, const LoadOptions& options) {
  Loader loader(options);
  for (const std::string& path : paths) loader.read(path);
  return loader.finish();
}

}  // namespace scantape::market
