// From bars to batches: sessions in time, stretches, the split, features, scaling, windows; and that nothing
// leaks.
#include <zstd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <set>

#include "market/counter_rng.h"
#include "market/dataset.h"
#include "market/session_time.h"
#include "market_support.h"

namespace scantape::market::testing {
namespace {

/// Plausible bars with random steps, from seeded integers; a break of an hour after every `session` bars.
std::vector<Bar> random_bars(int64_t count, uint64_t seed = 1, int64_t session = 1'000'000'000,
                             uint64_t start = kStart) {
  std::vector<Bar> bars;
  int64_t close = 1'090'000'000;
  uint64_t ts = start;
  for (int64_t n = 0; n < count; ++n) {
    const auto draw = [&](uint64_t use, uint64_t bound) {
      return static_cast<int64_t>(random_below(bound, seed, use, static_cast<uint64_t>(n)));
    };
    const int64_t open = close + 50'000 * (draw(0, 3) - 1);
    close = std::max<int64_t>(50'000, open + 50'000 * (draw(1, 9) - 4));
    bars.push_back({ts, open, std::max(open, close) + 50'000 * draw(2, 3),
                    std::min(open, close) - 50'000 * draw(3, 3), close,
                    static_cast<uint64_t>(1 + draw(4, 200))});
    ts += minutes((n + 1) % session == 0 ? 61 : 1);
  }
  return bars;
}

Contract contract_of(std::vector<Bar> bars, const std::string& symbol = "6EH4", uint32_t id = kId,
                     uint16_t publisher = 1) {
  Contract contract;
  contract.instrument_id = id;
  contract.publisher_id = publisher;
  contract.symbol = symbol;
  contract.mapped = true;
  contract.bars = std::move(bars);
  return contract;
}

BarStore store_of(std::vector<Contract> contracts) {
  BarStore store;
  store.contracts = std::move(contracts);
  return store;
}

BarStore store_of(std::vector<Bar> bars) {
  return store_of({contract_of(std::move(bars))});
}

DatasetOptions options_of(int64_t length, bool keep_warm_up = true) {
  DatasetOptions options;
  options.sequence_length = length;
  options.keep_warm_up = keep_warm_up;
  return options;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// ---- Time
// ---------------------------------------------------------------------------------------------------------

TEST(SessionTime, DaylightSavingOfChicago) {
  const auto offset_at = [](int64_t year, unsigned month, unsigned day, int64_t seconds) {
    return chicago_offset(days_from_civil(year, month, day) * 86'400 + seconds);
  };
  // 2024: from 10 March 08:00 UTC to 3 November 07:00 UTC.
  EXPECT_EQ(offset_at(2024, 3, 10, 8 * 3600 - 1), -6 * 3600);
  EXPECT_EQ(offset_at(2024, 3, 10, 8 * 3600), -5 * 3600);
  EXPECT_EQ(offset_at(2024, 11, 3, 7 * 3600 - 1), -5 * 3600);
  EXPECT_EQ(offset_at(2024, 11, 3, 7 * 3600), -6 * 3600);
  // 2013: 10 March, 3 November. 2026: 8 March, 1 November. 2006, the older rule: 2 April, 29 October.
  EXPECT_EQ(offset_at(2013, 3, 10, 8 * 3600), -5 * 3600);
  EXPECT_EQ(offset_at(2026, 3, 8, 8 * 3600), -5 * 3600);
  EXPECT_EQ(offset_at(2026, 3, 8, 8 * 3600 - 1), -6 * 3600);
  EXPECT_EQ(offset_at(2026, 11, 1, 7 * 3600), -6 * 3600);
  EXPECT_EQ(offset_at(2006, 4, 2, 8 * 3600), -5 * 3600);
  EXPECT_EQ(offset_at(2006, 4, 2, 8 * 3600 - 1), -6 * 3600);
  EXPECT_EQ(offset_at(2006, 10, 29, 7 * 3600), -6 * 3600);
  EXPECT_EQ(offset_at(2024, 1, 1, 0), -6 * 3600);
  EXPECT_EQ(offset_at(2024, 7, 1, 0), -5 * 3600);
}

TEST(SessionTime, TheTradingDayBeginsAtFiveInTheAfternoon) {
  const SessionTime open = session_time(kStart);  // Monday 2024-01-01 17:00 in Chicago
  EXPECT_EQ(open.seconds_of_day, 0);
  EXPECT_EQ(open.day_of_week, 1) << "the trading day is Tuesday's";
  EXPECT_EQ(open.trading_day, days_from_civil(2024, 1, 2));
  const SessionTime before = session_time(kStart - static_cast<uint64_t>(kMinute));
  EXPECT_EQ(before.seconds_of_day, 86'340);
  EXPECT_EQ(before.day_of_week, 0);
  for (const int64_t day : {days_from_civil(2024, 1, 5), days_from_civil(2024, 7, 5)}) {
    const int64_t utc = chicago_to_utc(day, 17 * 3'600);
    EXPECT_EQ(session_time(static_cast<uint64_t>(utc) * 1'000'000'000).seconds_of_day, 0);
    EXPECT_EQ(utc % 86'400, (day == days_from_civil(2024, 1, 5) ? 23 : 22) * 3'600);
  }
}

TEST(Dates, RoundTrip) {
  for (int64_t day = -200'000; day < 200'000; day += 37) {
    int64_t year;
    unsigned month, date;
    civil_from_days(day, year, month, date);
    EXPECT_EQ(days_from_civil(year, month, date), day);
    EXPECT_TRUE(year < 1 || is_valid_date(static_cast<uint32_t>(year) * 10'000 + month * 100 + date));
  }
  EXPECT_EQ(days_from_civil(2000, 3, 1), 11'017);
}

// ---- Stretches and split
// ------------------------------------------------------------------------------------------

TEST(Stretches, BreakWhereTheGapIsLongerThanTheLimit) {
  std::vector<Bar> bars;
  for (const int64_t minute : {0, 1, 31, 62, 63}) bars.push_back(bar_at(minute));
  std::vector<Stretch> stretches;
  append_stretches(bars, 3, 100, 30 * kMinute, 0, stretches);
  ASSERT_EQ(stretches.size(), 2u) << "30 minutes join, 31 break";
  EXPECT_EQ(stretches[0].begin, 100);
  EXPECT_EQ(stretches[0].end, 103);
  EXPECT_EQ(stretches[1].begin, 103);
  EXPECT_EQ(stretches[1].end, 105);
  EXPECT_EQ(stretches[1].contract, 3);
  stretches.clear();
  append_stretches(bars, 0, 0, 30 * kMinute, 4, stretches);
  EXPECT_EQ(stretches[0].usable, 3) << "wholly in the warm-up";
  EXPECT_EQ(stretches[1].usable, 4) << "the warm-up runs through the break";
  stretches.clear();
  append_stretches(bars, 0, 0, kNoBreaks, 0, stretches);
  EXPECT_EQ(stretches.size(), 1u);
}

TEST(Split, Texts) {
  EXPECT_EQ(parse_split("80/20"), (std::vector<int>{80, 20}));
  EXPECT_EQ(parse_split("70/15/15"), (std::vector<int>{70, 15, 15}));
  for (const char* text : {"", "80", "80/21", "100/0", "80/20/", "/80/20", "a/b", "25/25/25/25", "80 /20",
                           "120/-20", "80.5/19.5"})
    EXPECT_TRUE(
        fails([&] { parse_split(text); }, Code::invalid_argument, {std::string("'") + text + "'", "80/20"}))
        << text;
}

/// Counts windows by their definition, one after the other, in the plainest way there is.
WindowCounts count_by_hand(const std::vector<Bar>& bars, int64_t length, int64_t stride, int share,
                           int64_t max_gap) {
  struct Span {
    uint64_t first, label;
  };
  std::vector<Span> windows;
  size_t begin = 0;
  for (size_t i = 1; i <= bars.size(); ++i) {
    if (i < bars.size() && bars[i].ts_event - bars[i - 1].ts_event <= static_cast<uint64_t>(max_gap))
      continue;
    for (size_t s = begin; s + static_cast<size_t>(length) < i; s += static_cast<size_t>(stride))
      windows.push_back({bars[s].ts_event, bars[s + static_cast<size_t>(length)].ts_event});
    begin = i;
  }
  WindowCounts counts;
  counts.windows = static_cast<int64_t>(windows.size());
  std::sort(windows.begin(), windows.end(), [](const Span& a, const Span& b) { return a.first < b.first; });
  const uint64_t cut = windows[windows.size() * static_cast<size_t>(share) / 100].first;
  for (const Span& window : windows) {
    if (window.label < cut)
      ++counts.train;
    else if (window.first >= cut)
      ++counts.validation;
    else
      ++counts.purged;
  }
  return counts;
}

TEST(Split, CountsAgreeWithTheDefinition) {
  for (const int64_t session : {50, 61, 97, 1000}) {
    for (const int64_t length : {1, 7, 60}) {
      for (const int64_t stride : {1, 3, 100}) {
        const std::vector<Bar> bars = random_bars(900, 5, session);
        if (session <= length) continue;
        DatasetOptions options = options_of(length);
        options.stride = stride;
        WindowCounts wanted = count_by_hand(bars, length, stride, 80, 30 * kMinute);
        if (wanted.train == 0) continue;
        EXPECT_EQ(Dataset(store_of(bars), options).plan().counts, wanted)
            << session << " " << length << " " << stride;
      }
    }
  }
}

TEST(Split, ThreePartsAndNoWindowAcrossACut) {
  DatasetOptions options = options_of(10);
  options.split = {60, 20, 20};
  const Dataset data(store_of(random_bars(2000, 3, 300)), options);
  const WindowCounts& counts = data.plan().counts;
  EXPECT_EQ(data.plan().cuts.size(), 2u);
  EXPECT_EQ(counts.train + counts.validation + counts.test + counts.purged, counts.windows);
  EXPECT_GT(counts.test, 0);
  EXPECT_EQ(counts.fresh, 0);
  for (const Part part : {Part::train, Part::validation, Part::test}) {
    const TimeRange range = data.range(part);
    const std::vector<Window> windows = data.scoring_windows(part);
    EXPECT_FALSE(windows.empty());
    for (const Window& window : windows) {
      EXPECT_GE(data.ts_event()[window.first_bar], range.begin);
      EXPECT_LT(data.ts_event()[window.first_bar + 10], range.end) << "the label's bar, too";
    }
  }
}

TEST(Split, OneCutForAllInstrumentsWhicheverIsChosen) {
  // B begins late: a share of its own windows would cut it later than A.
  const auto make = [] {
    return store_of({contract_of(random_bars(1000, 1), "A", 1),
                     contract_of(random_bars(400, 2, 1'000'000'000, kStart + minutes(600)), "B", 2)});
  };
  DatasetOptions options = options_of(10);
  options.symbol = "A,B";
  const Dataset both(make(), options);
  std::set<uint64_t> starts;
  std::vector<uint64_t> all;
  for (int64_t n = 0; n + 10 < 1000; ++n) all.push_back(kStart + minutes(n));
  for (int64_t n = 600; n + 10 < 1000; ++n) all.push_back(kStart + minutes(n));
  std::sort(all.begin(), all.end());
  EXPECT_EQ(both.plan().cuts[0], all[all.size() * 80 / 100]);
  EXPECT_EQ(both.plan().stretches, 2);
  const Dataset chosen(make(), options_of(10));
  EXPECT_EQ(chosen.plan().cuts[0], both.plan().cuts[0]) << "the cut is that of all candidates";
  EXPECT_EQ(chosen.plan().symbol, "A");
}

TEST(Instruments, MostVolumeInTheTrainingPartAloneDecides) {
  std::vector<Bar> a = random_bars(1000, 1), b = random_bars(1000, 2);
  for (int n = 0; n < 1000; ++n) {
    a[n].volume = 10;
    b[n].volume = n < 790 ? 11 : 1;  // more before the cut, much less over all
    if (n > 850) a[n].volume = 1'000'000;
  }
  const auto make = [&] { return store_of({contract_of(a, "ESH4", 1), contract_of(b, "ESM4", 2)}); };
  const Dataset data(make(), options_of(10));
  EXPECT_EQ(data.plan().symbol, "ESM4");
  EXPECT_TRUE(says(data.plan().symbol_reason, {"most volume", "2 outrights"}));
  EXPECT_EQ(data.contracts().size(), 1u);
  EXPECT_EQ(data.rows(), 1000);
  ASSERT_EQ(data.plan().contracts.size(), 2u);
  EXPECT_FALSE(data.plan().contracts[0].chosen);
  EXPECT_TRUE(data.plan().contracts[1].chosen);
}

TEST(Instruments, SpreadsAreOnlyTakenByName) {
  std::vector<Bar> spread = random_bars(1000, 2);
  for (Bar& bar : spread) bar.volume = 1'000'000;
  const auto make = [&] {
    return store_of({contract_of(random_bars(1000, 1), "ESH4", 1), contract_of(spread, "ESH4-ESM4", 2)});
  };
  EXPECT_EQ(Dataset(make(), options_of(10)).plan().symbol, "ESH4");
  DatasetOptions options = options_of(10);
  options.symbol = "ESH4-ESM4";
  EXPECT_EQ(Dataset(make(), options).contracts().at(0).symbol, "ESH4-ESM4");
  EXPECT_TRUE(fails([&] { Dataset(store_of({contract_of(spread, "ESH4-ESM4")}), options_of(10)); },
                    Code::invalid_argument, {"no outright", "--symbol", "ESH4-ESM4"}));
}

TEST(Instruments, ByParentByIdAndByList) {
  const auto make = [] {
    return store_of({contract_of(random_bars(400, 1), "ESH4", 1), contract_of(random_bars(400, 2), "ESM4", 2),
                     contract_of(random_bars(400, 3), "ESH4-ESM4", 3),
                     contract_of(random_bars(400, 4), "NQH4", 4)});
  };
  const auto symbols = [&](const std::string& wanted) {
    DatasetOptions options = options_of(10);
    options.symbol = wanted;
    const Dataset data(make(), options);
    std::string found;
    for (const Contract& contract : data.contracts()) found += contract.symbol + " ";
    return found;
  };
  EXPECT_EQ(symbols("ES.FUT"), "ESH4 ESM4 ");
  EXPECT_EQ(symbols("4"), "NQH4 ");
  EXPECT_EQ(symbols("ESM4,NQH4"), "ESM4 NQH4 ");
  DatasetOptions unknown = options_of(10);
  unknown.symbol = "CLH4";
  EXPECT_TRUE(fails([&] { Dataset(make(), unknown); }, Code::invalid_argument,
                    {"'CLH4'", "ESH4, ESH4-ESM4, ESM4, NQH4"}));
}

TEST(Instruments, UnmappedBarsForbidAChoiceBySymbol) {
  const auto make = [] {
    BarStore store =
        store_of({contract_of(random_bars(400, 1), "ESH4", 1), contract_of(random_bars(400, 2), "77", 77)});
    store.contracts[1].mapped = false;
    store.report.unmapped = {400, "x.dbn: record 7"};
    return store;
  };
  DatasetOptions options = options_of(10);
  options.symbol = "ESH4";
  EXPECT_TRUE(
      fails([&] { Dataset(make(), options); }, Code::corrupt_data, {"400 bars", "x.dbn: record 7", "ESH4"}));
  options.symbol = "1";
  EXPECT_EQ(Dataset(make(), options).contracts().at(0).symbol, "ESH4");
}

TEST(Instruments, TheAutomaticChoicePassesUnmappedBarsByInTrainingAndAfter) {
  const auto make = [](bool any_mapped) {
    std::vector<Bar> busy = random_bars(400, 2);
    for (Bar& bar : busy) bar.volume = 1'000'000;
    BarStore store = store_of(
        {contract_of(random_bars(400, 1), any_mapped ? "ESH4" : "66", 66), contract_of(busy, "77", 77)});
    store.contracts[0].mapped = any_mapped;
    store.contracts[1].mapped = false;
    store.report.unmapped = {any_mapped ? 400u : 800u, "x.dbn: record 7"};
    return store;
  };
  const Dataset trained(make(true), options_of(10));
  EXPECT_EQ(trained.plan().symbol, "ESH4");
  EXPECT_TRUE(says(trained.plan().symbol_reason, {"1 outrights"}));
  const Dataset again(make(true), trained.fitted());
  EXPECT_TRUE(same_bits(again.features(), trained.features()));
  EXPECT_EQ(again.validation_windows(), trained.validation_windows());
  EXPECT_TRUE(fails([&] { Dataset(make(true), trained.fitted(), "ESH4"); }, Code::corrupt_data, {"ESH4"}));
  // Where no bar has a symbol, ids are all there is.
  const Dataset ids(make(false), options_of(10));
  EXPECT_EQ(ids.plan().symbol, "77");
  EXPECT_EQ(Dataset(make(false), ids.fitted()).contracts().at(0).instrument_id, 77u);
}

TEST(Instruments, ANumberIsASymbolBeforeItIsAnId) {
  const auto make = [] {
    return store_of({contract_of(random_bars(400, 1), "700", 1),
                     contract_of(random_bars(400, 2), "9988", 700),
                     contract_of(random_bars(400, 3), "701", 9)});
  };
  const auto chosen = [&](BarStore store, const std::string& symbol) {
    DatasetOptions options = options_of(10);
    options.symbol = symbol;
    std::string text;
    const Dataset data(std::move(store), options);
    for (const Contract& contract : data.contracts()) text += contract.describe() + ";";
    return text;
  };
  EXPECT_EQ(chosen(make(), "700"), "700 (instrument 1, publisher 1);");
  EXPECT_EQ(chosen(make(), "9988"), "9988 (instrument 700, publisher 1);");
  EXPECT_EQ(chosen(make(), "9"), "701 (instrument 9, publisher 1);");
  // The name of a contract without a symbol is its id, and no symbol.
  BarStore store = make();
  store.contracts[0].symbol = "1";
  store.contracts[0].mapped = false;
  EXPECT_EQ(chosen(store, "1"), "1 (instrument 1, publisher 1);");
  EXPECT_EQ(chosen(store, "700"), "9988 (instrument 700, publisher 1);");
  store.report.unmapped = {400, "x.dbn: record 7"};
  EXPECT_EQ(chosen(store, "1"), "1 (instrument 1, publisher 1);");
  DatasetOptions options = options_of(10);
  options.symbol = "701";
  EXPECT_TRUE(fails([&] { Dataset(store, options); }, Code::corrupt_data, {"'701'"})) << "a symbol";
}

TEST(Instruments, APublisherThatIsNotThereIsNamed) {
  const auto make = [] {
    return store_of(
        {contract_of(random_bars(400, 1), "X", 1, 30), contract_of(random_bars(400, 2), "X", 1, 31)});
  };
  DatasetOptions options = options_of(10);
  options.publisher = 31;
  Fitted fitted = Dataset(make(), options).fitted();
  options.publisher = fitted.publisher = 99;
  options.symbol = "X";
  EXPECT_TRUE(
      fails([&] { Dataset(make(), options); }, Code::invalid_argument, {"'X'", "publisher 99", "30, 31"}));
  EXPECT_TRUE(
      fails([&] { Dataset(make(), fitted); }, Code::invalid_argument, {"'X'", "publisher 99", "30, 31"}));
}

TEST(Instruments, SeveralPublishersNeedAChoice) {
  const auto make = [] {
    return store_of(
        {contract_of(random_bars(400, 1), "X", 1, 30), contract_of(random_bars(400, 2), "X", 1, 31)});
  };
  EXPECT_TRUE(fails([&] { Dataset(make(), options_of(10)); }, Code::corrupt_data,
                    {"'X'", "30 and 31", "--publisher"}));
  DatasetOptions options = options_of(10);
  options.publisher = 31;
  EXPECT_EQ(Dataset(make(), options).contracts().at(0).publisher_id, 31);
}

TEST(Dataset, TooFewBarsAndWrongOptions) {
  EXPECT_TRUE(fails([] { Dataset(store_of(random_bars(60)), options_of(60)); }, Code::corrupt_data,
                    {"60 bars", "--sequence-length"}));
  EXPECT_TRUE(fails([] { Dataset(store_of(random_bars(61)), options_of(60)); }, Code::corrupt_data,
                    {"training", "part"}));
  // One window behind the warm-up: its part is empty, which is what there is to say.
  EXPECT_TRUE(fails([] { Dataset(store_of(random_bars(301)), options_of(60, false)); }, Code::corrupt_data,
                    {"too few bars", "training part", "--sequence-length"}));
  EXPECT_TRUE(fails([] { Dataset(store_of(random_bars(290)), options_of(60, false)); }, Code::corrupt_data,
                    {"240", "warm up"}));
  const auto wrong = [](auto change) {
    DatasetOptions options = options_of(10);
    change(options);
    return caught([&] { Dataset(store_of(random_bars(500)), options); }).code == Code::invalid_argument;
  };
  EXPECT_FALSE(wrong([](DatasetOptions&) {}));
  EXPECT_TRUE(wrong([](DatasetOptions& o) { o.sequence_length = 0; }));
  EXPECT_TRUE(wrong([](DatasetOptions& o) { o.burn_in = -2; }));
  EXPECT_TRUE(wrong([](DatasetOptions& o) { o.stride = -1; }));
  EXPECT_TRUE(wrong([](DatasetOptions& o) { o.burn_in = 10; }));
  EXPECT_TRUE(wrong([](DatasetOptions& o) { o.max_gap = 0; }));
  EXPECT_TRUE(wrong([](DatasetOptions& o) { o.split = {80, 10}; }));
  std::vector<Bar> flat(500, bar_at(0));
  for (int n = 0; n < 500; ++n) flat[n].ts_event = kStart + minutes(n);
  EXPECT_TRUE(fails([&] { Dataset(store_of(flat), options_of(10)); }, Code::corrupt_data,
                    {"no return other than 0"}));
}

TEST(Dataset, AGapIsNamedAsItWasGiven) {
  DatasetOptions options = options_of(60);
  options.max_gap = kMinute * 3 / 2;
  EXPECT_TRUE(fails([&] { Dataset(store_of(random_bars(60)), options); }, Code::corrupt_data,
                    {"more than 1.5 minutes"}));
}

TEST(Dataset, LengthsBeyondAnyFileAreRefused) {
  for (const int64_t value : {INT64_MAX, INT64_MAX - 200, (int64_t{1} << 31) + 1}) {
    for (const auto& [member, flag] :
         {std::pair(&DatasetOptions::sequence_length, "--sequence-length"),
          std::pair(&DatasetOptions::stride, "--stride"), std::pair(&DatasetOptions::burn_in, "--burn-in")}) {
      DatasetOptions options = options_of(10);
      options.*member = value;
      EXPECT_TRUE(
          fails([&] { Dataset(store_of(random_bars(500)), options); }, Code::invalid_argument,
                {flag, std::to_string(value), flag == std::string("--burn-in") ? "9" : "2147483648"}));
    }
  }
  DatasetOptions longest = options_of(kMaxLength);
  EXPECT_TRUE(
      fails([&] { Dataset(store_of(random_bars(500)), longest); }, Code::corrupt_data, {"2147483648 bars"}));
  DatasetOptions widest = options_of(10);
  widest.stride = kMaxLength;
  widest.split = {50, 50};
  EXPECT_EQ(Dataset(store_of(random_bars(1000, 1, 100)), widest).plan().counts.windows, 10);
}

// ---- Features
// -----------------------------------------------------------------------------------------------------

double column(std::span<const float> rows, int64_t row, const std::string& name) {
  const std::vector<std::string>& names = feature_schema().names;
  const auto at = std::find(names.begin(), names.end(), name);
  EXPECT_NE(at, names.end()) << name;
  return rows[row * kFeatureCount + (at - names.begin())];
}

TEST(Features, SchemaMatchesItsSize) {
  EXPECT_EQ(static_cast<int64_t>(feature_schema().names.size()), kFeatureCount);
  EXPECT_GE(kFeatureCount, 16);
  EXPECT_EQ(std::set<std::string>(feature_schema().names.begin(), feature_schema().names.end()).size(), 22u);
  EXPECT_EQ(feature_schema().version, 1);
}

TEST(Features, ValuesByHand) {
  const std::vector<Bar> bars = {{kStart, 100, 110, 90, 105, 9},
                                 {kStart + minutes(1), 104, 120, 104, 116, 19},
                                 {kStart + minutes(3), 116, 116, 100, 100, 4},
                                 {kStart + minutes(64), 90, 95, 90, 95, 0}};
  const std::vector<float> rows = compute_features(bars, 30 * kMinute);
  const auto near = [&](int64_t row, const char* name, double wanted) {
    EXPECT_NEAR(column(rows, row, name), wanted, 1e-6 * std::max(1.0, std::abs(wanted)))
        << row << " " << name;
  };
  near(0, "log_return", 0);
  near(1, "log_return", std::log(116.0 / 105));
  near(2, "log_return", std::log(100.0 / 116));
  near(3, "log_return", 0);  // across a break
  near(1, "open_gap", std::log(104.0 / 105));
  near(3, "open_gap", 0);
  near(1, "body", std::log(116.0 / 104));
  near(2, "range", std::log(116.0 / 100));
  near(0, "close_position", 15.0 / 20 - 0.5);
  near(3, "close_position", 0.5);
  near(1, "log_volume", std::log(20.0));
  near(1, "log_volume_change", std::log(2.0));
  near(3, "log_volume_change", 0);
  near(2, "relative_log_volume_60", std::log(5.0) - (std::log(10.0) + std::log(20.0) + std::log(5.0)) / 3);
  const double r1 = std::log(116.0 / 105), r2 = std::log(100.0 / 116);
  near(0, "return_mean_5", 0);
  near(1, "return_mean_5", r1);
  near(2, "return_mean_240", (r1 + r2) / 2);
  near(3, "return_mean_5", (r1 + r2) / 2);  // the missing return does not count
  near(3, "volatility_15", std::sqrt((r1 * r1 + r2 * r2) / 2));
  near(0, "log_minutes_since_last_bar", 0);
  near(2, "log_minutes_since_last_bar", std::log(3.0));
  near(3, "log_minutes_since_last_bar", std::log(62.0));
  near(2, "log_bars_since_break", std::log(3.0));
  near(3, "log_bars_since_break", 0);
  near(0, "session_time_sin", 0);
  near(0, "session_time_cos", 1);
  near(3, "session_time_sin", std::sin(2 * M_PI * 64 / 1440));
  near(0, "week_day_sin", std::sin(2 * M_PI / 7));
  near(0, "week_day_cos", std::cos(2 * M_PI / 7));
}

TEST(Features, RollingSpansEndWhereTheyShould) {
  std::vector<Bar> bars = random_bars(300);
  const std::vector<float> before = compute_features(bars, 30 * kMinute);
  bars[50].close += 500'000;  // returns 50 and 51 change
  const std::vector<float> after = compute_features(bars, 30 * kMinute);
  for (const auto& [name, span] : {std::pair("volatility_5", 5), std::pair("return_mean_15", 15),
                                   std::pair("volatility_60", 60), std::pair("volatility_240", 240)}) {
    EXPECT_NE(column(before, 51 + span - 1, name), column(after, 51 + span - 1, name)) << name;
    EXPECT_EQ(column(before, 51 + span, name), column(after, 51 + span, name)) << name;
  }
}

TEST(Features, DifferencesKeepTheTick) {
  // A tick of 5e-5 at prices that a float cannot tell from their neighbours.
  const int64_t price = 16'800'250'000'000;
  const std::vector<Bar> bars = {{kStart, price, price, price, price, 1},
                                 {kStart + minutes(1), price + 1, price + 1, price + 1, price + 1, 1}};
  const std::vector<float> rows = compute_features(bars, 30 * kMinute);
  EXPECT_FLOAT_EQ(static_cast<float>(column(rows, 1, "log_return")),
                  static_cast<float>(1.0 / static_cast<double>(price)));
}

TEST(Features, PricesThatAreNotPositiveLeaveNoTrace) {
  std::vector<Bar> bars = random_bars(20);
  bars[10].open = bars[10].high = bars[10].low = bars[10].close = -37'630'000'000;
  const std::vector<float> rows = compute_features(bars, 30 * kMinute);
  for (const float value : rows) EXPECT_TRUE(std::isfinite(value));
  EXPECT_EQ(column(rows, 10, "log_return"), 0);
  EXPECT_EQ(column(rows, 11, "log_return"), 0);
  Dataset data(store_of([] {
                 std::vector<Bar> more = random_bars(500);
                 more[10].open = more[10].high = more[10].low = more[10].close = 0;
                 return more;
               }()),
               options_of(10));
  EXPECT_EQ(data.plan().missing_labels, 2);
  EXPECT_TRUE(std::isnan(data.targets()[9]));
  EXPECT_TRUE(std::isnan(data.targets()[10]));
  EXPECT_EQ(data.mask()[9], 0);
  EXPECT_EQ(data.mask()[11], 1);
}

TEST(Features, ARatioBeyondDoubleIsMissing) {
  const int64_t huge = 9'000'000'000'000'000'000;
  EXPECT_NEAR(log_ratio(huge, 1).value, std::log(9e18), 1e-9);
  EXPECT_TRUE(log_ratio(1, huge).missing);
  EXPECT_EQ(log_ratio(1, huge).value, 0);
  EXPECT_FALSE(log_ratio(huge, 1).missing);
  std::vector<Bar> bars = random_bars(20);
  bars[10] = {bars[10].ts_event, huge, huge, 1, 1, 1};
  bars[11] = {bars[11].ts_event, 1, huge, 1, huge, 1};
  for (const float value : compute_features(bars, 30 * kMinute)) EXPECT_TRUE(std::isfinite(value));
}

TEST(Features, CausalBitForBit) {
  // On built data; the same on real files below.
  const std::vector<Bar> bars = random_bars(700, 9, 173);
  const std::vector<float> whole = compute_features(bars, 30 * kMinute);
  for (size_t count = 1; count < bars.size(); count += 31) {
    const std::vector<float> part = compute_features(std::span(bars).first(count), 30 * kMinute);
    EXPECT_TRUE(same_bits(part, std::span(whole).first(part.size()))) << count;
  }
}

TEST(Features, RealFilesCutAtFiftyRandomBars) {
  SCANTAPE_NEEDS_TEST_DATA(data);
  const BarStore store = load_bars(find_data_files(data + "/bars/6e"));
  const std::vector<Bar>& bars = store.contracts.at(0).bars;
  const std::vector<float> whole = compute_features(bars, 30 * kMinute);
  for (uint64_t draw = 0; draw < 50; ++draw) {
    // A file that ends there, through writer, reader and loader.
    const size_t count = 1 + random_below(bars.size() - 1, 2024, 0, draw);
    Bytes records;
    for (size_t n = 0; n < count; ++n) append_bar(records, bars[n], kId);
    Folder folder;
    const BarStore cut =
        load_bars({folder.write("cut.dbn", encode_dbn(bars_metadata(2), records, Compression::none))});
    // The mapping ends on 2024-01-03, so later bars are a contract of their own: take the bars as one.
    std::vector<Bar> all;
    for (const Contract& contract : cut.contracts)
      all.insert(all.end(), contract.bars.begin(), contract.bars.end());
    std::sort(all.begin(), all.end(), [](const Bar& a, const Bar& b) { return a.ts_event < b.ts_event; });
    const std::vector<float> part = compute_features(all, 30 * kMinute);
    ASSERT_EQ(part.size(), count * kFeatureCount);
    EXPECT_TRUE(same_bits(part, std::span(whole).first(part.size()))) << count;
  }
}

TEST(Scaler, FitsTheRowsItIsGivenAndClips) {
  const std::vector<float> rows = {1, 7, 3, 7, 1e6, 7, 5, 7};  // two columns; row 2 is not fitted
  const std::vector<uint8_t> keep = {1, 1, 0, 1};
  const Scaler scaler = fit_scaler(rows, keep, 2);
  EXPECT_DOUBLE_EQ(scaler.mean[0], 3);
  EXPECT_DOUBLE_EQ(scaler.std[0], std::sqrt(8.0 / 3));
  EXPECT_EQ(scaler.std[1], 0);
  std::vector<float> scaled = rows;
  scaler.apply(scaled);
  EXPECT_FLOAT_EQ(scaled[0], static_cast<float>(-2 / std::sqrt(8.0 / 3)));
  EXPECT_EQ(scaled[4], 8) << "clipped";
  for (const size_t i : {1u, 3u, 5u, 7u}) EXPECT_EQ(scaled[i], 0) << "a constant feature is 0";
  EXPECT_TRUE(
      fails([&] { fit_scaler(rows, std::vector<uint8_t>(4, 0), 2); }, Code::corrupt_data, {"no bar"}));
  // 0.1 has no exact mean over seven rows in float; it is constant all the same.
  EXPECT_EQ(fit_scaler(std::vector<float>(7, 0.1f), std::vector<uint8_t>(7, 1), 1).std[0], 0);
}

// ---- Windows and batches
// ------------------------------------------------------------------------------------------

TEST(Windows, TrainingCoversEachRowAtMostOnceWithAChangingPhase) {
  const Dataset data(store_of(random_bars(3000, 4, 431)), options_of(60));
  std::set<int64_t> first_rows;
  std::map<int64_t, int> covered;
  for (uint64_t epoch = 0; epoch < 60; ++epoch) {
    std::vector<Window> windows = data.training_windows(epoch, 7);
    EXPECT_EQ(windows, data.training_windows(epoch, 7)) << "a function of seed and epoch";
    std::set<int64_t> rows;
    for (const Window& window : windows) {
      EXPECT_EQ(window.score_begin, 0);
      EXPECT_EQ(window.score_end, 60);
      EXPECT_LT(data.ts_event()[window.first_bar + 60], data.plan().cuts[0]);
      for (int64_t i = 0; i < 60; ++i) {
        EXPECT_TRUE(rows.insert(window.first_bar + i).second) << "a row twice in an epoch";
        ++covered[window.first_bar + i];
      }
    }
    std::sort(windows.begin(), windows.end(), [](auto& a, auto& b) { return a.first_bar < b.first_bar; });
    first_rows.insert(windows.at(0).first_bar);
  }
  EXPECT_GT(first_rows.size(), 20u) << "phases";
  int64_t in_range = 0;
  for (const Stretch& stretch : data.stretches())
    in_range += rows_in(stretch, data.ts_event(), data.range(Part::train)).size();
  EXPECT_GT(static_cast<int64_t>(covered.size()), in_range * 99 / 100) << "over the epochs all rows are met";
  EXPECT_NE(data.training_windows(0, 7), data.training_windows(0, 8));
  EXPECT_NE(data.training_windows(0, 7), data.training_windows(1, 7));
}

TEST(Windows, NoPhaseLosesAShortStretch) {
  const Dataset data(store_of(random_bars(900, 4, 90)), options_of(60));
  int64_t stretches = 0;
  for (const Stretch& stretch : data.stretches())
    stretches += rows_in(stretch, data.ts_event(), data.range(Part::train)).size() >= 60 ? 1 : 0;
  EXPECT_GT(stretches, 5);
  for (uint64_t epoch = 0; epoch < 20; ++epoch)
    EXPECT_EQ(static_cast<int64_t>(data.training_windows(epoch, 1).size()), stretches)
        << "one fits into each";
}

TEST(Windows, AFixedStrideCountsFromTheStretchInEveryPart) {
  const std::vector<Bar> bars = random_bars(500);
  std::vector<uint64_t> ts;
  for (const Bar& bar : bars) ts.push_back(bar.ts_event);
  const std::vector<Stretch> stretches = {{0, 0, 500, 3}};
  // From row 203 on; starts lie at 3, 10, 17, ...: the first one in the part is 206.
  const std::vector<Window> windows = strided_windows(stretches, ts, 20, 7, {ts[203], ts[300]});
  ASSERT_FALSE(windows.empty());
  EXPECT_EQ(windows.front().first_bar, 206);
  EXPECT_EQ(windows.back().first_bar, 276) << "276 + 20 is before 300, 283 + 20 is not";
  EXPECT_EQ(windows.size(), 11u);
}

TEST(Windows, ShuffledOrderIsFixedForAllMachines) {
  std::vector<Window> windows;
  for (int64_t i = 0; i < 10; ++i) windows.push_back({i, 0, 1});
  shuffle(windows, 42, 3);
  std::vector<int64_t> order;
  for (const Window& window : windows) order.push_back(window.first_bar);
  std::vector<int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(order, (std::vector<int64_t>{0, 2, 4, 3, 7, 1, 5, 8, 9, 6}));
  EXPECT_EQ(random_bits(1, 2, 3), 10240744290557228159u);
}

TEST(Windows, AFixedStrideCountsAsThePlanSays) {
  DatasetOptions options = options_of(60);
  options.stride = 7;
  const Dataset data(store_of(random_bars(3000, 4, 431)), options);
  EXPECT_EQ(static_cast<int64_t>(data.training_windows(0, 0).size()), data.plan().counts.train);
  options.stride = 0;
  options.target = Target::next_return;
  const Dataset next(store_of(random_bars(3000, 4, 431)), options);
  const std::vector<Window> windows = next.training_windows(0, 0);
  EXPECT_EQ(static_cast<int64_t>(windows.size()), next.plan().counts.train) << "stride 1";
  for (const Window& window : windows) EXPECT_EQ(window.score_begin, 59);
}

TEST(Windows, ValidationScoresEachRowOnceBehindTheBurnIn) {
  for (const Target target : {Target::seq_return, Target::next_return}) {
    for (const int64_t burn_in : {0, 15, 59}) {
      DatasetOptions options = options_of(60);
      options.target = target;
      options.burn_in = burn_in;
      const Dataset data(store_of(random_bars(3000, 4, 431)), options);
      std::map<int64_t, int> scored;
      const std::vector<Window> windows = data.validation_windows();
      for (const Window& window : windows) {
        EXPECT_GE(data.ts_event()[window.first_bar], data.plan().cuts[0]);
        for (int64_t i = window.score_begin; i < window.score_end; ++i) ++scored[window.first_bar + i];
      }
      const int64_t behind = target == Target::next_return ? 59 : burn_in;
      int64_t wanted = 0;
      for (const Stretch& stretch : data.stretches()) {
        const RowRange rows = rows_in(stretch, data.ts_event(), data.range(Part::validation));
        if (rows.size() < 60) continue;
        for (int64_t row = rows.begin + behind; row < rows.end; ++row, ++wanted)
          EXPECT_EQ(scored[row], 1) << row;
      }
      EXPECT_GT(wanted, 100);
      EXPECT_EQ(static_cast<int64_t>(scored.size()), wanted);
      EXPECT_EQ(data.scored_positions(windows), wanted);
      EXPECT_EQ(data.plan().validation_positions, wanted);
    }
  }
}

TEST(Batches, GatherPutsRowsWhereTheyBelong) {
  std::vector<Bar> bars = random_bars(500);
  bars[31].open = bars[31].high = bars[31].low = bars[31].close = 0;  // no label at 30 and 31
  const Dataset data(store_of(bars), options_of(10));
  const std::vector<Window> windows = {{25, 2, 9}, {100, 0, 10}};
  std::vector<float> x(2 * 10 * kFeatureCount, NAN), target(20, NAN), mask(20, NAN);
  data.gather(windows, x, target, mask);
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t i = 0; i < 10; ++i) {
      const int64_t row = windows[b].first_bar + i;
      for (int64_t j = 0; j < kFeatureCount; ++j)
        EXPECT_EQ(x[(b * 10 + i) * kFeatureCount + j], data.features()[row * kFeatureCount + j]);
      const bool counts = i >= windows[b].score_begin && i < windows[b].score_end && row != 30 && row != 31;
      EXPECT_EQ(mask[b * 10 + i], counts ? 1 : 0) << row;
      EXPECT_EQ(target[b * 10 + i], counts ? data.targets()[row] : 0) << row;
    }
  }
  EXPECT_TRUE(fails([&] { data.gather(windows, std::span(x).first(7), target, mask); },
                    Code::invalid_argument, {"x has 7", "440"}));
  const std::vector<Window> outside = {{495, 0, 10}, {0, 0, 10}};
  EXPECT_TRUE(
      fails([&] { data.gather(outside, x, target, mask); }, Code::invalid_argument, {"row 495", "500 rows"}));
}

TEST(Targets, ScaleIsTheRootMeanSquareOfTrainingLabels) {
  const std::vector<Bar> bars = random_bars(1000, 4, 200);
  const Dataset data(store_of(bars), options_of(10));
  double squares = 0;
  int64_t count = 0;
  for (size_t n = 0; n + 1 < bars.size(); ++n) {
    if ((n + 1) % 200 == 0 || bars[n + 1].ts_event >= data.plan().cuts[0]) continue;
    const double y = std::log(static_cast<double>(bars[n + 1].close) / static_cast<double>(bars[n].close));
    squares += y * y;
    ++count;
  }
  EXPECT_NEAR(data.plan().target_scale, std::sqrt(squares / static_cast<double>(count)), 1e-12);
  const double y = std::log(static_cast<double>(bars[8].close) / static_cast<double>(bars[7].close));
  EXPECT_NEAR(data.targets()[7], y / data.plan().target_scale, 1e-6);
  EXPECT_TRUE(std::isnan(data.targets()[199])) << "the next bar is behind a break";
}

TEST(Fitted, ATrainedModelMeetsTheSameAndNewBars) {
  const std::vector<Bar> bars = random_bars(2000, 4, 500);
  const std::vector<Bar> early(bars.begin(), bars.begin() + 1200);
  const Dataset trained(store_of(early), options_of(20));
  const Dataset same(store_of(early), trained.fitted());
  EXPECT_TRUE(same_bits(same.features(), trained.features()));
  EXPECT_TRUE(same_bits(same.targets(), trained.targets()));
  EXPECT_EQ(same.validation_windows(), trained.validation_windows());
  const Dataset later(store_of(bars), trained.fitted());
  EXPECT_TRUE(same_bits(later.features().first(1200 * kFeatureCount), trained.features()))
      << "its own scaler, not a new one";
  EXPECT_EQ(later.validation_windows(), trained.validation_windows());
  EXPECT_EQ(later.part_of(bars[1199].ts_event), Part::validation);
  EXPECT_EQ(later.part_of(bars[1200].ts_event), Part::fresh);
  const std::vector<Window> fresh = later.scoring_windows(Part::fresh);
  EXPECT_FALSE(fresh.empty());
  for (const Window& window : fresh) EXPECT_GE(window.first_bar, 1200);
  EXPECT_GT(later.plan().counts.fresh, 0);
  Fitted other = trained.fitted();
  other.features.version = 99;
  EXPECT_TRUE(
      fails([&] { Dataset(store_of(bars), other); }, Code::corrupt_data, {"version 99", "version 1"}));
  other = trained.fitted();
  other.scaler.std.pop_back();
  EXPECT_TRUE(
      fails([&] { Dataset(store_of(bars), other); }, Code::corrupt_data, {"22 means and 21 deviations"}));
  other = trained.fitted();
  other.symbol = "ESZ9";
  EXPECT_TRUE(fails([&] { Dataset(store_of(bars), other); }, Code::invalid_argument, {"'ESZ9'", "6EH4"}));
  other = trained.fitted();
  other.cadence = Cadence::hour;
  EXPECT_TRUE(fails([&] { Dataset(store_of(bars), other); }, Code::corrupt_data, {"1h", "1m"}));
}

TEST(Fitted, BarsBeforeTheTrainingDataAreNotInSample) {
  const std::vector<Bar> bars = random_bars(2000, 4, 500);
  const Dataset trained(store_of(std::vector<Bar>(bars.begin() + 600, bars.begin() + 1800)), options_of(20));
  EXPECT_EQ(trained.fitted().data_begin, bars[600].ts_event);
  EXPECT_TRUE(trained.scoring_windows(Part::before).empty());
  EXPECT_EQ(trained.plan().counts.before, 0);
  const Dataset all(store_of(bars), trained.fitted());
  EXPECT_EQ(all.part_of(bars[599].ts_event), Part::before);
  EXPECT_EQ(all.part_of(bars[600].ts_event), Part::train);
  EXPECT_STREQ(name(Part::before), "before");
  EXPECT_EQ(all.range(Part::train).begin, bars[600].ts_event);
  for (const Part part : kParts) {
    const std::vector<Window> windows = all.scoring_windows(part);
    EXPECT_FALSE(windows.empty() && part != Part::test) << name(part);
    for (const Window& window : windows) {
      EXPECT_EQ(all.part_of(bars[window.first_bar].ts_event), part);
      EXPECT_EQ(all.part_of(bars[window.first_bar + 20].ts_event), part) << "the label's bar, too";
    }
  }
  for (const Window& window : all.training_windows(0, 1)) EXPECT_GE(window.first_bar, 600);
  // Stretches [0, 500) and [500, 1000) hold bars before row 600: 480 windows, and 100 rows with 80.
  EXPECT_EQ(all.plan().counts.before, 560);
  EXPECT_EQ(all.plan().counts.train, trained.plan().counts.train);
}

TEST(Fitted, EachFieldOfARecordIsChecked) {
  const std::vector<Bar> bars = random_bars(1000);
  DatasetOptions options = options_of(20);
  options.split = {60, 20, 20};
  const Fitted good = Dataset(store_of(bars), options).fitted();
  const auto refused = [&](const char* what, auto change) {
    Fitted bad = good;
    change(bad);
    EXPECT_TRUE(fails([&] { Dataset(store_of(bars), bad); }, Code::corrupt_data, {what}));
  };
  EXPECT_EQ(caught([&] { Dataset(store_of(bars), good); }).code, Code::ok);
  for (const int64_t length : {int64_t{0}, int64_t{-5}, INT64_MAX, (int64_t{1} << 31) + 1})
    refused("sequence_length", [&](Fitted& f) { f.sequence_length = length; });
  for (const int64_t burn_in : {int64_t{-1}, int64_t{20}, INT64_MAX, INT64_MIN})
    refused("burn_in", [&](Fitted& f) { f.burn_in = burn_in; });
  for (const int64_t gap : {int64_t{0}, int64_t{-1}}) refused("max_gap", [&](Fitted& f) { f.max_gap = gap; });
  for (const double bad : {0.0, -1.0, double{NAN}, double{INFINITY}}) {
    refused("target_scale", [&](Fitted& f) { f.target_scale = bad; });
    refused("clip", [&](Fitted& f) { f.scaler.clip = bad; });
  }
  for (const double bad : {double{NAN}, double{INFINITY}}) {
    refused("mean that", [&](Fitted& f) { f.scaler.mean[3] = bad; });
    refused("deviation", [&](Fitted& f) { f.scaler.std[3] = bad; });
  }
  refused("deviation", [](Fitted& f) { f.scaler.std[21] = -1; });
  refused("21 means", [](Fitted& f) { f.scaler.mean.pop_back(); });
  refused("names", [](Fitted& f) { std::swap(f.features.names[0], f.features.names[1]); });
  refused("0 cuts", [](Fitted& f) { f.cuts.clear(); });
  refused("3 cuts", [](Fitted& f) { f.cuts.push_back(f.cuts.back() + 1); });
  refused("cuts", [](Fitted& f) { std::swap(f.cuts[0], f.cuts[1]); });
  refused("cuts", [](Fitted& f) { f.cuts[1] = f.cuts[0]; });
  refused("data_end", [](Fitted& f) { f.data_end = f.cuts[1] - 1; });
  refused("data_begin", [](Fitted& f) { f.data_begin = f.cuts[0] + 1; });
  refused("symbol", [](Fitted& f) { f.symbol.clear(); });
}

// ---- Leaks
// --------------------------------------------------------------------------------------------------------

/// Everything that training can see: scaler, scale, cut, choice, windows and their content.
void expect_same_training(const Dataset& a, const Dataset& b) {
  EXPECT_EQ(a.fitted().scaler.mean, b.fitted().scaler.mean);
  EXPECT_EQ(a.fitted().scaler.std, b.fitted().scaler.std);
  EXPECT_EQ(a.fitted().target_scale, b.fitted().target_scale);
  EXPECT_EQ(a.fitted().cuts, b.fitted().cuts);
  EXPECT_EQ(a.fitted().symbol, b.fitted().symbol);
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    const std::vector<Window> windows = a.training_windows(epoch, 5);
    ASSERT_EQ(windows, b.training_windows(epoch, 5));
    const size_t positions = windows.size() * static_cast<size_t>(a.sequence_length());
    std::vector<float> x[2], target[2], mask[2];
    const Dataset* const data[] = {&a, &b};
    for (int i = 0; i < 2; ++i) {
      x[i].resize(positions * kFeatureCount);
      target[i].resize(positions);
      mask[i].resize(positions);
      data[i]->gather(windows, x[i], target[i], mask[i]);
    }
    EXPECT_TRUE(same_bits(x[0], x[1]));
    EXPECT_TRUE(same_bits(target[0], target[1]));
    EXPECT_TRUE(same_bits(mask[0], mask[1]));
  }
}

/// Every bar at or after `cut` replaced by noise with the same stamp.
void make_noise(BarStore& store, uint64_t cut) {
  uint64_t draw = 0;
  for (Contract& contract : store.contracts) {
    for (Bar& bar : contract.bars) {
      if (bar.ts_event < cut) continue;
      const int64_t low = 1 + static_cast<int64_t>(random_below(1'000'000'000'000, 66, 0, draw++));
      bar = {bar.ts_event, low + 5,         low + 9'000'000,
             low,          low + 7'000'000, random_below(1'000'000, 66, 1, draw++)};
    }
  }
}

TEST(Leaks, NoiseBehindTheCutChangesNothingInTraining) {
  const auto make = [] {
    return store_of({contract_of(random_bars(1500, 1, 300), "ESH4", 1),
                     contract_of(random_bars(1500, 2, 300), "ESM4", 2)});
  };
  const Dataset clean(make(), options_of(20, false));
  BarStore noisy = make();
  make_noise(noisy, clean.plan().cuts[0]);
  const Dataset other(std::move(noisy), options_of(20, false));
  expect_same_training(clean, other);
  EXPECT_FALSE(same_bits(clean.features(), other.features())) << "the noise is there";
}

TEST(Leaks, NoiseInRealBars) {
  SCANTAPE_NEEDS_TEST_DATA(data);
  for (const char* folder : {"/bars/6e", "/bars/es"}) {
    const auto load = [&] { return load_bars(find_data_files(data + folder)); };
    const Dataset clean(load());
    BarStore noisy = load();
    make_noise(noisy, clean.plan().cuts[0]);
    expect_same_training(clean, Dataset(std::move(noisy)));
  }
}

// ---- The month of real bars
// ---------------------------------------------------------------------------------------

TEST(RealBars, AMonthOf6eFallsApartAsCountedByOthers) {
  SCANTAPE_NEEDS_TEST_DATA(data);
  const auto load = [&] { return load_bars(find_data_files(data + "/bars/6e")); };
  DatasetOptions options = options_of(60);
  options.stride = 1;
  const WindowCounts wanted = {28617, 22833, 5724, 0, 0, 60};
  const Dataset whole(load(), options);
  EXPECT_EQ(whole.plan().bars, 29996);
  EXPECT_EQ(whole.plan().stretches, 23);
  EXPECT_EQ(whole.plan().counts, wanted);
  EXPECT_EQ(whole.plan().symbol, "6EH4");
  // With the warm-up dropped, the plan still says what it would be without.
  const Dataset usual(load());
  EXPECT_EQ(usual.plan().stretches, 23);
  EXPECT_EQ(usual.plan().counts_with_warm_up, wanted);
  EXPECT_EQ(usual.plan().warm_up_bars, 240);
  EXPECT_EQ(usual.plan().counts.windows, 28377);
}

TEST(RealBars, TheOldSystemsSeventyTwoWindows) {
  SCANTAPE_NEEDS_TEST_DATA(data);
  BarStore store = load_bars(find_data_files(data + "/bars/6e"));
  store.contracts.at(0).bars.resize(7223);
  DatasetOptions options = options_of(60);
  options.stride = 100;
  options.max_gap = kNoBreaks;
  const Dataset dataset(std::move(store), options);
  EXPECT_EQ(dataset.plan().stretches, 1);
  EXPECT_EQ(dataset.plan().counts, (WindowCounts{72, 57, 15, 0, 0, 0}));
  EXPECT_EQ(dataset.training_windows(0, 0).size(), 57u);
}

TEST(RealBars, NoWindowHoldsTwoContracts) {
  SCANTAPE_NEEDS_TEST_DATA(data);
  DatasetOptions options = options_of(60, false);
  options.symbol = "ES.FUT";
  const Dataset dataset(load_bars(find_data_files(data + "/bars/es")), options);
  EXPECT_EQ(dataset.contracts().size(), 5u);
  for (const std::vector<Window>& windows : {dataset.training_windows(0, 1), dataset.validation_windows()}) {
    EXPECT_FALSE(windows.empty());
    for (const Window& window : windows) {
      EXPECT_EQ(dataset.contract_index()[window.first_bar], dataset.contract_index()[window.first_bar + 60]);
      for (int64_t i = 0; i < 60; ++i)
        EXPECT_LE(dataset.ts_event()[window.first_bar + i + 1] - dataset.ts_event()[window.first_bar + i],
                  minutes(30));
    }
  }
}

/// Closes of a daily file by stamp, by a parser that shares nothing with the library: frames through zstd's
/// one-shot call, records found by walking the bytes.
void read_closes(const std::filesystem::path& path, std::map<uint64_t, int64_t>& closes) {
  std::ifstream in(path, std::ios::binary);
  const std::string file((std::istreambuf_iterator<char>(in)), {});
  std::string raw;
  for (size_t at = 0; at < file.size();) {
    const size_t size = ZSTD_findFrameCompressedSize(file.data() + at, file.size() - at);
    ASSERT_FALSE(ZSTD_isError(size));
    std::string frame(1 << 20, '\0');
    const size_t got = ZSTD_decompress(frame.data(), frame.size(), file.data() + at, size);
    ASSERT_FALSE(ZSTD_isError(got));
    raw += frame.substr(0, got);
    at += size;
  }
  uint32_t length;
  std::memcpy(&length, raw.data() + 4, 4);
  for (size_t at = 8 + length; at + 56 <= raw.size(); at += 56) {
    uint64_t ts;
    int64_t close;
    std::memcpy(&ts, raw.data() + at + 8, 8);
    std::memcpy(&close, raw.data() + at + 40, 8);
    closes[ts] = close;
  }
}

TEST(RealBars, EachLabelIsTheNextCloseOfTheRawFile) {
  SCANTAPE_NEEDS_TEST_DATA(data);
  std::map<uint64_t, int64_t> closes;
  for (const auto& entry : std::filesystem::directory_iterator(data + "/bars/6e"))
    read_closes(entry.path(), closes);
  ASSERT_EQ(closes.size(), 29996u);
  const Dataset dataset(load_bars(find_data_files(data + "/bars/6e")));
  int64_t labels = 0;
  for (const std::vector<Window>& windows : {dataset.training_windows(0, 3), dataset.validation_windows()}) {
    std::vector<float> x(windows.size() * 60 * kFeatureCount), target(windows.size() * 60),
        mask(windows.size() * 60);
    dataset.gather(windows, x, target, mask);
    for (size_t b = 0; b < windows.size(); ++b) {
      for (int64_t i = 0; i < 60; ++i) {
        if (mask[b * 60 + i] == 0) continue;
        const auto now = closes.find(dataset.ts_event()[windows[b].first_bar + i]);
        ASSERT_NE(now, closes.end());
        const auto next = std::next(now);
        ASSERT_NE(next, closes.end());
        const double wanted = std::log(static_cast<double>(next->second) / static_cast<double>(now->second));
        ASSERT_NEAR(target[b * 60 + i] * dataset.plan().target_scale, wanted, 1e-9);
        ++labels;
      }
    }
  }
  EXPECT_GT(labels, 27'000);
}

}  // namespace
}  // namespace scantape::market::testing
