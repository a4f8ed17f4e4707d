#include "scantape/discretized_scan.h"

#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"

namespace scantape::autograd {

Scanned discretized_scan(const Variable& dt, const Variable& A, const Variable& u, const Variable& h0,
                         const DiscretizedScanOptions& options) {
  DiscretizedScanForward forward;
  forward.dt = dt.value();
  forward.A = A.value();
  forward.u = u.value();
  forward.h0 = h0.value();
  forward.start = options.start;
  forward.method = options.method;
  forward.direction = options.direction;
  Tensor h = Tensor::empty(u.shape(), u.dtype(), u.device());
  Tensor final_state;
  forward.h = h.writable();
  if (u.shape().rank() == 3) {  // a wrong rank is left to the op's own check, which words it
    final_state = Tensor::empty({u.shape()[0], u.shape()[2]}, u.dtype(), u.device());
    forward.final_state = final_state.writable();
  }
  call_op(u.device(), discretized_scan_forward, discretized_scan_forward_workspace, forward);

  // Decays and factors of the input are formed again.
  auto outputs = record(
      "discretized_scan", {&dt, &A, &u, &h0}, {h, final_state},
      [dt = Saved(dt), A = Saved(A), u = Saved(u), h0 = Saved(h0), h = Saved(h), start = Saved(options.start),
       method = options.method, direction = options.direction](BackwardPass& pass) {
        DiscretizedScanBackward backward;
        backward.dt = dt.read(pass.op(), "dt");
        backward.A = A.read(pass.op(), "A");
        backward.u = u.read(pass.op(), "u");
        backward.h0 = h0.read(pass.op(), "h0");
        backward.start = start.read(pass.op(), "start");
        backward.method = method;
        backward.direction = direction;
        static_cast<ConstView&>(backward.h) = h.read(pass.op(), "h");
        backward.d_h = pass.cotangent(0);
        backward.d_final_state = pass.cotangent(1);
        backward.d_dt = pass.gradient(0);
        backward.d_A = pass.gradient(1);
        backward.d_u = pass.gradient(2);
        backward.d_h0 = pass.gradient(3);
        pass.call(discretized_scan_backward, discretized_scan_backward_workspace, backward);
      });
  return {outputs[0], outputs[1]};
}

}  // namespace scantape::autograd
