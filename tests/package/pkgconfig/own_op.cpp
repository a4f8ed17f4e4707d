// An op that the library does not have, with its backward, on the tape beside ops that it has:
//   y[r, c] = x[r, c] tanh(w[c]);  d_x = d_y tanh(w);  d_w[c] = sum_r d_y[r, c] x[r, c] (1 - tanh(w[c])^2)
// Exit 0 where gradcheck passes with the right gradient and fails with a wrong one.
#include <scantape/autograd/gradcheck.h>
#include <scantape/autograd/ops.h>
#include <scantape/autograd/tape.h>

#include <cmath>
#include <cstdio>
#include <vector>

using namespace scantape;
using autograd::Variable;

namespace {

void put(const Gradient& target, std::int64_t i, double gradient) {
  double& element = target.view.as<double>()[i];
  element = target.mode == WriteMode::accumulate ? element + gradient : gradient;
}

// `fault` scales the gradient of w: 1 is right.
Variable tanh_gate(const Variable& x, const Variable& w, double fault) {
  const std::vector<double> xs = x.value().values<double>(), ws = w.value().values<double>();
  const std::size_t columns = ws.size();
  std::vector<double> y(xs.size());
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = xs[i] * std::tanh(ws[i % columns]);

  return autograd::record(
      "tanh_gate", {&x, &w}, {Tensor::from(x.shape(), y)},
      [x = autograd::Saved(x), w = autograd::Saved(w), fault](autograd::BackwardPass& pass) {
        const ConstView x_view = x.read(pass.op(), "x"), w_view = w.read(pass.op(), "w"),
                        d_y = pass.cotangent(0);
        const std::int64_t width = w_view.elements(), rows = x_view.elements() / width;
        const Gradient d_x = pass.gradient(0), d_w = pass.gradient(1);
        for (std::int64_t c = 0; c < width; ++c) {
          const double gate = std::tanh(w_view.as<double>()[c]);
          double sum = 0;
          for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t i = r * width + c;
            sum += d_y.as<double>()[i] * x_view.as<double>()[i];
            if (d_x.wanted()) put(d_x, i, d_y.as<double>()[i] * gate);
          }
          if (d_w.wanted()) put(d_w, c, fault * sum * (1 - gate * gate));
        }
      })[0];
}

bool passes(double fault) {
  const Tensor x = Tensor::from({2, 3}, std::vector<double>{0.4, -1.1, 0.8, 1.9, -0.3, 0.6});
  const Tensor w = Tensor::from({3}, std::vector<double>{0.5, -0.2, 1.3});
  const auto report = autograd::gradcheck(
      [fault](const std::vector<Variable>& inputs) {
        // x is used three times and w twice, so their gradients are also added to what is there.
        const Variable gated = tanh_gate(autograd::silu(inputs[0]), inputs[1], fault);
        return std::vector<Variable>{tanh_gate(gated, inputs[1], fault), autograd::softplus(inputs[0]),
                                     autograd::silu(inputs[0])};
      },
      {x, w});
  std::fputs(report.text().c_str(), stdout);
  return report.pass();
}

}  // namespace

int main() {
  if (!passes(1.0)) return 1;
  return passes(1.001) ? 2 : 0;
}
