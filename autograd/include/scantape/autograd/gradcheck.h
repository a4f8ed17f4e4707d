#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "scantape/autograd/variable.h"

namespace scantape::autograd {

/// What gradcheck compares with, and what it expects.
struct GradcheckOptions {
  double tolerance = 1e-6;
  double step = 1e-4;      ///< times max(1, |x|); differences of fourth order reach two steps each way
  std::uint64_t seed = 1;  ///< of the random cotangents
  std::vector<std::string> names;   ///< of the inputs; "input 0", ... where not given
  std::vector<int> zero_gradients;  ///< inputs whose gradient is expected to be exactly zero everywhere
};

/// What was found for one input.
struct GradcheckRow {
  std::string argument;
  double max_rel_err = 0;
  double tolerance = 0;
  bool pass = false;
  std::string message;  ///< empty where it passed
};

/// What was found for all.
struct GradcheckReport {
  std::vector<GradcheckRow> rows;  ///< one an input
  bool pass() const noexcept;
  std::string text() const;
};

/// The function under test: variables in, variables out, through recorded ops.
using DifferentiableFunction = std::function<std::vector<Variable>(const std::vector<Variable>&)>;

/// Compares the gradients of `function` by the tape with central differences in f64, for every element of every input:
/// the full Jacobian where outputs x inputs is small, else the product with a random cotangent. Also checks that a zero
/// cotangent gives exactly zero, that two runs give the same bits, and each gradient's shape and dtype.
///
/// Errors   Error(invalid_argument) for inputs that are not f64 or have no elements. A gradient that is all zero by
///          finite differences fails its row unless it is listed in zero_gradients: such a check would see nothing.
/// Accuracy an element's error is |analytic - numeric| / (|numeric| + RMS of its slice); NaN fails.
/// Example
///   #include "scantape/autograd/ops.h"
///   const Tensor x = Tensor::from({2, 2}, std::vector<double>{0.5, -1, 2, 0.1});
///   const auto function = [](const std::vector<autograd::Variable>& in) {
///     return std::vector<autograd::Variable>{autograd::softplus(autograd::silu(in[0]))};
///   };
///   const bool pass = autograd::gradcheck(function, {x}).pass();  // pass is 1
GradcheckReport gradcheck(const DifferentiableFunction& function, const std::vector<Tensor>& inputs,
                          const GradcheckOptions& options = {});

/// Largest |got - want| / (|want| + RMS of its slice) over all elements; a slice is all elements with one index on the
/// last axis (the whole tensor for rank 0 and 1), its RMS at least `floor` times that of the whole tensor. NaN anywhere
/// gives NaN, so write  if (!(error <= tolerance)) fail.
double slice_error(const std::vector<double>& got, const std::vector<double>& want, const Shape& shape,
                   double floor = 1e-6);

}  // namespace scantape::autograd
