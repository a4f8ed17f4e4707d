#include "check.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace scantape {

namespace {

constexpr std::int64_t kWorkspaceAlignment = 256;
constexpr const char* kOrdinals[kMaxRank] = {"first", "second", "third", "fourth", "fifth", "sixth"};

// Walks over the dimensions of one alternative of a wanted shape: "... E" gives "...", "E".
class Tokens {
 public:
  explicit Tokens(const char* wanted) noexcept : position_(wanted) {}

  bool next() noexcept {
    while (*position_ == ' ') ++position_;
    token_ = position_;
    while (*position_ != ' ' && *position_ != '|' && *position_ != '\0') ++position_;
    return position_ != token_;
  }
  bool is_leading() const noexcept { return *token_ == '.'; }
  bool is_number() const noexcept { return *token_ >= '0' && *token_ <= '9'; }
  char letter() const noexcept { return *token_; }
  std::int64_t number() const noexcept { return std::atoll(token_); }
  std::string text() const { return std::string(token_, position_); }

 private:
  const char* position_;
  const char* token_ = nullptr;
};

// The alternative behind the next '|', or null.
const char* next_alternative(const char* wanted) noexcept {
  const char* bar = std::strchr(wanted, '|');
  return bar != nullptr ? bar + 1 : nullptr;
}

int count_dimensions(const char* wanted) noexcept {
  int count = 0;
  for (Tokens token(wanted); token.next();) count += token.is_leading() ? 0 : 1;
  return count;
}

bool has_leading(const char* wanted) noexcept {
  return *wanted == '.';
}

bool is_known(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::f64 || is_16_bit(dtype) || dtype == DType::i32;
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string strides_of(const ConstView& view) {
  std::vector<std::string> strides;
  for (int axis = 0; axis < view.rank(); ++axis) strides.push_back(std::to_string(view.strides[axis]));
  return "[" + join(strides) + "]";
}

// Elements from the first to behind the last; -1 where that does not fit.
std::int64_t extent(const Rows& rows) noexcept {
  std::int64_t steps = 0;
  std::int64_t end = 0;
  if (rows.count == 0 || rows.length == 0) return 0;
  if (__builtin_mul_overflow(rows.count - 1, rows.stride, &steps)) return -1;
  if (__builtin_add_overflow(steps, rows.length, &end)) return -1;
  return end;
}

bool overlap(const ConstView& a, const Rows& a_rows, const ConstView& b, const Rows& b_rows) noexcept {
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a.data);
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b.data);
  const std::uintptr_t a_end = a_begin + static_cast<std::uintptr_t>(extent(a_rows) * size_of(a.dtype));
  const std::uintptr_t b_end = b_begin + static_cast<std::uintptr_t>(extent(b_rows) * size_of(b.dtype));
  if (a_begin == a_end || b_begin == b_end || a_end <= b_begin || b_end <= a_begin) return false;

  // Two blocks of columns of one matrix lie between each other without touching.
  // One row alone has any step: it may lie in the gaps of the other.
  const auto step_of = [](const ConstView& view, const Rows& rows) {
    return static_cast<std::uintptr_t>(rows.stride * size_of(view.dtype));
  };
  const std::uintptr_t a_step = a_rows.count == 1 ? step_of(b, b_rows) : step_of(a, a_rows);
  const std::uintptr_t b_step = b_rows.count == 1 ? a_step : step_of(b, b_rows);
  if (a_step != b_step) return true;
  const auto a_width = static_cast<std::uintptr_t>(a_rows.length * size_of(a.dtype));
  const auto b_width = static_cast<std::uintptr_t>(b_rows.length * size_of(b.dtype));
  const std::uintptr_t distance =
      b_begin >= a_begin ? (b_begin - a_begin) % a_step : (a_step - (a_begin - b_begin) % a_step) % a_step;
  return distance < a_width || distance + b_width > a_step;
}

}  // namespace

template <class Words>
void Check::refuse(const Words& words) noexcept {
  try {
    status_ = Status::fail(Code::invalid_argument, std::string(op_) + ": " + words());
  } catch (...) {
    status_ = Status::fail(Code::invalid_argument, "");
  }
}

const Check::Letter* Check::Sizes::find(char letter) const noexcept {
  for (int i = 0; i < count; ++i) {
    if (letters[i].letter == letter) return &letters[i];
  }
  return nullptr;
}

void Check::input(const char* argument, const ConstView& view, const Wanted& wanted) noexcept {
  tensor(argument, view, wanted, false);
}

void Check::optional_input(const char* argument, const ConstView& view, const Wanted& wanted) noexcept {
  if (view.present) tensor(argument, view, wanted, false);
}

void Check::output(const char* argument, const View& view, const Wanted& wanted) noexcept {
  tensor(argument, view, wanted, true);
}

