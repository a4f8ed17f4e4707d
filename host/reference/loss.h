#pragma once

#include "common.h"

/// Means of a penalty of prediction - target over the elements counted. A penalty has value(d) and slope(d), both in
/// double.
namespace scantape::reference {

/// Which elements count, and how many.
template <class T>
class Counted {
 public:
  template <class Args>
  explicit Counted(const Args& args) noexcept
      : mask_(args.mask.present ? args.mask.template as<T>() : nullptr) {
    const std::int64_t elements = args.prediction.elements();
    if (mask_ == nullptr) {
      count_ = elements;
    } else {
      for (std::int64_t i = 0; i < elements; ++i) count_ += mask_[i] != 0 ? 1 : 0;
    }
  }
  bool operator[](std::int64_t i) const noexcept { return mask_ == nullptr || mask_[i] != 0; }
  std::int64_t count() const noexcept { return count_; }

 private:
  const T* mask_;
  std::int64_t count_ = 0;
};

template <class T, class Args, class Penalty>
double mean_penalty(const Args& args, const Penalty& penalty) noexcept {
  const T* prediction = args.prediction.template as<T>();
  const T* target = args.target.template as<T>();
  const Counted<T> counted(args);
  if (counted.count() == 0) return 0;
  const double total = sum(args.prediction.elements(), [&](std::int64_t i) {
    return counted[i] ? penalty.value(double(prediction[i]) - double(target[i])) : 0.0;
  });
  return total / static_cast<double>(counted.count());
}

template <class T, class Args, class Penalty>
void mean_penalty_backward(const Args& args, const Penalty& penalty) noexcept {
  const T* prediction = args.prediction.template as<T>();
  const T* target = args.target.template as<T>();
  const Counted<T> counted(args);
  const double factor =
      counted.count() == 0 ? 0 : *args.d_loss.template as<double>() / static_cast<double>(counted.count());
  const Target<T> d_prediction(args.d_prediction);
  for (std::int64_t i = 0; i < args.prediction.elements(); ++i) {
    const double d = double(prediction[i]) - double(target[i]);
    d_prediction.write_one(i, counted[i] ? static_cast<T>(penalty.slope(d) * factor) : T(0));
  }
}

template <class Args, class Penalty>
Status loss_forward(const Args& args, const Penalty& penalty) noexcept {
  dispatch(args.prediction.dtype, [&](auto zero) {
    *args.loss.template as<double>() = mean_penalty<decltype(zero)>(args, penalty);
  });
  return {};
}

template <class Args, class Penalty>
Status loss_backward(const Args& args, const Penalty& penalty) noexcept {
  dispatch(args.prediction.dtype, [&](auto zero) { mean_penalty_backward<decltype(zero)>(args, penalty); });
  return {};
}

}  // namespace scantape::reference
