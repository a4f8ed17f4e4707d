// An op of one's own on the tape, y = x^3 elementwise, and the check of its gradient. Prints the report; exits 1 where
// the gradient is wrong.
#include <cstdio>
#include <vector>

#include "scantape/autograd/gradcheck.h"
#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"

using namespace scantape;
using autograd::Variable;

Variable cube(const Variable& x) {
  std::vector<double> y = x.value().values<double>();
  for (double& value : y) value = value * value * value;

  // record() puts the op on the tape of its inputs, with the function that gives their gradients. Saved notices when x
  // is changed before backward reads it; the gradient's mode says whether to write or to add.
  return autograd::record("cube", {&x}, {Tensor::from(x.shape(), y)}, [x = autograd::Saved(x)](auto& pass) {
    const ConstView value = x.read(pass.op(), "x"), d_y = pass.cotangent(0);
    const Gradient d_x = pass.gradient(0);
    for (std::int64_t i = 0; i < value.elements(); ++i) {
      const double xi = value.as<double>()[i], gradient = 3 * xi * xi * d_y.as<double>()[i];
      double& target = d_x.view.as<double>()[i];
      target = d_x.mode == WriteMode::accumulate ? target + gradient : gradient;
    }
  })[0];
}

int main() {
  const Tensor x = Tensor::from({2, 3}, std::vector<double>{0.3, -1.2, 0.7, 2.1, -0.4, 0.9});
  const auto report = autograd::gradcheck(
      [](const std::vector<Variable>& inputs) {
        return std::vector<Variable>{cube(autograd::silu(inputs[0])), cube(inputs[0])};
      },
      {x});
  std::fputs(report.text().c_str(), stdout);
  return report.pass() ? 0 : 1;
}
