#include "scantape/status.h"

namespace scantape {

const char* name(Code code) noexcept {
  switch (code) {
    case Code::ok:
      return "ok";
    case Code::invalid_argument:
      return "invalid_argument";
    case Code::unsupported:
      return "unsupported";
    case Code::out_of_memory:
      return "out_of_memory";
    case Code::cuda:
      return "cuda";
    case Code::io:
      return "io";
    case Code::corrupt_data:
      return "corrupt_data";
  }
  return "unknown";
}

Status Status::fail(Code code, const char* message) noexcept {
  Status status;
  status.code_ = code;
  try {
    status.message_ = message;
  } catch (...) {
    // The code alone remains.
  }
  return status;
}

Status Status::fail(Code code, std::string message) noexcept {
  Status status;
  status.code_ = code;
  status.message_ = std::move(message);
  return status;
}

}  // namespace scantape
