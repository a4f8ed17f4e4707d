#include "market/dbn_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "scantape/error.h"

namespace scantape::market {
namespace {

constexpr uint64_t kMebibyte = 1024 * 1024;
constexpr uint64_t kMaxMetadataLength = 64 * kMebibyte;
constexpr uint64_t kMetadataMemory = 24 * kMebibyte;  // beside the size of the file
constexpr size_t kMaxPeek = 64 * 1024;
constexpr size_t kMaxTextWarnings = 20;

enum WarnKind : unsigned {
  kLongRecord = 1,
  kUnknownRtype = 2,
  kSchemaMismatch = 4,
  kLateMetadata = 8,
  kErrorText = 16
};

/// The bytes up to the first NUL, or all of them where there is none.
std::string text_of(std::span<const uint8_t> bytes) {
  const auto end = std::find(bytes.begin(), bytes.end(), uint8_t{0});
  return std::string(bytes.begin(), end);
}

std::string printable(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7E) c = '?';
  return text;
}

[[noreturn]] void fail(const std::string& file, const std::string& text) {
  throw Error(Code::corrupt_data, file + ": " + text);
}

/// True where [begin, end) lies inside the weekly closure of Globex, taken wide enough for both offsets of
/// Chicago.
bool inside_weekend(uint64_t begin, uint64_t end) {
  // 1970-01-01 was a Thursday; count from the Friday after it.
  constexpr uint64_t kWeek = 7 * static_cast<uint64_t>(kDay);
  const uint64_t since_friday = (begin - static_cast<uint64_t>(kDay)) % kWeek;
  const uint64_t hour = 60 * static_cast<uint64_t>(kMinute);
  return begin > static_cast<uint64_t>(kDay) && since_friday >= 20 * hour &&
         since_friday + (end - begin) <= 72 * hour;
}

}  // namespace

Bar Record::bar() const {
  Bar bar;
  bar.ts_event = ts_event;
  bar.open = load<int64_t>(bytes.data() + 16);
  bar.high = load<int64_t>(bytes.data() + 24);
  bar.low = load<int64_t>(bytes.data() + 32);
  bar.close = load<int64_t>(bytes.data() + 40);
  bar.volume = load<uint64_t>(bytes.data() + 48);
  return bar;
}

uint64_t Record::index_ts() const {
  size_t at = 0;
  switch (type) {
    case 0x12:
    case 0x13:
    case 0x14:
    case 0x18:
      at = 16;
      break;  // status, definition, imbalance, statistics
    case 0x00:
    case 0x01:
    case 0x0A:
    case 0xB1:
    case 0xC0:
    case 0xC1:
    case 0xC2:
    case 0xC3:
    case 0xC4:
      at = 32;
      break;
    case 0xA0:
      at = 40;
      break;
    default:
      return ts_event;
  }
  return load<uint64_t>(bytes.data() + at);
}

LiveMapping parse_live_mapping(const Record& record) {
  // The long form (versions 2 and 3) has the type of each symbol before it; the short one is version 1's.
  const bool long_form = record.bytes.size() >= 176;
  return {record.instrument_id,
          text_of(long_form ? record.bytes.subspan(89, 71) : record.bytes.subspan(38, 22))};
}

std::string record_text(const Record& record) {
  const bool long_form = record.bytes.size() >= 320;
  return printable(text_of(record.bytes.subspan(16, long_form ? 302 : 64)));
}

DbnReader::DbnReader(const std::string& path, ReaderOptions options)
    : DbnReader(open_file(path), path, options) {}

DbnReader::DbnReader(std::unique_ptr<ByteSource> source, std::string name, ReaderOptions options)
    : name_(std::move(name)), options_(options), stream_(std::move(source), name_, options.allow_truncated) {
  if (options_.fragment_version && (*options_.fragment_version < 1 || *options_.fragment_version > 3))
    throw Error(Code::invalid_argument,
                fmt::format("fragment version {} is not known; wants 1, 2 or 3", *options_.fragment_version));
  memory_left_ = kMetadataMemory + stream_.file_size();
  read_metadata();
}

void DbnReader::warn(std::string text) {
  warnings_.push_back(std::move(text));
}

