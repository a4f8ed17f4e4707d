// Fits a small model on each device at hand. Exit 0 where the loss falls below half on each, the devices agree, and
// what is said to have run on `cuda` was done by kernels.
#include <scantape/autograd/lti.h>
#include <scantape/autograd/optimizer.h>
#include <scantape/autograd/tape.h>
#include <scantape/counters.h>
#include <scantape/device.h>
#include <scantape/version.h>

#include <cmath>
#include <cstdio>
#include <cstring>

using namespace scantape;

namespace {

Tensor random_numbers(const Shape& shape, std::uint64_t seed) {
  autograd::Random random(seed);
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (double& value : values) value = random.normal();
  return Tensor::from(shape, values);
}

/// The loss of the first and of the last step.
std::pair<double, double> fit(Device device) {
  autograd::LtiConfig config;
  config.features = 3;
  config.hidden_dim = 4;
  config.state_dim = 2;
  config.num_layers = 1;
  autograd::Lti model(config, DType::f64, device, 7);
  autograd::AdamWOptimizer optimizer(model.parameters(), {});
  optimizer.set_learning_rate(0.02);
  const Tensor input = random_numbers({2, 6, 3}, 1).to(device),
               target = random_numbers({2, 6, 1}, 2).to(device);
  double first = std::nan(""), last = first;
  for (int step = 0; step < 60; ++step) {
    autograd::Tape tape;
    const autograd::Variable loss = autograd::mse(model.forward(&tape, input), target);
    tape.backward(loss);
    optimizer.step(loss.value());
    last = loss.value().values<double>()[0];
    if (step == 0) first = last;
  }
  return {first, last};
}

}  // namespace

int main() {
  if (std::strcmp(cuda_backend(), EXPECTED_BACKEND) != 0) return 2;
  const auto [first, last] = fit(kCpu);
  std::printf("scantape %s: %g to %g on the CPU\n", version(), first, last);
  if (!(last < 0.5 * first)) return 3;
  if (!is_available(kCuda)) {
    std::printf("no cuda device (backend %s)\n", cuda_backend());
    return 0;
  }
  const Counters before = counters();
  const auto [cuda_first, cuda_last] = fit(kCuda);
  std::printf("%g to %g on cuda (%s)\n", cuda_first, cuda_last, cuda_backend());
  if (counters().kernel_launches - before.kernel_launches < 60 || counters().cpu_ops != before.cpu_ops)
    return 4;
  return std::abs(cuda_first - first) <= 1e-9 * first && std::abs(cuda_last - last) <= 1e-6 * first ? 0 : 5;
}
