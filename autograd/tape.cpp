#include "scantape/autograd/tape.h"

#include <algorithm>

namespace scantape::autograd {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(Code::invalid_argument, message);
}

std::string describe(const Tensor& tensor) {
  if (!tensor.present()) return "absent";
  return name(tensor.shape()) + " " + name(tensor.dtype()) + " on " + name(tensor.device());
}

void require_like(const Tensor& tensor, const Tensor& model, const std::string& what) {
  if (!tensor.present() || tensor.shape() != model.shape() || tensor.dtype() != model.dtype() ||
      tensor.device() != model.device())
    refuse(what + " is " + describe(tensor) + ", wants " + describe(model));
}

}  // namespace

Saved::Saved(const Tensor& tensor) noexcept : tensor_(tensor), version_(tensor.version()) {}

ConstView Saved::read(const char* op, const char* tensor_name) const {
  if (tensor_.version() != version_)
    refuse(std::string(op) + ": " + tensor_name + " was changed in place after the op saved it for backward");
  return tensor_.view();
}

std::int64_t Tape::add_slot(const Tensor& value) {
  slots_.push_back(
      {value.shape(), value.dtype(), value.device(), Tensor(), false, false, WriteMode::overwrite});
  return static_cast<std::int64_t>(slots_.size()) - 1;
}

std::int64_t Tape::slot_of(const Variable& variable, const char* what) const {
  if (variable.tape_ != this) refuse(std::string("tape: ") + what + " is not recorded on this tape");
  return variable.slot_;
}

Variable Tape::leaf(const Tensor& value) {
  return leaf(value, Tensor());
}

Variable Tape::leaf(const Tensor& value, const Tensor& gradient, WriteMode mode) {
  if (!value.present()) refuse("tape: a leaf wants a value");
  if (is_16_bit(value.dtype()))
    refuse(std::string("tape: a leaf is ") + name(value.dtype()) +
           ", wants f32 or f64: the gradients of parameters are never narrower than f32");
  if (value.dtype() == DType::i32)
    refuse("tape: a leaf is i32, which has no gradient: indices are constants");
  if (gradient.present()) require_like(gradient, value, "tape: the gradient of a leaf");
  if (mode != WriteMode::overwrite && mode != WriteMode::accumulate)
    refuse("tape: the gradient of a leaf is overwritten or accumulated; what wants none is a constant");
  if (mode == WriteMode::accumulate && !gradient.present())
    refuse("tape: a leaf that accumulates wants a gradient");
  const std::int64_t slot = add_slot(value);
  slots_[static_cast<std::size_t>(slot)].leaf = true;
  slots_[static_cast<std::size_t>(slot)].gradient = gradient;
  slots_[static_cast<std::size_t>(slot)].first_write = mode;
  return Variable(value, this, slot);
}

std::vector<Variable> Tape::record(const char* op, const std::vector<const Variable*>& inputs,
                                   const std::vector<Tensor>& outputs, Backward backward) {
  if (released_) refuse(std::string(op) + ": this tape has run its backward; a new step wants a new tape");
  if (!backward) refuse(std::string(op) + ": has no backward, so it cannot be recorded");
  Node node{op, {}, {}, std::move(backward)};
  for (const Variable* input : inputs) node.inputs.push_back(input->recorded() ? slot_of(*input, op) : -1);
  std::vector<Variable> recorded;
  for (const Tensor& output : outputs) {
    if (!output.present()) {
      node.outputs.push_back(-1);
      recorded.emplace_back();
      continue;
    }
    node.outputs.push_back(add_slot(output));
    recorded.push_back(Variable(output, this, node.outputs.back()));
  }
  nodes_.push_back(std::move(node));
  return recorded;
}

void Tape::backward(const Variable& loss, bool retain) {
  if (!loss.present() || loss.value().elements() != 1)
    refuse("tape: backward wants a loss of one element, got " +
           (loss.present() ? name(loss.shape()) : std::string("an absent variable")));
  backward({{loss, Tensor::full(loss.shape(), 1.0, loss.dtype(), loss.device())}}, retain);
}

void Tape::backward(const std::vector<Seed>& seeds, bool retain) {
  begin(seeds, retain);
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) run(*node, retain);
  finish();
}

