#pragma once

#include "scantape/ssd.h"
#include "timed.h"

/// What the sequential form of ssd shares with the chunked one of host/cpu and, time steps and decays, with selective_scan.
namespace scantape::reference {

struct SsdSizes {
  std::int64_t batch, length, heads, width, groups, states;

  explicit SsdSizes(const SsdForward& args) noexcept
      : batch(args.x.shape[0]),
        length(args.x.shape[1]),
        heads(args.x.shape[2]),
        width(args.x.shape[3]),
        groups(args.B.shape[2]),
        states(args.B.shape[3]) {}
  std::int64_t heads_of_group() const noexcept { return heads / groups; }
  std::int64_t state() const noexcept { return width * states; }
};

/// Steps begin .. end - 1 of one row of the batch. No start lies inside.
struct SsdChunk {
  std::int64_t begin, end;
  bool start;         // the first step is a start: no state comes in
  std::int64_t kept;  // which of the kept states comes in; -1: none of these

  std::int64_t steps() const noexcept { return end - begin; }
};

/// The chunks of row `item`, as the contract lays them.
template <class T>
std::vector<SsdChunk> ssd_chunks(const SsdForward& args, std::int64_t item) {
  const std::int64_t length = args.x.shape[1], interval = ssd_interval(length, args.chunk_length);
  const Starts<T> start(args.start);
  std::vector<SsdChunk> chunks;
  for (std::int64_t begin = 0; begin < length;) {
    std::int64_t end = begin + 1;
    while (end < length && end - begin < interval && !start.at(item * length + end)) ++end;
    const bool starts = start.at(item * length + begin);
    chunks.push_back({begin, end, starts, starts || begin == 0 ? -1 : begin / interval - 1});
    begin = end;
  }
  return chunks;
}

/// Where states come from and go to: the initial one, the kept ones and the final one, of one row and head.
template <class T>
class SsdStates {
 public:
  SsdStates(const SsdSizes& size, const SsdForward& args, T* kept) noexcept
      : size_(size),
        count_((size.length - 1) / ssd_interval(size.length, args.chunk_length)),
        kept_(kept),
        initial_(args.initial_state.present ? args.initial_state.as<T>() : nullptr) {}

  /// How many states are kept of one row and head; how many numbers of all.
  std::int64_t count() const noexcept { return count_; }
  std::int64_t numbers() const noexcept { return size_.batch * count_ * size_.heads * size_.state(); }

  T* kept(std::int64_t item, std::int64_t head, std::int64_t index) const noexcept {
    return kept_ + ((item * count_ + index) * size_.heads + head) * size_.state();
  }
  /// What a chunk begins with; null where that is nothing.
  const T* before(const SsdChunk& chunk, std::int64_t item, std::int64_t head) const noexcept {
    if (chunk.kept >= 0) return kept(item, head, chunk.kept);
    return chunk.start || initial_ == nullptr ? nullptr
                                              : initial_ + (item * size_.heads + head) * size_.state();
  }
  void clear(std::int64_t item, std::int64_t head) const noexcept {
    for (std::int64_t k = 0; k < count_; ++k) std::fill_n(kept(item, head, k), size_.state(), T(0));
  }

 private:
  const SsdSizes size_;
  std::int64_t count_;
  T* kept_;
  const T* initial_;
};

/// dt as the recurrence has it, and what its gradient is times; `row` counts steps through the batch.
template <class T>
class SsdTimeSteps {
 public:
  explicit SsdTimeSteps(const SsdForward& args) noexcept
      : SsdTimeSteps(args.dt, args.dt_bias, args.dt_softplus, args.dt_min, args.dt_max) {}
  SsdTimeSteps(const ConstView& dt, const ConstView& bias, bool softplus, double least, double most) noexcept
      : dt_(dt),
        bias_(bias.present ? bias.as<T>() : nullptr),
        softplus_(softplus),
        least_(static_cast<T>(least)),
        most_(static_cast<T>(most)) {}

  T dt(std::int64_t row, std::int64_t head) const noexcept {
    const T u = unclamped(raw(row, head));
    return u < least_ ? least_ : u > most_ ? most_ : u;  // NaN stays
  }
  /// d dt / d raw: nothing where dt is clamped.
  T slope(std::int64_t row, std::int64_t head) const noexcept {
    const T r = raw(row, head), u = unclamped(r);
    if (u < least_ || u > most_) return 0;
    return !softplus_ || r > 20 ? T(1) : sigmoid(r);
  }

 private:
  T raw(std::int64_t row, std::int64_t head) const noexcept {
    return bias_ != nullptr ? dt_[row][head] + bias_[head] : dt_[row][head];
  }
  T unclamped(T r) const noexcept { return !softplus_ || r > 20 ? r : std::log1p(std::exp(r)); }

  RowsOf<const T> dt_;
  const T* bias_;
  bool softplus_;
  T least_, most_;
};

/// D of one head: a number each channel, or one for all.
template <class T>
class SsdSkip {
 public:
  explicit SsdSkip(const SsdForward& args) noexcept
      : data_(args.D.present ? args.D.as<T>() : nullptr),
        wide_(args.D.rank() == 2),
        width_(args.x.shape[3]) {}
  explicit operator bool() const noexcept { return data_ != nullptr; }
  T at(std::int64_t head, std::int64_t p) const noexcept {
    return data_ == nullptr ? T(0) : data_[wide_ ? head * width_ + p : head];
  }

 private:
  const T* data_;
  bool wide_;
  std::int64_t width_;
};

/// exp(l) h + b. Near 1 a rounded decay is off to the same side in every step: there what moves is exp(l) - 1.
template <class T>
struct SsdDecay {
  bool near_one;
  T factor;  // exp(l) - 1 or exp(l)

  explicit SsdDecay(T l) noexcept
      : near_one(l > T(-0.69314718055994531)), factor(near_one ? std::expm1(l) : std::exp(l)) {}
  T step(T h, T b) const noexcept { return near_one ? h + std::fma(factor, h, b) : std::fma(factor, h, b); }
  T times(T g) const noexcept { return near_one ? std::fma(factor, g, g) : factor * g; }
};

}  // namespace scantape::reference
