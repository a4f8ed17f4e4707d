#include "scantape/embedding.h"

#include <cstring>

#include "ids.h"
#include "in_f32.h"

namespace scantape::reference {

namespace {

/// The places of each id, in order: those of v are order[first[v]] to order[first[v + 1] - 1].
struct Places {
  std::vector<std::int64_t> first, order;

  Places(const ConstView& ids, std::int64_t rows)
      : first(static_cast<std::size_t>(rows) + 1, 0), order(static_cast<std::size_t>(ids.elements())) {
    const auto* const values = ids.as<std::int32_t>();
    for (std::int64_t i = 0; i < ids.elements(); ++i) ++first[static_cast<std::size_t>(values[i]) + 1];
    for (std::size_t v = 1; v < first.size(); ++v) first[v] += first[v - 1];
    std::vector<std::int64_t> next(first.begin(), first.end() - 1);
    for (std::int64_t i = 0; i < ids.elements(); ++i)
      order[static_cast<std::size_t>(next[static_cast<std::size_t>(values[i])]++)] = i;
  }
};

template <class T>
void sum_by_id(const EmbeddingBackward& args) {
  const std::int64_t rows = args.d_weight.view.shape[0], columns = args.d_weight.view.shape[1];
  const Places places(args.ids, rows);
  const RowsOf<T> d_y(args.d_y);
  const Target<T> d_weight(args.d_weight);
  std::vector<double> sums(static_cast<std::size_t>(columns));
  for (std::int64_t v = 0; v < rows; ++v) {
    const std::int64_t begin = places.first[static_cast<std::size_t>(v)],
                       end = places.first[static_cast<std::size_t>(v) + 1];
    if (begin == end && d_weight.accumulates()) continue;
    std::fill(sums.begin(), sums.end(), 0.0);
    double* const sum = sums.data();
    for (std::int64_t at = begin; at < end; ++at) {
      const T* const row = d_y[places.order[static_cast<std::size_t>(at)]];
#pragma omp simd
      for (std::int64_t i = 0; i < columns; ++i) sum[i] += static_cast<double>(row[i]);
    }
    d_weight.write(v, columns, [sum](std::int64_t i) { return static_cast<T>(sum[i]); });
  }
}

}  // namespace

// A copy is the same for every type: bytes.
Status embedding_forward(const EmbeddingForward& args) noexcept {
  SCANTAPE_TRY(check_ids("embedding", "ids", args.ids, args.weight.shape[0]));
  const std::int64_t columns = args.weight.shape[1], size = size_of(args.weight.dtype),
                     rows = args.ids.elements();
  if (rows == 0 || columns == 0) return {};
  const auto* const ids = args.ids.as<std::int32_t>();
  const std::int64_t from_stride = rows_of(args.weight).stride * size,
                     to_stride = rows_of(args.y).stride * size;
  const char* const from = args.weight.as<char>();
  char* const to = args.y.as<char>();
#pragma omp parallel for schedule(static) if (worth_threads(rows * columns))
  for (std::int64_t row = 0; row < rows; ++row)
    std::memcpy(to + row * to_stride, from + ids[row] * from_stride,
                static_cast<std::size_t>(columns * size));
  return {};
}

Status embedding_backward(const EmbeddingBackward& args) noexcept {
  if (!args.d_weight.wanted()) return {};
  SCANTAPE_TRY(check_ids("embedding_backward", "ids", args.ids, args.d_weight.view.shape[0]));
  if (is_16_bit(args.d_y.dtype)) return in_f32("embedding_backward", args, embedding_backward);
  return run("embedding_backward",
             [&] { dispatch(args.d_y.dtype, [&](auto zero) { sum_by_id<decltype(zero)>(args); }); });
}

}  // namespace scantape::reference
