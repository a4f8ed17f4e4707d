#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Databento Binary Encoding (DBN), versions 1 to 3: the numbers of the format, and nothing that reads or
/// writes.
///
/// A file is a prelude ("DBN", version, length of the metadata), the metadata and then records back to back.
/// Every number is little-endian and nothing is aligned, so fields are always copied out of the bytes.
namespace scantape::market {

inline constexpr int64_t kUndefinedPrice = std::numeric_limits<int64_t>::max();
inline constexpr uint64_t kUndefinedTimestamp = std::numeric_limits<uint64_t>::max();
inline constexpr int64_t kPriceScale = 1'000'000'000;  // units of one price
inline constexpr int64_t kSecond = 1'000'000'000;
inline constexpr int64_t kMinute = 60 * kSecond;
inline constexpr int64_t kDay = 86'400 * kSecond;

inline constexpr size_t kPreludeSize = 8;
inline constexpr size_t kFixedMetadataSize = 100;
inline constexpr size_t kHeaderSize = 16;
inline constexpr size_t kBarSize = 56;
inline constexpr size_t kMaxRecordSize = 255 * 4;
inline constexpr uint16_t kSymbolWidthV1 = 22;
inline constexpr uint16_t kSymbolWidthV2 = 71;

namespace rtype {
inline constexpr uint8_t kOhlcvDeprecated = 0x11;
inline constexpr uint8_t kError = 0x15;
inline constexpr uint8_t kSymbolMapping = 0x16;
inline constexpr uint8_t kSystem = 0x17;
inline constexpr uint8_t kOhlcv1s = 0x20;
inline constexpr uint8_t kOhlcv1m = 0x21;
inline constexpr uint8_t kOhlcv1h = 0x22;
inline constexpr uint8_t kOhlcv1d = 0x23;
inline constexpr uint8_t kOhlcvEod = 0x24;
}  // namespace rtype

namespace schema {
inline constexpr uint16_t kOhlcv1m = 6;
inline constexpr uint16_t kNone = 0xFFFF;
}  // namespace schema

namespace stype {
inline constexpr uint8_t kInstrumentId = 0;
inline constexpr uint8_t kRawSymbol = 1;
inline constexpr uint8_t kParent = 4;
inline constexpr uint8_t kNone = 0xFF;
}  // namespace stype

/// A little-endian number at an address of any alignment.
template <typename T>
T load(const uint8_t* bytes) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
                "the market library assumes a little-endian machine");
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

/// One bar. Prices are integers of 1e-9; ts_event is the start of its interval in nanoseconds UTC.
struct Bar {
  uint64_t ts_event = 0;
  int64_t open = 0;
  int64_t high = 0;
  int64_t low = 0;
  int64_t close = 0;
  uint64_t volume = 0;

  bool operator==(const Bar&) const = default;
};

/// The time between two bars of a file. `eod` follows the exchange's session, all others the UTC clock.
enum class Cadence { second, minute, hour, day, eod };

/// Length of a bar's interval in nanoseconds.
int64_t interval_ns(Cadence cadence);

/// "1s", "1m", "1h", "1d" or "eod".
const char* name(Cadence cadence);

/// The cadence of that name. Throws invalid_argument for any other.
Cadence cadence_from_name(const std::string& text);

/// The cadence that an rtype states; none for 0x11, which states none, and for records that are not bars.
std::optional<Cadence> cadence_of_rtype(uint8_t type);

/// The cadence of a bar schema; none for any other.
std::optional<Cadence> cadence_of_schema(uint16_t schema);

inline bool is_bar(uint8_t type) {
  return type == rtype::kOhlcvDeprecated || (type >= rtype::kOhlcv1s && type <= rtype::kOhlcvEod);
}

/// Bytes of the record in that DBN version, without ts_out; 0 where the rtype is not known.
size_t record_size(uint8_t type, int version);

/// e.g. "ohlcv-1m", "definition"; "unknown" where the rtype is not known.
const char* rtype_name(uint8_t type);

/// The schema that holds records of this rtype (where several do, `schema` itself if it is one of them);
/// nullopt for rtypes that accompany any schema.
std::optional<bool> rtype_fits_schema(uint8_t type, uint16_t schema);

/// Name of a schema or symbol type; empty where the number is "none", "unknown-N" where it is not known.
std::string schema_name(uint16_t schema);
std::string stype_name(uint8_t type);

/// A calendar date as the number YYYYMMDD.
bool is_valid_date(uint32_t yyyymmdd);
uint32_t utc_date(uint64_t ts_event);

/// Days since 1970-01-01 of a proleptic Gregorian date, and back.
int64_t days_from_civil(int64_t year, unsigned month, unsigned day);
void civil_from_days(int64_t days, int64_t& year, unsigned& month, unsigned& day);

/// "2024-01-02T23:00:00Z" (with nanoseconds only where there are any), "undefined" for the sentinel.
std::string format_time(uint64_t ts);

/// The price in decimal with no digit lost, e.g. "1.08225".
std::string format_price(int64_t price);

/// "44 42 4e 01": bytes for messages, at most `limit` of them.
std::string hex_bytes(const uint8_t* bytes, size_t count, size_t limit = 16);

/// One symbol holds over [start_date, end_date) of UTC dates written as YYYYMMDD.
struct MappingInterval {
  uint32_t start_date = 0;
  uint32_t end_date = 0;
  std::string symbol;

  bool operator==(const MappingInterval&) const = default;
};

struct SymbolMapping {
  std::string raw_symbol;
  std::vector<MappingInterval> intervals;

  bool operator==(const SymbolMapping&) const = default;
};

struct Metadata {
  int version = 3;
  uint32_t length = 0;  // as the prelude states it, without the prelude's 8 bytes
  std::string dataset;
  uint16_t schema = schema::kNone;
  uint64_t start = 0;
  uint64_t end = kUndefinedTimestamp;
  uint64_t limit = 0;  // 0: none
  uint8_t stype_in = stype::kNone;
  uint8_t stype_out = stype::kInstrumentId;
  bool ts_out = false;
  uint16_t symbol_width = kSymbolWidthV2;
  std::vector<std::string> symbols;
  std::vector<std::string> partial;
  std::vector<std::string> not_found;
  std::vector<SymbolMapping> mappings;
};

}  // namespace scantape::market
