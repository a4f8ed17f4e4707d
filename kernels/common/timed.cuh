#pragma once

#include "common/store.cuh"

// Tensors [B, L, ...] as one thread of a scan sees them: its channel of the flattened trailing dimensions, row
// after row of time.

namespace scantape::cuda {

/// One channel: element `row` lies row * stride further on.
template <class T>
struct Track {
  T* data = nullptr;
  std::int64_t stride = 0;
  bool accumulate = false;

  __device__ bool present() const { return data != nullptr; }
  __device__ auto at(std::int64_t row) const { return loaded_from(data + row * stride); }
  __device__ void put(std::int64_t row, Compute<T> value) const {
    T* to = data + row * stride;
    *to = stored<T>(accumulate ? loaded_from(to) + value : value);
  }
};

/// The whole tensor; data is null where it is absent. A step holds runs of `run` contiguous channels, `gap` elements
/// apart.
template <class T>
struct Timed {
  T* data = nullptr;
  std::int64_t stride = 0;  // from one row of time to the next
  std::int64_t run = 0, gap = 0;
  bool one_run = true;
  bool accumulate = false;

  __host__ __device__ bool present() const { return data != nullptr; }
  __device__ Track<T> channel(std::int64_t channel) const {
    if (data == nullptr || channel < 0) return {};
    const std::int64_t offset = one_run ? channel : channel / run * gap + channel % run;
    return {data + offset, stride, accumulate};
  }
};

template <class T>
Timed<T> timed(const ConstView& view, bool accumulate = false) noexcept {
  Timed<T> result;
  Rows rows;
  if (!view.present || !as_rows(view, &rows)) return result;
  std::int64_t runs = 1;
  for (int axis = 2; axis + 1 < view.rank(); ++axis) runs *= view.shape[axis];
  result.data = const_cast<T*>(view.as<T>());
  result.stride = runs * rows.stride;
  result.run = rows.length;
  result.gap = rows.stride;
  result.one_run = runs == 1;
  result.accumulate = accumulate;
  return result;
}

template <class T>
Timed<T> timed(const Gradient& gradient) noexcept {
  return gradient.wanted() ? timed<T>(gradient.view, gradient.mode == WriteMode::accumulate) : Timed<T>{};
}

/// Which row of time a step is, steps being counted in the order of the recurrence.
struct Clock {
  std::int64_t length = 0;
  bool reversed = false;

  __device__ std::int64_t row(std::int64_t item, std::int64_t step) const {
    return item * length + (reversed ? length - 1 - step : step);
  }
  /// To the row of the step after.
  __device__ std::int64_t ahead() const { return reversed ? -1 : 1; }
};

}  // namespace scantape::cuda