void Check::optional_output(const char* argument, const View& view, const Wanted& wanted) noexcept {
  if (view.present) tensor(argument, view, wanted, true);
}

void Check::gradient(const char* argument, const Gradient& gradient, const Wanted& wanted) noexcept {
  if (!status_.ok()) return;
  switch (gradient.mode) {
    case WriteMode::skip:
      return;
    case WriteMode::overwrite:
    case WriteMode::accumulate:
      tensor(argument, gradient.view, wanted, true);
      return;
  }
  refuse([&] {
    return std::string(argument) + " has write mode " + std::to_string(static_cast<int>(gradient.mode)) +
           ", wants skip, overwrite or accumulate";
  });
}

void Check::tensor(const char* argument, const ConstView& view, const Wanted& wanted, bool written) noexcept {
  if (!status_.ok()) return;
  if (!view.present) {
    refuse([&] { return std::string(argument) + " is missing, wants " + describe(wanted.shape); });
    return;
  }
  Rows rows;
  if (!check_dtype(argument, view, wanted) || !check_device(argument, view)) return;
  if (!check_shape(argument, view, wanted.shape)) return;
  if (!check_memory(argument, view, wanted.layout, &rows)) return;
  if (!wanted.dtype && dtype_from_ < 0) dtype_from_ = count_;
  arguments_[count_++] = Argument{argument, &view, wanted.shape, written, rows};
}

bool Check::check_dtype(const char* argument, const ConstView& view, const Wanted& wanted) noexcept {
  const bool as_first = !wanted.dtype && dtype_from_ >= 0;
  const bool open = !wanted.dtype && !as_first;  // any type that the op takes
  const bool refused = view.dtype == DType::i32 || (is_16_bit(view.dtype) && !takes_16_bits_);
  if (!is_known(view.dtype) || (open && refused)) {
    refuse([&] {
      std::string op = op_;
      for (char& letter : op) letter = letter == '_' ? ' ' : letter;
      return "Unsupported dtype for " + op + ": " + argument +
             (is_known(view.dtype) ? std::string(" is ") + name(view.dtype)
                                   : " has dtype code " + std::to_string(static_cast<int>(view.dtype))) +
             (wanted.dtype == DType::i32 ? ", wants i32"
              : takes_16_bits_           ? ", wants f32, f64, bf16 or f16"
                                         : ", wants f32 or f64");
    });
    return false;
  }
  const DType fit = wanted.dtype  ? *wanted.dtype
                    : !as_first   ? view.dtype
                    : wanted.wide ? at_least_f32(arguments_[dtype_from_].view->dtype)
                                  : arguments_[dtype_from_].view->dtype;
  if (view.dtype == fit) return true;
  refuse([&] {
    std::string text = std::string(argument) + " is " + name(view.dtype) + ", wants " + name(fit);
    if (!as_first) return text;
    const Argument& first = arguments_[dtype_from_];
    if (first.view->dtype == fit) return text + " as " + first.name;
    return text + " beside " + first.name + " of " + name(first.view->dtype);
  });
  return false;
}

bool Check::check_device(const char* argument, const ConstView& view) noexcept {
  const bool is_cpu = view.device == kCpu;
  const bool is_cuda = view.device.kind == Device::Kind::cuda && view.device.index >= 0;
  if (!is_cpu && !is_cuda) {
    refuse([&] {
      return std::string(argument) + " is on an unknown device (kind " +
             std::to_string(static_cast<int>(view.device.kind)) + ", index " +
             std::to_string(view.device.index) + "), wants cpu or cuda";
    });
    return false;
  }
  if (count_ == 0 || view.device == arguments_[0].view->device) return true;
  refuse([&] {
    return std::string(argument) + " is on " + name(view.device) + ", wants " +
           name(arguments_[0].view->device) + " as " + arguments_[0].name;
  });
  return false;
}

bool Check::check_shape(const char* argument, const ConstView& view, const char* wanted) noexcept {
  bool fits = view.rank() >= 0 && view.rank() <= kMaxRank;
  for (int axis = 0; fits && axis < view.rank(); ++axis) fits = view.shape[axis] >= 0;
  if (fits) {
    for (const char* form = wanted; form != nullptr; form = next_alternative(form)) {
      if (match(view.shape, form)) return true;
    }
  }
  refuse([&] {
    return std::string(argument) + " has shape " + name(view.shape) + ", wants " + describe(wanted);
  });
  return false;
}

