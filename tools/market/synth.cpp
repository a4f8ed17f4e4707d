#include "market/synth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "market/counter_rng.h"
#include "market/dbn_writer.h"
#include "market/session_time.h"
#include "scantape/error.h"

namespace scantape::market {
namespace {

constexpr double kPhi1 = 0.6;
constexpr double kPhi2 = -0.6;
constexpr int kSessionMinutes = 23 * 60;
constexpr int kMaxDays = 5'000;

struct RootInfo {
  const char* root;
  int64_t tick;   // 1e-9
  int64_t price;  // to start from
  double volume;  // of a typical minute
};

constexpr RootInfo kRoots[] = {
    {"ES", 250'000'000, 4'800'000'000'000, 900}, {"NQ", 250'000'000, 16'800'000'000'000, 400},
    {"6E", 50'000, 1'090'000'000, 150},          {"ZN", 15'625'000, 111'000'000'000, 1'000},
    {"CL", 10'000'000, 72'000'000'000, 250},     {"GC", 100'000'000, 2'030'000'000'000, 180},
};
constexpr RootInfo kOtherRoot = {"", 10'000'000, 100'000'000'000, 100};

const RootInfo& info_of(const std::string& root) {
  for (const RootInfo& info : kRoots)
    if (root == info.root) return info;
  return kOtherRoot;
}

/// log(x), x > 0, to about one unit in the last place from basic operations alone, which round alike
/// everywhere.
double exact_log(double x) {
  int exponent;
  double m = std::frexp(x, &exponent);
  if (m < 0.70710678118654752) {
    m *= 2;
    --exponent;
  }
  // log m = 2 atanh(s) with |s| < 0.172: the term s^25 is below the rounding.
  const double s = (m - 1) / (m + 1), square = s * s;
  double sum = 0;
  for (int k = 23; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
  return 2 * s * sum + exponent * 0.69314718055994531;
}

/// exp(x) for |x| < 0.1.
double exact_exp(double x) {
  double sum = 1;
  for (int k = 12; k >= 1; --k) sum = 1 + x * sum / k;
  return sum;
}

/// Random numbers of one contract: uses name them by what they are for and by the minute they belong to.
class Random {
 public:
  Random(uint64_t seed, const std::string& symbol) : seed_(seed) {
    for (const char c : symbol) stream_ = stream_ * 257 + static_cast<unsigned char>(c);
  }

  enum Use : uint64_t { kNormal, kNoTrade, kHigh, kLow, kOpen, kVolume, kUses };
  double unit(Use use, uint64_t minute, uint64_t draw = 0) const {
    return random_unit(seed_, stream_ * kUses + use, minute << 8 | draw);
  }

  /// Normal, by the polar method: a point in the unit disc, drawn until it lies inside.
  double normal(uint64_t minute) const {
    for (uint64_t draw = 0;; draw += 2) {
      const double u = 2 * unit(kNormal, minute, draw) - 1, v = 2 * unit(kNormal, minute, draw + 1) - 1;
      const double square = u * u + v * v;
      // 254 misses in a row have a chance of 1e-84; 0 is as good as any value then.
      if (draw >= 254) return 0;
      if (square > 0 && square < 1) return u * std::sqrt(-2 * exact_log(square) / square);
    }
  }

  /// 0, 1, 2, ... with half the chance each time.
  int64_t ticks(Use use, uint64_t minute) const {
    int64_t count = 0;
    for (double x = unit(use, minute); x < 0.5 && count < 8; x *= 2) ++count;
    return count;
  }

 private:
  uint64_t seed_;
  uint64_t stream_ = 0;
};

/// Minutes of the wall clock that trade, as UTC stamps, one vector a trading day.
std::vector<std::vector<uint64_t>> sessions(int days) {
  std::vector<std::vector<uint64_t>> list;
  for (int64_t date = days_from_civil(2024, 1, 8); static_cast<int>(list.size()) < days; ++date) {
    if ((date + 3) % 7 >= 5) continue;  // Saturday, Sunday
    const int64_t open = chicago_to_utc(date - 1, 17 * 3'600);
    std::vector<uint64_t>& minutes = list.emplace_back();
    for (int64_t i = 0; i < kSessionMinutes; ++i)
      minutes.push_back(static_cast<uint64_t>(open + 60 * i) * static_cast<uint64_t>(kSecond));
  }
  return list;
}

/// The quarterly contract that outlives the last session: root, month letter, last digit of the year.
std::string contract_symbol(const std::string& root, uint64_t last) {
  const uint32_t date = utc_date(last);
  uint32_t year = date / 10'000, month = date / 100 % 100;
  if (date % 100 > 10) ++month;
  const uint32_t quarter = (month + 2) / 3;  // 1 to 5
  if (quarter > 4) ++year;
  return fmt::format("{}{}{}", root, "HMUZ"[(quarter - 1) % 4], year % 10);
}

/// One contract, bar after bar.
class Simulator {
 public:
  Simulator(const std::string& root, const SynthOptions& options, SynthContract& out)
      : info_(info_of(root)),
        random_(options.seed, root),
        phi1_(options.process == Process::ar ? kPhi1 : 0),
        phi2_(options.process == Process::ar ? kPhi2 : 0),
        noise_(std::max(4e-4, 8 * static_cast<double>(info_.tick) / static_cast<double>(info_.price))),
        close_(info_.price),
        out_(out) {}

  void session(const std::vector<uint64_t>& minutes) {
    bool first = true;
    for (const uint64_t ts : minutes) {
      if (!first && random_.unit(Random::kNoTrade, minute(ts)) < 0.01) continue;
      step(ts, first);
      first = false;
    }
    // Across the break the recursion starts anew, so nothing is known of the next close.
    out_.bars.back().conditional_mean = 0;
  }

 private:
  static uint64_t minute(uint64_t ts) { return ts / static_cast<uint64_t>(kMinute); }
  int64_t to_ticks(double price) const {
    return static_cast<int64_t>(std::floor(price / static_cast<double>(info_.tick) + 0.5)) * info_.tick;
  }

  void step(uint64_t ts, bool first) {
    const uint64_t now = minute(ts);
    const double known = first ? 0 : mean_;
    const int64_t before = close_;
    const double move = known + noise_ * random_.normal(now);
    close_ = std::max(info_.tick, to_ticks(static_cast<double>(before) * exact_exp(move)));
    previous_ = first ? 0 : last_;
    last_ = first ? 0 : exact_log(static_cast<double>(close_) / static_cast<double>(before));
    mean_ = phi1_ * last_ + phi2_ * previous_;

    SynthBar& made = out_.bars.emplace_back();
    made.conditional_mean = mean_;
    Bar& bar = made.bar;
    bar.ts_event = ts;
    bar.open = std::max(info_.tick,
                        (first ? close_ : before) + info_.tick * (random_.ticks(Random::kOpen, now) - 1));
    bar.close = close_;
    bar.high = std::max(bar.open, bar.close) + info_.tick * random_.ticks(Random::kHigh, now);
    bar.low =
        std::max(info_.tick, std::min(bar.open, bar.close) - info_.tick * random_.ticks(Random::kLow, now));
    // Busier around the middle of the session, and in minutes that move.
    const double place = static_cast<double>(session_time(ts).seconds_of_day) / 86'400;
    const double busy = 0.2 + 4 * place * (1 - place) + std::min(3.0, std::abs(move) / noise_);
    bar.volume =
        1 + static_cast<uint64_t>(info_.volume * busy * (0.25 + random_.unit(Random::kVolume, now)) / 2);
  }

  const RootInfo& info_;
  Random random_;
  double phi1_, phi2_;
  double noise_;
  int64_t close_;
  double last_ = 0, previous_ = 0;  // returns of the tick-rounded closes
  double mean_ = 0;
  SynthContract& out_;
};

void check(const SynthOptions& options) {
  if (options.days < 1 || options.days > kMaxDays)
    throw Error(Code::invalid_argument, fmt::format("days is {}; wants 1 to {}", options.days, kMaxDays));
  if (options.symbols.empty())
    throw Error(Code::invalid_argument, "symbols is empty; wants roots such as ES,6E");
  std::set<std::string> seen;
  for (const std::string& root : options.symbols) {
    const bool good = !root.empty() && root.size() <= 10 && std::all_of(root.begin(), root.end(), [](char c) {
      return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    });
    if (!good)
      throw Error(
          Code::invalid_argument,
          fmt::format(
              "symbol '{}' is not a root; wants up to ten capital letters and digits, such as ES or 6E",
              root));
    if (!seen.insert(root).second)
      throw Error(Code::invalid_argument, fmt::format("symbol '{}' stands twice", root));
  }
}

/// Bars that lie in the folder already and would stay would be read together with the new ones.
void check_no_others(const std::string& folder, const std::vector<std::string>& files) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string path = folder + "/" + entry.path().filename().string();
    if ((path.ends_with(".dbn") || path.ends_with(".dbn.zst")) &&
        std::find(files.begin(), files.end(), path) == files.end())
      throw Error(Code::invalid_argument, fmt::format("{}: is there already and not one of the files to be "
                                                      "made; wants a folder without other DBN files",
                                                      path));
  }
}

/// The bars of one UTC day, of all contracts, in time order.
using DayBars = std::vector<std::pair<const SynthContract*, const Bar*>>;

std::vector<uint8_t> day_file(const std::vector<SynthContract>& contracts, const DayBars& bars,
                              const SynthOptions& options) {
  const int64_t day = static_cast<int64_t>(bars.front().second->ts_event / static_cast<uint64_t>(kDay));
  Metadata metadata;
  metadata.version = 1;
  metadata.dataset = "SYNTH";
  metadata.schema = schema::kOhlcv1m;
  metadata.start = bars.front().second->ts_event;
  metadata.end = bars.back().second->ts_event + static_cast<uint64_t>(kMinute);
  metadata.stype_in = stype::kParent;
  for (const std::string& root : options.symbols) metadata.symbols.push_back(root + ".FUT");
  const uint32_t today = utc_date(static_cast<uint64_t>(day * kDay)),
                 tomorrow = utc_date(static_cast<uint64_t>((day + 1) * kDay));
  for (const SynthContract& contract : contracts)
    metadata.mappings.push_back(
        {contract.symbol, {{today, tomorrow, std::to_string(contract.instrument_id)}}});
  std::vector<uint8_t> records;
  for (const auto& [contract, bar] : bars) append_bar(records, *bar, contract->instrument_id);
  return encode_dbn(metadata, records, Compression::zstd);
}

std::string truth_text(const std::vector<SynthContract>& contracts) {
  std::string text = "ts_event,symbol,instrument_id,close,conditional_mean\n";
  for (const SynthContract& contract : contracts)
    for (const SynthBar& made : contract.bars)
      text += fmt::format("{},{},{},{},{}\n", made.bar.ts_event, contract.symbol, contract.instrument_id,
                          format_price(made.bar.close), made.conditional_mean);
  return text;
}

}  // namespace

const char* name(Process process) {
  return process == Process::ar ? "ar" : "random-walk";
}

Process process_from_name(const std::string& text) {
  for (const Process process : {Process::ar, Process::random_walk})
    if (text == name(process)) return process;
  throw Error(Code::invalid_argument,
              fmt::format("process '{}' is not known; wants ar or random-walk", text));
}

std::vector<SynthContract> simulate(const SynthOptions& options) {
  check(options);
  const std::vector<std::vector<uint64_t>> days = sessions(options.days);
  std::vector<SynthContract> contracts;
  for (size_t i = 0; i < options.symbols.size(); ++i) {
    SynthContract& contract = contracts.emplace_back();
    contract.symbol = contract_symbol(options.symbols[i], days.back().back());
    contract.instrument_id = static_cast<uint32_t>(1001 + i);
    Simulator simulator(options.symbols[i], options, contract);
    for (const std::vector<uint64_t>& minutes : days) simulator.session(minutes);
  }
  return contracts;
}

SynthResult synthesize(const SynthOptions& options) {
  if (options.out.empty()) throw Error(Code::invalid_argument, "out is empty; wants a folder to write to");
  const std::vector<SynthContract> contracts = simulate(options);
  std::error_code error;
  std::filesystem::create_directories(options.out, error);
  if (error) throw Error(Code::io, fmt::format("{}: cannot be made: {}", options.out, error.message()));
  std::map<uint32_t, DayBars> days;
  SynthResult result;
  for (const SynthContract& contract : contracts) {
    for (const SynthBar& made : contract.bars)
      days[utc_date(made.bar.ts_event)].push_back({&contract, &made.bar});
    result.bars += contract.bars.size();
  }
  for (const auto& [date, bars] : days)
    result.files.push_back(fmt::format("{}/synth-{}.ohlcv-1m.dbn.zst", options.out, date));
  check_no_others(options.out, result.files);
  size_t written = 0;
  for (auto& [date, bars] : days) {
    std::stable_sort(bars.begin(), bars.end(),
                     [](const auto& a, const auto& b) { return a.second->ts_event < b.second->ts_event; });
    write_file(result.files[written++], day_file(contracts, bars, options));
  }
  result.truth = options.out + "/truth.csv";
  const std::string text = truth_text(contracts);
  write_file(result.truth, std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
  return result;
}

}  // namespace scantape::market
