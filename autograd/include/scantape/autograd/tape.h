#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "scantape/autograd/variable.h"

namespace scantape::autograd {

class BackwardPass;

/// A tensor kept for backward, with the version it had. Reading it after its storage was changed is an error.
class Saved {
 public:
  Saved() noexcept = default;            // nothing saved: reads as an absent argument
  Saved(const Tensor& tensor) noexcept;  // NOLINT
  Saved(const Variable& variable) noexcept : Saved(variable.value()) {}  // NOLINT

  /// Throws Error(invalid_argument) naming op and tensor where the storage has changed since.
  ConstView read(const char* op, const char* tensor_name) const;

 private:
  Tensor tensor_;
  std::uint64_t version_ = 0;
};

/// Records ops in the order in which they ran and runs their backwards in the reverse order: one loop, no recursion.
///
/// Each gradient is written by its first writer and added to by later ones inside the op's kernel. What an op saved is
/// released as the loop passes it, unless `retain`. Gradients of inner variables are freed when their op has run.
/// One tape serves one thread; tapes are independent of each other.
/// Example
///   #include "scantape/autograd/ops.h"
///   autograd::Tape tape;
///   const autograd::Variable x = tape.leaf(Tensor::from({2}, std::vector<double>{0, 2}));
///   const autograd::Variable y = autograd::silu(x);
///   tape.backward({{y, Tensor::from({2}, std::vector<double>{1, 10})}});
///   const Tensor d_x = tape.gradient(x);  // d_x is 0.5, 10.9078
class Tape {
 public:
  /// The backward of one op: fills the gradients that `pass` wants.
  using Backward = std::function<void(BackwardPass& pass)>;

  Tape() = default;
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// A variable whose gradient is wanted, f32 or f64: data of 16 bits enters as a constant, and what reads it computes the
  /// gradients of f32 parameters. With a `gradient` tensor (shape, dtype, device of the value) backward writes
  /// there: overwriting it, or adding to it where `mode` is accumulate. A leaf that no gradient reaches gets zeros
  /// (overwrite) or is left as it is (accumulate).
  Variable leaf(const Tensor& value);
  Variable leaf(const Tensor& value, const Tensor& gradient, WriteMode mode = WriteMode::overwrite);

  struct Seed {
    Variable variable;
    Tensor cotangent;
  };

  /// Runs backward from a variable of one element with cotangent 1, or from several with their own cotangents.
  /// Errors   Error(invalid_argument): nothing recorded, a second run without `retain` before, a cotangent whose shape,
  ///          dtype or device is not its variable's, a saved tensor changed in place.
  void backward(const Variable& loss, bool retain = false);
  void backward(const std::vector<Seed>& seeds, bool retain = false);

  /// The gradient of a leaf after backward (zeros where none reached it).
  Tensor gradient(const Variable& leaf) const;

  std::int64_t nodes() const noexcept { return static_cast<std::int64_t>(nodes_.size()); }

  /// Puts an op on the tape. Called by ops through Recording; outputs without a gradient of their own (saved
  /// statistics) are not recorded.
  std::vector<Variable> record(const char* op, const std::vector<const Variable*>& inputs,
                               const std::vector<Tensor>& outputs, Backward backward);

 private:
  friend class BackwardPass;

  struct Slot {
    Shape shape;
    DType dtype;
    Device device;
    Tensor gradient;  // absent until it is needed
    bool leaf = false;
    bool written = false;  // by this run of backward
    WriteMode first_write = WriteMode::overwrite;
  };
  struct Node {
    const char* op;
    std::vector<std::int64_t> inputs;  // slots; -1 for constants and absent ones
    std::vector<std::int64_t> outputs;
    Backward backward;
  };

  std::int64_t add_slot(const Tensor& value);
  std::int64_t slot_of(const Variable& variable, const char* what) const;
  void run(Node& node, bool retain);
  void begin(const std::vector<Seed>& seeds, bool retain);
  void finish();

  std::vector<Slot> slots_;
  std::vector<Node> nodes_;
  bool released_ = false;
};

/// What a backward sees: the cotangents of its op's outputs and the targets of its inputs' gradients.
class BackwardPass {
 public:
  const char* op() const noexcept { return node_.op; }

  /// The cotangent of output i, in the order of recording; absent where no gradient reached it (it means zero).
  ConstView cotangent(int output) const;
  /// Where the gradient of input i goes and how; skip where it is not wanted.
  Gradient gradient(int input);

  /// Calls an op's backward with a workspace of the size it asks for, and throws where it fails.
  template <class Args>
  void call(Status (*function)(const Args&, Stream) noexcept, std::int64_t (*workspace)(const Args&) noexcept,
            Args& args);

 private:
  friend class Tape;
  BackwardPass(Tape& tape, const Tape::Node& node, std::vector<bool> active)
      : tape_(tape), node_(node), active_(std::move(active)) {}
  void require_complete() const;
  Device device() const noexcept;

  Tape& tape_;
  const Tape::Node& node_;
  std::vector<bool>
      active_;  // inputs whose gradient this call still owes; a variable given twice is served in two
};

/// Runs an op's function on `device` with a workspace of the size that it asks for; throws Error where it fails.
template <class Args>
void call_op(Device device, Status (*function)(const Args&, Stream) noexcept,
             std::int64_t (*workspace)(const Args&) noexcept, Args& args) {
  const std::int64_t bytes = workspace(args);
  Tensor scratch;
  if (bytes > 0) {
    scratch = Tensor::empty({(bytes + 7) / 8}, DType::f64, device);
    args.workspace = {scratch.writable().as<void>(), bytes};
  }
  require(function(args, current_stream()));
}

template <class Args>
void BackwardPass::call(Status (*function)(const Args&, Stream) noexcept,
                        std::int64_t (*workspace)(const Args&) noexcept, Args& args) {
  call_op(device(), function, workspace, args);
}

/// Puts an op on the tape of its inputs, or on none where all are constants. The op has run already: recording changes
/// no bits. Inputs on two tapes are an error that names the op.
std::vector<Variable> record(const char* op, const std::vector<const Variable*>& inputs,
                             const std::vector<Tensor>& outputs, Tape::Backward backward);

}  // namespace scantape::autograd