bool Check::match(const Shape& shape, const char* wanted) noexcept {
  const int trailing = count_dimensions(wanted);
  const bool leading = has_leading(wanted);
  const int leading_rank = shape.rank() - trailing;
  if (leading_rank < 0 || (leading_rank > 0 && !leading)) return false;

  Sizes sizes = sizes_;
  if (leading) {
    Shape dimensions;
    for (int axis = 0; axis < leading_rank; ++axis) dimensions.append(shape[axis]);
    if (sizes.leading_argument < 0) {
      sizes.leading = dimensions;
      sizes.leading_argument = count_;
    } else if (sizes.leading != dimensions) {
      return false;
    }
  }
  int axis = leading_rank;
  for (Tokens token(wanted); token.next();) {
    if (token.is_leading()) continue;
    const std::int64_t size = shape[axis];
    const Letter* known = sizes.find(token.letter());
    if (token.is_number() ? size != token.number() : known != nullptr && size != known->size) return false;
    if (!token.is_number() && known == nullptr) {
      sizes.letters[sizes.count++] = Letter{token.letter(), size, count_, axis};
    }
    ++axis;
  }
  sizes_ = sizes;
  return true;
}

bool Check::check_memory(const char* argument, const ConstView& view, Layout layout, Rows* rows) noexcept {
  const bool in_rows = layout == Layout::pair_rows ? as_rows(view, 2, rows) : as_rows(view, rows);
  if (!in_rows || (layout == Layout::dense && !is_contiguous(view))) {
    refuse([&] {
      return std::string(argument) + " " + name(view.shape) + " has strides " + strides_of(view) +
             (layout == Layout::dense ? ", wants it contiguous"
              : layout == Layout::rows
                  ? ", wants evenly spaced rows: the last dimension contiguous, the others "
                    "in one stride that is not below its size"
                  : ", wants evenly spaced rows: the last two dimensions contiguous, the others "
                    "in one stride that is not below their size");
    });
    return false;
  }
  const std::int64_t elements = extent(*rows);
  std::int64_t bytes = 0;
  if (elements < 0 || __builtin_mul_overflow(elements, size_of(view.dtype), &bytes)) {
    refuse([&] { return std::string(argument) + " " + name(view.shape) + " is larger than any memory"; });
    return false;
  }
  if (elements > 0 && view.data == nullptr) {
    refuse([&] {
      return std::string(argument) + " " + name(view.shape) + " has no memory: its address is null";
    });
    return false;
  }
  if (reinterpret_cast<std::uintptr_t>(view.data) % static_cast<std::uintptr_t>(size_of(view.dtype)) != 0) {
    refuse([&] {
      return std::string(argument) + " is not aligned to the " + std::to_string(size_of(view.dtype)) +
             " bytes of its elements";
    });
    return false;
  }
  return true;
}

void Check::may_be(const char* output, const char* other) noexcept {
  pairs_[pair_count_++] = Pair{output, other};
}

void Check::not_empty(char letter) noexcept {
  if (!status_.ok()) return;
  const Letter* found = sizes_.find(letter);
  if (found == nullptr || found->size != 0) return;
  refuse([&] {
    const Argument& argument = arguments_[found->argument];
    return std::string(argument.name) + " has shape " + name(argument.view->shape) + ", wants " +
           describe_form(argument.shape) + " with " + letter + " above 0";
  });
}

void Check::within(char letter, std::int64_t least, std::int64_t most) noexcept {
  if (!status_.ok()) return;
  const Letter* found = sizes_.find(letter);
  if (found == nullptr || (found->size >= least && found->size <= most)) return;
  refuse([&] {
    const Argument& argument = arguments_[found->argument];
    return std::string(argument.name) + " has shape " + name(argument.view->shape) + ", wants " +
           describe_form(argument.shape) + " with " + letter + " from " + std::to_string(least) + " to " +
           std::to_string(most);
  });
}

void Check::stands_for(char letter, std::int64_t size, const char* origin, char of) noexcept {
  if (!status_.ok()) return;
  const Letter* source = sizes_.find(of);
  sizes_.letters[sizes_.count++] =
      Letter{letter, size, source != nullptr ? source->argument : -1, -1, origin};
}

void Check::number(const char* argument, double value, bool fits, const char* wanted) noexcept {
  if (!status_.ok() || fits) return;
  refuse([&] {
    char text[32];
    std::snprintf(text, sizeof text, "%.17g", value);
    // The shortest text that reads back as the value: 1e-05, not 1.0000000000000001e-05.
    for (int digits = 1; digits < 17; ++digits) {
      char shorter[32];
      std::snprintf(shorter, sizeof shorter, "%.*g", digits, value);
      if (std::strtod(shorter, nullptr) == value) {
        std::memcpy(text, shorter, sizeof text);
        break;
      }
    }
    return std::string(argument) + " is " + text + ", wants " + wanted;
  });
}

void Check::require(bool holds, const char* message) noexcept {
  if (!status_.ok() || holds) return;
  refuse([&] { return std::string(message); });
}

