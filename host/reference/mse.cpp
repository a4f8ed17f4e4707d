#include "scantape/mse.h"

#include "common.h"

namespace scantape::reference {

namespace {

/// Which elements count, and how many.
template <class T>
class Counted {
 public:
  explicit Counted(const MseForward& args) noexcept : mask_(args.mask.present ? args.mask.as<T>() : nullptr) {
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

template <class T>
double loss(const MseForward& args) noexcept {
  const T* prediction = args.prediction.as<T>();
  const T* target = args.target.as<T>();
  const Counted<T> counted(args);
  if (counted.count() == 0) return 0;
  const double total = sum(args.prediction.elements(), [&](std::int64_t i) {
    const double d = counted[i] ? double(prediction[i]) - double(target[i]) : 0.0;
    return d * d;
  });
  return total / static_cast<double>(counted.count());
}

template <class T>
void backward(const MseBackward& args) noexcept {
  const T* prediction = args.prediction.as<T>();
  const T* target = args.target.as<T>();
  const Counted<T> counted(args);
  const double factor =
      counted.count() == 0 ? 0 : 2 * *args.d_loss.as<double>() / static_cast<double>(counted.count());
  const std::int64_t elements = args.prediction.elements();
  const auto value = [&](std::int64_t i) {
    return counted[i] ? static_cast<T>((double(prediction[i]) - double(target[i])) * factor) : T(0);
  };
  const Target<T> d_prediction(args.d_prediction);
  for (std::int64_t i = 0; i < elements; ++i) d_prediction.write_one(i, value(i));
}

}  // namespace

Status mse_forward(const MseForward& args) noexcept {
  dispatch(args.prediction.dtype, [&](auto zero) { *args.loss.as<double>() = loss<decltype(zero)>(args); });
  return {};
}

Status mse_backward(const MseBackward& args) noexcept {
  dispatch(args.prediction.dtype, [&](auto zero) { backward<decltype(zero)>(args); });
  return {};
}

}  // namespace scantape::reference
