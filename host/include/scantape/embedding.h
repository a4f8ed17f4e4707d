#pragma once

#include "scantape/op.h"

namespace scantape {

/// Rows of a table by their indices:  y[...] = weight[ids[...]].
///
/// Shapes   ids [...], weight [V, D], y [..., D].
/// Dtypes   ids: i32. weight, y: f32, f64, bf16 or f16, equal; the gradient of weight is f32 beside 16 bits. An id is no
///          float of the type of the data: bf16 holds whole numbers up to 256.
/// Accuracy exact: copies.
/// Memory   rows of weight and y may be strided; ids are contiguous. No workspace.
/// Async    enqueues on `stream`; does not synchronise or allocate. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap), cuda. An id outside 0 to V - 1 is invalid_argument on
///          the CPU, named, and nothing is written. On cuda nobody looks at ids before the kernel runs: such a row of y is
///          NaN, so that a loss made of it is, too, and no memory outside weight is read.
/// Example
///   const Tensor ids = Tensor::from({4}, std::vector<std::int32_t>{2, 0, 2, 1});
///   const Tensor weight = Tensor::from({3, 2}, std::vector<double>{1, 2, 3, 4, 5, 6});
///   Tensor y = Tensor::empty({4, 2}, DType::f64);
///   EmbeddingForward forward;
///   forward.ids = ids;
///   forward.weight = weight;
///   forward.y = y.writable();
///   require(embedding_forward(forward));  // y is 5, 6, 1, 2, 5, 6, 3, 4
struct EmbeddingForward {
  ConstView ids, weight;
  View y;
  Workspace workspace;
};

/// d_weight[v] = sum of d_y over all places whose id is v; zero for a row that no id names. `weight` and `y` are not read,
/// the ids have no gradient. An id outside 0 to V - 1 is an error on the CPU; on cuda its d_y is left out.
///
/// Shapes   d_y as y;  d_weight as weight.
/// Accuracy each sum has one order, that of the places, and no atomics: the same input gives the same bits. CPU: summed in
///          f64. CUDA: in parts of 64 places, then the parts in order, in f32 for f32 and 16 bits.
/// Memory   rows of d_y and d_weight may be strided. CUDA: workspace by embedding_backward_workspace: 16 bytes an id, and
///          2 D numbers for each 64 ids. At most 2^32 ids there (unsupported beyond).
/// Example
///   const Tensor d_y = Tensor::from({4, 2}, std::vector<double>{1, 10, 2, 20, 3, 30, 4, 40});
///   Tensor d_weight = Tensor::empty({3, 2}, DType::f64);
///   EmbeddingBackward backward;
///   backward.ids = ids;
///   backward.d_y = d_y;
///   backward.d_weight = {d_weight.writable(), WriteMode::overwrite};
///   require(embedding_backward(backward));  // d_weight is 2, 20, 4, 40, 4, 40
struct EmbeddingBackward : EmbeddingForward {
  ConstView d_y;
  Gradient d_weight;
};

/// The largest number of ids that backward sorts on cuda.
inline constexpr std::int64_t kMostIdsOnCuda = std::int64_t{1} << 32;

SCANTAPE_DECLARE_OP(embedding_forward, EmbeddingForward);
SCANTAPE_DECLARE_OP(embedding_backward, EmbeddingBackward);

}  // namespace scantape
