#include "pairwise.h"

#include <stdexcept>
#include <string>

#include "rng.h"

namespace scantape::cases {
namespace {

/// Which pairs of values no row holds yet.
class OpenPairs {
 public:
  explicit OpenPairs(const std::vector<int>& sizes) : sizes_(sizes) {
    for (const int size : sizes) {
      offsets_.push_back(total_);
      total_ += size;
    }
    open_.assign(static_cast<std::size_t>(total_) * static_cast<std::size_t>(total_), false);
    for (int a = 0; a < axes(); ++a)
      for (int b = a + 1; b < axes(); ++b)
        for (int i = 0; i < sizes[static_cast<std::size_t>(a)]; ++i)
          for (int j = 0; j < sizes[static_cast<std::size_t>(b)]; ++j) open_[at(a, i, b, j)] = true;
  }

  int axes() const { return static_cast<int>(sizes_.size()); }
  bool open(int a, int i, int b, int j) const {
    return a < b ? open_[at(a, i, b, j)] : open_[at(b, j, a, i)];
  }
  void close(const PairwiseRow& row) {
    for (int a = 0; a < axes(); ++a)
      for (int b = a + 1; b < axes(); ++b)
        open_[at(a, row[static_cast<std::size_t>(a)], b, row[static_cast<std::size_t>(b)])] = false;
  }

 private:
  std::size_t at(int a, int i, int b, int j) const {
    const int row = offsets_[static_cast<std::size_t>(a)] + i,
              column = offsets_[static_cast<std::size_t>(b)] + j;
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(total_) +
           static_cast<std::size_t>(column);
  }

  std::vector<int> sizes_, offsets_;
  int total_ = 0;
  std::vector<bool> open_;
};

/// How many open pairs the value closes together with the values chosen already (-1: not chosen).
int gain(const OpenPairs& pairs, const PairwiseRow& row, int axis, int value) {
  int count = 0;
  for (int other = 0; other < pairs.axes(); ++other) {
    const int chosen = row[static_cast<std::size_t>(other)];
    if (other != axis && chosen >= 0 && pairs.open(axis, value, other, chosen)) ++count;
  }
  return count;
}

bool fits(PairwiseRow row, const std::function<bool(const PairwiseRow&)>& allowed) {
  if (!allowed) return true;
  for (int& value : row)
    if (value < 0) value = 0;
  return allowed(row);
}

}  // namespace

std::vector<PairwiseRow> pairwise(const std::vector<int>& sizes,
                                  const std::function<bool(const PairwiseRow&)>& allowed,
                                  std::uint64_t seed) {
  OpenPairs pairs(sizes);
  Rng rng(seed);
  std::vector<PairwiseRow> rows;

  const auto complete = [&](PairwiseRow row) {
    for (int axis = 0; axis < pairs.axes(); ++axis) {
      int& chosen = row[static_cast<std::size_t>(axis)];
      if (chosen >= 0) continue;
      const int size = sizes[static_cast<std::size_t>(axis)];
      const int first = static_cast<int>(rng.below(size));  // ties fall on another value each time
      int best = -1, best_gain = -1;
      for (int step = 0; step < size; ++step) {
        const int value = (first + step) % size;
        const int value_gain = gain(pairs, row, axis, value);
        if (value_gain <= best_gain) continue;
        PairwiseRow candidate = row;
        candidate[static_cast<std::size_t>(axis)] = value;
        if (!fits(candidate, allowed)) continue;
        best = value;
        best_gain = value_gain;
      }
      chosen = best;  // exists: the cheapest value fits, since the row as it stood did
    }
    return row;
  };

  for (int a = 0; a < pairs.axes(); ++a)
    for (int b = a + 1; b < pairs.axes(); ++b)
      for (int i = 0; i < sizes[static_cast<std::size_t>(a)]; ++i)
        for (int j = 0; j < sizes[static_cast<std::size_t>(b)]; ++j) {
          if (!pairs.open(a, i, b, j)) continue;
          PairwiseRow row(sizes.size(), -1);
          row[static_cast<std::size_t>(a)] = i;
          row[static_cast<std::size_t>(b)] = j;
          if (!fits(row, allowed))
            throw std::logic_error("pairwise: no allowed row holds value " + std::to_string(i) + " of axis " +
                                   std::to_string(a) + " with value " + std::to_string(j) + " of axis " +
                                   std::to_string(b));
          row = complete(row);
          pairs.close(row);
          rows.push_back(row);
        }
  if (sizes.size() == 1)
    for (int i = 0; i < sizes[0]; ++i) rows.push_back({i});
  return rows;
}

}  // namespace scantape::cases
