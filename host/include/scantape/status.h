#pragma once

#include <string>
#include <utility>

namespace scantape {

/// Why a call failed. `ok` is the only success.
enum class Code { ok, invalid_argument, unsupported, out_of_memory, cuda, io, corrupt_data };

/// The name of a code as it stands in messages and JSON, e.g. "invalid_argument".
const char* name(Code code) noexcept;

/// The outcome of an op: a code and, where it failed, one sentence that names the op, the argument, what it got and
/// what it wants. Functions of the kernel library return it and never throw, print, abort or exit.
/// Example
///   const Status status = Status::fail(Code::invalid_argument, "silu: x has no elements");
///   const bool told = !status.ok() && status.message() == "silu: x has no elements";  // told is 1
class [[nodiscard]] Status {
 public:
  Status() noexcept = default;  // success

  /// A failure. Where memory for the sentence runs out the code alone remains.
  static Status fail(Code code, const char* message) noexcept;
  static Status fail(Code code, std::string message) noexcept;

  bool ok() const noexcept { return code_ == Code::ok; }
  Code code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }

 private:
  Code code_ = Code::ok;
  std::string message_;
};

}  // namespace scantape

/// Returns the status of `expression` from the calling function where it is a failure.
#define SCANTAPE_TRY(expression)                                                                             \
  do {                                                                                                       \
    if (::scantape::Status scantape_status_ = (expression); !scantape_status_.ok()) return scantape_status_; \
  } while (false)
