#pragma once

#include "scantape/autograd/parameters.h"
#include "scantape/step_control.h"

namespace scantape::autograd {

/// The constants of the optimiser.
struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
  double max_norm = 1.0;  ///< gradients are clipped to this norm over all parameters; 0: no clipping
};

/// AdamW with clipping over all parameters of a model. A step whose loss or gradients are not finite is skipped and
/// counted. Nothing is read back from the device but by report().
/// Example
///   autograd::Parameters parameters;
///   parameters.add("w", {2}, false, {1, 1});
///   parameters.allocate(DType::f64, kCpu);
///   autograd::AdamWOptimizer optimizer(parameters, autograd::AdamWOptions{});
///   optimizer.set_learning_rate(0.1);
///   parameters.gradient(0).copy_from(Tensor::from({2}, std::vector<double>{3, -4}));
///   optimizer.step();
///   const Tensor w = parameters.value(0);  // w is 0.9, 1.1
class AdamWOptimizer {
 public:
  AdamWOptimizer(Parameters& parameters, const AdamWOptions& options);

  /// The rate of the steps that follow.
  void set_learning_rate(double rate);
  /// One step from the gradients in the parameters; `loss` (optional) is looked at for finiteness only.
  void step(const Tensor& loss = {});

  struct Report {
    std::int64_t steps, skipped, skipped_in_a_row;
    double grad_norm, clip_factor;
    bool skip;  ///< the latest step was skipped
  };
  Report report() const;

  Tensor& first_moment() noexcept { return first_moment_; }
  Tensor& second_moment() noexcept { return second_moment_; }
  Tensor& control() noexcept { return control_; }  ///< [kStepControls], f64: see step_control.h

 private:
  Parameters& parameters_;
  AdamWOptions options_;
  Tensor first_moment_, second_moment_, control_;
};

/// Linear warm-up to `peak` over `warmup` steps, then half a cosine down to `floor` at step `total`; t counts from 1.
/// Example
///   const autograd::CosineSchedule schedule{0.01, 0, 10, 110};
///   const double rising = schedule.rate(5);     // rising is 0.005
///   const double halfway = schedule.rate(60);   // halfway is 0.005
///   const double finished = schedule.rate(110); // finished is 0
struct CosineSchedule {
  double peak = 1e-3, floor = 0;
  std::int64_t warmup = 0, total = 1;
  double rate(std::int64_t t) const noexcept;
};

}  // namespace scantape::autograd
