#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace scantape::emulator {

/// What the debug information says about a place in the code; an empty file where it says nothing.
struct SourceLine {
  std::string file;
  int line = 0;
  std::string function;
};

/// The source lines of a call, by its return address: where it is written, then, where that function was
/// inlined, the line that called it, and so on. Never empty.
std::vector<SourceLine> source_lines(std::uintptr_t return_address);

/// "scan.cu:120 in scan_kernel(float*)", or the address where nothing is known.
std::string to_text(const SourceLine& place);
/// All of them: "reduce.cuh:20 in warp_sum(float), called at scan.cu:120 in scan_kernel(float*)".
std::string to_text(const std::vector<SourceLine>& places);

/// Return addresses of the calls that led here, innermost first.
std::vector<std::uintptr_t> call_stack(int skip, int depth);

}  // namespace scantape::emulator