void Tape::begin(const std::vector<Seed>& seeds, bool retain) {
  if (released_)
    refuse("tape: backward has run already and released what it needs; the first run wants retain");
  if (seeds.empty()) refuse("tape: backward wants at least one cotangent");
  for (Slot& slot : slots_) {
    slot.written = false;
    if (!slot.leaf) slot.gradient = Tensor();
  }
  for (const Seed& seed : seeds) {
    Slot& slot = slots_[static_cast<std::size_t>(slot_of(seed.variable, "what backward starts from"))];
    require_like(seed.cotangent, seed.variable.value(), "tape: a cotangent");
    if (slot.written) refuse("tape: a variable is given two cotangents");
    if (slot.leaf && slot.first_write == WriteMode::accumulate)
      refuse("tape: backward cannot start from a leaf that accumulates");
    if (slot.gradient.present())
      slot.gradient.copy_from(seed.cotangent);
    else
      slot.gradient = seed.cotangent.clone();
    slot.written = true;
  }
  // Set before the first op runs: one that throws has lost what the ops after it saved.
  released_ = !retain;
}

void Tape::run(Node& node, bool retain) {
  const auto written = [&](std::int64_t slot) {
    return slot >= 0 && slots_[static_cast<std::size_t>(slot)].written;
  };
  if (std::any_of(node.outputs.begin(), node.outputs.end(), written)) {
    // A variable that is given to the op twice has one gradient and two writers: they take turns, one call each.
    std::vector<bool> served(node.inputs.size(), false);
    for (bool left = true; left;) {
      left = false;
      std::vector<bool> active(node.inputs.size(), false);
      std::vector<std::int64_t> taken;
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] < 0 || served[i]) continue;
        if (std::find(taken.begin(), taken.end(), node.inputs[i]) != taken.end()) {
          left = true;
          continue;
        }
        taken.push_back(node.inputs[i]);
        active[i] = served[i] = true;
      }
      BackwardPass pass(*this, node, active);
      node.backward(pass);
      pass.require_complete();
    }
  }
  if (retain) return;
  for (std::int64_t slot : node.outputs)
    if (slot >= 0) slots_[static_cast<std::size_t>(slot)].gradient = Tensor();
  node.backward = nullptr;  // releases what the op saved
}

void Tape::finish() {
  for (Slot& slot : slots_) {
    if (!slot.leaf || slot.written || slot.first_write == WriteMode::accumulate) continue;
    if (slot.gradient.present())
      slot.gradient.fill_zero();
    else
      slot.gradient = Tensor::zeros(slot.shape, slot.dtype, slot.device);
  }
}

Tensor Tape::gradient(const Variable& leaf) const {
  const Slot& slot =
      slots_[static_cast<std::size_t>(slot_of(leaf, "the variable whose gradient is asked for"))];
  if (!slot.leaf) refuse("tape: only leaves keep their gradient");
  if (!slot.gradient.present()) refuse("tape: there is no gradient before backward");
  return slot.gradient;
}

ConstView BackwardPass::cotangent(int output) const {
  const std::int64_t index = node_.outputs.at(static_cast<std::size_t>(output));
  if (index < 0) return {};
  const Tape::Slot& slot = tape_.slots_[static_cast<std::size_t>(index)];
  return slot.written ? slot.gradient.view() : ConstView();
}

Gradient BackwardPass::gradient(int input) {
  const auto i = static_cast<std::size_t>(input);
  if (!active_.at(i)) return {};
  Tape::Slot& slot = tape_.slots_[static_cast<std::size_t>(node_.inputs[i])];
  if (!slot.gradient.present()) slot.gradient = Tensor::empty(slot.shape, slot.dtype, slot.device);
  const WriteMode mode = slot.written ? WriteMode::accumulate : slot.first_write;
  slot.written = true;
  active_[i] = false;
  return {slot.gradient.writable(), mode};
}

void BackwardPass::require_complete() const {
  for (std::size_t i = 0; i < active_.size(); ++i)
    if (active_[i])
      refuse(std::string(node_.op) + ": its backward gives no gradient for input " + std::to_string(i) +
             ", which wants one");
}

Device BackwardPass::device() const noexcept {
  for (std::int64_t slot : node_.outputs)
    if (slot >= 0) return tape_.slots_[static_cast<std::size_t>(slot)].device;
  return kCpu;
}

std::vector<Variable> record(const char* op, const std::vector<const Variable*>& inputs,
                             const std::vector<Tensor>& outputs, Tape::Backward backward) {
  Tape* tape = nullptr;
  for (const Variable* input : inputs) {
    if (!input->recorded() || input->tape() == tape) continue;
    if (tape != nullptr) refuse(std::string(op) + ": its inputs are recorded on two tapes");
    tape = input->tape();
  }
  if (tape != nullptr) return tape->record(op, inputs, outputs, std::move(backward));
  return {outputs.begin(), outputs.end()};
}

}  // namespace scantape::autograd
