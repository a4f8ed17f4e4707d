#include "market/dbn_format.h"

#include <fmt/format.h>

#include <iterator>

#include "scantape/error.h"

namespace scantape::market {
namespace {

struct RtypeInfo {
  uint8_t type;
  const char* name;
  uint16_t size[3];  // by version
};

constexpr RtypeInfo kRtypes[] = {
    {0x00, "trades", {48, 48, 48}},
    {0x01, "mbp-1", {80, 80, 80}},
    {0x0A, "mbp-10", {368, 368, 368}},
    {0x11, "ohlcv", {56, 56, 56}},
    {0x12, "status", {40, 40, 40}},
    {0x13, "definition", {360, 400, 520}},
    {0x14, "imbalance", {112, 112, 112}},
    {0x15, "error", {80, 320, 320}},
    {0x16, "symbol-mapping", {80, 176, 176}},
    {0x17, "system", {80, 320, 320}},
    {0x18, "statistics", {64, 64, 80}},
    {0x20, "ohlcv-1s", {56, 56, 56}},
    {0x21, "ohlcv-1m", {56, 56, 56}},
    {0x22, "ohlcv-1h", {56, 56, 56}},
    {0x23, "ohlcv-1d", {56, 56, 56}},
    {0x24, "ohlcv-eod", {56, 56, 56}},
    {0xA0, "mbo", {56, 56, 56}},
    {0xB1, "cmbp-1", {80, 80, 80}},
    {0xC0, "cbbo-1s", {80, 80, 80}},
    {0xC1, "cbbo-1m", {80, 80, 80}},
    {0xC2, "tcbbo", {80, 80, 80}},
    {0xC3, "bbo-1s", {80, 80, 80}},
    {0xC4, "bbo-1m", {80, 80, 80}},
};

struct SchemaInfo {
  const char* name;
  uint8_t type;
};

// Indexed by schema number.
constexpr SchemaInfo kSchemas[] = {
    {"mbo", 0xA0},        {"mbp-1", 0x01},    {"mbp-10", 0x0A},    {"tbbo", 0x01},      {"trades", 0x00},
    {"ohlcv-1s", 0x20},   {"ohlcv-1m", 0x21}, {"ohlcv-1h", 0x22},  {"ohlcv-1d", 0x23},  {"definition", 0x13},
    {"statistics", 0x18}, {"status", 0x12},   {"imbalance", 0x14}, {"ohlcv-eod", 0x24}, {"cmbp-1", 0xB1},
    {"cbbo-1s", 0xC0},    {"cbbo-1m", 0xC1},  {"tcbbo", 0xC2},     {"bbo-1s", 0xC3},    {"bbo-1m", 0xC4},
};

constexpr const char* kStypes[] = {
    "instrument_id", "raw_symbol", "smart",     "continuous",  "parent",          "nasdaq",
    "cms",           "isin",       "us_code",   "bbg_comp_id", "bbg_comp_ticker", "figi",
    "figi_ticker",   "listing_id", "issuer_id", "security_id",
};

const RtypeInfo* find_rtype(uint8_t type) {
  for (const RtypeInfo& info : kRtypes)
    if (info.type == type) return &info;
  return nullptr;
}

}  // namespace

int64_t interval_ns(Cadence cadence) {
  switch (cadence) {
    case Cadence::second:
      return kSecond;
    case Cadence::minute:
      return kMinute;
    case Cadence::hour:
      return 60 * kMinute;
    case Cadence::day:
    case Cadence::eod:
      return kDay;
  }
  return 0;
}

const char* name(Cadence cadence) {
  switch (cadence) {
    case Cadence::second:
      return "1s";
    case Cadence::minute:
      return "1m";
    case Cadence::hour:
      return "1h";
    case Cadence::day:
      return "1d";
    case Cadence::eod:
      return "eod";
  }
  return "";
}

Cadence cadence_from_name(const std::string& text) {
  for (Cadence cadence : {Cadence::second, Cadence::minute, Cadence::hour, Cadence::day, Cadence::eod})
    if (text == name(cadence)) return cadence;
  throw Error(Code::invalid_argument,
              fmt::format("cadence '{}' is not known; wants 1s, 1m, 1h, 1d or eod", text));
}

std::optional<Cadence> cadence_of_rtype(uint8_t type) {
  switch (type) {
    case rtype::kOhlcv1s:
      return Cadence::second;
    case rtype::kOhlcv1m:
      return Cadence::minute;
    case rtype::kOhlcv1h:
      return Cadence::hour;
    case rtype::kOhlcv1d:
      return Cadence::day;
    case rtype::kOhlcvEod:
      return Cadence::eod;
    default:
      return std::nullopt;
  }
}

std::optional<Cadence> cadence_of_schema(uint16_t schema) {
  if (schema >= std::size(kSchemas)) return std::nullopt;
  return cadence_of_rtype(kSchemas[schema].type);
}

size_t record_size(uint8_t type, int version) {
  const RtypeInfo* info = find_rtype(type);
  return info ? info->size[version - 1] : 0;
}

const char* rtype_name(uint8_t type) {
  const RtypeInfo* info = find_rtype(type);
  return info ? info->name : "unknown";
}

std::optional<bool> rtype_fits_schema(uint8_t type, uint16_t schema) {
  if (type == rtype::kError || type == rtype::kSymbolMapping || type == rtype::kSystem) return std::nullopt;
  if (schema >= std::size(kSchemas) || !find_rtype(type)) return std::nullopt;
  if (type == rtype::kOhlcvDeprecated) return cadence_of_schema(schema).has_value();
  // A consolidated top of book is written as cbbo or cmbp-1 under either name by older producers.
  const uint8_t wanted = kSchemas[schema].type;
  return type == wanted || (type == 0xB1 && wanted == 0xC2) || (type == 0xC2 && wanted == 0xB1);
}

std::string schema_name(uint16_t schema) {
  if (schema == schema::kNone) return "";
  return schema < std::size(kSchemas) ? kSchemas[schema].name : fmt::format("unknown-{}", schema);
}

std::string stype_name(uint8_t type) {
  if (type == stype::kNone) return "";
  return type < std::size(kStypes) ? kStypes[type] : fmt::format("unknown-{}", type);
}

int64_t days_from_civil(int64_t year, unsigned month, unsigned day) {
  // Years are counted from March, so that the leap day is the last of its year; 400 years are 146,097 days.
  const int64_t y = month <= 2 ? year - 1 : year;
  const int64_t era = (y >= 0 ? y : y - 399) / 400;
  const int64_t year_of_era = y - era * 400;
  const int64_t month_from_march = (month + 9) % 12;
  const int64_t day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
  const int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
  return era * 146'097 + day_of_era - 719'468;
}

void civil_from_days(int64_t days, int64_t& year, unsigned& month, unsigned& day) {
  const int64_t z = days + 719'468;
  const int64_t era = (z >= 0 ? z : z - 146'096) / 146'097;
  const int64_t day_of_era = z - era * 146'097;
  const int64_t year_of_era =
      (day_of_era - day_of_era / 1'460 + day_of_era / 36'524 - day_of_era / 146'096) / 365;
  const int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int64_t month_from_march = (5 * day_of_year + 2) / 153;
  day = static_cast<unsigned>(day_of_year - (153 * month_from_march + 2) / 5 + 1);
  month = static_cast<unsigned>(month_from_march < 10 ? month_from_march + 3 : month_from_march - 9);
  year = year_of_era + era * 400 + (month <= 2 ? 1 : 0);
}

bool is_valid_date(uint32_t yyyymmdd) {
  const unsigned year = yyyymmdd / 10'000, month = yyyymmdd / 100 % 100, day = yyyymmdd % 100;
  if (year < 1 || month < 1 || month > 12 || day < 1) return false;
  constexpr unsigned kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  return day <= kDays[month - 1] + (month == 2 && leap ? 1u : 0u);
}

uint32_t utc_date(uint64_t ts_event) {
  int64_t year;
  unsigned month, day;
  civil_from_days(static_cast<int64_t>(ts_event / static_cast<uint64_t>(kDay)), year, month, day);
  return static_cast<uint32_t>(year) * 10'000 + month * 100 + day;
}

std::string format_time(uint64_t ts) {
  if (ts == kUndefinedTimestamp) return "undefined";
  const uint64_t seconds = ts / static_cast<uint64_t>(kSecond), ns = ts % static_cast<uint64_t>(kSecond);
  const uint32_t date = utc_date(ts);
  const uint64_t of_day = seconds % 86'400;
  std::string text = fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", date / 10'000, date / 100 % 100,
                                 date % 100, of_day / 3'600, of_day / 60 % 60, of_day % 60);
  if (ns != 0) text += fmt::format(".{:09}", ns);
  return text + "Z";
}

std::string format_price(int64_t price) {
  if (price == kUndefinedPrice) return "undefined";
  const uint64_t size = price < 0 ? 0 - static_cast<uint64_t>(price) : static_cast<uint64_t>(price);
  std::string text = fmt::format("{}{}", price < 0 ? "-" : "", size / kPriceScale);
  std::string digits = fmt::format("{:09}", size % kPriceScale);
  digits.erase(digits.find_last_not_of('0') + 1);
  return digits.empty() ? text : text + "." + digits;
}

std::string hex_bytes(const uint8_t* bytes, size_t count, size_t limit) {
  std::string text;
  for (size_t i = 0; i < count && i < limit; ++i) text += fmt::format("{}{:02x}", i ? " " : "", bytes[i]);
  return text.empty() ? "nothing" : text;
}

}  // namespace scantape::market
