// Simulated sessions: that they are what they claim, judged from the files alone.
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "market/bars.h"
#include "market/inspect.h"
#include "market/session_time.h"
#include "market/synth.h"
#include "market/windows.h"
#include "market_support.h"

namespace scantape::market::testing {
namespace {

SynthOptions options_in(const std::string& out, Process process = Process::ar, int days = 20,
                        uint64_t seed = 7) {
  SynthOptions options;
  options.out = out;
  options.process = process;
  options.days = days;
  options.seed = seed;
  return options;
}

struct Truth {
  std::string symbol;
  uint32_t instrument_id = 0;
  std::string close;
  double mean = 0;
};

/// truth.csv by (symbol, stamp).
std::map<std::pair<std::string, uint64_t>, Truth> read_truth(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line, "ts_event,symbol,instrument_id,close,conditional_mean");
  std::map<std::pair<std::string, uint64_t>, Truth> rows;
  while (std::getline(in, line)) {
    std::istringstream fields(line);
    std::string ts, symbol, id, close, mean;
    std::getline(fields, ts, ',');
    std::getline(fields, symbol, ',');
    std::getline(fields, id, ',');
    std::getline(fields, close, ',');
    std::getline(fields, mean, ',');
    rows[{symbol, std::stoull(ts)}] = {symbol, static_cast<uint32_t>(std::stoul(id)), close, std::stod(mean)};
  }
  return rows;
}

/// A label inside a session, what truth.csv said of it, and the two returns before it (0 beyond the session's
/// start).
struct Label {
  double value, mean, last, before;
};

std::vector<Label> labels_of(const Contract& contract,
                             const std::map<std::pair<std::string, uint64_t>, Truth>& truth) {
  std::vector<Stretch> stretches;
  append_stretches(contract.bars, 0, 0, 30 * kMinute, 0, stretches);
  std::vector<Label> labels;
  for (const Stretch& stretch : stretches) {
    const auto value = [&](int64_t row) {
      return row <= stretch.begin ? 0.0
                                  : std::log(static_cast<double>(contract.bars[row].close) /
                                             static_cast<double>(contract.bars[row - 1].close));
    };
    for (int64_t row = stretch.begin; row + 1 < stretch.end; ++row)
      labels.push_back({value(row + 1), truth.at({contract.symbol, contract.bars[row].ts_event}).mean,
                        value(row), value(row - 1)});
  }
  return labels;
}

TEST(Synth, FilesAreCleanSessionsOfGlobex) {
  Folder folder;
  const SynthResult result = synthesize(options_in(folder.path() + "/made/here"));
  const std::vector<std::string> files = find_data_files(folder.path() + "/made/here");
  EXPECT_EQ(files, result.files);
  for (const std::string& path : files) EXPECT_TRUE(inspect_file(path).warnings.empty()) << path;
  const BarStore store = load_bars(files);
  EXPECT_EQ(store.report.bars_read, result.bars);
  EXPECT_TRUE(store.report.dropped.empty());
  EXPECT_TRUE(store.report.odd.empty());
  ASSERT_EQ(store.contracts.size(), 2u);
  EXPECT_EQ(store.contracts[0].symbol, "6EH4");
  EXPECT_EQ(store.contracts[1].symbol, "ESH4");
  for (const Contract& contract : store.contracts) {
    std::vector<Stretch> stretches;
    append_stretches(contract.bars, 0, 0, 30 * kMinute, 0, stretches);
    EXPECT_EQ(stretches.size(), 20u) << "one a trading day";
    for (const Stretch& stretch : stretches) {
      const SessionTime first = session_time(contract.bars[stretch.begin].ts_event);
      const SessionTime last = session_time(contract.bars[stretch.end - 1].ts_event);
      EXPECT_EQ(first.seconds_of_day, 0);
      EXPECT_LT(last.seconds_of_day, 23 * 3600);
      EXPECT_EQ(first.trading_day, last.trading_day);
      EXPECT_LE(first.day_of_week, 4);
      EXPECT_GT(stretch.end - stretch.begin, 1340);
      EXPECT_LT(stretch.end - stretch.begin, 1380) << "some minutes have no trade";
    }
    const int64_t tick = contract.symbol == "ESH4" ? 250'000'000 : 50'000;
    for (const Bar& bar : contract.bars)
      for (const int64_t price : {bar.open, bar.high, bar.low, bar.close}) ASSERT_EQ(price % tick, 0);
  }
}

TEST(Synth, SessionsFollowDaylightSaving) {
  // 60 trading days reach April: from 10 March on the session opens at 22:00 UTC.
  SynthOptions options = options_in("", Process::ar, 60);
  options.symbols = {"NQ"};
  const std::vector<SynthContract> contracts = simulate(options);
  EXPECT_EQ(contracts.at(0).symbol, "NQM4") << "outlives the last session";
  std::map<uint64_t, int> opens;
  for (const SynthBar& made : contracts[0].bars)
    if (session_time(made.bar.ts_event).seconds_of_day == 0)
      ++opens[made.bar.ts_event / 3'600'000'000'000 % 24];
  EXPECT_EQ(opens.size(), 2u);
  EXPECT_EQ(opens[23] + opens[22], 60);
  EXPECT_EQ(opens[23], 45) << "8 January to 8 March";
}

TEST(Synth, TruthIsARuleOnTheFilesOwnPrices) {
  Folder folder;
  const SynthResult result = synthesize(options_in(folder.path()));
  const auto truth = read_truth(result.truth);
  EXPECT_EQ(truth.size(), result.bars);
  for (const Contract& contract : load_bars(result.files).contracts) {
    for (const Bar& bar : contract.bars) {
      const Truth& row = truth.at({contract.symbol, bar.ts_event});
      ASSERT_EQ(row.close, format_price(bar.close));
      ASSERT_EQ(row.instrument_id, contract.instrument_id);
    }
    for (const Label& label : labels_of(contract, truth))
      ASSERT_NEAR(label.mean, 0.6 * label.last - 0.6 * label.before, 1e-12);
  }
}

TEST(Synth, TheTruthIsTheConditionalMean) {
  // The residual has no mean and no slope on what was known, so nothing better can be said of the next
  // return.
  Folder folder;
  const SynthResult result = synthesize(options_in(folder.path(), Process::ar, 60));
  const auto truth = read_truth(result.truth);
  for (const Contract& contract : load_bars(result.files).contracts) {
    double zero = 0, oracle = 0, mean = 0, on_mean = 0, on_last = 0, means = 0, lasts = 0;
    const std::vector<Label> labels = labels_of(contract, truth);
    const double count = static_cast<double>(labels.size());
    for (const Label& label : labels) {
      const double rest = label.value - label.mean;
      zero += label.value * label.value;
      oracle += rest * rest;
      mean += rest;
      on_mean += rest * label.mean;
      means += label.mean * label.mean;
      on_last += rest * label.last;
      lasts += label.last * label.last;
    }
    const double deviation = std::sqrt(oracle / count);
    EXPECT_GT(count, 80'000);
    EXPECT_LE(oracle / zero, 0.6) << contract.symbol;
    EXPECT_GE(oracle / zero, 0.5) << contract.symbol;
    EXPECT_LT(std::abs(mean / count), 4 * deviation / std::sqrt(count));
    EXPECT_LT(std::abs(on_mean / means), 4 * deviation / std::sqrt(means));
    EXPECT_LT(std::abs(on_last / lasts), 4 * deviation / std::sqrt(lasts));
    const double tick = contract.symbol.starts_with("ES") ? 0.25e9 : 5e4;
    EXPECT_LT(tick / static_cast<double>(contract.bars[0].close) / std::sqrt(12.0), 0.05 * deviation)
        << "rounding noise";
  }
}

TEST(Synth, ARandomWalkKnowsNothing) {
  Folder folder;
  const SynthResult result = synthesize(options_in(folder.path(), Process::random_walk, 60));
  const auto truth = read_truth(result.truth);
  for (const auto& [key, row] : truth) ASSERT_EQ(row.mean, 0);
  for (const Contract& contract : load_bars(result.files).contracts) {
    double squares = 0, products = 0, sum = 0;
    const std::vector<Label> labels = labels_of(contract, truth);
    for (const Label& label : labels) {
      squares += label.value * label.value;
      products += label.value * label.last;
      sum += label.value;
    }
    const double count = static_cast<double>(labels.size());
    EXPECT_LT(std::abs(products / squares), 4 / std::sqrt(count));
    EXPECT_LT(std::abs(sum), 4 * std::sqrt(squares));
  }
}

TEST(Synth, AFunctionOfTheSeed) {
  Folder a, b, c;
  const SynthResult one = synthesize(options_in(a.path(), Process::ar, 3)),
                    two = synthesize(options_in(b.path(), Process::ar, 3));
  const SynthResult other = synthesize(options_in(c.path(), Process::ar, 3, 8));
  const auto content = [](const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(in)), {});
  };
  ASSERT_EQ(one.files.size(), two.files.size());
  for (size_t i = 0; i < one.files.size(); ++i) EXPECT_EQ(content(one.files[i]), content(two.files[i]));
  EXPECT_EQ(content(one.truth), content(two.truth));
  EXPECT_NE(content(one.truth), content(other.truth));
  EXPECT_EQ(load_bars(one.files).fingerprint(), "e40cc234142c816f") << "the same on every machine";
  // A contract does not depend on its company.
  SynthOptions alone = options_in("", Process::ar, 3);
  alone.symbols = {"6E"};
  SynthOptions both = alone;
  both.symbols = {"ES", "6E"};
  const std::vector<SynthBar> first = simulate(alone).at(0).bars, second = simulate(both).at(1).bars;
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i) ASSERT_EQ(first[i].bar, second[i].bar);
}

