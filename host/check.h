#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "scantape/status.h"
#include "scantape/view.h"

namespace scantape {

/// How a tensor may lie in memory: evenly spaced rows of contiguous elements; the same with the last two dimensions as
/// one row; or without any gap.
enum class Layout { rows, pair_rows, dense };

/// What an op wants of one tensor.
///
/// `shape` names the dimensions, separated by spaces: a letter is a size, equal wherever it stands in the
/// op's arguments; a number is that size; "..." (first only) is any number of leading dimensions, equal
/// wherever it stands.
/// "" is a scalar. "C|B L C" allows either. The argument that names a letter first fixes its size.
/// `dtype` is that of the op's first tensor unless it is given.
struct Wanted {
  const char* shape;
  Layout layout = Layout::dense;
  std::optional<DType> dtype;
  bool wide = false;

  Wanted(const char* wanted_shape, Layout wanted_layout = Layout::dense,
         std::optional<DType> wanted_dtype = std::nullopt) noexcept
      : shape(wanted_shape), layout(wanted_layout), dtype(wanted_dtype) {}
};

/// What is never narrower than f32 - decays, states, statistics, gradients of parameters: f32 where the first tensor has
/// 16 bits, else of its type like all others.
inline Wanted wide(const char* shape, Layout layout = Layout::dense) noexcept {
  Wanted wanted(shape, layout);
  wanted.wide = true;
  return wanted;
}

/// Checks the arguments of one call, in the order in which they are given, and words the first error. All
/// checks after an error do nothing. Looks at addresses, never at what is stored there. The views must outlive the Check.
///
///   Check check("layer_norm");
///   check.input("x", args.x, {"... E", Layout::rows});
///   check.input("weight", args.weight, "E");
///   check.output("y", args.y, {"... E", Layout::rows});
///   check.may_be("y", "x");
///   return check.finish();
class Check {
 public:
  explicit Check(const char* op) noexcept : op_(op) {}

  /// To be called first: the op takes data of bf16 and f16 as well.
  void takes_16_bits() noexcept { takes_16_bits_ = true; }

  void input(const char* argument, const ConstView& view, const Wanted& wanted) noexcept;
  void optional_input(const char* argument, const ConstView& view, const Wanted& wanted) noexcept;
  void output(const char* argument, const View& view, const Wanted& wanted) noexcept;
  void optional_output(const char* argument, const View& view, const Wanted& wanted) noexcept;
  /// An output where it is wanted; not looked at where it is skipped.
  void gradient(const char* argument, const Gradient& gradient, const Wanted& wanted) noexcept;

  /// Allows `output` to be exactly the memory of `other`.
  void may_be(const char* output, const char* other) noexcept;
  /// The dimension of this letter must not be 0.
  void not_empty(char letter) noexcept;
  /// It must lie in least..most.
  void within(char letter, std::int64_t least, std::int64_t most) noexcept;
  /// From here on the letter stands for `size`. `origin` says why: "the number of groups", or, of the argument that fixed
  /// the letter `of`, "one less than the last dimension of".
  void stands_for(char letter, std::int64_t size, const char* origin, char of = 0) noexcept;
  /// A scalar option: an error that says `wanted` where it does not fit.
  void number(const char* argument, double value, bool fits, const char* wanted) noexcept;
  /// Any other condition: an error that says `message` where it does not hold.
  void require(bool holds, const char* message) noexcept;

  /// Outputs must not overlap anything they are not allowed to; then the outcome of all checks.
  Status finish() noexcept;

 private:
  static constexpr int kMaxArguments = 26;
  static constexpr int kMaxLetters = 8;

  struct Argument {
    const char* name;
    const ConstView* view;
    const char* shape;  // as wanted
    bool written;
    Rows rows;
  };
  struct Letter {
    char letter;
    std::int64_t size;
    int argument;  // which fixed it
    int axis;
    const char* origin =
        nullptr;  // in words, where it is no dimension of the argument, or there is none (-1)
  };
  struct Pair {
    const char* output;
    const char* other;
  };
  /// The sizes that letters and "..." stand for so far.
  struct Sizes {
    std::array<Letter, kMaxLetters> letters;
    int count = 0;
    Shape leading;
    int leading_argument = -1;

    const Letter* find(char letter) const noexcept;
  };

  void tensor(const char* argument, const ConstView& view, const Wanted& wanted, bool written) noexcept;
  bool check_dtype(const char* argument, const ConstView& view, const Wanted& wanted) noexcept;
  bool check_device(const char* argument, const ConstView& view) noexcept;
  bool check_shape(const char* argument, const ConstView& view, const char* wanted) noexcept;
  bool check_memory(const char* argument, const ConstView& view, Layout layout, Rows* rows) noexcept;
  bool match(const Shape& shape, const char* wanted) noexcept;
  bool overlap_allowed(const Argument& output, const Argument& other) const noexcept;
  std::string describe(const char* wanted) const;
  std::string describe_form(const char* wanted) const;
  std::string origin(const char* wanted) const;
  std::string full_name(int argument) const;
  template <class Words>
  void refuse(const Words& words) noexcept;

  const char* op_;
  Status status_;
  std::array<Argument, kMaxArguments> arguments_;
  int count_ = 0;
  Sizes sizes_;
  int dtype_from_ = -1;
  bool takes_16_bits_ = false;
  std::array<Pair, 4> pairs_;
  int pair_count_ = 0;
};

/// The caller's scratch memory must hold `wanted` bytes.
Status check_workspace(const char* op, const Workspace& workspace, std::int64_t wanted) noexcept;

}  // namespace scantape
