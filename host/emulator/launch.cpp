/// Launches: limits, orders, and what is known of all launches together.

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "error.h"
#include "executor.h"
#include "launch.h"
#include "source_line.h"
#include "stream.h"

// What __launch_bounds__ leaves behind (include/cuda_runtime.h): one address for each kernel that has some,
// as many single-byte instructions before its entry as a block may have threads.
extern "C" {
extern const std::uintptr_t launch_bounds_begin[] __asm__("__start___patchable_function_entries")
    __attribute__((weak, visibility("hidden")));
extern const std::uintptr_t launch_bounds_end[] __asm__("__stop___patchable_function_entries")
    __attribute__((weak, visibility("hidden")));
}

namespace scantape::emulator {
namespace {

// Far beyond any right block, and yet over in a minute.
constexpr std::uint64_t kAccessLimit = std::uint64_t{1} << 33;
std::atomic<std::uint64_t> access_limit{kAccessLimit};

std::mutex totals_mutex;
Statistics totals;

std::mutex opt_in_mutex;
std::map<const void*, std::size_t>& opt_ins() {
  static auto* const map = new std::map<const void*, std::size_t>;
  return *map;
}

thread_local Fault fault_of_thread;

bool parse(const std::string& word, Direction* direction) {
  if (word == "forward")
    *direction = Direction::forward;
  else if (word == "backward")
    *direction = Direction::backward;
  else
    return false;
  return true;
}

struct OrderSetting {
  Order order;
  std::string complaint;

  OrderSetting() {
    const char* const text = std::getenv("SCANTAPE_EMULATOR_ORDER");
    if (text == nullptr || *text == '\0') return;
    const std::string words = text;
    const std::size_t comma = words.find(',');
    const std::string second = comma == std::string::npos ? words : words.substr(comma + 1);
    if (!parse(words.substr(0, comma), &order.threads) || !parse(second, &order.blocks)) {
      complaint =
          "SCANTAPE_EMULATOR_ORDER is \"" + words + "\", wants forward, backward or two of them with a comma";
    }
  }
};

OrderSetting& setting() {
  static auto* const instance = new OrderSetting;
  return *instance;
}

struct WorkerSetting {
  int workers = 1;
  std::string complaint;

