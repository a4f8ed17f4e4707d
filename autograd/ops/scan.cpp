#include "scantape/scan.h"

#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"

namespace scantape::autograd {

Scanned scan(const Variable& a, const Variable& b, const Variable& h0, const ScanOptions& options) {
  ScanForward forward;
  forward.a = a.value();
  forward.b = b.value();
  forward.h0 = h0.value();
  forward.start = options.start;
  forward.direction = options.direction;
  forward.minus_one = options.minus_one;
  Tensor h = Tensor::empty(b.shape(), b.dtype(), b.device());
  Tensor final_state;
  forward.h = h.writable();
  if (b.shape().rank() >= 3) {
    Shape state{b.shape()[0]};
    for (int axis = 2; axis < b.shape().rank(); ++axis) state.append(b.shape()[axis]);
    final_state = Tensor::empty(state, b.dtype(), b.device());
    forward.final_state = final_state.writable();
  }
  call_op(b.device(), scan_forward, scan_forward_workspace, forward);

  // b's values are not needed again: its gradient wants a and h alone.
  auto outputs = record("scan", {&a, &b, &h0}, {h, final_state},
                        [a = Saved(a), h0 = Saved(h0), h = Saved(h), start = Saved(options.start),
                         direction = options.direction, minus_one = options.minus_one](BackwardPass& pass) {
                          ScanBackward backward;
                          backward.a = a.read(pass.op(), "a");
                          backward.h0 = h0.read(pass.op(), "h0");
                          backward.start = start.read(pass.op(), "start");
                          backward.direction = direction;
                          backward.minus_one = minus_one;
                          static_cast<ConstView&>(backward.h) = h.read(pass.op(), "h");
                          backward.d_h = pass.cotangent(0);
                          backward.d_final_state = pass.cotangent(1);
                          backward.d_a = pass.gradient(0);
                          backward.d_b = pass.gradient(1);
                          backward.d_h0 = pass.gradient(2);
                          pass.call(scan_backward, scan_backward_workspace, backward);
                        });
  return {outputs[0], outputs[1]};
}

}  // namespace scantape::autograd
