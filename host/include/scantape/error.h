#pragma once

#include <stdexcept>
#include <string>

#include "scantape/status.h"

namespace scantape {

/// The exception of autograd and tools. The kernel library itself returns Status.
class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Code code() const noexcept { return code_; }

 private:
  Code code_;
};

/// The one place where a Status becomes an Error.
/// Example
///   bool thrown = false;
///   try {
///     require(Status::fail(Code::io, "the disk is full"));
///   } catch (const Error& error) {
///     thrown = error.code() == Code::io;
///   }
///   const bool as_said = thrown;  // as_said is 1
inline void require(const Status& status) {
  if (!status.ok()) throw Error(status.code(), status.message());
}

}  // namespace scantape
