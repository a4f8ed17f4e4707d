/// Launches: limits, orders, and what is known of all launches together.

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "error.h"
#include "executor.h"
#include "launch.h"

namespace scantape::emulator {
namespace {

// One launch runs at a time, whatever thread it comes from: the order of streams is kept by running at once.
std::mutex launch_mutex;
// Guarded by launch_mutex: the next block's number, and how often the numbers began anew.
std::uint32_t next_serial = 1;
std::uint32_t generation = 0;

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

cudaError_t fail_limits(const std::string& what) {
  fault_of_thread = {FaultKind::limits, std::string(name(FaultKind::limits)) + ": " + what, {}, {}};
  return fail(cudaErrorInvalidConfiguration, fault_of_thread.text);
}

std::string text_of(const dim3& size) {
  char text[48];
  std::snprintf(text, sizeof(text), "(%u, %u, %u)", size.x, size.y, size.z);
  return text;
}

void add_to_totals(const Statistics& before, const Statistics& after) {
  const std::lock_guard lock(totals_mutex);
  ++totals.launches;
  totals.blocks += after.blocks - before.blocks;
  totals.threads += after.threads - before.threads;
  totals.thread_barriers += after.thread_barriers - before.thread_barriers;
  totals.lane_exchanges += after.lane_exchanges - before.lane_exchanges;
  totals.accesses += after.accesses - before.accesses;
}

}  // namespace

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
  }
  return "unknown";
}

const Fault& last_fault() noexcept {
  return fault_of_thread;
}

void set_order(Order order) noexcept {
  const std::lock_guard lock(launch_mutex);
  setting().order = order;
}

Order order() noexcept {
  const std::lock_guard lock(launch_mutex);
  return setting().order;
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

cudaError_t run_launch(const cudaLaunchConfig_t& config, const emulator_detail::KernelCall& call) {
  const dim3 grid = config.gridDim, block = config.blockDim;
  fault_of_thread = {};
  const std::uint64_t threads = std::uint64_t{block.x} * block.y;
  if (block.x == 0 || block.y == 0 || block.z == 0 || block.x > kMaxThreads || block.y > kMaxThreads ||
      block.z > 64 || threads * block.z > kMaxThreads) {
    return fail_limits("a block of " + text_of(block) + " threads; the device takes 1 to 1024, z at most 64");
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

  Launch launch;
  launch.grid = grid;
  launch.block = block;
  launch.dynamic_shared_bytes = config.dynamicSmemBytes;
  launch.shared_limit = opted_in > kStaticSharedBytes ? kSharedOptInBytes : kStaticSharedBytes;
  launch.call = call;
  launch.access_limit = access_limit;
  launch.blocks = plane * grid.z;
  launch.threads = static_cast<int>(threads * block.z);

  const std::lock_guard lock(launch_mutex);
  if (!setting().complaint.empty()) return fail(cudaErrorInvalidValue, setting().complaint);
  launch.order = setting().order;
  if (next_serial + launch.blocks > kMaxSerial) {
    DeviceMemory::instance().forget_accesses();
    ++generation;
    next_serial = 1;
  }
  launch.first_serial = next_serial;
  launch.generation = generation;
  next_serial += static_cast<std::uint32_t>(launch.blocks);

  Worker& worker = Worker::of_this_thread();
  const Statistics before = worker.statistics();
  bool good = true;
  {
    const DeviceAccess access;
    for (std::uint64_t position = 0; good && position < launch.blocks; ++position) {
      good = worker.run_block(launch, position);
    }
  }
  add_to_totals(before, worker.statistics());
  if (good) return cudaSuccess;
  fault_of_thread = worker.fault();
  return fail(cudaErrorLaunchFailure, fault_of_thread.text);
}

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
  return scantape::emulator::enqueue(config->stream,
                                     [&] { return scantape::emulator::run_launch(*config, call); });
}

}  // namespace emulator_detail
}  // namespace scantape_emulated