void DbnReader::warn_once(unsigned kind, std::string text) {
  if (warned_ & kind) return;
  warned_ |= kind;
  warn(std::move(text));
}

void DbnReader::read_metadata() {
  const std::span<const uint8_t> prelude = stream_.peek(kPreludeSize);
  const bool magic = prelude.size() >= 3 && prelude[0] == 'D' && prelude[1] == 'B' && prelude[2] == 'N';
  if (!magic && options_.fragment_version) {
    has_metadata_ = false;
    metadata_.version = *options_.fragment_version;
    metadata_.symbol_width = metadata_.version == 1 ? kSymbolWidthV1 : kSymbolWidthV2;
    ts_out_known_ = false;
    return;
  }
  if (prelude.size() < kPreludeSize)
    fail(name_, fmt::format("ends after {} bytes ({}){}; wants at least the {} bytes of a DBN prelude",
                            prelude.size(), hex_bytes(prelude.data(), prelude.size()),
                            stream_.compressed() ? " of decoded data" : "", kPreludeSize));
  if (!magic)
    fail(name_,
         fmt::format(
             "is not a DBN file: its {}first bytes are {}; wants 44 42 4e (\"DBN\"). If it holds records "
             "without metadata, name its version with --fragment",
             stream_.compressed() ? "decoded " : "", hex_bytes(prelude.data(), prelude.size())));
  if (options_.fragment_version)
    warn_once(kLateMetadata, "has metadata, so it is read as a whole file and not as a fragment");
  metadata_.version = prelude[3];
  metadata_.length = load<uint32_t>(prelude.data() + 4);
  if (metadata_.version == 4) fail(name_, "DBN v4 is not supported (byte 3 is 04); wants version 1, 2 or 3");
  if (metadata_.version < 1 || metadata_.version > 3)
    fail(name_, fmt::format("byte 3 says DBN version {}; wants 1, 2 or 3", metadata_.version));
  const uint64_t length = metadata_.length;
  if (length < kFixedMetadataSize)
    fail(name_,
         fmt::format("bytes 4 to 7 say {} bytes of metadata; wants at least {}", length, kFixedMetadataSize));
  if (!stream_.compressed() && length > stream_.file_size() - kPreludeSize)
    fail(name_, fmt::format("bytes 4 to 7 say {} bytes of metadata; the file has {} after them", length,
                            stream_.file_size() - kPreludeSize));
  if (length > kMaxMetadataLength)
    fail(name_,
         fmt::format("bytes 4 to 7 say {} bytes of metadata; the limit is {}", length, kMaxMetadataLength));
  stream_.consume(kPreludeSize);
  read_fixed_metadata();
  read_variable_metadata(length - kFixedMetadataSize);
}

void DbnReader::read_fixed_metadata() {
  uint64_t left = metadata_.length;
  const std::span<const uint8_t> fixed = take_metadata(kFixedMetadataSize, left, "the fixed part");
  metadata_.dataset = printable(text_of(fixed.first(16)));
  metadata_.schema = load<uint16_t>(fixed.data() + 16);
  metadata_.start = load<uint64_t>(fixed.data() + 18);
  metadata_.end = load<uint64_t>(fixed.data() + 26);
  metadata_.limit = load<uint64_t>(fixed.data() + 34);
  const size_t types = metadata_.version == 1 ? 50 : 42;  // version 1 has a record count before them
  metadata_.stype_in = fixed[types];
  metadata_.stype_out = fixed[types + 1];
  metadata_.ts_out = fixed[types + 2] != 0;
  metadata_.symbol_width = metadata_.version == 1 ? kSymbolWidthV1 : load<uint16_t>(fixed.data() + 45);
  if (metadata_.symbol_width < 2 || metadata_.symbol_width > 1024)
    fail(name_, fmt::format("bytes 53 and 54 say that a symbol takes {} bytes; wants 2 to 1024",
                            metadata_.symbol_width));
  if (metadata_.end == 0) metadata_.end = kUndefinedTimestamp;
  if (schema_name(metadata_.schema).starts_with("unknown"))
    warn(fmt::format("metadata has the unknown schema {}", metadata_.schema));
  for (uint8_t type : {metadata_.stype_in, metadata_.stype_out})
    if (stype_name(type).starts_with("unknown"))
      warn(fmt::format("metadata has the unknown symbol type {}", type));
}

