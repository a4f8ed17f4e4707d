#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rng.h"
#include "scantape/device.h"
#include "scantape/error.h"
#include "scantape/op.h"

/// What every check and every benchmark knows of an op: its cases. A case says which tensors go in, how they
/// are filled, what comes out, which gradients there are and how far off they may be. The runners (runner.h)
/// turn it into finite differences, comparisons, write-mode tests and timings, so nobody writes a list of
/// shapes twice.
namespace scantape::cases {

using Values = std::vector<double>;
using Fill = std::function<Values(Rng&, const Shape&)>;

/// Largest error allowed, by the type of the run.
struct Budget {
  double f64 = 1e-10;
  double f32 = 1e-5;
  /// Of what is stored in 16 bits: times the error of rounding the exact result once (rounding_error). Twice is what
  /// ops promise. All compute in f32, so that little more than once is what they do; cutting off would be twice.
  double rounding = 1.25;
  double of(DType dtype) const noexcept {
    return dtype == DType::f64 ? f64 : is_16_bit(dtype) ? rounding : f32;
  }
};

/// slice: relative to |want| + RMS of the element's slice (autograd::slice_error); tensor: the same, all of it as one slice;
/// element: to |want| alone.
enum class ErrorRule { slice, tensor, element };

/// The type of a tensor: that of the run, that but f32 for 16 bits, or f64 or i32 whatever the run is.
enum class ElementType { data, wide, f64, i32 };

inline DType type_of(ElementType type, DType dtype) noexcept {
  switch (type) {
    case ElementType::data:
      return dtype;
    case ElementType::wide:
      return at_least_f32(dtype);
    case ElementType::f64:
      return DType::f64;
    case ElementType::i32:
      return DType::i32;
  }
  return dtype;
}

struct Input {
  std::string name{};
  Shape shape{};
  Fill fill{};
  bool present = true;
  bool gradient = false;       ///< d_<name> is asked for (also where an absent h0 stands for zeros)
  bool zero_gradient = false;  ///< it is zero everywhere, by what the op is; else an all-zero one fails
  bool items = false;          ///< axis 0 counts items that must not depend on one another
  bool strided = false;        ///< rows may be strided
  int row_axes = 1;            ///< of which dimensions, from the last on, a row is made
  bool saved = true;           ///< backward reads it (only the traffic of a benchmark depends on this)
  ElementType type = ElementType::data;
  ElementType gradient_type = ElementType::data;  ///< of d_<name>, beside a `type` of data
  double step = 1;                                ///< finite differences move by 1e-5 of this ...
  bool relative_step = false;                     ///< ... times |x|
  bool differences = true;  ///< false: its gradient drowns in the rounding of the outputs
  ErrorRule rule = ErrorRule::slice;
  Budget budget{1e-10, 1e-4};  ///< of the gradient

  ElementType type_of_gradient() const noexcept { return type == ElementType::data ? gradient_type : type; }
};

/// Brings an output into a form that can be compared across types, e.g. statistics in scaled units.
using Canonical = std::function<Values(const Values&, const Shape&, DType)>;

struct Output {
  std::string name{};
  Shape shape{};
  bool present = true;
  bool cotangent = true;  ///< d_<name> is given to backward
  bool saved = false;     ///< backward reads it
  bool zero = false;      ///< it may be zero everywhere; else an all-zero one fails
  bool items = false;
  bool strided = false;
  int row_axes = 1;
  ElementType type = ElementType::data;
  Fill initial{};  ///< where the op updates it in place; else it starts as NaN
  ErrorRule rule = ErrorRule::slice;
  Budget budget{};
  Canonical canonical{};
  Shape canonical_shape{};
};

/// What is handed to an adapter: views by the names of the contract. An argument that the case leaves out is
/// absent.
class Call {
 public:
  enum class Implementation { routed, reference };

  Implementation implementation = Implementation::routed;
  Device device;
  std::vector<std::pair<std::string, ConstView>> inputs, cotangents;
  std::vector<std::pair<std::string, View>> outputs;
  std::vector<std::pair<std::string, Gradient>> gradients;
  std::function<Workspace(std::int64_t)> workspace;

  ConstView input(std::string_view name) const { return find(inputs, name); }
  View output(std::string_view name) const { return find(outputs, name); }
  ConstView cotangent(std::string_view name) const { return find(cotangents, name); }
  Gradient gradient(std::string_view name) const { return find(gradients, name); }

