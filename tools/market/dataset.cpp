#include "market/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "market/inspect.h"
#include "scantape/error.h"

namespace scantape::market {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

[[noreturn]] void fail_usage(const std::string& text) {
  throw Error(Code::invalid_argument, text);
}
[[noreturn]] void fail_data(const std::string& text) {
  throw Error(Code::corrupt_data, text);
}

int64_t default_max_gap(Cadence cadence) {
  const int64_t interval = interval_ns(cadence);
  return interval <= kMinute ? 30 * kMinute : 4 * interval;
}

/// "ES.FUT" is the root ES; empty for any other text.
std::string root_of_parent(const std::string& symbol) {
  constexpr std::string_view kParent = ".FUT";
  return symbol.size() > kParent.size() && symbol.ends_with(kParent)
             ? symbol.substr(0, symbol.size() - kParent.size())
             : "";
}

/// True for the outrights of a root: it, one month letter and the year, e.g. ESZ3 or ESZ23.
bool is_outright_of(const std::string& symbol, const std::string& root) {
  if (!symbol.starts_with(root)) return false;
  const std::string rest = symbol.substr(root.size());
  return rest.size() >= 2 && rest.size() <= 3 &&
         std::string_view("FGHJKMNQUVXZ").find(rest[0]) != std::string_view::npos &&
         std::all_of(rest.begin() + 1, rest.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::optional<uint32_t> as_id(const std::string& text) {
  uint32_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return id;
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> items;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

std::string list_symbols(const std::vector<Contract>& contracts) {
  std::set<std::string> symbols;
  for (const Contract& contract : contracts) symbols.insert(contract.symbol);
  std::string text;
  size_t shown = 0;
  for (const std::string& symbol : symbols) {
    if (shown++ == 10) return text + fmt::format(" and {} more", symbols.size() - 10);
    text += (text.empty() ? "" : ", ") + symbol;
  }
  return text;
}

Int128 volume_before(const Contract& contract, uint64_t cut) {
  Int128 volume = 0;
  for (const Bar& bar : contract.bars)
    if (bar.ts_event < cut) volume += bar.volume;
  return volume;
}

std::vector<uint64_t> stamps_of(const Contract& contract) {
  std::vector<uint64_t> ts;
  for (const Bar& bar : contract.bars) ts.push_back(bar.ts_event);
  return ts;
}

void check(const DatasetOptions& options) {
  if (options.sequence_length < 1 || options.sequence_length > kMaxLength)
    fail_usage(fmt::format("--sequence-length is {}; wants 1 to {}", options.sequence_length, kMaxLength));
  if (options.stride < 0 || options.stride > kMaxLength)
    fail_usage(
        fmt::format("--stride is {}; wants 1 to {}, or 0 for the default", options.stride, kMaxLength));
  if (options.burn_in < -1 || options.burn_in >= options.sequence_length)
    fail_usage(fmt::format(
        "--burn-in is {}; wants 0 to {}, fewer than the sequence length, or -1 for a quarter of it",
        options.burn_in, options.sequence_length - 1));
  if (options.max_gap && *options.max_gap < 1)
    fail_usage("the longest gap inside a stretch has to be positive");
  int sum = 0;
  for (const int part : options.split) sum += part > 0 ? part : 1000;
  if (sum != 100 || options.split.size() < 2 || options.split.size() > 3)
    fail_usage("split wants two or three positive percentages that add up to 100");
}

/// True where all are finite.
bool finite(std::span<const double> values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

void check_scaler(const Scaler& scaler) {
  const size_t width = static_cast<size_t>(kFeatureCount);
  if (scaler.mean.size() != width || scaler.std.size() != width)
    fail_data(fmt::format("the model's scaler has {} means and {} deviations; wants {} each",
                          scaler.mean.size(), scaler.std.size(), width));
  if (!finite(scaler.mean)) fail_data("the model's scaler has a mean that is not finite");
  if (!finite(scaler.std) || *std::min_element(scaler.std.begin(), scaler.std.end()) < 0)
    fail_data("the model's scaler has a deviation that is negative or not finite");
  if (!(scaler.clip > 0) || !std::isfinite(scaler.clip))
    fail_data(fmt::format("the model's scaler has the clip {}; wants a finite number above 0", scaler.clip));
}

/// Times in a model's record: data_begin <= first cut < second cut <= data_end.
void check_times(const Fitted& fitted) {
  const std::vector<uint64_t>& cuts = fitted.cuts;
  if (cuts.empty() || cuts.size() > 2)
    fail_data(fmt::format("the model's record has {} cuts; wants 1 or 2", cuts.size()));
  if (cuts.size() == 2 && cuts[0] >= cuts[1])
    fail_data(fmt::format("the model's cuts {} and {} do not ascend", cuts[0], cuts[1]));
  if (fitted.data_begin > cuts[0])
    fail_data(
        fmt::format("the model's data_begin {} lies behind its first cut {}", fitted.data_begin, cuts[0]));
  if (fitted.data_end < cuts.back())
    fail_data(
        fmt::format("the model's data_end {} lies before its last cut {}", fitted.data_end, cuts.back()));
}

/// A checkpoint is a file, and no file is believed.
void check(const Fitted& fitted) {
  if (fitted.features.version != feature_schema().version)
    fail_data(
        fmt::format("the model was trained on version {} of the features, this program makes version {}",
                    fitted.features.version, feature_schema().version));
  if (fitted.features != feature_schema())
    fail_data("the model's features have other names or another order than those of their version");
  check_scaler(fitted.scaler);
  if (!(fitted.target_scale > 0) || !std::isfinite(fitted.target_scale))
    fail_data(
        fmt::format("the model's target_scale is {}; wants a finite number above 0", fitted.target_scale));
  if (fitted.sequence_length < 1 || fitted.sequence_length > kMaxLength)
    fail_data(
        fmt::format("the model's sequence_length is {}; wants 1 to {}", fitted.sequence_length, kMaxLength));
  if (fitted.burn_in < 0 || fitted.burn_in >= fitted.sequence_length)
    fail_data(fmt::format("the model's burn_in is {}; wants 0 to {}, fewer than its sequence_length",
                          fitted.burn_in, fitted.sequence_length - 1));
  if (fitted.max_gap < 1)
    fail_data(fmt::format("the model's max_gap is {} ns; wants more than 0", fitted.max_gap));
  if (fitted.symbol.empty()) fail_data("the model's symbol is missing");
  check_times(fitted);
}

/// What a text names among the contracts of a store: symbols, instrument ids and parents with commas between
/// them; where it is empty, all outrights.
class Choice {
 public:
  Choice(const BarStore& store, const std::string& text, std::optional<uint16_t> publisher);

  std::vector<const Contract*> contracts() const;
  /// Throws where an item names nothing.
  void check_found() const;
  /// Throws where bars without a symbol might be among those that are named.
  void check_mapped() const;

 private:
  struct Item {
    std::string text;
    bool is_symbol = false;      // of a contract
    std::optional<uint32_t> id;  // only where it is no symbol: a ticker may be a number
    std::string root;
  };
  static bool names(const Item& item, const Contract& contract);
  bool at_publisher(const Contract& contract) const {
    return !publisher_ || contract.publisher_id == *publisher_;
  }

  const BarStore& store_;
  std::optional<uint16_t> publisher_;
  std::vector<Item> items_;
  bool any_mapped_ = false;
};

Choice::Choice(const BarStore& store, const std::string& text, std::optional<uint16_t> publisher)
    : store_(store), publisher_(publisher) {
  const auto any = [&](auto test) {
    return std::any_of(store.contracts.begin(), store.contracts.end(), test);
  };
  any_mapped_ = any([](const Contract& contract) { return contract.mapped; });
  if (text.empty()) return;
  for (const std::string& item : split_list(text)) {
    const bool is_symbol =
        any([&](const Contract& contract) { return contract.mapped && contract.symbol == item; });
    items_.push_back({item, is_symbol, is_symbol ? std::nullopt : as_id(item), root_of_parent(item)});
  }
}

bool Choice::names(const Item& item, const Contract& contract) {
  if (item.is_symbol) return contract.mapped && contract.symbol == item.text;
  if (item.id) return contract.instrument_id == *item.id;
  return !item.root.empty() && is_outright_of(contract.symbol, item.root);
}

std::vector<const Contract*> Choice::contracts() const {
  std::vector<const Contract*> found;
  for (const Contract& contract : store_.contracts) {
    const bool named = items_.empty() ? contract.outright() && (contract.mapped || !any_mapped_)
                                      : std::any_of(items_.begin(), items_.end(),
                                                    [&](const Item& item) { return names(item, contract); });
    if (named && at_publisher(contract)) found.push_back(&contract);
  }
  return found;
}

void Choice::check_found() const {
  for (const Item& item : items_) {
    bool found = false;
    std::set<uint16_t> publishers;
    for (const Contract& contract : store_.contracts) {
      if (!names(item, contract)) continue;
      publishers.insert(contract.publisher_id);
      found = found || at_publisher(contract);
    }
    if (publishers.empty())
      fail_usage(fmt::format("symbol '{}' is not in the data; there are {}", item.text,
                             list_symbols(store_.contracts)));
    if (found) continue;
    std::string list;
    for (const uint16_t publisher : publishers)
      list += (list.empty() ? "" : ", ") + std::to_string(publisher);
    fail_usage(fmt::format("symbol '{}' has no bars of publisher {}; it has bars of {}", item.text,
                           *publisher_, list));
  }
}

void Choice::check_mapped() const {
  const BarCount& unmapped = store_.report.unmapped;
  for (const Item& item : items_)
    if (!item.id && unmapped.count > 0)
      fail_data(fmt::format(
          "{} bars belong to instruments in no symbol mapping for their date, so '{}' cannot be picked "
          "safely; the first is {}. Name an instrument id instead",
          unmapped.count, item.text, unmapped.first));
}

/// Contracts that `symbol` names, else all outrights.
std::vector<const Contract*> find_candidates(const BarStore& store, const std::string& symbol,
                                             std::optional<uint16_t> publisher) {
  return Choice(store, symbol, publisher).contracts();
}

/// `asked_for`: by the user, now, as opposed to chosen in training.
void check_symbols(const BarStore& store, const std::string& symbol, std::optional<uint16_t> publisher,
                   bool asked_for) {
  const Choice choice(store, symbol, publisher);
  choice.check_found();
  if (asked_for) choice.check_mapped();
}

}  // namespace

const char* name(Target target) {
  return target == Target::seq_return ? "seq_return" : "next_return";
}

Target target_from_name(const std::string& text) {
  for (const Target target : {Target::seq_return, Target::next_return})
    if (text == name(target)) return target;
  throw Error(Code::invalid_argument,
              fmt::format("target '{}' is not known; wants seq_return or next_return", text));
}

const char* name(Part part) {
  switch (part) {
    case Part::before:
      return "before";
    case Part::train:
      return "train";
    case Part::validation:
      return "val";
    case Part::test:
      return "test";
    case Part::fresh:
      return "new";
  }
  return "";
}

Dataset::Dataset(BarStore store, const DatasetOptions& options) {
  check(options);
  check_symbols(store, options.symbol, options.publisher, true);
  fitted_.features = feature_schema();
  fitted_.target = options.target;
  fitted_.sequence_length = options.sequence_length;
  fitted_.burn_in = options.target == Target::next_return ? options.sequence_length - 1
                    : options.burn_in >= 0                ? options.burn_in
                                                          : options.sequence_length / 4;
  fitted_.max_gap = options.max_gap.value_or(default_max_gap(store.cadence));
  fitted_.keep_warm_up = options.keep_warm_up;
  fitted_.cadence = store.cadence;
  stride_ = options.stride;
  plan_.stride = options.stride > 0 ? options.stride : 1;
  plan_.fingerprint = store.fingerprint();
  fitted_.publisher = options.publisher;
  choose(store, options);
  take_contracts(store);
  make_columns();
  const auto [first, last] = std::minmax_element(ts_.begin(), ts_.end());
  fitted_.data_begin = *first;
  fitted_.data_end = *last + 1;
  report();
  check_trainable();
  fit();
  make_targets();
}

Dataset::Dataset(BarStore store, const Fitted& fitted, const std::string& symbol) : fitted_(fitted) {
  check(fitted);
  if (fitted.cadence != store.cadence)
    fail_data(fmt::format("the model was trained on bars of {}, the data has bars of {}",
                          market::name(fitted.cadence), market::name(store.cadence)));
  if (!symbol.empty()) fitted_.symbol = symbol;
  check_symbols(store, fitted_.symbol, fitted_.publisher, !symbol.empty());
  whole_cuts_ = fitted_.cuts;
  plan_.stride = 1;
  plan_.fingerprint = store.fingerprint();
  plan_.symbol_reason = symbol.empty() ? "as the model was trained" : "as asked for";
  take_contracts(store);
  make_columns();
  report();
  fitted_.scaler.apply(features_);
  make_targets();
}

/// Steps 1 to 3: candidates, one cut for all of them, and the symbol.
void Dataset::choose(const BarStore& store, const DatasetOptions& options) {
  const std::vector<const Contract*> candidates = find_candidates(store, options.symbol, options.publisher);
  if (candidates.empty())
    fail_usage(fmt::format("there is no outright to choose from{}; name one with --symbol: {}",
                           options.publisher ? fmt::format(" at publisher {}", *options.publisher) : "",
                           list_symbols(store.contracts)));
  const int64_t warm_up = options.keep_warm_up ? 0 : kWarmUpBars;
  std::vector<uint64_t> starts, whole_starts;
  for (const Contract* contract : candidates) {
    std::vector<Stretch> stretches;
    append_stretches(contract->bars, 0, 0, fitted_.max_gap, warm_up, stretches);
    for (const bool whole : {false, true}) {
      const std::vector<uint64_t> more =
          window_starts(stretches, stamps_of(*contract), options.sequence_length, plan_.stride, whole);
      std::vector<uint64_t>& all = whole ? whole_starts : starts;
      all.insert(all.end(), more.begin(), more.end());
    }
  }
  if (starts.empty())
    fail_data(fmt::format(
        "no stretch of bars is long enough: a window takes {} bars and its label's bar without a gap of more "
        "than {:.12g} minutes{}; wants more data, or a shorter --sequence-length",
        options.sequence_length, static_cast<double>(fitted_.max_gap) / static_cast<double>(kMinute),
        warm_up ? fmt::format(", behind the {} bars that features take to warm up", warm_up) : ""));
  fitted_.cuts = cut_times(starts, options.split);
  whole_cuts_ = cut_times(whole_starts, options.split);
  std::map<std::string, Int128> volume;
  for (const Contract* contract : candidates)
    volume[contract->symbol] += volume_before(*contract, fitted_.cuts[0]);
  if (!options.symbol.empty()) {
    fitted_.symbol = options.symbol;
    plan_.symbol_reason = "as asked for";
  } else {
    const auto most = std::max_element(volume.begin(), volume.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    fitted_.symbol = most->first;
    plan_.symbol_reason = fmt::format("the most volume before {} among {} outrights: {}",
                                      format_time(fitted_.cuts[0]), volume.size(), to_decimal(most->second));
  }
}

/// Keeps the chosen contracts and reports on all.
void Dataset::take_contracts(BarStore& store) {
  const std::vector<const Contract*> found = find_candidates(store, fitted_.symbol, fitted_.publisher);
  const std::set<const Contract*> chosen(found.begin(), found.end());
  for (Contract& contract : store.contracts) {
    if (contract.bars.empty()) continue;
    const bool take = chosen.contains(&contract);
    plan_.contracts.push_back({contract.symbol, contract.instrument_id, contract.publisher_id,
                               contract.bars.size(), contract.bars.front().ts_event,
                               contract.bars.back().ts_event, take,
                               to_decimal(volume_before(contract, fitted_.cuts[0]))});
    if (take) contracts_.push_back(std::move(contract));
  }
  plan_.load = std::move(store.report);
  plan_.cadence = store.cadence;
  check_publishers();
}

void Dataset::check_publishers() const {
  for (size_t i = 1; i < contracts_.size(); ++i) {
    const Contract &a = contracts_[i - 1], &b = contracts_[i];
    if (a.symbol == b.symbol && a.instrument_id == b.instrument_id)
      fail_data(fmt::format(
          "'{}' (instrument {}) has bars of publishers {} and {}; choose one of them with --publisher",
          a.symbol, a.instrument_id, a.publisher_id, b.publisher_id));
  }
}

void Dataset::make_columns() {
  for (size_t index = 0; index < contracts_.size(); ++index) {
    std::vector<Bar>& bars = contracts_[index].bars;
    const int64_t first_row = rows();
    append_stretches(bars, static_cast<int64_t>(index), first_row, fitted_.max_gap,
                     fitted_.keep_warm_up ? 0 : kWarmUpBars, stretches_);
    const std::vector<float> rows = compute_features(bars, fitted_.max_gap);
    features_.insert(features_.end(), rows.begin(), rows.end());
    for (const Bar& bar : bars) {
      ts_.push_back(bar.ts_event);
      close_.push_back(bar.close);
      contract_index_.push_back(static_cast<int32_t>(index));
    }
    bars = {};
  }
  log_return_.assign(ts_.size(), kNaN);
  mask_.assign(ts_.size(), 0);
  for (const Stretch& stretch : stretches_) {
    for (int64_t row = stretch.begin; row + 1 < stretch.end; ++row) {
      const LogRatio ratio = log_ratio(close_[row + 1], close_[row]);
      if (ratio.missing) {
        ++plan_.missing_labels;
      } else {
        log_return_[row] = ratio.value;
        mask_[row] = 1;
      }
    }
  }
}

/// Step 4: scaler and target scale over the rows whose label lies before the cut.
void Dataset::fit() {
  std::vector<uint8_t> keep(ts_.size(), 0);
  double squares = 0, count = 0;
  for (const Stretch& stretch : stretches_) {
    const RowRange rows = rows_in(stretch, ts_, range(Part::train));
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      keep[row] = 1;
      if (std::isnan(log_return_[row])) continue;
      squares += log_return_[row] * log_return_[row];
      ++count;
    }
  }
  fitted_.scaler = fit_scaler(features_, keep, kFeatureCount);
  fitted_.scaler.apply(features_);
  fitted_.target_scale = count > 0 ? std::sqrt(squares / count) : 0;
  if (!(fitted_.target_scale > 0))
    fail_data(fmt::format(
        "the training part of '{}' has no return other than 0 ({} labels); there is nothing to learn",
        fitted_.symbol, count));
}

void Dataset::make_targets() {
  plan_.target_scale = fitted_.target_scale;
  targets_.resize(ts_.size());
  for (size_t row = 0; row < ts_.size(); ++row)
    targets_[row] = static_cast<float>(log_return_[row] / fitted_.target_scale);
}

WindowCounts Dataset::count(std::span<const uint64_t> cuts, bool whole) const {
  TimeRange parts[std::size(kParts)];
  for (size_t i = 0; i < std::size(kParts); ++i) parts[i] = range(kParts[i], cuts);
  return count_windows(stretches_, ts_, sequence_length(), plan_.stride, parts, whole);
}

void Dataset::report() {
  plan_.symbol = fitted_.symbol;
  plan_.bars = rows();
  plan_.stretches = static_cast<int64_t>(stretches_.size());
  for (const Stretch& stretch : stretches_) plan_.warm_up_bars += stretch.usable - stretch.begin;
  plan_.sequence_length = sequence_length();
  plan_.cuts = fitted_.cuts;
  plan_.counts = count(fitted_.cuts, false);
  plan_.counts_with_warm_up = count(whole_cuts_, true);
  const std::vector<Window> validation = validation_windows();
  plan_.windows_per_epoch = static_cast<int64_t>(training_windows(0, 0).size());
  plan_.validation_windows = static_cast<int64_t>(validation.size());
  plan_.validation_positions = scored_positions(validation);
}

void Dataset::check_trainable() const {
  const char* part = plan_.windows_per_epoch == 0      ? "training"
                     : plan_.validation_positions == 0 ? "validation"
                                                       : nullptr;
  if (!part) return;
  fail_data(
      fmt::format("too few bars: the {} part of '{}' has no stretch of {} bars and a label (the cut is at "
                  "{}); wants more data, "
                  "another --symbol or a shorter --sequence-length",
                  part, fitted_.symbol, sequence_length(), format_time(fitted_.cuts[0])));
}

TimeRange Dataset::range(Part part, std::span<const uint64_t> cuts) const {
  const uint64_t end = fitted_.data_end;
  switch (part) {
    case Part::before:
      return {0, fitted_.data_begin};
    case Part::train:
      return {fitted_.data_begin, cuts[0]};
    case Part::validation:
      return {cuts[0], cuts.size() > 1 ? cuts[1] : end};
    case Part::test:
      return cuts.size() > 1 ? TimeRange{cuts[1], end} : TimeRange{0, 0};
    case Part::fresh:
      return {end, TimeRange().end};
  }
  return {0, 0};
}

Part Dataset::part_of(uint64_t ts) const {
  for (const Part part : {Part::before, Part::train, Part::validation, Part::test})
    if (const TimeRange time = range(part); ts >= time.begin && ts < time.end) return part;
  return Part::fresh;
}

std::vector<Window> Dataset::training_windows(uint64_t epoch, uint64_t seed) const {
  const int64_t fixed = stride_ > 0 ? stride_ : fitted_.target == Target::next_return ? 1 : 0;
  const TimeRange part = range(Part::train);
  std::vector<Window> windows = fixed > 0
                                    ? strided_windows(stretches_, ts_, sequence_length(), fixed, part)
                                    : tiled_windows(stretches_, ts_, sequence_length(), part, seed, epoch);
  if (fitted_.target == Target::next_return)
    for (Window& window : windows) window.score_begin = sequence_length() - 1;
  shuffle(windows, seed, epoch);
  return windows;
}

std::vector<Window> Dataset::scoring_windows(Part part) const {
  return market::scoring_windows(stretches_, ts_, sequence_length(), fitted_.burn_in, range(part));
}

int64_t Dataset::scored_positions(std::span<const Window> windows) const {
  int64_t count = 0;
  for (const Window& window : windows)
    for (int64_t i = window.score_begin; i < window.score_end; ++i)
      count += mask_[window.first_bar + i] > 0 ? 1 : 0;
  return count;
}

void Dataset::gather(std::span<const Window> windows, std::span<float> x, std::span<float> target,
                     std::span<float> mask) const {
  const int64_t batch = static_cast<int64_t>(windows.size()), length = sequence_length();
  const auto wants = [](const char* what, size_t got, int64_t size, const char* shape) {
    if (static_cast<int64_t>(got) != size)
      fail_usage(fmt::format("gather: {} has {} elements, wants {} = {}", what, got, size, shape));
  };
  wants("x", x.size(), batch * length * kFeatureCount, "B * L * F");
  wants("target", target.size(), batch * length, "B * L");
  wants("mask", mask.size(), batch * length, "B * L");
  for (int64_t b = 0; b < batch; ++b) {
    const Window& window = windows[b];
    if (window.first_bar < 0 || window.first_bar + length > rows())
      fail_usage(fmt::format("gather: window {} starts at row {}; there are {} rows and it takes {}", b,
                             window.first_bar, rows(), length));
    std::copy_n(features_.begin() + window.first_bar * kFeatureCount, length * kFeatureCount,
                x.begin() + b * length * kFeatureCount);
    for (int64_t i = 0; i < length; ++i) {
      const int64_t row = window.first_bar + i;
      const bool counts = i >= window.score_begin && i < window.score_end && mask_[row] > 0;
      target[b * length + i] = counts ? targets_[row] : 0.0f;
      mask[b * length + i] = counts ? 1.0f : 0.0f;
    }
  }
}

}  // namespace scantape::market