std::span<const uint8_t> DbnReader::take_metadata(size_t count, uint64_t& left, const char* what) {
  if (count > left)
    fail(name_,
         fmt::format(
             "metadata ends inside {} at byte {}: it needs {} bytes, {} are left of the {} that the prelude "
             "states",
             what, stream_.offset(), count, left, metadata_.length));
  const std::span<const uint8_t> bytes = stream_.peek(count);
  if (bytes.size() < count)
    fail(name_,
         fmt::format(
             "the file ends at decoded byte {} inside {}; the prelude says that metadata goes on to byte {}",
             stream_.offset() + bytes.size(), what, kPreludeSize + uint64_t{metadata_.length}));
  stream_.consume(count);
  left -= count;
  return bytes;
}

void DbnReader::use_memory(uint64_t bytes) {
  if (bytes > memory_left_)
    fail(name_,
         fmt::format(
             "metadata of {} bytes would take more memory than the limit of 24 MiB and the file's size",
             metadata_.length));
  memory_left_ -= bytes;
}

/// A count that the bytes left can hold, with the memory for its items set aside.
uint32_t DbnReader::take_count(uint64_t& left, uint64_t bytes_each, uint64_t memory_each, const char* what) {
  const uint64_t at = stream_.offset();
  const uint32_t count = load<uint32_t>(take_metadata(4, left, what).data());
  if (uint64_t{count} * bytes_each > left)
    fail(name_,
         fmt::format("byte {} says {} {}, which take at least {} bytes each; {} bytes of metadata are left",
                     at, count, what, bytes_each, left));
  use_memory(uint64_t{count} * memory_each);
  return count;
}

std::string DbnReader::take_symbol(uint64_t& left, const char* what) {
  std::string text = text_of(take_metadata(metadata_.symbol_width, left, what));
  if (text.capacity() > 15) use_memory(text.capacity() + 16);  // beyond the string's own room
  return text;
}

void DbnReader::take_symbols(uint64_t& left, const char* what, std::vector<std::string>& target) {
  const uint32_t count = take_count(left, metadata_.symbol_width, sizeof(std::string), what);
  target.reserve(count);
  for (uint32_t i = 0; i < count; ++i) target.push_back(take_symbol(left, what));
}

void DbnReader::take_mapping(uint64_t& left) {
  SymbolMapping mapping;
  mapping.raw_symbol = take_symbol(left, "a mapping");
  // 64: the entry and the symbol that SymbolTable keeps of an interval.
  const uint32_t count = take_count(left, 8 + uint64_t{metadata_.symbol_width},
                                    sizeof(MappingInterval) + 64 + 16, "mapping intervals");
  mapping.intervals.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    MappingInterval interval;
    const std::span<const uint8_t> dates = take_metadata(8, left, "a mapping interval");
    interval.start_date = load<uint32_t>(dates.data());
    interval.end_date = load<uint32_t>(dates.data() + 4);
    interval.symbol = take_symbol(left, "a mapping interval");
    for (uint32_t date : {interval.start_date, interval.end_date})
      if (!is_valid_date(date))
        fail(name_, fmt::format("mapping of '{}' has the date {}; wants a calendar date as YYYYMMDD",
                                printable(mapping.raw_symbol), date));
    if (interval.start_date > interval.end_date)
      fail(name_, fmt::format("mapping of '{}' starts on {} and ends on {}; wants a start before the end",
                              printable(mapping.raw_symbol), interval.start_date, interval.end_date));
    mapping.intervals.push_back(std::move(interval));
  }
  metadata_.mappings.push_back(std::move(mapping));
}

