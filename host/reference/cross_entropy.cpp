#include "scantape/cross_entropy.h"

#include <limits>

#include "ids.h"
#include "in_f32.h"

namespace scantape::reference {

namespace {

/// Of one row: the largest logit m and log(sum of exp(x - m)), the term of m itself left out of the sum.
struct LogSum {
  double largest, log_sum;
};

template <class T>
LogSum log_sum_of(const T* x, std::int64_t count) noexcept {
  std::int64_t at = -1;
  double largest = -std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < count; ++i)
    if (static_cast<double>(x[i]) > largest) largest = static_cast<double>(x[at = i]);
  // Nothing above -infinity, or NaN: neither has a softmax.
  if (at < 0) return {largest, std::numeric_limits<double>::quiet_NaN()};
  const double rest = sum(
      count, [&](std::int64_t i) { return i == at ? 0.0 : std::exp(static_cast<double>(x[i]) - largest); });
  return {largest, std::log1p(rest)};
}

std::int64_t counted_rows(const CrossEntropyForward& args) noexcept {
  const auto* const target = args.target.as<std::int32_t>();
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < args.target.elements(); ++row) count += target[row] != args.ignore_index;
  return count;
}

template <class T>
double mean_of_rows(const CrossEntropyForward& args) {
  const std::int64_t rows = args.target.elements(), columns = args.logits.shape.back();
  const auto* const target = args.target.as<std::int32_t>();
  const RowsOf<T> logits(args.logits);
  T* const statistics = args.statistics.as<T>();
  std::vector<double> losses(static_cast<std::size_t>(rows), 0.0);
#pragma omp parallel for schedule(static) if (worth_threads(rows * columns))
  for (std::int64_t row = 0; row < rows; ++row) {
    LogSum found{0, 0};
    if (target[row] != args.ignore_index) {
      found = log_sum_of(logits[row], columns);
      losses[static_cast<std::size_t>(row)] =
          found.largest - static_cast<double>(logits[row][target[row]]) + found.log_sum;
    }
    statistics[2 * row] = static_cast<T>(found.largest);
    statistics[2 * row + 1] = static_cast<T>(found.log_sum);
  }
  const std::int64_t count = counted_rows(args);
  const double total = sum(rows, [&](std::int64_t row) { return losses[static_cast<std::size_t>(row)]; });
  return count == 0 ? 0 : total / static_cast<double>(count);
}

template <class T>
void softmax_less_target(const CrossEntropyBackward& args) noexcept {
  const std::int64_t rows = args.target.elements(), columns = args.logits.shape.back(),
                     count = counted_rows(args);
  const double factor = count == 0 ? 0 : *args.d_loss.as<double>() / static_cast<double>(count);
  const auto* const target = args.target.as<std::int32_t>();
  const T* const statistics = args.statistics.as<T>();
  const RowsOf<T> logits(args.logits);
  const Target<T> d_logits(args.d_logits);
#pragma omp parallel for schedule(static) if (worth_threads(rows * columns))
  for (std::int64_t row = 0; row < rows; ++row) {
    if (target[row] == args.ignore_index) {
      d_logits.write(row, columns, [](std::int64_t) { return T(0); });
      continue;
    }
    const double largest = static_cast<double>(statistics[2 * row]);
    const double log_sum = static_cast<double>(statistics[2 * row + 1]);
    const T* const x = logits[row];
    for (std::int64_t i = 0; i < columns; ++i) {
      const double z = (static_cast<double>(x[i]) - largest) - log_sum;
      d_logits.write_at(row, i, static_cast<T>((i == target[row] ? std::expm1(z) : std::exp(z)) * factor));
    }
  }
}

}  // namespace

Status cross_entropy_forward(const CrossEntropyForward& args) noexcept {
  SCANTAPE_TRY(
      check_ids("cross_entropy", "target", args.target, args.logits.shape.back(), args.ignore_index));
  if (is_16_bit(args.logits.dtype)) return in_f32("cross_entropy", args, cross_entropy_forward);
  return run("cross_entropy", [&] {
    dispatch(args.logits.dtype,
             [&](auto zero) { *args.loss.as<double>() = mean_of_rows<decltype(zero)>(args); });
  });
}

Status cross_entropy_backward(const CrossEntropyBackward& args) noexcept {
  if (!args.d_logits.wanted()) return {};
  SCANTAPE_TRY(check_ids("cross_entropy_backward", "target", args.target, args.logits.shape.back(),
                         args.ignore_index));
  if (is_16_bit(args.logits.dtype)) return in_f32("cross_entropy_backward", args, cross_entropy_backward);
  dispatch(args.logits.dtype, [&](auto zero) { softmax_less_target<decltype(zero)>(args); });
  return {};
}

}  // namespace scantape::reference
