#pragma once

#include <cstdio>
#include <map>
#include <set>
#include <string>

#include "scantape/counters.h"

/// Which compiled kernels a test program has launched, and which it never did. A kernel that is compiled for
/// several types and options is several arms; one that no case reaches is not tested, however green the rest
/// is.
namespace scantape::cases {

class KernelArms {
 public:
  static void listen() { detail::launch_listener() = &KernelArms::note; }

  /// "" where every arm in this executable was launched; else the kernels with more arms than launches. Reads
  /// the executable's symbols with nm, so it works where kernels are host code: in an emulated build.
  static std::string missed() {
    std::string text;
    const std::map<std::string, std::set<std::string>> compiled = compiled_arms();
    if (compiled.empty()) return "no kernel found in the executable's symbols (is nm there?)\n";
    // A kernel that several ops share is launched under their names: those stand for the ones nobody names.
    std::set<const void*> under_other_names;
    for (const auto& [name, kernels] : launches())
      if (compiled.count(name) == 0) under_other_names.insert(kernels.begin(), kernels.end());
    std::size_t shared = under_other_names.size();
    for (const auto& [name, arms] : compiled) {
      const auto found = launches().find(name);
      std::size_t launched = found == launches().end() ? 0 : found->second.size();
      if (launched == 0) {
        launched = shared < arms.size() ? shared : arms.size();
        shared -= launched;
      }
      if (launched >= arms.size()) continue;
      text += name + ": launched " + std::to_string(launched) + " of " + std::to_string(arms.size()) +
              " compiled arms:\n";
      for (const std::string& arm : arms) text += "    " + arm + "\n";
    }
    return text;
  }

 private:
  static std::map<std::string, std::set<const void*>>& launches() {
    static std::map<std::string, std::set<const void*>> all;
    return all;
  }
  static void note(const char* name, const void* kernel) { launches()[name].insert(kernel); }

  /// Signatures of the functions named ..._kernel in this executable, by that name.
  static std::map<std::string, std::set<std::string>> compiled_arms() {
    std::map<std::string, std::set<std::string>> arms;
    FILE* pipe = popen("nm -C --defined-only /proc/$PPID/exe 2>/dev/null", "r");
    if (pipe == nullptr) return arms;
    char line[8192];
    while (std::fgets(line, sizeof line, pipe) != nullptr) {
      std::string text = line;
      if (!text.empty() && text.back() == '\n') text.pop_back();
      const std::string name = kernel_name(text);
      // The address and the type letter before the signature are not part of it.
      if (!name.empty()) arms[name].insert(text.substr(text.find(' ', text.find(' ') + 1) + 1));
    }
    pclose(pipe);
    return arms;
  }

  /// The identifier before the first '<' or '(' where that ends in "_kernel"; else nothing. Parts of
  /// functions that the compiler has split off ("[clone .cold]") are no kernels.
  static std::string kernel_name(const std::string& symbol) {
    // Nor are the emulator's own helpers, nor names inside the types of others.
    for (const char* foreign : {"[clone", "scantape_emulated", "tag_of<"})
      if (symbol.find(foreign) != std::string::npos) return {};
    if (symbol.find("scantape::cuda") == std::string::npos) return {};
    const std::size_t end = symbol.find("_kernel");
    if (end == std::string::npos) return {};
    const std::size_t after = end + 7;
    if (after >= symbol.size() || (symbol[after] != '<' && symbol[after] != '(')) return {};
    std::size_t begin = end;
    const auto part = [&](char letter) {
      return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
             (letter >= '0' && letter <= '9') || letter == '_';
    };
    while (begin > 0 && part(symbol[begin - 1])) --begin;
    // What stands in a template argument is not what this symbol is.
    if (symbol.find('<') < begin) return {};
    return symbol.substr(begin, after - begin);
  }
};

}  // namespace scantape::cases
