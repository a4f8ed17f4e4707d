#pragma once

#include "scantape/autograd/variable.h"
#include "scantape/discretize.h"
#include "scantape/state_output.h"

/// The differentiable ops on variables. Shapes, dtypes, limits and errors are those of the op's contract in
/// scantape/<op>.h; failures are thrown as Error. Each records itself on the tape of its inputs; with constants alone
/// it computes the same bits and records nothing.
///
/// Example
///   #include "scantape/autograd/tape.h"
///   autograd::Tape tape;
///   const autograd::Variable x = tape.leaf(Tensor::from({1, 2}, std::vector<double>{1, 2}));
///   const autograd::Variable weight = tape.leaf(Tensor::from({1, 2}, std::vector<double>{3, 4}));
///   const autograd::Variable y = autograd::projection(x, weight);
///   const autograd::Variable loss = autograd::mse(y, Tensor::full({1, 1}, 10, DType::f64));
///   tape.backward(loss);
///   const Tensor d_weight = tape.gradient(weight);  // d_weight is 2, 4
namespace scantape::autograd {

/// One input, one output, and for the first two the parameters of a layer.
Variable projection(const Variable& x, const Variable& weight, const Variable& bias = {});
Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, double eps = 1e-5);
Variable softplus(const Variable& x);
Variable silu(const Variable& x);

/// A_bar and B_bar of a diagonal state space model, from its step dt, A and B.
struct Discretized {
  Variable A_bar, B_bar;
};
Discretized discretize(const Variable& dt, const Variable& A, const Variable& B,
                       DiscretizeMethod method = DiscretizeMethod::zoh);

/// All states of the recurrence h_t = a_t h_{t-1} + b_t, and the last one, which carries a gradient of its own.
struct Scanned {
  Variable h, final_state;
};
Scanned scan(const Variable& a, const Variable& b, const Variable& h0 = {});

/// residual + act(z + D u): what a state space layer adds to its input.
Variable state_output(const Variable& z, const Variable& u, const Variable& D, const Variable& residual,
                      Activation activation = Activation::silu);

/// The target and the mask are constants: an error where they are recorded.
Variable mse(const Variable& prediction, const Variable& target, const Variable& mask = {});

}  // namespace scantape::autograd