void DbnReader::read_variable_metadata(uint64_t left) {
  const uint32_t definition = load<uint32_t>(take_metadata(4, left, "the schema definition length").data());
  if (definition != 0)
    fail(name_, fmt::format("byte {} says a schema definition of {} bytes; versions 1 to 3 want 0",
                            stream_.offset() - 4, definition));
  take_symbols(left, "symbols", metadata_.symbols);
  take_symbols(left, "partly resolved symbols", metadata_.partial);
  take_symbols(left, "symbols not found", metadata_.not_found);
  const uint32_t count =
      take_count(left, 4 + uint64_t{metadata_.symbol_width}, sizeof(SymbolMapping) + 16, "mappings");
  metadata_.mappings.reserve(count);
  for (uint32_t i = 0; i < count; ++i) take_mapping(left);
  if (left > 0 && metadata_.version < 3)
    warn(fmt::format("{} extra bytes follow the mappings in the metadata", left));
  skip_metadata_rest(left);
  const auto list = [&](const char* what, const std::vector<std::string>& symbols) {
    if (!symbols.empty())
      warn(fmt::format("{} of the requested symbols {}, the first is '{}'", symbols.size(), what,
                       printable(symbols[0])));
  };
  list("were resolved for a part of the time only", metadata_.partial);
  list("were not found", metadata_.not_found);
}

void DbnReader::skip_metadata_rest(uint64_t left) {
  while (left > 0)
    take_metadata(static_cast<size_t>(std::min<uint64_t>(left, kMaxPeek)), left, "the padding");
}

void DbnReader::fail_length_zero() {
  const uint64_t at = stream_.offset();
  uint64_t zeros = 0;
  while (true) {
    const std::span<const uint8_t> bytes = stream_.peek(kMaxPeek);
    if (bytes.empty())
      fail(name_,
           fmt::format(
               "{} bytes of zero padding at the end, from byte {} after record {}; wants the end of the file "
               "there",
               zeros, at, records_));
    if (std::any_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b != 0; })) break;
    zeros += bytes.size();
    stream_.consume(bytes.size());
  }
  fail(name_, fmt::format("record {} at byte {} states a length of 0 bytes; wants at least {}", records_ + 1,
                          at, kHeaderSize));
}

/// Handles what is left at the end: nothing, or the front of a record.
bool DbnReader::end_of_records(size_t available) {
  done_ = true;
  if (available > 0) {
    const std::span<const uint8_t> bytes = stream_.peek(available);
    const size_t wants = bytes[0] * size_t{4};
    const bool zeros = std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 0; });
    if (zeros) fail_length_zero();
    if (!options_.allow_truncated)
      fail(name_,
           fmt::format(
               "record {} at byte {} is truncated: {} of its {} bytes are there; download the file again, or "
               "keep the whole records before it with --allow-truncated",
               records_ + 1, stream_.offset(), available, wants));
    dropped_bytes_ = available;
    stream_.consume(available);
  }
  finish();
  return false;
}

bool DbnReader::next(Record& record) {
  if (done_) return false;
  stream_.consume(taken_);
  taken_ = 0;
  std::span<const uint8_t> bytes = stream_.peek(kHeaderSize);
  if (bytes.size() < kHeaderSize && (bytes.empty() || bytes[0] == 0 || bytes[0] * size_t{4} >= kHeaderSize))
    return end_of_records(bytes.size());
  const size_t length = bytes[0] * size_t{4};
  if (length == 0) fail_length_zero();
  if (length < kHeaderSize)
    fail(name_, fmt::format("record {} at byte {} states a length of {} bytes; wants at least {}",
                            records_ + 1, stream_.offset(), length, kHeaderSize));
  bytes = stream_.peek(length);
  if (bytes.size() < length) return end_of_records(bytes.size());

  record.number = ++records_;
  record.offset = stream_.offset();
  record.type = bytes[1];
  record.publisher_id = load<uint16_t>(bytes.data() + 2);
  record.instrument_id = load<uint32_t>(bytes.data() + 4);
  record.ts_event = load<uint64_t>(bytes.data() + 8);
  record.bytes = bytes;
  check_length(record, length);
  record.known = record_size(record.type, metadata_.version) != 0;
  note_record(record);
  taken_ = length;
  return true;
}

