#pragma once

#include "scantape/op.h"

namespace scantape {

/// Layer normalisation over the last axis:  y = (x - mean) * rstd * weight + bias,  rstd = 1 / sqrt(var + eps).
///
/// Shapes   x, y [..., E];  weight, bias [E];  statistics [..., 3] (saved for backward: the leading dimensions of x).
/// Dtypes   f32 or f64, all equal. eps is double and added in the precision of the statistics.
/// Units    var is the biased variance (divisor E). statistics holds mean, correction, rstd of each row; the value
///          normalised is ((x - mean) - correction) * rstd. A negative rstd marks a row whose largest |x| is above
///          2^60 (f32; 2^500 in f64): its statistics are those of x * 2^-100 (f64: 2^-600), taken without eps.
/// Accuracy corrected two-pass: a row of equal values gives exactly bias; mean/std up to 1e5 keeps 1e-6 in f32.
/// Memory   rows of x, y may be strided; y may be x itself, any other overlap is an error. No workspace forward.
/// Async    enqueues on `stream`; does not synchronise or allocate; a row's bits depend on that row alone. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap, E = 0, eps not finite or not above 0), cuda.
/// Source   Ba, Kiros, Hinton 2016, arXiv:1607.06450; the correction term: Chan, Golub, LeVeque 1983.
/// Example
///   const Tensor x = Tensor::from({1, 4}, std::vector<double>{1, 2, 3, 4});
///   const Tensor weight = Tensor::full({4}, 2, DType::f64), bias = Tensor::full({4}, 10, DType::f64);
///   Tensor y = Tensor::empty({1, 4}, DType::f64), statistics = Tensor::empty({1, 3}, DType::f64);
///   LayerNormForward forward;
///   forward.x = x;
///   forward.weight = weight;
///   forward.bias = bias;
///   forward.y = y.writable();
///   forward.statistics = statistics.writable();
///   require(layer_norm_forward(forward));  // y is 7.3167, 9.1056, 10.8944, 12.6833
///                                          // statistics is 2.5, 0, 0.8944
struct LayerNormForward {
  ConstView x, weight, bias;
  double eps = 1e-5;
  View y, statistics;
  Workspace workspace;
};

/// Gradient of layer_norm, from x and the saved statistics; `y` and `bias` are not read.
///
/// Shapes   d_y as y;  d_x as x, d_weight and d_bias [E], each with its write mode. d_x may be d_y itself.
/// Memory   CUDA: workspace for per-block partial sums of d_weight and d_bias, summed in a second pass, in order.
/// Example
///   const Tensor d_y = Tensor::from({1, 4}, std::vector<double>{1, 0, 0, 0});
///   Tensor d_x = Tensor::empty({1, 4}, DType::f64), d_weight = Tensor::empty({4}, DType::f64);
///   LayerNormBackward backward;
///   static_cast<LayerNormForward&>(backward) = forward;
///   backward.d_y = d_y;
///   backward.d_x = {d_x.writable(), WriteMode::overwrite};
///   backward.d_weight = {d_weight.writable(), WriteMode::overwrite};
///   require(layer_norm_backward(backward));  // d_x is 0.5367, -0.7155, -0.1789, 0.3578
///                                            // d_weight is -1.3416, 0, 0, 0
struct LayerNormBackward : LayerNormForward {
  ConstView d_y;
  Gradient d_x, d_weight, d_bias;
};

SCANTAPE_DECLARE_OP(layer_norm_forward, LayerNormForward);
SCANTAPE_DECLARE_OP(layer_norm_backward, LayerNormBackward);

}  // namespace scantape