bool Check::overlap_allowed(const Argument& output, const Argument& other) const noexcept {
  const bool same = output.view->data == other.view->data && output.view->dtype == other.view->dtype &&
                    output.view->shape == other.view->shape && output.rows.stride == other.rows.stride;
  if (!same) return false;
  for (int i = 0; i < pair_count_; ++i) {
    if (std::strcmp(pairs_[i].output, output.name) == 0 && std::strcmp(pairs_[i].other, other.name) == 0)
      return true;
  }
  return false;
}

Status Check::finish() noexcept {
  for (int i = 0; i < count_ && status_.ok(); ++i) {
    for (int j = 0; j < count_ && status_.ok(); ++j) {
      const Argument& output = arguments_[i];
      const Argument& other = arguments_[j];
      // Two outputs are looked at once, the later one being at fault.
      if (!output.written || i == j || (other.written && j > i)) continue;
      if (!overlap(*output.view, output.rows, *other.view, other.rows) || overlap_allowed(output, other))
        continue;
      refuse([&] { return full_name(i) + " overlaps " + full_name(j) + ", wants memory of its own"; });
    }
  }
  return status_;
}

std::string Check::full_name(int argument) const {
  return std::string(arguments_[argument].name) + " " + name(arguments_[argument].view->shape);
}

// "[..., E]"
std::string Check::describe_form(const char* wanted) const {
  std::vector<std::string> dimensions;
  for (Tokens token(wanted); token.next();) dimensions.push_back(token.text());
  return "[" + join(dimensions) + "]";
}

// "[512] = [E], the last dimension of x [32, 60, 512]", "[32, 60, 512] as x", "[N, E]"
std::string Check::describe(const char* wanted) const {
  std::vector<std::string> dimensions;
  bool any_known = false;
  for (Tokens token(wanted); token.next();) {
    const Letter* known = sizes_.find(token.letter());
    if (token.is_leading() && sizes_.leading_argument >= 0) {
      any_known = true;
      for (int axis = 0; axis < sizes_.leading.rank(); ++axis) {
        dimensions.push_back(std::to_string(sizes_.leading[axis]));
      }
    } else if (!token.is_leading() && !token.is_number() && known != nullptr) {
      any_known = true;
      dimensions.push_back(std::to_string(known->size));
    } else {
      dimensions.push_back(token.text());
    }
  }
  std::string text = "[" + join(dimensions) + "]" + (any_known ? origin(wanted) : "");
  const char* alternative = next_alternative(wanted);
  return alternative == nullptr ? text : text + ", or " + describe(alternative);
}

// Where the known sizes of a wanted shape come from.
std::string Check::origin(const char* wanted) const {
  // An argument that was wanted in the same form has exactly this shape.
  for (int i = 0; i < count_; ++i) {
    if (std::strcmp(arguments_[i].shape, wanted) == 0) return std::string(" as ") + arguments_[i].name;
  }
  const bool alone = count_dimensions(wanted) + (has_leading(wanted) ? 1 : 0) == 1;
  std::vector<std::string> sources;
  for (Tokens token(wanted); token.next();) {
    if (token.is_leading() && sizes_.leading_argument >= 0) {
      sources.push_back("the leading dimensions of " + full_name(sizes_.leading_argument));
    }
    const Letter* known = token.is_number() || token.is_leading() ? nullptr : sizes_.find(token.letter());
    if (known == nullptr) continue;
    if (known->origin != nullptr) {
      sources.push_back(token.text() + " " + known->origin +
                        (known->argument >= 0 ? " " + full_name(known->argument) : ""));
      continue;
    }
    const bool last = known->axis > 0 && known->axis == arguments_[known->argument].view->rank() - 1;
    const std::string what = alone ? "the " : token.text() + " the ";
    sources.push_back(what + (last ? "last" : kOrdinals[known->axis]) + " dimension of " +
                      full_name(known->argument));
  }
  return " = " + describe_form(wanted) + ", " + join(sources);
}

Status check_workspace(const char* op, const Workspace& workspace, std::int64_t wanted) noexcept {
  if (wanted <= 0) return {};
  const bool misaligned = reinterpret_cast<std::uintptr_t>(workspace.data) % kWorkspaceAlignment != 0;
  const bool missing = workspace.data == nullptr;
  if (!missing && !misaligned && workspace.bytes >= wanted) return {};
  try {
    std::string text = std::string(op) + ": workspace ";
    if (!missing && misaligned) {
      text += "is not aligned to " + std::to_string(kWorkspaceAlignment) + " bytes";
    } else {
      text +=
          "has " + std::to_string(missing ? 0 : workspace.bytes) + " bytes, wants " + std::to_string(wanted);
    }
    return Status::fail(Code::invalid_argument, std::move(text));
  } catch (...) {
    return Status::fail(Code::invalid_argument, "");
  }
}

}  // namespace scantape