void DbnReader::check_length(const Record& record, size_t length) {
  const size_t wanted = record_size(record.type, metadata_.version);
  if (wanted == 0) {
    warn_once(
        kUnknownRtype,
        fmt::format("record {} at byte {} has the unknown rtype 0x{:02x}; records of unknown rtypes are "
                    "counted and skipped",
                    record.number, record.offset, record.type));
    return;
  }
  if (length < wanted)
    fail(name_,
         fmt::format(
             "record {} at byte {} is of rtype 0x{:02x} ({}) and states {} bytes; DBN version {} wants {}{}",
             record.number, record.offset, record.type, rtype_name(record.type), length, metadata_.version,
             wanted, has_metadata_ ? "" : " (is the version given with --fragment right?)"));
  if (!ts_out_known_) {
    metadata_.ts_out = length == wanted + 8;
    ts_out_known_ = true;
  }
  if (length == wanted || (metadata_.ts_out && length == wanted + 8)) return;
  warn_once(kLongRecord,
            fmt::format(
                "record {} at byte {} is of rtype 0x{:02x} ({}) and has {} bytes, {} more than known; "
                "the front of such records is read",
                record.number, record.offset, record.type, rtype_name(record.type), length, length - wanted));
}

void DbnReader::note_record(const Record& record) {
  ++counts_[record.type];
  if (!record.known) return;
  if (has_metadata_ && !rtype_fits_schema(record.type, metadata_.schema).value_or(true))
    warn_once(
        kSchemaMismatch,
        fmt::format("metadata says schema {}, record {} is of rtype 0x{:02x} ({}); the rtype is taken",
                    schema_name(metadata_.schema), record.number, record.type, rtype_name(record.type)));
  if (record.type == rtype::kError) {
    if (counts_[record.type] <= kMaxTextWarnings)
      warn(fmt::format("record {} at byte {} is an error message of the sender: '{}'", record.number,
                       record.offset, record_text(record)));
    return;
  }
  if (!is_bar(record.type) || record.ts_event == kUndefinedTimestamp) return;
  last_ts_ = any_ts_ ? std::max(last_ts_, record.ts_event) : record.ts_event;
  any_ts_ = true;
  if (!has_metadata_) return;
  // The first bar may begin before `start`, which need not lie on the grid of the bars.
  const std::optional<Cadence> cadence = cadence_of_rtype(record.type);
  const uint64_t interval = cadence ? static_cast<uint64_t>(interval_ns(*cadence)) : 0;
  const uint64_t floor = metadata_.start - (interval ? metadata_.start % interval : 0);
  if (record.ts_event >= floor && record.ts_event < metadata_.end) return;
  if (outside_++ == 0)
    first_outside_ = fmt::format("record {} at {}", record.number, format_time(record.ts_event));
}

void DbnReader::finish() {
  if (dropped_bytes_ > 0 || stream_.truncated())
    warn(fmt::format(
        "the file is truncated{}: {} whole records are kept, {} bytes of an unfinished record are dropped",
        stream_.truncated() ? " inside a zstd frame" : "", records_, dropped_bytes_));
  if (counts_[rtype::kError] > kMaxTextWarnings)
    warn(fmt::format("{} error messages of the sender in all", counts_[rtype::kError]));
  std::erase_if(counts_, [](const auto& item) { return item.second == 0; });
  if (outside_ > 0)
    warn(fmt::format("{} bars lie outside [{}, {}) of the metadata, the first is {}", outside_,
                     format_time(metadata_.start), format_time(metadata_.end), first_outside_));
  if (!has_metadata_) return;
  const std::optional<Cadence> cadence = cadence_of_schema(metadata_.schema);
  if (records_ == 0) {
    warn(fmt::format("holds no record, its schema is {}; a download cut after the metadata looks the same",
                     schema_name(metadata_.schema).empty() ? "none" : schema_name(metadata_.schema)));
    return;
  }
  if (!cadence || !any_ts_ || metadata_.end == kUndefinedTimestamp) return;
  if (metadata_.limit != 0 && records_ >= metadata_.limit) return;
  // Without a footer, only the stated end can betray a cut between two records. Three hours (three days for
  // daily bars) are longer than the daily break and than a quiet stretch of a traded contract.
  const uint64_t interval = static_cast<uint64_t>(interval_ns(*cadence));
  const uint64_t patience = std::max(3 * 60 * static_cast<uint64_t>(kMinute), 3 * interval);
  const uint64_t known_until = last_ts_ + interval;
  if (known_until + patience < metadata_.end && !inside_weekend(known_until, metadata_.end))
    warn(fmt::format(
        "the last bar begins at {}, the metadata's end is {}: the file may have been truncated between two "
        "records",
        format_time(last_ts_), format_time(metadata_.end)));
}

