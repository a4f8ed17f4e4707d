#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "scantape/error.h"

namespace scantape::train {

[[noreturn]] inline void refuse(const std::string& message) {
  throw Error(Code::invalid_argument, message);
}

inline void within(const char* flag, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least) refuse(fmt::format("{} is {}, wants at least {}", flag, value, least));
  if (value > most) refuse(fmt::format("{} is {}, wants at most {}", flag, value, most));
}

/// The member of `all` that `name` gives the text to.
template <class Enum, std::size_t N>
Enum named(const char* flag, const std::string& text, const Enum (&all)[N]) {
  std::string choices;
  for (const Enum value : all) {
    if (text == scantape::name(value)) return value;
    choices += (choices.empty() ? "" : ", ") + std::string(scantape::name(value));
  }
  refuse(fmt::format("{} is {}, wants one of {}", flag, text, choices));
}

}  // namespace scantape::train