  WorkerSetting() {
    const char* const text = std::getenv("SCANTAPE_EMULATOR_WORKERS");
    if (text == nullptr || *text == '\0') return;
    char* end = nullptr;
    const long wanted = std::strtol(text, &end, 10);
    if (*end == '\0' && wanted >= 1 && wanted <= kMaxWorkers) {
      workers = static_cast<int>(wanted);
    } else {
      complaint = std::string("SCANTAPE_EMULATOR_WORKERS is \"") + text + "\", wants a number from 1 to " +
                  std::to_string(kMaxWorkers);
    }
  }
};

WorkerSetting& worker_setting() {
  static auto* const instance = new WorkerSetting;
  return *instance;
}

cudaError_t fail_limits(const std::string& what) {
  fault_of_thread = {FaultKind::limits, std::string(name(FaultKind::limits)) + ": " + what, {}, {}};
  return fail(cudaErrorInvalidConfiguration, fault_of_thread.text);
}

std::string text_of(const dim3& size) {
  char text[48];
  std::snprintf(text, sizeof(text), "(%u, %u, %u)", size.x, size.y, size.z);
  return text;
}

}  // namespace

void add_to_totals(int launches, const Statistics& before, const Statistics& after) {
  const std::lock_guard lock(totals_mutex);
  totals.launches += launches;
  totals.blocks += after.blocks - before.blocks;
  totals.threads += after.threads - before.threads;
  totals.thread_barriers += after.thread_barriers - before.thread_barriers;
  totals.lane_exchanges += after.lane_exchanges - before.lane_exchanges;
  totals.accesses += after.accesses - before.accesses;
}

const char* name(FaultKind kind) noexcept {
  switch (kind) {
    case FaultKind::none:
      return "none";
    case FaultKind::race:
      return "race";
    case FaultKind::out_of_bounds:
      return "out of bounds";
    case FaultKind::use_after_free:
      return "use after free";
    case FaultKind::never_written:
      return "never written";
    case FaultKind::host_pointer:
      return "host pointer";
    case FaultKind::misaligned:
      return "misaligned";
    case FaultKind::divergence:
      return "divergence";
    case FaultKind::bad_shuffle:
      return "bad shuffle";
    case FaultKind::exception:
      return "exception";
    case FaultKind::limits:
      return "limits";
    case FaultKind::endless:
      return "endless";
    case FaultKind::stream_order:
      return "stream order";
    case FaultKind::host_buffer:
      return "host buffer";
  }
  return "unknown";
}

void clear_fault() noexcept {
  fault_of_thread = {};
}

const Fault& last_fault() noexcept {
  return fault_of_thread;
}

void set_order(Order order) noexcept {
  const std::lock_guard lock(device_mutex());
  setting().order = order;
}

Order order() noexcept {
  const std::lock_guard lock(device_mutex());
  return setting().order;
}

void set_workers(int workers) {
  const std::lock_guard lock(device_mutex());
  if (workers < 1 || workers > kMaxWorkers)
    throw std::invalid_argument("the emulator takes 1 to " + std::to_string(kMaxWorkers) + " workers, not " +
                                std::to_string(workers));
  worker_setting().workers = workers;
}

int workers() noexcept {
  const std::lock_guard lock(device_mutex());
  return worker_setting().workers;
}

void set_access_limit(std::int64_t accesses) noexcept {
  access_limit = accesses > 0 ? static_cast<std::uint64_t>(accesses) : kAccessLimit;
}

Statistics statistics() noexcept {
  const std::lock_guard lock(totals_mutex);
  return totals;
}

bool checks_accesses() noexcept {
#if defined(__SANITIZE_ADDRESS__)
  return false;
#else
  return true;
#endif
}

std::size_t opted_in_shared(const void* kernel) {
  const std::lock_guard lock(opt_in_mutex);
  const auto it = opt_ins().find(kernel);
  return it == opt_ins().end() ? 0 : it->second;
}

void opt_in_shared(const void* kernel, std::size_t bytes) {
  const std::lock_guard lock(opt_in_mutex);
  opt_ins()[kernel] = bytes;
}

namespace {

#if defined(__x86_64__)
constexpr std::uintptr_t kNoOperationBytes = 1;
bool is_all_no_operations(std::uintptr_t first, std::uintptr_t end) {
  for (std::uintptr_t at = first; at < end; ++at)
    if (*reinterpret_cast<const unsigned char*>(at) != 0x90) return false;
  return true;
}
#else
constexpr std::uintptr_t kNoOperationBytes = 4;
bool is_all_no_operations(std::uintptr_t first, std::uintptr_t end) {
  for (std::uintptr_t at = first; at < end; at += 4)
    if (*reinterpret_cast<const std::uint32_t*>(at) != 0xd503201fu) return false;
  return true;
}
#endif

}  // namespace

int launch_bound(const void* kernel) {
  const auto entry = reinterpret_cast<std::uintptr_t>(kernel);
  for (const std::uintptr_t* start = launch_bounds_begin; start != launch_bounds_end; ++start) {
    const std::uintptr_t distance = (entry - *start) / kNoOperationBytes;
    if (distance >= 1 && distance <= kMaxThreads && is_all_no_operations(*start, entry))
      return static_cast<int>(distance);
  }
  return kMaxThreads;
}

cudaError_t fail(FaultKind kind, const std::string& text) {
  fault_of_thread = {kind, std::string(name(kind)) + ": " + text, {}, {}};
  return fail(cudaErrorLaunchFailure, fault_of_thread.text);
}

namespace {

/// A launch with its own copy of the kernel's arguments: it may run long after the call, and more than once.
struct GivenLaunch {
  Launch launch;
  std::vector<std::max_align_t> arguments;
  std::vector<std::uintptr_t> call_stack;
};

/// The first place behind the templates that every launch goes through.
std::string launch_site(const std::vector<std::uintptr_t>& call_stack) {
  std::vector<SourceLine> places;
  for (const std::uintptr_t address : call_stack)
    for (SourceLine& place : source_lines(address)) places.push_back(std::move(place));
  for (const SourceLine& place : places) {
    const std::string file = place.file.substr(place.file.find_last_of('/') + 1);
    if (!file.empty() && file != "cuda_runtime.h" && file != "launch.cuh") return to_text(place);
  }
  return to_text(places);
}

cudaError_t prepare_launch(const cudaLaunchConfig_t& config, const emulator_detail::KernelCall& call,
                           GivenLaunch* given) {
  const dim3 grid = config.gridDim, block = config.blockDim;
  const std::uint64_t threads = std::uint64_t{block.x} * block.y;
  if (block.x == 0 || block.y == 0 || block.z == 0 || block.x > kMaxThreads || block.y > kMaxThreads ||
      block.z > 64 || threads * block.z > kMaxThreads) {
    return fail_limits("a block of " + text_of(block) + " threads; the device takes 1 to 1024, z at most 64");
  }
  if (const int bound = launch_bound(call.kernel); threads * block.z > static_cast<std::uint64_t>(bound)) {
    return fail_limits("a block of " + text_of(block) +
                       " threads; the kernel's __launch_bounds__ say at most " + std::to_string(bound));
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535) {
    return fail_limits("a grid of " + text_of(grid) +
                       " blocks; the device takes 1 to (2147483647, 65535, 65535)");
  }
  const std::uint64_t plane = std::uint64_t{grid.x} * grid.y;
  if (plane > kMaxSerial / 2 || plane * grid.z > kMaxSerial / 2) {
    return fail_limits("a grid of " + text_of(grid) + " blocks is more than the emulator runs");
  }
  const std::size_t opted_in = opted_in_shared(call.kernel);
  const std::size_t limit = opted_in > kStaticSharedBytes ? opted_in : kStaticSharedBytes;
  if (config.dynamicSmemBytes > limit) {
    return fail_limits(std::to_string(config.dynamicSmemBytes) +
                       " bytes of dynamic shared memory; the kernel may have " + std::to_string(limit));
  }
  for (const std::string& complaint : {setting().complaint, worker_setting().complaint})
    if (!complaint.empty()) return fail(cudaErrorInvalidValue, complaint);

  Launch& launch = given->launch;
  launch.grid = grid;
  launch.block = block;
  launch.dynamic_shared_bytes = config.dynamicSmemBytes;
  launch.shared_limit = opted_in > kStaticSharedBytes ? kSharedOptInBytes : kStaticSharedBytes;
  launch.blocks = plane * grid.z;
  launch.threads = static_cast<int>(threads * block.z);
  given->arguments.resize((call.argument_bytes + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t));
  std::memcpy(given->arguments.data(), call.arguments, call.argument_bytes);
  launch.call = call;
  launch.call.arguments = given->arguments.data();
  return cudaSuccess;
}

/// The caller holds device_mutex.
cudaError_t run_launch(const GivenLaunch& given, const Moment& moment) {
  fault_of_thread = {};
  Launch launch = given.launch;
  launch.access_limit = access_limit;
  launch.order = setting().order;
  const Numbers numbers = take_numbers(moment, static_cast<std::uint32_t>(launch.blocks), launch.grid,
                                       launch.block, true, launch.order.blocks);
  launch.first_serial = numbers.first;
  launch.generation = numbers.generation;
  launch.past = numbers.past;

  Fault fault;
  {
    const DeviceAccess access;
    fault = run_blocks(launch, workers());
  }
  if (fault.kind == FaultKind::none) return cudaSuccess;
  // The wait that runs it may be far from the launch.
  fault.text += "; launched at " + launch_site(given.call_stack);
  fault_of_thread = std::move(fault);
  return fail(cudaErrorLaunchFailure, fault_of_thread.text);
}

}  // namespace

}  // namespace scantape::emulator

inline namespace scantape_emulated {
namespace emulator_detail {

cudaError_t launch(const cudaLaunchConfig_t* config, const KernelCall& call) {
  using scantape::emulator::fail;
  if (config == nullptr || call.kernel == nullptr)
    return fail(cudaErrorInvalidValue, "no configuration or no kernel");
  if (config->numAttrs != 0) return fail(cudaErrorNotSupported, "launch attributes are not emulated");
  if (scantape::emulator::running_worker != nullptr) {
    return fail(cudaErrorNotSupported, "a kernel cannot launch kernels here");
  }
  using namespace scantape::emulator;  // NOLINT
  fault_of_thread = {};
  const auto given = std::make_shared<GivenLaunch>();
  if (const cudaError_t error = prepare_launch(*config, call, given.get()); error != cudaSuccess)
    return error;
  given->call_stack = call_stack(1, 4);
  Operation operation;
  operation.place =
      reinterpret_cast<std::uintptr_t>(__builtin_extract_return_addr(__builtin_return_address(0)));
  operation.run = [given](const Moment& moment) { return run_launch(*given, moment); };
  return enqueue(config->stream, std::move(operation));
}

}  // namespace emulator_detail
}  // namespace scantape_emulated
