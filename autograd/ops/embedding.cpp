#include "scantape/embedding.h"

#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"

namespace scantape::autograd {

Variable embedding(const Tensor& ids, const Variable& weight) {
  EmbeddingForward forward;
  forward.ids = ids;
  forward.weight = weight.value();
  Shape shape = ids.shape();
  shape.append(weight.shape().back());
  Tensor y = Tensor::empty(shape, weight.dtype(), weight.device());
  forward.y = y.writable();
  call_op(weight.device(), embedding_forward, embedding_forward_workspace, forward);

  return record("embedding", {&weight}, {y}, [ids = Saved(ids)](BackwardPass& pass) {
    EmbeddingBackward backward;
    backward.ids = ids.read(pass.op(), "ids");
    backward.d_y = pass.cotangent(0);
    backward.d_weight = pass.gradient(0);
    pass.call(embedding_backward, embedding_backward_workspace, backward);
  })[0];
}

}  // namespace scantape::autograd