TEST(Synth, DoesNotMixWithOtherFiles) {
  Folder folder;
  synthesize(options_in(folder.path(), Process::ar, 3));
  EXPECT_NO_THROW(synthesize(options_in(folder.path(), Process::ar, 3, 8)))
      << "the same days are written over";
  EXPECT_TRUE(fails([&] { synthesize(options_in(folder.path(), Process::ar, 2)); }, Code::invalid_argument,
                    {"synth-20240110.ohlcv-1m.dbn.zst", "is there already"}));
}

TEST(Synth, WrongOptions) {
  const auto refused = [](auto change) {
    SynthOptions options = options_in("/dev/null/folder", Process::ar, 1);
    change(options);
    return caught([&] { synthesize(options); });
  };
  EXPECT_EQ(refused([](SynthOptions&) {}).code, Code::io);
  for (const int days : {0, -1, 100'000})
    EXPECT_TRUE(
        says(refused([&](SynthOptions& o) { o.days = days; }).message, {"days is " + std::to_string(days)}));
  for (const char* symbol : {"", "es", "ES/..", "ABCDEFGHIJK"})
    EXPECT_EQ(refused([&](SynthOptions& o) { o.symbols = {symbol}; }).code, Code::invalid_argument) << symbol;
  EXPECT_TRUE(says(refused([](SynthOptions& o) {
                     o.symbols = {"ES", "ES"};
                   }).message,
                   {"'ES' stands twice"}));
  EXPECT_EQ(refused([](SynthOptions& o) { o.symbols = {}; }).code, Code::invalid_argument);
  EXPECT_EQ(refused([](SynthOptions& o) { o.out = ""; }).code, Code::invalid_argument);
  EXPECT_EQ(caught([] { process_from_name("arma"); }).code, Code::invalid_argument);
}

}  // namespace
}  // namespace scantape::market::testing
