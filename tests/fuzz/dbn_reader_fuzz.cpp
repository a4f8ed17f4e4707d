// libFuzzer target for the DBN reader and what sits directly on it. Start it on real files:
//   dbn_reader_fuzz -max_total_time=60 -timeout=10 CORPUS
// Besides crashes, bad accesses and hangs it looks for memory: no input may make the reader hold more than 64
// MiB and the input's size at once.
#include <sanitizer/allocator_interface.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "market/bars.h"
#include "market/dbn_reader.h"
#include "scantape/error.h"

namespace {

using namespace scantape::market;

constexpr int64_t kMemoryLimit = int64_t{64} << 20;

std::atomic<int64_t> held{0};
std::atomic<int64_t> most_held{0};

void on_malloc(const volatile void*, size_t size) {
  const int64_t now = held += static_cast<int64_t>(size);
  if (now > most_held) most_held = now;
}

void on_free(const volatile void* memory) {
  if (memory) held -= static_cast<int64_t>(__sanitizer_get_allocated_size(memory));
}

void read(const uint8_t* data, size_t size, const ReaderOptions& options, bool any_order) {
  try {
    DbnReader reader(memory_source({data, size}), "input", options);
    std::vector<std::string> warnings;
    SymbolTable symbols(reader.metadata(), "input", warnings);
    std::optional<BarRules> rules;
    rules.emplace("input", reader.metadata().schema, std::nullopt, any_order);
    Record record;
    uint64_t taken = 0, sum = 0;
    while (reader.next(record)) {
      taken += record.bytes.size();
      sum += record.index_ts();
      if (!record.known) continue;
      if (record.type == rtype::kSymbolMapping) symbols.add_live(parse_live_mapping(record));
      if (record.type == rtype::kError || record.type == rtype::kSystem) sum += record_text(record).size();
      if (!is_bar(record.type)) continue;
      const Bar bar = record.bar();
      for (const BarFault fault : kBarFaults) sum += has_fault(bar, fault);
      if (bar.ts_event != kUndefinedTimestamp)
        sum += symbols.find(record.instrument_id, utc_date(bar.ts_event)).size();
      if (!rules) continue;
      try {
        rules->check(record, bar);
      } catch (const scantape::Error&) {
        rules.reset();  // the reader itself goes on
      }
    }
    if (taken + sum == 1) std::puts("");  // keeps the reads alive
  } catch (const scantape::Error& error) {
    // The only way out, and never without a sentence.
    if (std::string(error.what()).size() < 10 || error.code() == scantape::Code::ok) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  [[maybe_unused]] static const int hooks = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
  const int64_t before = held;
  most_held = before;
  read(data, size, {}, false);
  read(data, size, {true, std::nullopt}, true);
  const bool whole = size >= 3 && data[0] == 'D' && data[1] == 'B' && data[2] == 'N';
  if (!whole)
    for (const int version : {1, 2, 3}) read(data, size, {true, version}, true);
  if (most_held - before > kMemoryLimit + static_cast<int64_t>(size)) {
    std::fprintf(stderr, "held %lld bytes for an input of %zu\n", static_cast<long long>(most_held - before),
                 size);
    std::abort();
  }
  return 0;
}
