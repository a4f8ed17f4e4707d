#pragma once

#include "scantape/autograd/variable.h"
#include "scantape/causal_conv1d_step.h"
#include "scantape/discretized_scan.h"
#include "scantape/gated_rms_norm.h"
#include "scantape/selective_scan.h"
#include "scantape/selective_scan_step.h"
#include "scantape/ssd.h"
#include "scantape/ssd_step.h"
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

/// The rows of weight [V, D] that ids [...] (i32) name: [..., D]. The ids are a constant.
Variable embedding(const Tensor& ids, const Variable& weight);

/// One input, one output, and for the first two the parameters of a layer.
Variable projection(const Variable& x, const Variable& weight, const Variable& bias = {});
Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias = {}, double eps = 1e-5);
Variable rms_norm(const Variable& x, const Variable& weight, const Variable& bias = {}, double eps = 1e-5);

/// A norm of r = x + residual, and r itself, for the next layer to go on from: one pass over memory.
struct Normed {
  Variable y, r;
};
Normed residual_layer_norm(const Variable& x, const Variable& residual, const Variable& weight,
                           const Variable& bias = {}, double eps = 1e-5);
Normed residual_rms_norm(const Variable& x, const Variable& residual, const Variable& weight,
                         const Variable& bias = {}, double eps = 1e-5);

/// layer_norm(projection(x, weight, bias), norm_weight, norm_bias) without what lies between.
Variable projection_layer_norm(const Variable& x, const Variable& weight, const Variable& bias,
                               const Variable& norm_weight, const Variable& norm_bias = {},
                               double eps = 1e-5);

/// Elementwise, of any shape.
Variable softplus(const Variable& x);
Variable silu(const Variable& x);
Variable neg_exp(const Variable& x);
Variable copy(const Variable& x);

/// Views of x: nothing is copied forward, and backward gathers the gradients. `split` takes the last axis apart: piece i
/// has shape [..., pieces[i]...] and as many columns as that has elements. `reshape` wants x without gaps.
std::vector<Variable> split(const Variable& x, const std::vector<Shape>& pieces);
Variable reshape(const Variable& x, const Shape& shape);

/// What the form of A has, B_bar or s, and F where it was asked for; the rest is absent.
struct Discretized {
  Variable A_bar, B_bar, F, s;
};
/// A diagonal or dense A takes B; one number a head (dt [B, L, H]) takes none.
Discretized discretize(const Variable& dt, const Variable& A, const Variable& B,
                       DiscretizeMethod method = DiscretizeMethod::zoh, bool with_F = false);

/// All states of the recurrence h_t = a_t h_{t-1} + b_t, and the last one, which carries a gradient of its own.
struct Scanned {
  Variable h, final_state;
};
struct ScanOptions {
  Tensor start;  ///< a constant: flags have no gradient
  ScanDirection direction = ScanDirection::forward;
  bool minus_one = false;
};
Scanned scan(const Variable& a, const Variable& b, const Variable& h0 = {}, const ScanOptions& options = {});

/// scan(A_bar, s u, h0) with the A_bar and s that discretize makes of dt and a diagonal A, without what lies between.
struct DiscretizedScanOptions {
  DiscretizeMethod method = DiscretizeMethod::zoh;
  Tensor start;
  ScanDirection direction = ScanDirection::forward;
};
Scanned discretized_scan(const Variable& dt, const Variable& A, const Variable& u, const Variable& h0 = {},
                         const DiscretizedScanOptions& options = {});

/// What the selective state space takes; D, z, dt_bias and the state before the first step may be absent.
struct SsdInputs {
  Variable x, dt, A, B, C, D, z, dt_bias, initial_state;

  bool recorded() const noexcept;  ///< whether any of them is
};
/// The options of one step, and those of a sequence. A gradient wants memory for states: see scantape/ssd.h.
struct SsdStepOptions {
  bool dt_softplus = false;
  double dt_min = 0, dt_max = std::numeric_limits<double>::infinity();
};
struct SsdOptions : SsdStepOptions {
  std::int64_t chunk_length = 64;  ///< 0: the sequential form
  Tensor start;
};
/// The output and the state after the last step, which carries a gradient of its own.
struct SsdOutputs {
  Variable out, final_state;
};
SsdOutputs ssd(const SsdInputs& inputs, const SsdOptions& options = {});
/// One step: x [B, H, P] and so on, with the state that it begins with as initial_state.
SsdOutputs ssd_step(const SsdInputs& inputs, const SsdStepOptions& options = {});

/// What the selective scan takes; D, z, dt_bias and the state before the first step may be absent.
struct SelectiveScanInputs {
  Variable u, dt, A, B, C, D, z, dt_bias, initial_state;

  bool recorded() const noexcept;  ///< whether any of them is
};
struct SelectiveScanOptions {
  bool dt_softplus = false;
  Tensor start;
};
/// The output and the state after the last step, which carries a gradient of its own.
struct SelectiveScanOutputs {
  Variable out, final_state;
};
SelectiveScanOutputs selective_scan(const SelectiveScanInputs& inputs,
                                    const SelectiveScanOptions& options = {});
/// One step: u [B, E] and so on, with the state that it begins with as initial_state.
SelectiveScanOutputs selective_scan_step(const SelectiveScanInputs& inputs, bool dt_softplus = false);

/// A depthwise convolution over time and the last inputs, which carry a gradient of their own: absent for one tap.
struct Convolved {
  Variable y, final_state;
};
struct CausalConv1dOptions {
  Activation activation = Activation::silu;
  Tensor start;  ///< a constant
};
Convolved causal_conv1d(const Variable& x, const Variable& weight, const Variable& bias = {},
                        const Variable& initial_state = {}, const CausalConv1dOptions& options = {});
/// One step of it: y [B, C], and the state that follows.
Convolved causal_conv1d_step(const Variable& x, const Variable& state, const Variable& weight,
                             const Variable& bias = {}, Activation activation = Activation::silu);

/// A norm of groups of channels with the gate silu(z), which comes first or last; without z there is none.
struct GatedRmsNormOptions {
  std::int64_t groups = 1;
  bool norm_before_gate = false;
  double eps = 1e-5;
};
Variable gated_rms_norm(const Variable& x, const Variable& z, const Variable& weight,
                        const GatedRmsNormOptions& options = {});

/// residual + act(z + D u): what a state space layer adds to its input.
Variable state_output(const Variable& z, const Variable& u, const Variable& D, const Variable& residual,
                      Activation activation = Activation::silu);

/// Of the losses the target and the mask are constants: an error where they are recorded.
Variable mse(const Variable& prediction, const Variable& target, const Variable& mask = {});
Variable huber(const Variable& prediction, const Variable& target, double k = 1, const Variable& mask = {});
Variable quantile(const Variable& prediction, const Variable& target, double q = 0.5,
                  const Variable& mask = {});
/// Of logits [..., V] against indices [...] (i32), a constant; rows whose target is ignore_index do not count.
Variable cross_entropy(const Variable& logits, const Tensor& target, std::int32_t ignore_index = -100);

}  // namespace scantape::autograd
