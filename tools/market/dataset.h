#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "market/bars.h"
#include "market/features.h"
#include "market/windows.h"

namespace scantape::market {

/// What a window is trained on: the next bar's return at each of its positions, or at its last one only.
enum class Target { seq_return, next_return };
const char* name(Target target);
Target target_from_name(const std::string& text);  // throws invalid_argument

/// The parts in time order. `before` and `fresh` are what came before and after the data that a model was
/// trained with (the latter "new" in reports).
enum class Part { before, train, validation, test, fresh };
inline constexpr Part kParts[] = {Part::before, Part::train, Part::validation, Part::test, Part::fresh};
const char* name(Part part);

struct DatasetOptions {
  int64_t sequence_length = 60;
  Target target = Target::seq_return;
  int64_t stride =
      0;  // of training windows; 0: the sequence length with a random phase (seq_return), 1 (next_return)
  int64_t burn_in = -1;  // positions of a window that validation does not score (seq_return); -1: a quarter
  std::vector<int> split = {80, 20};
  /// A symbol of the files (ESZ3), several with commas, an instrument id, or a parent (ES.FUT: the outrights
  /// of a root). A number is an id only where no contract has it for a symbol. Empty: the outright with the
  /// most volume in the training part. Bars without a symbol are not asked then, unless none has one; a
  /// symbol that is asked for is refused where there are any, since they might be its own.
  std::string symbol;
  std::optional<uint16_t> publisher;
  /// The longest step between two bars of a stretch, in ns. Unset: 30 minutes, and four intervals of slower
  /// bars.
  std::optional<int64_t> max_gap;
  /// Use the bars whose rolling features are not whole yet, too.
  bool keep_warm_up = false;
};

/// No gap ends a stretch.
inline constexpr int64_t kNoBreaks = INT64_MAX;

/// What was learnt from the training part, and what has to hold again where a model meets other bars. A
/// checkpoint stores it whole.
struct Fitted {
  FeatureSchema features;
  Scaler scaler;
  double target_scale = 0;  // log return that counts as 1
  Target target = Target::seq_return;
  int64_t sequence_length = 0;
  int64_t burn_in = 0;
  int64_t max_gap = 0;
  bool keep_warm_up = false;
  Cadence cadence = Cadence::minute;
  std::string symbol;  // as chosen; several with commas
  std::optional<uint16_t> publisher;
  std::vector<uint64_t> cuts;  // where validation begins, and test where there is one
  uint64_t data_begin = 0;     // bars before this one are no part of training
  uint64_t data_end = 0;       // bars from here on are new
};

struct ContractReport {
  std::string symbol;
  uint32_t instrument_id = 0;
  uint16_t publisher_id = 0;
  uint64_t bars = 0;
  uint64_t first_ts = 0;
  uint64_t last_ts = 0;
  bool chosen = false;
  std::string training_volume;  // before the first cut, in decimal
};

/// What a training run is going to do with the bars: the content of `--dry-run` and the front of a log.
struct Plan {
  LoadReport load;
  Cadence cadence = Cadence::minute;
  std::string symbol;
  std::string symbol_reason;
  std::vector<ContractReport> contracts;  // all that were read
  int64_t bars = 0;                       // of the chosen contracts
  int64_t stretches = 0;                  // of the chosen contracts, warm-up and short ones among them
  int64_t warm_up_bars = 0;               // not used, because rolling features are not whole
  int64_t missing_labels = 0;             // inside stretches, where a price is not positive
  int64_t sequence_length = 0;
  int64_t stride = 0;                // at which `counts` counts
  WindowCounts counts;               // of usable bars
  WindowCounts counts_with_warm_up;  // had no warm-up been dropped
  std::vector<uint64_t> cuts;
  int64_t windows_per_epoch = 0;   // training windows of one epoch
  int64_t validation_windows = 0;  // scoring windows, and the positions they score
  int64_t validation_positions = 0;
  double target_scale = 0;
  std::string fingerprint;
};

/// Bars of one or several contracts, ready for a trainer: scaled features, targets and the windows over them.
///
/// Rows count bars of the chosen contracts, one contract behind the other; a window never leaves a stretch.
/// The order of decisions, none of which looks at a bar from the cut on:
///   1. candidates: the contracts that `symbol` names, else all outrights that have a symbol;
///   2. stretches and windows of all candidates (stride 1 unless fixed), hence one cut time for all of them;
///   3. without `symbol`: the one with the most volume in bars before the cut;
///   4. scaler and target scale from rows whose label's stamp lies before the cut.
/// Given a Fitted state, 2 to 4 are taken from it.
///
/// Threads: every const member is reentrant.
class Dataset {
 public:
  /// Throws invalid_argument for options and symbols that do not fit, corrupt_data where the bars are too
  /// few.
  explicit Dataset(BarStore store, const DatasetOptions& options = {});
  /// For a trained model: its own scaler, scale, cuts and symbol (unless `symbol` asks for one). Bars without
  /// a symbol are left out beside the model's own symbol, as they were when it was chosen.
  Dataset(BarStore store, const Fitted& fitted, const std::string& symbol = "");

