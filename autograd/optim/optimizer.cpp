#include "scantape/autograd/optimizer.h"

#include <cmath>

#include "scantape/adamw.h"
#include "scantape/autograd/tape.h"
#include "scantape/grad_norm.h"

namespace scantape::autograd {
namespace {

constexpr double kPi = 3.141592653589793238463;

}  // namespace

AdamWOptimizer::AdamWOptimizer(Parameters& parameters, const AdamWOptions& options)
    : parameters_(parameters), options_(options) {
  if (!(options.max_norm >= 0)) throw Error(Code::invalid_argument, "adamw: max_norm must be at least 0");
  const Tensor& values = parameters.values();
  first_moment_ = Tensor::zeros(values.shape(), values.dtype(), values.device());
  second_moment_ = Tensor::zeros(values.shape(), values.dtype(), values.device());
  std::vector<double> control(kStepControls, 0.0);
  control[kMaxNorm] = options.max_norm;
  control[kClipFactor] = 1;
  control_ = Tensor::from({kStepControls}, control, values.device());
}

void AdamWOptimizer::set_learning_rate(double rate) {
  if (!std::isfinite(rate) || rate < 0)
    throw Error(Code::invalid_argument, "adamw: the learning rate is " + std::to_string(rate) +
                                            ", wants a finite number of at least 0");
  control_.slice(0, kLearningRate, kLearningRate + 1).copy_from(Tensor::from({1}, std::vector<double>{rate}));
}

void AdamWOptimizer::step(const Tensor& loss) {
  GradNorm norm;
  norm.gradient = parameters_.gradients();
  norm.loss = loss;
  norm.control = control_.writable();
  call_op(control_.device(), grad_norm, grad_norm_workspace, norm);

  AdamW update;
  update.parameter = parameters_.values().writable();
  update.gradient = parameters_.gradients();
  update.first_moment = first_moment_.writable();
  update.second_moment = second_moment_.writable();
  update.control = control_;
  update.decayed_elements = parameters_.decayed_elements();
  update.beta1 = options_.beta1;
  update.beta2 = options_.beta2;
  update.eps = options_.eps;
  update.weight_decay = options_.weight_decay;
  call_op(control_.device(), adamw, adamw_workspace, update);
}

AdamWOptimizer::Report AdamWOptimizer::report() const {
  const auto control = control_.values<double>();
  const auto count = [&](StepControl which) { return static_cast<std::int64_t>(control[which]); };
  return {count(kSteps),      count(kSkipped),      count(kSkippedInARow),
          control[kGradNorm], control[kClipFactor], control[kSkip] != 0};
}

double CosineSchedule::rate(std::int64_t t) const noexcept {
  if (t <= warmup) return peak * static_cast<double>(t) / static_cast<double>(warmup);
  if (t > total) return floor;
  const double progress = static_cast<double>(t - warmup) / static_cast<double>(total - warmup);
  return floor + (peak - floor) * (1 + std::cos(kPi * progress)) / 2;
}

}  // namespace scantape::autograd
