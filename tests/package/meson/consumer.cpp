// Gradient of a loss through the scan, as on the first page of the documentation. Prints loss and gradient in full.
#include <scantape/autograd/ops.h>
#include <scantape/autograd/tape.h>

#include <cstdio>

int main() {
  using namespace scantape;
  autograd::Tape tape;
  const autograd::Variable decay = tape.leaf(Tensor::full({3}, 0.9, DType::f64));
  const autograd::Variable input = tape.leaf(Tensor::full({2, 5, 3}, 1.0, DType::f64));
  const autograd::Variable h = autograd::scan(decay, input).h;
  const autograd::Variable loss = autograd::mse(h, Tensor::zeros({2, 5, 3}, DType::f64));
  tape.backward(loss);
  std::printf("%.15g %.15g\n", loss.value().values<double>()[0], tape.gradient(decay).values<double>()[0]);
}