  int64_t rows() const { return static_cast<int64_t>(ts_.size()); }
  int64_t feature_count() const { return kFeatureCount; }
  int64_t sequence_length() const { return fitted_.sequence_length; }

  /// Scaled features, [rows, feature_count].
  std::span<const float> features() const { return features_; }
  /// Label of a row: log return to the next bar over the target scale; NaN where it is missing.
  std::span<const float> targets() const { return targets_; }
  /// 1 where a label is there, else 0.
  std::span<const float> mask() const { return mask_; }
  std::span<const uint64_t> ts_event() const { return ts_; }
  std::span<const int64_t> close() const { return close_; }
  std::span<const int32_t> contract_index() const { return contract_index_; }
  const std::vector<Contract>& contracts() const {
    return contracts_;
  }  // the chosen ones; their bars are not kept
  const std::vector<Stretch>& stretches() const { return stretches_; }
  int64_t interval() const { return interval_ns(fitted_.cadence); }

  const Fitted& fitted() const { return fitted_; }
  const Plan& plan() const { return plan_; }

  /// Where a part lies in time.
  TimeRange range(Part part) const { return range(part, fitted_.cuts); }
  /// The part a bar's stamp lies in; a label across a cut belongs to no part's windows all the same.
  Part part_of(uint64_t ts) const;

  /// The training windows of an epoch, shuffled; a function of (seed, epoch) alone.
  std::vector<Window> training_windows(uint64_t epoch, uint64_t seed) const;
  /// Windows in time order that score each row of a part once (behind the burn-in of each stretch).
  std::vector<Window> scoring_windows(Part part) const;
  std::vector<Window> validation_windows() const { return scoring_windows(Part::validation); }
  /// Rows that windows score and that have a label.
  int64_t scored_positions(std::span<const Window> windows) const;

  /// A batch: x [B, L, F], target [B, L], mask [B, L], row-major. The mask is 1 where the window scores the
  /// position and its label is there; target is 0 where the mask is.
  void gather(std::span<const Window> windows, std::span<float> x, std::span<float> target,
              std::span<float> mask) const;

 private:
  TimeRange range(Part part, std::span<const uint64_t> cuts) const;
  WindowCounts count(std::span<const uint64_t> cuts, bool whole) const;
  void choose(const BarStore& store, const DatasetOptions& options);
  void take_contracts(BarStore& store);
  void make_columns();
  void make_targets();
  void fit();
  void report();
  void check_trainable() const;
  void check_publishers() const;

  Fitted fitted_;
  Plan plan_;
  int64_t stride_ = 0;
  std::vector<uint64_t> whole_cuts_;  // the cuts, had no warm-up been dropped
  std::vector<Contract> contracts_;
  std::vector<Stretch> stretches_;
  std::vector<float> features_;
  std::vector<float> targets_;
  std::vector<float> mask_;
  std::vector<double> log_return_;  // to the next bar; NaN where missing
  std::vector<uint64_t> ts_;
  std::vector<int64_t> close_;
  std::vector<int32_t> contract_index_;
};

}  // namespace scantape::market
