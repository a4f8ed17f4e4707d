#include "source_line.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#if __has_include(<backtrace.h>)
#include <backtrace.h>
#define SCANTAPE_HAS_BACKTRACE 1
#else
#include <execinfo.h>
#define SCANTAPE_HAS_BACKTRACE 0
#endif

namespace scantape::emulator {
namespace {

std::string demangled(const char* name) {
  if (name == nullptr) return "";
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 && text != nullptr ? text : name;
  std::free(text);
  return result;
}

#if SCANTAPE_HAS_BACKTRACE
void ignore_error(void*, const char*, int) {}

backtrace_state* state() {
  static backtrace_state* const instance =
      backtrace_create_state(nullptr, /*threaded=*/1, ignore_error, nullptr);
  return instance;
}

int add_place(void* data, std::uintptr_t, const char* file, int line, const char* function) {
  if (file != nullptr)
    static_cast<std::vector<SourceLine>*>(data)->push_back({file, line, demangled(function)});
  return 0;
}

struct Collector {
  std::vector<std::uintptr_t>* addresses;
  std::size_t depth;
};

int collect(void* data, std::uintptr_t address) {
  auto& collector = *static_cast<Collector*>(data);
  collector.addresses->push_back(address + 1);
  return collector.addresses->size() >= collector.depth ? 1 : 0;
}
#endif

}  // namespace

std::vector<SourceLine> source_lines(std::uintptr_t return_address) {
  std::vector<SourceLine> places;
  if (return_address == 0) return {SourceLine{}};
  const std::uintptr_t call = return_address - 1;
#if SCANTAPE_HAS_BACKTRACE
  if (state() != nullptr) backtrace_pcinfo(state(), call, add_place, ignore_error, &places);
#endif
  if (!places.empty()) return places;
  SourceLine place;
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(call), &info) != 0 && info.dli_sname != nullptr) {
    place.function = demangled(info.dli_sname);
  } else {
    char text[32];
    std::snprintf(text, sizeof(text), "0x%zx", static_cast<std::size_t>(call));
    place.function = text;
  }
  return {place};
}

std::string to_text(const SourceLine& place) {
  if (place.file.empty()) return place.function.empty() ? "an unknown line" : place.function;
  const std::string where = place.file + ":" + std::to_string(place.line);
  return place.function.empty() ? where : where + " in " + place.function;
}

std::string to_text(const std::vector<SourceLine>& places) {
  std::string text;
  for (const SourceLine& place : places) text += (text.empty() ? "" : ", called at ") + to_text(place);
  return text;
}

std::vector<std::uintptr_t> call_stack(int skip, int depth) {
  std::vector<std::uintptr_t> addresses;
  addresses.reserve(static_cast<std::size_t>(depth));
#if SCANTAPE_HAS_BACKTRACE
  Collector collector{&addresses, static_cast<std::size_t>(depth)};
  if (state() != nullptr) backtrace_simple(state(), skip + 1, collect, ignore_error, &collector);
#else
  void* frames[64];
  const int count = backtrace(frames, depth + skip + 1 < 64 ? depth + skip + 1 : 64);
  for (int i = skip + 1; i < count; ++i) addresses.push_back(reinterpret_cast<std::uintptr_t>(frames[i]));
#endif
  return addresses;
}

}  // namespace scantape::emulator
