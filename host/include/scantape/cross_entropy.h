#pragma once

#include "scantape/op.h"

namespace scantape {

/// Cross entropy of logits against indices, the log-softmax inside:
///   loss = sum over the rows counted of (log(sum over v of exp(logits_v)) - logits_target) / n.
/// Counted are the rows whose target is not `ignore_index`; n is their number. n = 0 gives 0.
///
/// Shapes   logits [..., V], target [...], statistics [..., 2], loss [] (one element). V >= 1. statistics is for backward:
///          a row's largest logit m and log(sum of exp(logits - m)); zeros where the row is not counted.
/// Dtypes   logits: f32, f64, bf16 or f16;  target: i32;  statistics: f32 beside 16 bits, else as logits;  loss: f64.
/// Accuracy the largest logit is taken off first: no logit overflows. The sum leaves that one out and its logarithm is
///          log1p, so that the loss of a row that is all but certain keeps its digits. Rows are summed in f64 in one fixed
///          order. Logits of -infinity have probability 0. Rows not counted are not read: NaN there is harmless.
/// Memory   rows of logits may be strided; the rest is contiguous. Each logit is read once. CUDA: workspace for partial
///          sums.
/// Async    enqueues on `stream`; does not synchronise or allocate. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap, V = 0), cuda. A target that is neither ignore_index nor
///          one of 0 to V - 1 is invalid_argument on the CPU, named, and nothing is written; on cuda it makes the loss NaN.
/// Example
///   const Tensor logits = Tensor::from({2, 3}, std::vector<double>{0, 0, 0, 1, 2, 3});
///   const Tensor target = Tensor::from({2}, std::vector<std::int32_t>{1, -100});
///   Tensor loss = Tensor::empty({}, DType::f64), statistics = Tensor::empty({2, 2}, DType::f64);
///   CrossEntropyForward forward;
///   forward.logits = logits;
///   forward.target = target;
///   forward.loss = loss.writable();
///   forward.statistics = statistics.writable();
///   require(cross_entropy_forward(forward));  // loss is 1.0986
///                                             // statistics is 0, 1.0986, 0, 0
struct CrossEntropyForward {
  ConstView logits, target;
  std::int32_t ignore_index = -100;
  View loss, statistics;
  Workspace workspace;
};

/// d_logits_v = (softmax(logits)_v - [v = target]) / n * d_loss where the row is counted, else 0. `loss` is not read. The
/// target has no gradient. d_logits may be logits itself: a language model's largest tensor is then there once.
///
/// Shapes   d_loss [] (f64);  d_logits as logits.
/// Accuracy at the target softmax - 1 is formed by expm1: near 1 it keeps its digits. On cuda a row whose target is outside
///          has d_logits of NaN.
/// Memory   rows of d_logits may be strided. CUDA: workspace for the count.
/// Example
///   const Tensor d_loss = Tensor::full({}, 3, DType::f64);
///   Tensor d_logits = Tensor::empty({2, 3}, DType::f64);
///   CrossEntropyBackward backward;
///   static_cast<CrossEntropyForward&>(backward) = forward;
///   backward.d_loss = d_loss;
///   backward.d_logits = {d_logits.writable(), WriteMode::overwrite};
///   require(cross_entropy_backward(backward));  // d_logits is 1, -2, 1, 0, 0, 0
struct CrossEntropyBackward : CrossEntropyForward {
  ConstView d_loss;
  Gradient d_logits;
};

SCANTAPE_DECLARE_OP(cross_entropy_forward, CrossEntropyForward);
SCANTAPE_DECLARE_OP(cross_entropy_backward, CrossEntropyBackward);

}  // namespace scantape
