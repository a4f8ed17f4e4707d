#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "scantape/view.h"

namespace scantape {

/// Work on a CUDA device that was recorded once and is replayed with one call, whatever it is made of: a whole training
/// step, say. Nothing on the host runs again but that call.
///
///   Tensor x = ..., target = ..., loss;
///   Graph graph = Graph::capture(kCuda, [&] {
///     autograd::Tape tape;
///     const autograd::Variable l = autograd::mse(model.forward(&tape, x), target);
///     tape.backward(l);
///     optimizer.step(l.value());
///     loss = l.value();
///   });
///   for (...) {
///     x.copy_from(...), target.copy_from(...);  // new numbers in the same memory
///     optimizer.set_learning_rate(...);
///     graph.replay();
///   }
///
/// The bits are those of the same calls without a graph. Movable, not copyable.
///
/// Example
///   #include "scantape/autograd/ops.h"
///   #include "scantape/device.h"
///   if (is_available(kCuda)) {
///     Tensor x = Tensor::full({2}, 1, DType::f64, kCuda), y;
///     Graph graph = Graph::capture(kCuda, [&] { y = autograd::silu(x).value(); });
///     x.copy_from(Tensor::full({2}, 2, DType::f64));
///     graph.replay();
///     const Tensor again = y;  // again is 1.7616, 1.7616
///   }
class Graph {
 public:
  /// Calls `step` twice: once as it is, so that it takes effect, asks for the memory that it needs and finds its
  /// algorithms; once to record what tensors, tapes and ops of this thread enqueue on `device`, without running it.
  ///
  /// Memory   Tensors made inside `step` lie in memory that the graph keeps; the second call finds there what the
  ///          first asked for. Tensors from outside are used where they are: keep them, and change their values in
  ///          place. A tensor that `step` leaves outside (`loss` above) is from then on what each replay writes.
  /// Errors   throws Error. invalid_argument: `device` is the CPU. cuda: the second call waited for the device (read
  ///          values, copied more than 64 bytes from or to the host), asked for more memory than the first, or used
  ///          another stream. What `step` throws is passed on. In each case the device is as after the first call.
  /// Threads  others may use the device meanwhile; a graph belongs to one at a time.
  static Graph capture(Device device, const std::function<void()>& step);

  Graph() noexcept;
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;
  ~Graph();

  /// Enqueues the whole on the default stream, behind what is there; waits for nothing. Throws Error(cuda), or
  /// Error(invalid_argument) for a graph without a capture.
  void replay();

  std::int64_t nodes() const noexcept;         ///< kernels, copies and fills
  std::int64_t memory_bytes() const noexcept;  ///< kept for the tensors made inside

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace scantape
