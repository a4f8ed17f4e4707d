#include "train/score.h"

#include <algorithm>
#include <vector>

namespace scantape::train {
namespace {

template <class Values>
void add_errors(const Values& predictions, const std::vector<float>& targets, const std::vector<float>& mask,
                double* squared, double* baseline) {
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (mask[i] == 0) continue;
    const double target = targets[i];
    const double difference = static_cast<double>(predictions[i]) - target;
    *squared += difference * difference;
    *baseline += target * target;
  }
}

}  // namespace

Batch make_batch(const market::Dataset& data, std::span<const market::Window> windows, DType dtype,
                 Device device) {
  const auto B = static_cast<std::int64_t>(windows.size()), L = data.sequence_length(),
             F = data.feature_count();
  std::vector<float> x(static_cast<std::size_t>(B * L * F)), target(static_cast<std::size_t>(B * L)),
      mask(target.size());
  data.gather(windows, x, target, mask);
  const auto upload = [&](const Shape& shape, const std::vector<float>& values) {
    return Tensor::from(shape, values).to(dtype).to(device);
  };
  return {upload({B, L, F}, x), upload({B, L, 1}, target), upload({B, L, 1}, mask),
          std::count(mask.begin(), mask.end(), 1.0F)};
}

Score score(const autograd::Model& model, const market::Dataset& data,
            std::span<const market::Window> windows, std::int64_t batch_size) {
  Score result;
  result.windows = static_cast<std::int64_t>(windows.size());
  double squared = 0, baseline = 0;
  const DType dtype = model.parameters().dtype();
  for (std::size_t begin = 0; begin < windows.size(); begin += static_cast<std::size_t>(batch_size)) {
    const auto part =
        windows.subspan(begin, std::min(windows.size() - begin, static_cast<std::size_t>(batch_size)));
    const Batch batch = make_batch(data, part, dtype, model.parameters().device());
    const Tensor prediction = model.forward(nullptr, batch.x).value();
    const auto targets = batch.target.to(DType::f32).values<float>(),
               mask = batch.mask.to(DType::f32).values<float>();
    if (dtype == DType::f64)
      add_errors(prediction.values<double>(), targets, mask, &squared, &baseline);
    else
      add_errors(prediction.values<float>(), targets, mask, &squared, &baseline);
    result.positions += batch.counted;
  }
  if (result.positions > 0) {
    result.loss = squared / static_cast<double>(result.positions);
    result.baseline_loss = baseline / static_cast<double>(result.positions);
  }
  return result;
}

}  // namespace scantape::train
