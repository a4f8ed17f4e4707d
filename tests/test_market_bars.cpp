// Rules for the bars of a file, merging of files, contracts; and what `inspect` makes of them.
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "market/bars.h"
#include "market/inspect.h"
#include "market_support.h"

namespace scantape::market::testing {
namespace {

Bytes file_of(const Bytes& records, int version = 2) {
  return encode_dbn(bars_metadata(version), records, Compression::none);
}

/// Both users of the rules, `inspect` and the loader, refuse the file with that message.
::testing::AssertionResult refused(const Bytes& file, std::initializer_list<std::string> parts) {
  Folder folder;
  const std::string path = folder.write("bad.dbn", file);
  if (const auto named = fails([&] { load_bars({path}); }, Code::corrupt_data, {path}); !named) return named;
  if (const auto by_loader = fails([&] { load_bars({path}); }, Code::corrupt_data, parts); !by_loader)
    return by_loader;
  return fails([&] { inspect_file(path); }, Code::corrupt_data, parts);
}

BarStore load(const std::vector<Bytes>& files, const LoadOptions& options = {}) {
  Folder folder;
  std::vector<std::string> paths;
  for (const Bytes& file : files) paths.push_back(folder.write(std::to_string(paths.size()) + ".dbn", file));
  return load_bars(paths, options);
}

Bar changed(Bar bar, int64_t Bar::*field, int64_t value) {
  bar.*field = value;
  return bar;
}

TEST(BarRules, UndefinedTime) {
  Bar bar = bar_at(1);
  bar.ts_event = kUndefinedTimestamp;
  EXPECT_TRUE(refused(file_of(records_of({bar_at(0), bar})),
                      {"record 2 at byte", "instrument 118", "ts_event is undefined"}));
  bar.ts_event = uint64_t{1} << 63;
  EXPECT_TRUE(refused(file_of(records_of({bar})), {"9223372036854775808", "2262"}));
}

TEST(BarRules, OffTheGrid) {
  for (const auto& [type, interval] :
       {std::pair(rtype::kOhlcv1s, kSecond), std::pair(rtype::kOhlcv1m, kMinute),
        std::pair(rtype::kOhlcv1h, 60 * kMinute)}) {
    Bar bar = bar_at(0);
    Metadata metadata = bars_metadata(2);
    metadata.schema = schema::kNone;
    EXPECT_EQ(load({encode_dbn(metadata, records_of({bar}, kId, type), Compression::none)})
                  .contracts[0]
                  .bars.size(),
              1u);
    bar.ts_event += static_cast<uint64_t>(interval) / 2;
    EXPECT_TRUE(
        refused(encode_dbn(metadata, records_of({bar}, kId, type), Compression::none),
                {"record 1", std::to_string(bar.ts_event), "off the grid", std::to_string(interval)}));
  }
  // Days of the exchange begin when they like.
  Bar bar = bar_at(0);
  bar.ts_event += 1;
  EXPECT_EQ(load({file_of(records_of({bar}, kId, rtype::kOhlcvEod))}).cadence, Cadence::eod);
}

TEST(BarRules, TimeGoesBack) {
  const Bytes file = file_of(records_of({bar_at(0), bar_at(2), bar_at(1)}));
  EXPECT_TRUE(
      refused(file, {"record 3", "time goes back from 2024-01-01T23:02:00Z to 2024-01-01T23:01:00Z"}));
  LoadOptions sort;
  sort.sort = true;
  EXPECT_EQ(load({file}, sort).contracts.at(0).bars, (std::vector<Bar>{bar_at(0), bar_at(1), bar_at(2)}));
  // Between instruments there is no order to keep.
  const Bytes two = records_of({bar_at(0), bar_at(2)}, 1) + records_of({bar_at(1), bar_at(2)}, 2);
  EXPECT_EQ(load({file_of(two)}).contracts.size(), 2u);
}

TEST(BarRules, SecondVersionsOfABar) {
  const Bytes equal = file_of(records_of({bar_at(0), bar_at(1), bar_at(1), bar_at(1), bar_at(2)}));
  const BarStore store = load({equal});
  EXPECT_EQ(store.contracts.at(0).bars, (std::vector<Bar>{bar_at(0), bar_at(1), bar_at(2)}));
  EXPECT_EQ(store.report.duplicates, 2u);
  EXPECT_EQ(store.report.bars_read, 5u);
  for (int64_t Bar::*field : {&Bar::open, &Bar::high, &Bar::low, &Bar::close}) {
    const Bar other = changed(bar_at(1), field, 1'091'111'111);
    EXPECT_TRUE(refused(file_of(records_of({bar_at(0), bar_at(1), other})),
                        {"record 3", "2024-01-01T23:01:00Z differs", "1.091111111", "same values"}));
  }
  Bar volume = bar_at(1);
  ++volume.volume;
  EXPECT_TRUE(refused(file_of(records_of({bar_at(1), volume})), {"record 2", "differs"}));
  // Sorting does not hide one.
  LoadOptions sort;
  sort.sort = true;
  EXPECT_TRUE(fails(
      [&] {
        load({file_of(records_of({bar_at(1), bar_at(2), bar_at(0), volume}))}, sort);
      },
      Code::corrupt_data, {"6EH4", "2024-01-01T23:01:00Z", "same values"}));
}

TEST(BarRules, PublishersAreKeptApart) {
  Bytes records = records_of({bar_at(0)});
  const Bar other = changed(bar_at(0), &Bar::close, bar_at(0).close - 50'000);
  append_bar(records, other, kId, 2);
  const BarStore store = load({file_of(records)});
  ASSERT_EQ(store.contracts.size(), 2u);
  EXPECT_EQ(store.contracts[0].bars[0], bar_at(0));
  EXPECT_EQ(store.contracts[1].bars[0], other);
}

TEST(BarRules, Cadences) {
  const Bytes mixed =
      file_of(records_of({bar_at(0)}, kId, rtype::kOhlcv1s) + records_of({bar_at(0), bar_at(1)}));
  EXPECT_TRUE(refused(mixed, {"record 2", "bar of 1m after bars of 1s", "--cadence"}));
  LoadOptions minute;
  minute.cadence = Cadence::minute;
  EXPECT_EQ(load({mixed}, minute).contracts.at(0).bars.size(), 2u);
  LoadOptions second;
  second.cadence = Cadence::second;
  EXPECT_EQ(load({mixed}, second).contracts.at(0).bars.size(), 1u);
  LoadOptions hour;
  hour.cadence = Cadence::hour;
  EXPECT_TRUE(fails([&] { load({mixed}, hour); }, Code::corrupt_data,
                    {"no bar", "3 bars of another cadence than 1h", "--cadence"}));
  // Two files of different cadence.
  EXPECT_TRUE(fails(
      [&] {
        load({file_of(some_records(1)), file_of(records_of({bar_at(0)}, kId, rtype::kOhlcv1h))});
      },
      Code::corrupt_data, {"1.dbn", "1h", "0.dbn", "1m"}));
}

TEST(BarRules, TheDeprecatedRtypeTakesItsCadenceFromElsewhere) {
  const Bytes records = records_of({bar_at(0), bar_at(1)}, kId, rtype::kOhlcvDeprecated);
  EXPECT_EQ(load({file_of(records)}).cadence, Cadence::minute) << "from the schema";
  Metadata metadata = bars_metadata(1);
  metadata.schema = schema::kNone;
  const Bytes file = encode_dbn(metadata, records, Compression::none);
  EXPECT_TRUE(refused(file, {"record 1", "0x11", "--cadence"}));
  LoadOptions told;
  told.cadence = Cadence::minute;
  EXPECT_EQ(load({file}, told).contracts.at(0).bars.size(), 2u);
}

TEST(BarValues, InconsistentBarsAreAnErrorOrDropped) {
  const Bar good = bar_at(1);
  const Bar bad[] = {changed(good, &Bar::high, good.close - 1), changed(good, &Bar::high, good.open - 1),
                     changed(good, &Bar::high, good.low - 1),   changed(good, &Bar::low, good.open + 1),
                     changed(good, &Bar::low, good.high + 1),   changed(good, &Bar::close, good.low - 1),
                     changed(good, &Bar::close, good.high + 1)};
  for (const Bar& bar : bad) {
    const Bytes file = file_of(records_of({bar_at(0), bar, bar_at(2)}));
    EXPECT_TRUE(fails([&] { load({file}); }, Code::corrupt_data,
                      {"0.dbn", "record 2 at byte", "low <= open, close <= high", "--bad-bars drop"}));
    LoadOptions drop;
    drop.bad_bars = BadBars::drop;
    const BarStore store = load({file}, drop);
    EXPECT_EQ(store.contracts.at(0).bars, (std::vector<Bar>{bar_at(0), bar_at(2)}));
    EXPECT_EQ(store.report.dropped.at("inconsistent").count, 1u);
    EXPECT_TRUE(says(store.report.dropped.at("inconsistent").first, {"record 2", "2024-01-01T23:01:00Z"}));
    Folder folder;
    const FileSummary summary = inspect_file(folder.write("a.dbn", file));
    EXPECT_EQ(summary.bars.count, 3u) << "inspect counts what stands there";
    EXPECT_TRUE(warns(summary.warnings, {"1 bars with inconsistent", "record 2"}));
  }
  // On the edge is fine.
  Bar flat = good;
  flat.open = flat.high = flat.low = flat.close;
  EXPECT_EQ(load({file_of(records_of({flat}))}).contracts.at(0).bars.size(), 1u);
}

TEST(BarValues, UndefinedPricesAreMissing) {
  for (int64_t Bar::*field : {&Bar::open, &Bar::high, &Bar::low, &Bar::close}) {
    const BarStore store =
        load({file_of(records_of({bar_at(0), changed(bar_at(1), field, kUndefinedPrice), bar_at(2)}))});
    EXPECT_EQ(store.contracts.at(0).bars, (std::vector<Bar>{bar_at(0), bar_at(2)}));
    EXPECT_EQ(store.report.dropped.at("undefined_price").count, 1u);
    EXPECT_TRUE(says(store.report.dropped.at("undefined_price").first, {"record 2"}));
  }
}

TEST(BarValues, ZeroVolumeAndPricesBelowZeroAreKeptAndCounted) {
  Bar quiet = bar_at(1);
  quiet.volume = 0;
  Bar negative = bar_at(2);
  negative.open = negative.high = negative.low = negative.close = -37'630'000'000;
  const BarStore store = load({file_of(records_of({bar_at(0), quiet, negative}))});
  EXPECT_EQ(store.contracts.at(0).bars.size(), 3u);
  EXPECT_EQ(store.report.odd.at("zero_volume").count, 1u);
  EXPECT_EQ(store.report.odd.at("non_positive_price").count, 1u);
  EXPECT_TRUE(says(store.report.odd.at("non_positive_price").first, {"record 3", "-37.63"}));
}

TEST(Bars, FilesMergeByInstrumentAndTime) {
  const Bytes a = file_of(records_of({bar_at(0), bar_at(1), bar_at(3)}));
  const Bytes b = file_of(records_of({bar_at(1), bar_at(2), bar_at(3), bar_at(4)}), 3);
  const BarStore store = load({a, b});
  EXPECT_EQ(store.contracts.at(0).bars,
            (std::vector<Bar>{bar_at(0), bar_at(1), bar_at(2), bar_at(3), bar_at(4)}));
  EXPECT_EQ(store.report.duplicates, 2u);
  EXPECT_EQ(store.fingerprint(), load({b, a}).fingerprint());
  EXPECT_EQ(store.fingerprint(), load({file_of(some_records(5))}).fingerprint());
  EXPECT_NE(store.fingerprint(), load({file_of(some_records(4))}).fingerprint());
  const Bytes c = file_of(records_of({changed(bar_at(2), &Bar::close, bar_at(2).open)}));
  EXPECT_TRUE(fails(
      [&] {
        load({b, c});
      },
      Code::corrupt_data,
      {"1.dbn", "0.dbn", "6EH4 (instrument 118, publisher 1)", "2024-01-01T23:02:00Z", "same values"}));
}

TEST(Bars, OneBarUnderTwoSymbolsIsOneBar) {
  const auto file = [](const std::string& symbol, const Bytes& records) {
    Metadata metadata = bars_metadata(2);
    metadata.mappings = {{symbol, {{20240101, 20240103, std::to_string(kId)}}}};
    return encode_dbn(metadata, records, Compression::none);
  };
  const Bytes month = file("6EH4", records_of({bar_at(0), bar_at(1), bar_at(2)}));
  const Bytes other = file("6E.c.0", records_of({bar_at(1), bar_at(2), bar_at(3)}));
  Metadata unnamed_metadata = bars_metadata(2);
  unnamed_metadata.mappings.clear();
  const Bytes unnamed = encode_dbn(unnamed_metadata, records_of({bar_at(2), bar_at(4)}), Compression::none);
  const BarStore store = load({month, unnamed, other});
  ASSERT_EQ(store.contracts.size(), 3u);
  EXPECT_EQ(store.contracts[0].symbol, "118");
  EXPECT_EQ(store.contracts[0].bars, std::vector<Bar>{bar_at(4)}) << "a symbol goes before none";
  EXPECT_EQ(store.contracts[1].symbol, "6E.c.0");
  EXPECT_EQ(store.contracts[1].bars, (std::vector<Bar>{bar_at(1), bar_at(2), bar_at(3)}));
  EXPECT_EQ(store.contracts[2].symbol, "6EH4");
  EXPECT_EQ(store.contracts[2].bars, std::vector<Bar>{bar_at(0)});
  EXPECT_EQ(store.report.duplicates, 3u);
  EXPECT_EQ(store.report.unmapped.count, 1u);
  EXPECT_EQ(load({other, unnamed, month}).fingerprint(), store.fingerprint());
  // Nothing is left of a contract whose bars all have another name.
  EXPECT_EQ(load({month, file("ZZZ", records_of({bar_at(1)}))}).contracts.size(), 1u);
  const Bytes wrong =
      file("6E.c.0", records_of({bar_at(1), changed(bar_at(2), &Bar::close, bar_at(2).open)}));
  EXPECT_TRUE(fails(
      [&] {
        load({month, wrong});
      },
      Code::corrupt_data,
      {"0.dbn", "1.dbn", "6EH4 (instrument 118", "6E.c.0 (instrument 118", "2024-01-01T23:02:00Z",
       "same values"}));
  // The file named is that of the bar, also behind a sort.
  const Bytes late = file("6EH4", records_of({bar_at(5), bar_at(6), bar_at(7)}));
  EXPECT_TRUE(fails(
      [&] {
        load({late, month, wrong});
      },
      Code::corrupt_data, {"1.dbn: 6EH4", "2.dbn has 6E.c.0"}));
  // Other publishers give bars of their own.
  Bytes elsewhere;
  append_bar(elsewhere, changed(bar_at(1), &Bar::close, bar_at(1).open), kId, 2);
  EXPECT_EQ(load({month, file("ZZZ", elsewhere)}).report.duplicates, 0u);
}

TEST(Bars, SymbolsAreMadePrintable) {
  Metadata metadata = bars_metadata(2);
  metadata.mappings = {{"6E\xFF\xC3+\x01", {{20240101, 20240103, std::to_string(kId)}}}};
  const Bytes file = encode_dbn(metadata, records_of({bar_at(0)}), Compression::none);
  EXPECT_EQ(load({file}).contracts.at(0).symbol, "6E??+?");
  EXPECT_TRUE(load({file}).contracts.at(0).mapped);
  EXPECT_EQ(nlohmann::json(load({file}).contracts.at(0).symbol).dump(), "\"6E??+?\"");
  Folder folder;
  const FileSummary summary = inspect_file(folder.write("a.dbn", file));
  EXPECT_EQ(summary.instruments.at(0).symbol, "6E??+?");
  EXPECT_EQ(nlohmann::json::parse(to_json({summary})).at("files").at(0).at("instruments").at(0).at("symbol"),
            "6E??+?");
}

TEST(Bars, NoneIsLeft) {
  Bytes records;
  for (int n = 0; n < 3; ++n) append_bar(records, changed(bar_at(n), &Bar::close, kUndefinedPrice), kId);
  EXPECT_TRUE(fails([&] { load({file_of(records)}); }, Code::corrupt_data,
                    {"all 3 bars were dropped: undefined price", "record 1"}));
  LoadOptions drop;
  drop.bad_bars = BadBars::drop;
  append_bar(records, changed(bar_at(3), &Bar::high, 1), kId);
  EXPECT_TRUE(fails([&] { load({file_of(records)}, drop); }, Code::corrupt_data,
                    {"all 4 bars", "inconsistent, undefined price"}));
}

TEST(Bars, AnIdReusedOnAnotherDayIsAnotherContract) {
  Metadata metadata = bars_metadata(3);
  metadata.mappings = {{"6EH4", {{20240101, 20240102, "118"}}}, {"6EM4", {{20240102, 20240103, "118"}}}};
  const BarStore store =
      load({encode_dbn(metadata, records_of({bar_at(58), bar_at(59), bar_at(60)}), Compression::none)});
  ASSERT_EQ(store.contracts.size(), 2u);
  EXPECT_EQ(store.contracts[0].symbol, "6EH4");
  EXPECT_EQ(store.contracts[0].bars.size(), 2u);
  EXPECT_EQ(store.contracts[1].symbol, "6EM4");
  EXPECT_EQ(store.contracts[1].bars, std::vector<Bar>{bar_at(60)});
}

TEST(Bars, InstrumentsWithoutASymbolKeepTheirId) {
  const BarStore store = load({file_of(records_of({bar_at(0), bar_at(1)}, 55))});
  EXPECT_EQ(store.contracts.at(0).symbol, "55");
  EXPECT_FALSE(store.contracts.at(0).mapped);
  EXPECT_EQ(store.report.unmapped.count, 2u);
  Folder folder;
  const FileSummary summary = inspect_file(folder.write("a.dbn", file_of(records_of({bar_at(0)}, 55))));
  EXPECT_EQ(summary.instruments.at(0).symbol, "");
  EXPECT_TRUE(warns(summary.warnings, {"instrument 55", "no mapping"}));
}

TEST(Bars, OutrightsAreToldFromSpreadsByTheirSymbol) {
  for (const auto& [symbol, outright] :
       {std::pair("ESZ3", true), std::pair("6EH4", true), std::pair("ES.c.0", true),
        std::pair("ESZ3-ESH4", false), std::pair("UD:1V: GN 123", false), std::pair("CL:BF J4-K4-M4", false),
        std::pair("ESZ3 C4500", false), std::pair("A,B", false)}) {
    Contract contract;
    contract.symbol = symbol;
    EXPECT_EQ(contract.outright(), outright) << symbol;
  }
}

TEST(Bars, FoldersAreListedByNameAndNotBelow) {
  Folder folder;
  EXPECT_TRUE(fails([&] { find_data_files(folder.path()); }, Code::corrupt_data, {folder.path(), ".dbn"}));
  EXPECT_TRUE(
      fails([&] { find_data_files(folder.path() + "/none"); }, Code::invalid_argument, {"/none", "no such"}));
  for (const char* name : {"b.dbn", "a.dbn.zst", "c.dbz", "d.txt", "e.dbn.frag"}) folder.write(name, {});
  std::filesystem::create_directory(folder.path() + "/below.dbn");
  folder.write("below.dbn/x.dbn", {});
  EXPECT_EQ(find_data_files(folder.path()),
            (std::vector<std::string>{folder.path() + "/a.dbn.zst", folder.path() + "/b.dbn"}));
  EXPECT_EQ(find_data_files(folder.path() + "/d.txt"), std::vector<std::string>{folder.path() + "/d.txt"});
}

TEST(Bars, APipeIsRefusedRatherThanWaitedFor) {
  Folder folder;
  const std::string pipe = folder.path() + "/x.dbn";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  alarm(20);  // a program that waits is ended
  EXPECT_TRUE(fails([&] { load_bars(find_data_files(folder.path())); }, Code::io, {pipe, "regular file"}));
  EXPECT_TRUE(fails([&] { inspect_file(pipe); }, Code::io, {pipe, "regular file"}));
  EXPECT_TRUE(fails([&] { open_file(folder.path()); }, Code::io, {folder.path(), "regular file"}));
  EXPECT_TRUE(fails([&] { open_file(folder.path() + "/none"); }, Code::io, {"/none", "No such file"}));
  alarm(0);
}

TEST(Bars, NoBarAtAll) {
  EXPECT_TRUE(fails([] { load({file_of({})}); }, Code::corrupt_data, {"no bar", "0.dbn"}));
  EXPECT_TRUE(fails([] { load({file_of(record_of(0x12, 40))}); }, Code::corrupt_data, {"no bar"}));
}

// ---- inspect
// ------------------------------------------------------------------------------------------------------

TEST(Inspect, JsonHasTheFixedKeysAndExactSums) {
  Folder folder;
  Bytes records;
  const int64_t close = INT64_MAX - 1;  // three of them do not fit 64 bits
  for (int n = 0; n < 3; ++n) {
    Bar bar = bar_at(n);
    bar.high = bar.close = close;
    bar.volume = UINT64_MAX;
    append_bar(records, bar, kId);
  }
  const std::string path = folder.write("a.dbn", file_of(records));
  const auto document = nlohmann::json::parse(to_json({inspect_file(path)}));
  EXPECT_EQ(document.at("format_version"), 1);
  const auto& file = document.at("files").at(0);
  EXPECT_EQ(file.size(), 12u);
  EXPECT_EQ(file.at("path"), path);
  EXPECT_EQ(file.at("version"), 2);
  EXPECT_EQ(file.at("dataset"), "GLBX.MDP3");
  EXPECT_EQ(file.at("schema"), "ohlcv-1m");
  EXPECT_EQ(file.at("stype_in"), "raw_symbol");
  EXPECT_EQ(file.at("stype_out"), "instrument_id");
  EXPECT_EQ(file.at("start"), kStart);
  EXPECT_TRUE(file.at("end").is_null());
  EXPECT_EQ(file.at("records"), nlohmann::json({{"0x21", 3}}));
  EXPECT_EQ(file.at("bars"), nlohmann::json({{"count", 3},
                                             {"sum_close", "27670116110564327418"},
                                             {"sum_volume", "55340232221128654845"},
                                             {"first_ts", kStart},
                                             {"last_ts", kStart + minutes(2)}}));
  EXPECT_EQ(file.at("instruments"), nlohmann::json::array({{{"instrument_id", kId},
                                                            {"symbol", "6EH4"},
                                                            {"bars", 3},
                                                            {"first_ts", kStart},
                                                            {"last_ts", kStart + minutes(2)}}}));
  EXPECT_TRUE(file.at("warnings").is_array());
}

TEST(Inspect, NullsWhereThereIsNothing) {
  Folder folder;
  InspectOptions fragment;
  fragment.fragment_version = 3;
  const auto file =
      nlohmann::json::parse(to_json({inspect_file(folder.write("a.frag", record_of(0x12, 40)), fragment)}))
          .at("files")
          .at(0);
  for (const char* key : {"dataset", "schema", "stype_in", "stype_out", "start", "end"})
    EXPECT_TRUE(file.at(key).is_null()) << key;
  EXPECT_EQ(file.at("version"), 3);
  EXPECT_EQ(file.at("bars"), nlohmann::json({{"count", 0},
                                             {"sum_close", "0"},
                                             {"sum_volume", "0"},
                                             {"first_ts", nullptr},
                                             {"last_ts", nullptr}}));
}

TEST(Inspect, DuplicatesCountInRawSums) {
  Folder folder;
  const FileSummary summary =
      inspect_file(folder.write("a.dbn", file_of(records_of({bar_at(0), bar_at(0)}))));
  EXPECT_EQ(summary.bars.count, 2u);
  EXPECT_TRUE(warns(summary.warnings, {"1 bars are equal second versions"}));
}

TEST(Inspect, RecordsAreDatedByTheirTimeOfReceipt) {
  // Sent on the eve of the mapping's first day, received on it.
  Metadata metadata = bars_metadata(2);
  metadata.mappings = {{"6EH4", {{20240102, 20240103, std::to_string(kId)}}}};
  for (const auto& [type, size, at] :
       {std::tuple(0x12, 40, 16), std::tuple(0x18, 64, 16), std::tuple(0x00, 48, 32),
        std::tuple(0x0A, 368, 32), std::tuple(0xC4, 80, 32), std::tuple(0xA0, 56, 40)}) {
    Bytes record = record_of(static_cast<uint8_t>(type), static_cast<size_t>(size));
    put_at<uint64_t>(record, static_cast<size_t>(at), kStart + minutes(60));
    metadata.schema = schema::kNone;
    Folder folder;
    const FileSummary summary =
        inspect_file(folder.write("a.dbn", encode_dbn(metadata, record, Compression::none)));
    EXPECT_EQ(summary.instruments.at(0).symbol, "6EH4") << type;
    EXPECT_TRUE(summary.warnings.empty());
  }
}

TEST(Inspect, RecordsAsCsv) {
  Folder folder;
  std::ostringstream out;
  Bar bar = {kStart, -5, 7, -9, 6, 11};
  write_records(folder.write("a.dbn", file_of(records_of({bar}) + record_of(0x12, 40))), {}, out);
  EXPECT_EQ(out.str(), "1,33,1,118,1704150000000000000,-5,7,-9,6,11\n2,18,1,118,1704150000000000000,,,,,\n");
}

TEST(Inspect, NumbersAsText) {
  EXPECT_EQ(to_decimal(0), "0");
  EXPECT_EQ(to_decimal(-120), "-120");
  EXPECT_EQ(to_decimal(Int128{INT64_MIN} * 4), "-36893488147419103232");
  EXPECT_EQ(format_price(1'082'250'000), "1.08225");
  EXPECT_EQ(format_price(-5), "-0.000000005");
  EXPECT_EQ(format_price(INT64_MIN), "-9223372036.854775808");
  EXPECT_EQ(format_price(kUndefinedPrice), "undefined");
  EXPECT_EQ(format_time(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(format_time(951'782'400'000'000'001), "2000-02-29T00:00:00.000000001Z");
  EXPECT_EQ(format_time(kUndefinedTimestamp), "undefined");
}

}  // namespace
}  // namespace scantape::market::testing
