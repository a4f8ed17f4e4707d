#pragma once

#include "scantape/autograd/variable.h"
#include "scantape/discretize.h"
#include "scantape/scan.h"
#include "scantape/state_output.h"

/// The differentiable ops on variables. Shapes, dtypes, limits and errors are those of the op's contract in
/// scantape/<op>.h; failures are thrown as Error. Each records itself on the tape of its inputs; with constants alone
/// it computes the same bits and records nothing.
namespace scantape::autograd {

Variable projection(const Variable& x, const Variable& weight, const Variable& bias = {});
Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, double eps = 1e-5);
Variable softplus(const Variable& x);
Variable silu(const Variable& x);

struct Discretized {
  Variable A_bar, B_bar;
};
Discretized discretize(const Variable& dt, const Variable& A, const Variable& B,
                       DiscretizeMethod method = DiscretizeMethod::zoh);

struct Scanned {
  Variable h, final_state;
};
struct ScanOptions {
  Tensor start;  ///< a constant: flags have no gradient
  ScanDirection direction = ScanDirection::forward;
  bool minus_one = false;
};
Scanned scan(const Variable& a, const Variable& b, const Variable& h0 = {}, const ScanOptions& options = {});

Variable state_output(const Variable& z, const Variable& u, const Variable& D, const Variable& residual,
                      Activation activation = Activation::silu);

/// The target and the mask are constants: an error where they are recorded.
Variable mse(const Variable& prediction, const Variable& target, const Variable& mask = {});

}  // namespace scantape::autograd