 private:
  template <class T>
  static T find(const std::vector<std::pair<std::string, T>>& list, std::string_view name) {
    for (const auto& [key, value] : list)
      if (key == name) return value;
    throw Error(Code::invalid_argument, "the case has no argument named " + std::string(name));
  }
};

/// The three functions of one direction of an op, as SCANTAPE_DECLARE_OP declares them.
template <class Args>
struct Direction {
  Status (*routed)(const Args&, Stream) noexcept;
  Status (*reference)(const Args&) noexcept;
  std::int64_t (*workspace)(const Args&) noexcept;
};
// What C++20 deduces by itself; clang does from version 17 on.
template <class Args>
Direction(Status (*)(const Args&, Stream) noexcept, Status (*)(const Args&) noexcept,
          std::int64_t (*)(const Args&) noexcept) -> Direction<Args>;

#define SCANTAPE_DIRECTION(function)                                                        \
  ::scantape::cases::Direction {                                                            \
    ::scantape::function, ::scantape::reference::function, ::scantape::function##_workspace \
  }

template <class Args>
Status run(const Direction<Args>& direction, Args args, const Call& call) {
  if (call.implementation == Call::Implementation::reference) return direction.reference(args);
  args.workspace = call.workspace(direction.workspace(args));
  return direction.routed(args, Stream{});
}

/// How tensors lie in memory: one after the other; with gaps between rows (where the contract allows it); or
/// starting one element past an aligned address.
enum class Layout { dense, strided, misaligned };

const char* name(Layout layout) noexcept;

struct Case {
  std::string op{};
  std::string name{};  ///< of the case, unique: "scan/B2-L129-C16/..."
  std::vector<std::pair<std::string, std::string>> options{};  ///< those of registry(), one value each
  std::vector<Input> inputs{};
  std::vector<Output> outputs{};
  std::function<Status(const Call&)> forward{}, backward{};  ///< no backward: the op has none
  Layout layout = Layout::dense;

  /// Changes the inputs of a run in 16 bits, for the reference, to what the op rounds before it computes anything.
  std::function<void(std::vector<Values>& inputs, DType dtype)> as_rounded{};

  /// Exact conditions beyond the budgets; returns what is wrong or nothing. Called with the outputs and,
  /// after a backward, the gradients (else empty), in the order of the lists above; in 16 bits all of them rounded.
  std::function<std::string(const std::vector<Values>& outputs, const std::vector<Values>& gradients)>
      check{};
  /// Outputs (or "d_x") that may lie where an input (or "d_y") lies.
  std::vector<std::pair<std::string, std::string>> aliases{};

  bool finite_differences = true;  ///< smooth around its inputs
  bool f64_only = false;           ///< its numbers are beyond f32
  bool in_16_bits = false;         ///< it also runs in bf16 and f16
  bool beyond_f16 = false;         ///< of these in bf16 alone: its numbers need the range
  bool cpu_only = false;           ///< larger than the op takes on cuda
  bool properties = false;         ///< small enough to run write modes, repetitions and the like on it
  bool benchmark = false;          ///< of a size that people use: timed, not tested
  double forward_operations = 0, backward_operations = 0;  ///< additions and multiplications

  std::string variant() const;  ///< "decay=varying,h0=present"
};

/// The types a case runs in.
std::vector<DType> dtypes(const Case& c);

/// Bytes that one direction has to move at least: each tensor once.
double forward_bytes(const Case& c, DType dtype);
double backward_bytes(const Case& c, DType dtype);

/// Every case of every op of the root meson.build, in its order.
const std::vector<Case>& all_cases();

struct OpEntry {
  const char* name;
  const char* kind;  ///< as the root meson.build states it
  std::vector<Case> (*cases)();
};
const std::vector<OpEntry>& op_entries();

/// Values of the axes that the covering sets share.
const std::vector<std::int64_t>& lengths();  // 1..70, 127, 128, 129, 257, 1000, 1025
const std::vector<std::int64_t>& states();   // 1, 3, 16, 64, 100
const std::vector<std::int64_t>& widths();   // 1, 31, 512, 1023

/// Fills.
Fill normal(double mean = 0, double deviation = 1);
Fill uniform(double low, double high);
Fill log_uniform(double low, double high, double sign = 1);
Fill constant(double value);
/// The same magnitudes with signs +, -, +, ...: both sides are in every slice, and the first is positive.
Fill both_signs(Fill magnitudes);

/// "B2-L129-E512" from {{"B", 2}, ...}.
std::string size_name(const std::vector<std::pair<const char*, std::int64_t>>& sizes);

}  // namespace scantape::cases