SymbolTable::SymbolTable(const Metadata& metadata, const std::string& file,
                         std::vector<std::string>& warnings) {
  const bool id_is_value = metadata.stype_out == stype::kInstrumentId;
  const bool id_is_key = !id_is_value && metadata.stype_in == stype::kInstrumentId;
  if (!id_is_value && !id_is_key) {
    if (!metadata.mappings.empty())
      warnings.push_back("the mappings do not lead to instrument ids, so instruments have no symbol");
    return;
  }
  size_t count = 0;
  for (const SymbolMapping& mapping : metadata.mappings) count += mapping.intervals.size();
  entries_.reserve(count);
  symbols_.reserve(id_is_value ? metadata.mappings.size() : count);
  for (const SymbolMapping& mapping : metadata.mappings) {
    for (const MappingInterval& interval : mapping.intervals) {
      if (interval.symbol.empty() || interval.start_date == interval.end_date) continue;
      const std::string& id = id_is_value ? interval.symbol : mapping.raw_symbol;
      add(id, interval, id_is_value ? mapping.raw_symbol : interval.symbol, file, warnings);
    }
  }
  if (not_ids_ > 1)
    warnings.push_back(fmt::format("{} mapping intervals without an instrument id are ignored", not_ids_));
  check_overlaps(file);
}

void SymbolTable::add(const std::string& id, const MappingInterval& dates, const std::string& raw_symbol,
                      const std::string&, std::vector<std::string>& warnings) {
  const std::string symbol = printable(raw_symbol);  // a file may hold any bytes
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), number);
  if (error != std::errc() || end != id.data() + id.size()) {
    if (not_ids_++ == 0)
      warnings.push_back(fmt::format(
          "mapping of '{}' leads to '{}', which is no instrument id; it is ignored", symbol, printable(id)));
    return;
  }
  if (symbols_.empty() || symbols_.back() != symbol) symbols_.push_back(symbol);
  entries_.push_back({number, dates.start_date, dates.end_date, static_cast<uint32_t>(symbols_.size() - 1)});
}

void SymbolTable::check_overlaps(const std::string& file) {
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.instrument_id, a.start_date, a.end_date) <
           std::tie(b.instrument_id, b.start_date, b.end_date);
  });
  size_t longest = 0;  // among the entries of one id so far, the one that ends last
  for (size_t i = 1; i < entries_.size(); ++i) {
    const Entry& before = entries_[longest];
    const Entry& entry = entries_[i];
    const bool same_id = before.instrument_id == entry.instrument_id;
    if (same_id && entry.start_date < before.end_date && symbols_[entry.symbol] != symbols_[before.symbol])
      fail(file, fmt::format(
                     "instrument {} is mapped to '{}' [{}, {}) and to '{}' [{}, {}); wants one symbol a day",
                     entry.instrument_id, printable(symbols_[before.symbol]), before.start_date,
                     before.end_date, printable(symbols_[entry.symbol]), entry.start_date, entry.end_date));
    if (!same_id || entry.end_date > before.end_date) longest = i;
  }
}

const std::string& SymbolTable::find(uint32_t instrument_id, uint32_t date) const {
  static const std::string kNone;
  if (const auto live = live_.find(instrument_id); live != live_.end()) return live->second;
  auto after = std::upper_bound(entries_.begin(), entries_.end(), std::pair(instrument_id, date),
                                [](const std::pair<uint32_t, uint32_t>& key, const Entry& entry) {
                                  return key < std::pair(entry.instrument_id, entry.start_date);
                                });
  // Entries of one id overlap only where they agree, so an earlier, longer one may hold the date as well.
  while (after != entries_.begin()) {
    const Entry& entry = *--after;
    if (entry.instrument_id != instrument_id) break;
    if (date < entry.end_date) return symbols_[entry.symbol];
  }
  return kNone;
}

}  // namespace scantape::market
