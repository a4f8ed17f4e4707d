#pragma once

#include <string>
#include <vector>

#include "scantape/view.h"

namespace scantape {

/// Whether an op has gradients, steps an optimiser or does neither.
enum class OpKind { differentiable, optimiser, utility };

const char* name(OpKind kind) noexcept;  // "differentiable"

/// One tensor of an op's contract.
struct OpArgument {
  std::string name;
  std::string shape;  ///< by letters, "[B, L, C]"; alternatives separated by " or "
  bool optional = false;
  bool gradient = false;              ///< an input with d_<name>, an output with a cotangent d_<name>
  bool gradient_when_absent = false;  ///< d_<name> may be asked for though the argument is left out
  bool f64 = false;                   ///< always f64; else of the type of the op's tensors
  bool i32 = false;                   ///< always i32: indices
  bool wide = false;                  ///< f32 beside tensors of 16 bits
  bool wide_gradient = false;         ///< its gradient is f32 beside tensors of 16 bits
  bool in_place = false;              ///< an output that is read before it is written
  std::string only_with = {};  ///< the op has it only with these values of an option: "form=diagonal|dense"

  bool exists_with(const std::string& option, const std::string& value) const;
};

/// A choice that selects other code: a method, or whether an optional argument is given.
struct OpOption {
  std::string name;
  std::vector<std::string> values;
};

/// A scalar that is no tensor, with its range.
struct OpNumber {
  std::string name, wanted;
  double standard;
};

/// What there is to know of an op without calling it: the contract header as a table.
struct OpInfo {
  std::string name;
  OpKind kind = OpKind::differentiable;
  std::vector<OpArgument> inputs, outputs;
  std::vector<OpOption> options;
  std::vector<OpNumber> numbers;
  std::vector<DType> dtypes;
  std::vector<std::string> limits;  ///< beyond "any size": "L >= 1"

  bool has_backward() const noexcept { return kind == OpKind::differentiable; }
};

/// Every op of the library, in the order of the root meson.build. May throw std::bad_alloc at its first call.
/// Example
///   const bool known = find_op("scan")->has_backward() && find_op("no such op") == nullptr;  // known is 1
const std::vector<OpInfo>& registry();
/// Null where no op has the name.
const OpInfo* find_op(const std::string& name);

}  // namespace scantape
