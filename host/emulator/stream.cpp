/// Streams, events, capture and replay of graphs.

#include "stream.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <set>

#include "error.h"
#include "executor.h"
#include "launch.h"
#include "memory.h"
#include "source_line.h"

namespace scantape::emulator {
namespace {

struct Capture;

struct Pending {
  Operation operation;
  Clock clock;
  std::uint64_t position = 0;
  std::uint64_t number = 0;  // over all streams: the order in which operations were given
};

struct EventState {
  bool timing = true;
  bool recorded = false;  // and the record has run
  std::chrono::steady_clock::time_point at;
  bool given = false;  // cudaEventRecord was called
  Clock clock;         // what comes before the last record
  std::shared_ptr<Capture> capture;
  Clock capture_clock;
};

}  // namespace
}  // namespace scantape::emulator

inline namespace scantape_emulated {

struct CUstream_st {
  std::uint64_t id = 0;
  bool blocking = true;  // ordered with the default stream
  bool alive = true;     // not destroyed
  std::deque<scantape::emulator::Pending> queue;
  std::uint64_t given = 0, done = 0;
  scantape::emulator::Clock clock;  // of all that was given
  std::shared_ptr<scantape::emulator::Capture> capture;
  std::uint64_t branch = 0;
  scantape::emulator::Clock capture_clock;
  cudaError_t lost = cudaSuccess;  // operations were dropped because of this failure
  std::string lost_text;
};

struct CUevent_st {
  std::shared_ptr<scantape::emulator::EventState> state;
};

struct CUgraph_st {
  struct Node {
    scantape::emulator::Operation operation;
    std::uint64_t branch = 0, position = 0;
    scantape::emulator::Clock before;  // of branches
  };
  std::vector<Node> nodes;
  std::uint64_t branches = 1;
};

struct CUgraphExec_st {
  CUgraph_st graph;
  scantape::emulator::Clock last;  // of its last launch: a graph does not overtake itself
};

}  // namespace scantape_emulated

namespace scantape::emulator {
namespace {

struct Capture {
  cudaStream_t origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  CUgraph_st graph;
  std::vector<cudaStream_t> streams;
  cudaError_t spoilt = cudaSuccess;
  std::string why;
  bool ended = false;
};

// A GPU's host waits, too, when this many operations are on their way.
constexpr std::size_t kQueueLimit = 1024;
// What ran longer ago counts as past: a missing order may then go unseen, none is ever invented.
constexpr std::size_t kRecordLimit = 1 << 16;

struct State {
  CUstream_st default_stream;
  std::map<std::uint64_t, CUstream_st*> streams;  // all that may have work, by number
  std::set<cudaStream_t> handles;
  std::set<cudaEvent_t> events;
  std::set<cudaGraph_t> graphs;
  std::set<cudaGraphExec_t> executables;
  std::vector<std::shared_ptr<Capture>> captures;  // going on
  std::uint64_t next_stream = 1, next_number = 1;
  Clock host;  // what the host has waited for
  std::atomic<bool> several{false};
  bool blocking = false;

  // numbers of blocks
  std::uint32_t next_serial = 1, generation = 0, floor = 1;
  std::vector<Record> records;  // above the floor, by number

  State() {
    streams[0] = &default_stream;
    const char* const text = std::getenv("CUDA_LAUNCH_BLOCKING");
    blocking = text != nullptr && std::strcmp(text, "1") == 0;
  }
};

State& state() {
  static auto* const instance = new State;  // never destroyed: late destructors of users still come here
  return *instance;
}

CUstream_st& of(cudaStream_t stream) {
  return stream == nullptr ? state().default_stream : *stream;
}

bool is_live(cudaStream_t stream) {
  return stream == nullptr || state().handles.count(stream) != 0;
}

bool is_done(const Clock& clock) {
  for (const auto& [id, position] : clock) {
    const auto it = state().streams.find(id);
    if (it != state().streams.end() && it->second->done < position) return false;
  }
  return true;
}

/// The first operation among those that `clock` names, by the order of giving; null where all have run.
CUstream_st* next_of(const Clock& clock) {
  CUstream_st* best = nullptr;
  for (const auto& [id, position] : clock) {
    const auto it = state().streams.find(id);
    if (it == state().streams.end()) continue;
    CUstream_st& stream = *it->second;
    if (stream.queue.empty() || stream.queue.front().position > position) continue;
    if (best == nullptr || stream.queue.front().number < best->queue.front().number) best = &stream;
  }
  return best;
}

cudaError_t run_one(CUstream_st& stream) {
  const Pending pending = std::move(stream.queue.front());
  stream.queue.pop_front();
  const Moment moment{stream.id, pending.position, &pending.clock, pending.operation.place};
  const cudaError_t error = pending.operation.run(moment);
  stream.done = pending.position;
  return error;
}

Clock everything() {
  Clock all;
  for (const auto& [id, stream] : state().streams) all[id] = stream->given;
  return all;
}

/// After a failure nothing that was given is done: whoever waits for it hears why.
void drop_all(const Clock& told, cudaError_t error, const std::string& text) {
  const Clock all = everything();
  while (CUstream_st* const stream = next_of(all)) {
    if (stream->queue.front().operation.in_any_case) {
      (void)run_one(*stream);
      continue;
    }
    stream->done = stream->queue.front().position;
    stream->queue.pop_front();
    if (told.count(stream->id) != 0) continue;
    stream->lost = error;
    stream->lost_text = text;
  }
  (void)fail(error, text);  // what was run above may have changed what is told
}

cudaError_t run_until(const Clock& clock) {
  for (const auto& [id, position] : clock) {
    const auto it = state().streams.find(id);
    if (it == state().streams.end() || it->second->lost == cudaSuccess) continue;
    const cudaError_t error = it->second->lost;
    it->second->lost = cudaSuccess;
    return fail(error, "work was dropped after an earlier failure: " + it->second->lost_text);
  }
  while (CUstream_st* const stream = next_of(clock)) {
    const cudaError_t error = run_one(*stream);
    if (error == cudaSuccess) continue;
    drop_all(clock, error, cudaGetErrorString(error));
    return error;
  }
  return cudaSuccess;
}

void remove_finished_streams() {
  for (auto it = state().streams.begin(); it != state().streams.end();) {
    CUstream_st* const stream = it->second;
    const bool finished = !stream->alive && stream->queue.empty();
    it = finished ? state().streams.erase(it) : std::next(it);
    if (finished) delete stream;
  }
}

/// Where the host has waited for everything, what was is past: clocks begin anew.
void forget_the_past() {
  State& all = state();
  for (const auto& [id, stream] : all.streams) {
    const auto seen = all.host.find(id);
    if (!stream->queue.empty() || stream->given > (seen == all.host.end() ? 0 : seen->second)) return;
  }
  remove_finished_streams();
  for (const auto& [id, stream] : all.streams) stream->clock.clear();
  all.floor = all.next_serial;
  all.records.clear();
  // What the host has seen stays: positions of living streams do not begin anew.
  for (auto it = all.host.begin(); it != all.host.end();)
    it = all.streams.count(it->first) == 0 ? all.host.erase(it) : std::next(it);
}

cudaError_t wait_for(Clock clock) {
  clear_fault();
  const cudaError_t error = run_until(clock);
  merge(state().host, clock);
  forget_the_past();
  return error;
}

void spoil(Capture& capture, cudaError_t error, const std::string& why) {
  if (capture.spoilt != cudaSuccess) return;
  capture.spoilt = error;
  capture.why = why;
}

cudaError_t spoilt_error(const Capture& capture) {
  return fail(cudaErrorStreamCaptureInvalidated, "the capture was spoilt before: " + capture.why);
}

/// The streams are their own again.
void end_capture(Capture& capture) {
  capture.ended = true;
  for (const cudaStream_t stream : capture.streams) stream->capture = nullptr;
  auto& going_on = state().captures;
  const auto is_it = [&](const std::shared_ptr<Capture>& other) { return other.get() == &capture; };
  going_on.erase(std::remove_if(going_on.begin(), going_on.end(), is_it), going_on.end());
}

/// Host memory of an operation must not be that of one still on its way, or poison would spoil that one.
cudaError_t finish_users_of(const void* host, std::size_t bytes) {
  if (host == nullptr || bytes == 0) return cudaSuccess;
  const auto first = reinterpret_cast<std::uintptr_t>(host);
  for (;;) {
    Clock clock;
    for (const auto& [id, stream] : state().streams) {
      for (const Pending& pending : stream->queue) {
        const auto other = reinterpret_cast<std::uintptr_t>(pending.operation.host);
        const bool overlap = pending.operation.host_bytes > 0 &&
                             first < other + pending.operation.host_bytes && other < first + bytes;
        if (!overlap) continue;
        merge(clock, pending.clock);
        clock[id] = pending.position;
      }
    }
    if (clock.empty()) return cudaSuccess;
    if (const cudaError_t error = run_until(clock); error != cudaSuccess) return error;
  }
}

/// What comes before the next operation of a stream.
Clock clock_of_next(CUstream_st& stream) {
  State& all = state();
  Clock clock = stream.clock;
  merge(clock, all.host);
  if (!stream.blocking) return clock;
  if (stream.id != 0) {
    merge(clock, all.default_stream.clock);
    return clock;
  }
  for (const auto& [id, other] : all.streams) {
    if (other->blocking && id != 0) merge(clock, other->clock);
  }
  return clock;
}

cudaError_t give(CUstream_st& stream, Operation operation, Clock clock) {
  if (operation.prepare) {
    cudaError_t error = finish_users_of(operation.host, operation.host_bytes);
    if (error == cudaSuccess) error = operation.prepare();
    if (error != cudaSuccess) return error;
  }
  Pending pending;
  pending.operation = std::move(operation);
  pending.position = ++stream.given;
  pending.number = state().next_number++;
  clock[stream.id] = pending.position;
  stream.clock = clock;
  pending.clock = std::move(clock);
  stream.queue.push_back(std::move(pending));
  if (state().blocking) return wait_for(stream.clock);
  while (stream.queue.size() >= kQueueLimit) {
    Clock oldest = stream.queue.front().clock;
    if (const cudaError_t error = run_until(oldest); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t add_node(CUstream_st& stream, Operation operation) {
  Capture& capture = *stream.capture;
  if (capture.spoilt != cudaSuccess) return spoilt_error(capture);
  CUgraph_st::Node node;
  node.operation = std::move(operation);
  node.branch = stream.branch;
  node.before = stream.capture_clock;
  node.position = ++stream.capture_clock[stream.branch];
  capture.graph.nodes.push_back(std::move(node));
  return cudaSuccess;
}

/// The default stream would have to wait for a stream that is being captured.
cudaError_t refuse_implicit_order() {
  for (const auto& capture : state().captures) {
    const auto is_blocking = [](cudaStream_t stream) { return of(stream).blocking; };
    if (!std::any_of(capture->streams.begin(), capture->streams.end(), is_blocking)) continue;
    const char* const text = "the default stream was used while a stream is captured that it is ordered with";
    spoil(*capture, cudaErrorStreamCaptureImplicit, text);
    return fail(cudaErrorStreamCaptureImplicit, text);
  }
  return cudaSuccess;
}

cudaError_t not_live(const char* what) {
  return fail(cudaErrorInvalidResourceHandle, std::string(what) + " is not a live one");
}

bool is_captured(const EventState& event) {
  return event.capture != nullptr;
}

cudaError_t launch_graph(CUgraphExec_st& executable, CUstream_st& stream) {
  // The first branch runs on the stream itself, the others on streams of their own.
  std::vector<CUstream_st*> branches{&stream};
  for (std::uint64_t i = 1; i < executable.graph.branches; ++i) {
    auto* const made = new CUstream_st;
    made->id = state().next_stream++;
    made->blocking = false;
    state().streams[made->id] = made;
    branches.push_back(made);
  }
  Clock start = clock_of_next(stream);
  merge(start, executable.last);
  const std::uint64_t base = stream.given;
  Clock end = start;
  cudaError_t result = cudaSuccess;
  for (const CUgraph_st::Node& node : executable.graph.nodes) {
    Clock clock = start;
    for (const auto& [branch, position] : node.before) {
      CUstream_st& other = *branches[branch];
      const std::uint64_t absolute = position + (branch == 0 ? base : 0);
      if (position > 0) clock[other.id] = std::max(clock[other.id], absolute);
    }
    CUstream_st& target = *branches[node.branch];
    result = give(target, node.operation, std::move(clock));
    if (result != cudaSuccess) break;
    merge(end, target.clock);
  }
  merge(stream.clock, end);
  executable.last = end;
  for (std::size_t i = 1; i < branches.size(); ++i) branches[i]->alive = false;
  remove_finished_streams();
  return result;
}

}  // namespace

void merge(Clock& clock, const Clock& other) {
  for (const auto& [id, position] : other) {
    std::uint64_t& mine = clock[id];
    mine = std::max(mine, position);
  }
}

std::recursive_mutex& device_mutex() {
  static auto* const mutex = new std::recursive_mutex;
  return *mutex;
}

bool is_stream(cudaStream_t stream) {
  const std::lock_guard lock(device_mutex());
  return is_live(stream);
}

bool several_streams() {
  return state().several;
}

void set_blocking(bool blocking) noexcept {
  const std::lock_guard lock(device_mutex());
  drain();
  state().blocking = blocking;
}

bool blocking() noexcept {
  const std::lock_guard lock(device_mutex());
  return state().blocking;
}

cudaError_t enqueue(cudaStream_t stream, Operation operation) {
  note_device();
  const std::lock_guard lock(device_mutex());
  if (!is_live(stream)) return fail(cudaErrorInvalidResourceHandle, "this is not a live stream");
  CUstream_st& target = of(stream);
  if (target.capture != nullptr) return add_node(target, std::move(operation));
  if (stream == nullptr) {
    if (const cudaError_t error = refuse_implicit_order(); error != cudaSuccess) return error;
  }
  return give(target, std::move(operation), clock_of_next(target));
}

cudaError_t wait_for_stream(cudaStream_t stream) {
  note_device();
  const std::lock_guard lock(device_mutex());
  if (!is_live(stream)) return fail(cudaErrorInvalidResourceHandle, "this is not a live stream");
  CUstream_st& target = of(stream);
  if (target.capture != nullptr) {
    spoil(*target.capture, cudaErrorStreamCaptureUnsupported,
          "somebody waited for a stream that is captured");
    return fail(cudaErrorStreamCaptureUnsupported, "a stream cannot be waited for while it is captured");
  }
  if (stream == nullptr) {
    if (const cudaError_t error = refuse_implicit_order(); error != cudaSuccess) return error;
  }
  Clock clock = target.clock;
  return wait_for(std::move(clock));
}

cudaError_t wait_for_device() {
  const std::lock_guard lock(device_mutex());
  for (const auto& capture : state().captures) {
    spoil(*capture, cudaErrorStreamCaptureUnsupported, "somebody waited for the device");
  }
  if (!state().captures.empty())
    return fail(cudaErrorStreamCaptureUnsupported,
                "the device cannot be waited for while a stream is captured");
  return wait_for(everything());
}

void drain() {
  const std::lock_guard lock(device_mutex());
  cudaError_t first = cudaSuccess;
  std::string text;
  for (cudaError_t error = wait_for(everything()); error != cudaSuccess; error = wait_for(everything())) {
    if (first == cudaSuccess) text = cudaGetErrorString(error);
    if (first == cudaSuccess) first = error;
    (void)cudaGetLastError();
  }
  if (first == cudaSuccess) return;
  // Nobody was told: whoever waits next is.
  state().default_stream.lost = first;
  state().default_stream.lost_text = text;
}

cudaError_t refuse_in_capture(const char* what) {
  const std::lock_guard lock(device_mutex());
  for (const auto& capture : state().captures) {
    const bool concerns_us =
        capture->mode == cudaStreamCaptureModeGlobal ||
        (capture->mode == cudaStreamCaptureModeThreadLocal && capture->thread == std::this_thread::get_id());
    if (!concerns_us) continue;
    spoil(*capture, cudaErrorStreamCaptureUnsupported, std::string(what) + " was called");
    return fail(cudaErrorStreamCaptureUnsupported,
                std::string(what) + " is not permitted while a stream is captured");
  }
  return cudaSuccess;
}

cudaError_t refuse_captured(cudaStream_t stream, const char* what) {
  const std::lock_guard lock(device_mutex());
  CUstream_st& target = of(stream);
  if (target.capture == nullptr) return cudaSuccess;
  spoil(*target.capture, cudaErrorStreamCaptureUnsupported, std::string(what) + " was called");
  return fail(cudaErrorStreamCaptureUnsupported, std::string(what) + ": memory in graphs is not emulated");
}

cudaError_t run_stream(cudaStream_t stream) {
  const std::lock_guard lock(device_mutex());
  CUstream_st& target = of(stream);
  return run_until(Clock(target.clock));
}

// ---- numbers of blocks, and the order of what has run ----

Numbers take_numbers(const Moment& moment, std::uint32_t blocks, dim3 grid, dim3 block, bool is_kernel,
                     Direction direction) {
  State& all = state();
  if (all.next_serial + blocks > kMaxSerial) {
    DeviceMemory::instance().forget_accesses();
    ++all.generation;
    all.next_serial = all.floor = 1;
    all.records.clear();
  }
  Numbers numbers;
  numbers.first = all.next_serial;
  numbers.generation = all.generation;
  all.next_serial += blocks;
  if (!all.several) all.floor = numbers.first;  // one stream: all that has run comes before
  numbers.past.ordered_below = all.floor;
  numbers.past.clock = moment.clock;
  if (!all.several) return numbers;
  all.records.push_back({numbers.first, blocks, moment.stream, moment.position, moment.place, grid, block,
                         is_kernel, direction});
  if (all.records.size() > kRecordLimit) {
    all.records.erase(all.records.begin(), all.records.begin() + kRecordLimit / 2);
    all.floor = numbers.past.ordered_below = all.records.front().first;
  }
  return numbers;
}

const Record* Past::find(std::uint32_t serial) {
  const std::vector<Record>& records = state().records;
  auto it =
      std::upper_bound(records.begin(), records.end(), serial,
                       [](std::uint32_t number, const Record& record) { return number < record.first; });
  if (it == records.begin()) return nullptr;
  --it;
  return serial - it->first < it->count ? &*it : nullptr;
}

bool Past::ordered(std::uint32_t serial) const {
  if (serial < ordered_below) return true;
  const Record* const record = find(serial);
  if (record == nullptr) return true;
  const auto it = clock->find(record->stream);
  return it != clock->end() && it->second >= record->position;
}

std::string earlier_access(const Access& earlier, bool wrote, FaultSite* site) {
  const std::uint32_t serial = earlier.owner >> 5;
  const Record* const record = Past::find(serial);
  const std::string verb = wrote ? "write" : "read";
  if (record == nullptr) return verb + " by an operation of another stream";
  std::string place = to_text(source_lines(unpacked_place(earlier.place)));
  if (!record->is_kernel)
    return verb + " by the copy, fill, product or (de)allocation given to another stream at " + place;
  Launch launch;
  launch.grid = record->grid;
  launch.block = record->block;
  launch.order.blocks = record->direction;
  launch.blocks = record->count;
  const uint3 block = launch.block_index(serial - record->first);
  const uint3 thread =
      launch.thread_index(static_cast<int>(earlier.owner & 31u) * kWarpLanes + __builtin_ctz(earlier.lanes));
  const SourceLine line = source_lines(unpacked_place(earlier.place)).front();
  if (site != nullptr)
    *site = {{block.x, block.y, block.z}, {thread.x, thread.y, thread.z}, line.file, line.line};
  return verb + " by thread " + text_of(thread) + " of block " + text_of(block) +
         " of a kernel of another stream, at " + place;
}

std::string touch(const Moment& moment, const void* address, std::size_t pitch, std::size_t width,
                  std::size_t height, bool write) {
  if (!several_streams() || !checks_accesses() || width == 0) return "";
  const Numbers numbers = take_numbers(moment, 1, dim3(), dim3(), false, Direction::forward);
  const Region& region = DeviceMemory::instance().region();
  const std::uint32_t place = packed_place(moment.place);
  for (std::size_t row = 0; row < height; ++row) {
    const std::size_t first = reinterpret_cast<std::uintptr_t>(address) + row * pitch - region.base;
    for (std::size_t at = first; at < first + width;) {
      const std::size_t first_byte = at % 4;
      const std::size_t count = std::min(4 - first_byte, first + width - at);
      const unsigned touched = ((1u << count) - 1) << first_byte;
      Cell& cell = region.cells[at / 4];
      const auto open = [&](const Access& access) {
        return (access.place & touched) != 0 && !numbers.past.ordered(access.owner >> 5);
      };
      const Access* other = open(cell.write) ? &cell.write : nullptr;
      for (const Access& read : cell.reads)
        if (other == nullptr && write && open(read)) other = &read;
      if (other != nullptr) {
        return DeviceMemory::instance().describe(region.base + at) +
               ", and no event or synchronisation orders this after the " +
               earlier_access(*other, other == &cell.write, nullptr);
      }
      const Access now{numbers.first << 5, 0, 1, place | touched};
      if (write) {
        cell.write = now;
      } else {
        const bool past = numbers.past.ordered(cell.reads[0].owner >> 5);
        cell.reads[past ? 0 : 1] = now;
      }
      at += count;
    }
  }
  return "";
}

}  // namespace scantape::emulator

inline namespace scantape_emulated {

using namespace scantape::emulator;  // NOLINT: the API below is the face of what is above

// ---- streams ----

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  const std::lock_guard lock(device_mutex());
  if (stream == nullptr || flags > cudaStreamNonBlocking) {
    return fail(cudaErrorInvalidValue,
                "cudaStreamCreate: the stream's place is null, or the flags are unknown");
  }
  auto* const made = new CUstream_st;
  made->id = state().next_stream++;
  made->blocking = flags == cudaStreamDefault;
  state().streams[made->id] = made;
  state().handles.insert(made);
  state().several = true;
  *stream = made;
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(device_mutex());
  if (stream == nullptr || state().handles.count(stream) == 0)
    return not_live("cudaStreamDestroy: this stream");
  if (const std::shared_ptr<Capture> capture = stream->capture; capture != nullptr) {
    spoil(*capture, cudaErrorStreamCaptureUnsupported, "a stream that is captured was destroyed");
    if (capture->origin == stream) {
      end_capture(*capture);  // nobody else can
    } else {
      auto& streams = capture->streams;
      streams.erase(std::remove(streams.begin(), streams.end(), stream), streams.end());
      stream->capture = nullptr;
    }
  }
  // Its work is still done when somebody needs it.
  state().handles.erase(stream);
  stream->alive = false;
  if (stream->queue.empty() && stream->lost == cudaSuccess) {
    state().streams.erase(stream->id);
    delete stream;
  }
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t error = wait_for_stream(stream); error != cudaSuccess) return error;
  return check_guards();
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const std::lock_guard lock(device_mutex());
  if (!is_live(stream)) return not_live("cudaStreamQuery: this stream");
  CUstream_st& target = of(stream);
  if (target.capture != nullptr) {
    spoil(*target.capture, cudaErrorStreamCaptureUnsupported, "cudaStreamQuery was called");
    return fail(cudaErrorStreamCaptureUnsupported, "a stream cannot be asked while it is captured");
  }
  Clock clock = target.clock;
  // Somebody who asks again and again is to get an answer some day.
  if (CUstream_st* const next = next_of(clock)) {
    Clock one = next->queue.front().clock;
    if (const cudaError_t error = run_until(one); error != cudaSuccess) return error;
  }
  if (!is_done(clock)) return cudaErrorNotReady;
  return wait_for(std::move(clock));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  const std::lock_guard lock(device_mutex());
  if (flags != 0) return fail(cudaErrorInvalidValue, "cudaStreamWaitEvent: flags are not emulated");
  if (state().events.count(event) == 0) return not_live("cudaStreamWaitEvent: this event");
  if (!is_live(stream)) return not_live("cudaStreamWaitEvent: this stream");
  CUstream_st& target = of(stream);
  EventState& mark = *event->state;
  if (!is_captured(mark)) {
    if (target.capture != nullptr && mark.given) {
      spoil(*target.capture, cudaErrorStreamCaptureIsolation, "it waited for an event from outside");
      return fail(cudaErrorStreamCaptureIsolation,
                  "a stream that is captured cannot wait for an event recorded outside the capture");
    }
    if (mark.given) merge(target.clock, mark.clock);
    return cudaSuccess;
  }
  if (mark.capture->ended)
    return fail(cudaErrorCapturedEvent, "the event was recorded in a capture that has ended");
  if (mark.capture->spoilt != cudaSuccess) return spoilt_error(*mark.capture);
  if (stream == nullptr) {
    spoil(*mark.capture, cudaErrorStreamCaptureImplicit, "the default stream cannot be captured");
    return fail(cudaErrorStreamCaptureImplicit, "the default stream cannot be captured");
  }
  if (target.capture == nullptr) {  // a fork
    target.capture = mark.capture;
    target.branch = mark.capture->graph.branches++;
    target.capture_clock.clear();
    mark.capture->streams.push_back(stream);
  } else if (target.capture != mark.capture) {
    spoil(*target.capture, cudaErrorStreamCaptureMerge, "it waited for an event of another capture");
    spoil(*mark.capture, cudaErrorStreamCaptureMerge, "another capture waited for its event");
    return fail(cudaErrorStreamCaptureMerge, "two captures cannot be merged");
  }
  merge(target.capture_clock, mark.capture_clock);
  return cudaSuccess;
}

// ---- events ----

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  const std::lock_guard lock(device_mutex());
  if (event == nullptr || (flags & ~(cudaEventBlockingSync | cudaEventDisableTiming)) != 0) {
    return fail(cudaErrorInvalidValue,
                "cudaEventCreate: the event's place is null, or the flags are unknown");
  }
  auto* const made = new CUevent_st{std::make_shared<EventState>()};
  made->state->timing = (flags & cudaEventDisableTiming) == 0;
  state().events.insert(made);
  *event = made;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(device_mutex());
  if (state().events.erase(event) == 0) return not_live("cudaEventDestroy: this event");
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(device_mutex());
  if (state().events.count(event) == 0) return not_live("cudaEventRecord: this event");
  if (!is_live(stream)) return not_live("cudaEventRecord: this stream");
  CUstream_st& target = of(stream);
  EventState& mark = *event->state;
  if (target.capture != nullptr) {
    if (target.capture->spoilt != cudaSuccess) return spoilt_error(*target.capture);
    mark.capture = target.capture;
    mark.capture_clock = target.capture_clock;
    return cudaSuccess;
  }
  // Each record has its own state: one that is still on its way must not look like the next.
  auto fresh = std::make_shared<EventState>();
  fresh->timing = mark.timing;
  fresh->given = true;
  event->state = fresh;
  Operation operation;
  operation.in_any_case = true;
  operation.run = [fresh](const Moment&) {
    fresh->at = std::chrono::steady_clock::now();
    fresh->recorded = true;
    return cudaSuccess;
  };
  const cudaError_t error = enqueue(stream, std::move(operation));
  fresh->clock = of(stream).clock;
  return error;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(device_mutex());
  if (state().events.count(event) == 0) return not_live("cudaEventQuery: this event");
  EventState& mark = *event->state;
  if (is_captured(mark)) {
    if (!mark.capture->ended)
      spoil(*mark.capture, cudaErrorStreamCaptureUnsupported, "an event of it was asked");
    return fail(cudaErrorCapturedEvent, "the event was recorded in a capture");
  }
  const Clock clock = mark.clock;
  if (CUstream_st* const next = next_of(clock)) {
    Clock one = next->queue.front().clock;
    if (const cudaError_t error = run_until(one); error != cudaSuccess) return error;
  }
  if (!is_done(clock)) return cudaErrorNotReady;
  return wait_for(clock);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const std::lock_guard lock(device_mutex());
  if (state().events.count(event) == 0) return not_live("cudaEventSynchronize: this event");
  EventState& mark = *event->state;
  if (is_captured(mark)) {
    if (!mark.capture->ended)
      spoil(*mark.capture, cudaErrorStreamCaptureUnsupported, "an event of it was waited for");
    return fail(cudaErrorCapturedEvent, "the event was recorded in a capture");
  }
  return wait_for(mark.clock);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const std::lock_guard lock(device_mutex());
  if (milliseconds == nullptr)
    return fail(cudaErrorInvalidValue, "cudaEventElapsedTime: milliseconds is null");
  for (const cudaEvent_t event : {start, end}) {
    if (state().events.count(event) == 0 || !event->state->timing || !event->state->given) {
      return fail(cudaErrorInvalidResourceHandle,
                  "cudaEventElapsedTime: an event was not recorded, or without timing");
    }
  }
  if (!start->state->recorded || !end->state->recorded) return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(end->state->at - start->state->at).count();
  return cudaSuccess;
}

// ---- graphs ----

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const std::lock_guard lock(device_mutex());
  if (stream == nullptr)
    return fail(cudaErrorStreamCaptureUnsupported, "the default stream cannot be captured");
  if (!is_live(stream)) return not_live("cudaStreamBeginCapture: this stream");
  if (mode < cudaStreamCaptureModeGlobal || mode > cudaStreamCaptureModeRelaxed)
    return fail(cudaErrorInvalidValue, "cudaStreamBeginCapture: unknown mode");
  if (stream->capture != nullptr) return fail(cudaErrorIllegalState, "this stream is being captured already");
  auto capture = std::make_shared<Capture>();
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->streams = {stream};
  stream->capture = capture;
  stream->branch = 0;
  stream->capture_clock.clear();
  state().captures.push_back(std::move(capture));
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard lock(device_mutex());
  if (graph == nullptr) return fail(cudaErrorInvalidValue, "cudaStreamEndCapture: the graph's place is null");
  *graph = nullptr;
  if (!is_live(stream)) return not_live("cudaStreamEndCapture: this stream");
  if (of(stream).capture == nullptr) return fail(cudaErrorIllegalState, "this stream is not being captured");
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture->origin != stream) {
    spoil(*capture, cudaErrorStreamCaptureUnmatched, "it was ended on another stream");
    return fail(cudaErrorStreamCaptureUnmatched, "a capture ends on the stream on which it began");
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
    return fail(cudaErrorStreamCaptureWrongThread, "a capture ends in the thread in which it began");
  // All that was forked must have come back.
  if (capture->spoilt == cudaSuccess) {
    for (const cudaStream_t other : capture->streams) {
      const auto mine = stream->capture_clock.find(other->branch);
      const auto last = other->capture_clock.find(other->branch);
      const std::uint64_t joined = mine == stream->capture_clock.end() ? 0 : mine->second;
      if (last == other->capture_clock.end() || joined >= last->second) continue;
      spoil(*capture, cudaErrorStreamCaptureUnjoined, "a forked stream did not come back");
      (void)fail(cudaErrorStreamCaptureUnjoined,
                 "a stream that was forked in the capture was not joined to the one on which it began");
      break;
    }
  }
  end_capture(*capture);
  if (capture->spoilt == cudaErrorStreamCaptureUnjoined) return cudaErrorStreamCaptureUnjoined;
  if (capture->spoilt != cudaSuccess) return spoilt_error(*capture);
  *graph = new CUgraph_st(std::move(capture->graph));
  state().graphs.insert(*graph);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const std::lock_guard lock(device_mutex());
  if (status == nullptr)
    return fail(cudaErrorInvalidValue, "cudaStreamIsCapturing: the status' place is null");
  if (!is_live(stream)) return not_live("cudaStreamIsCapturing: this stream");
  const auto& capture = of(stream).capture;
  *status = capture == nullptr               ? cudaStreamCaptureStatusNone
            : capture->spoilt == cudaSuccess ? cudaStreamCaptureStatusActive
                                             : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  const std::lock_guard lock(device_mutex());
  if (executable == nullptr || flags != 0)
    return fail(cudaErrorInvalidValue, "cudaGraphInstantiate: the place is null, or there are flags");
  if (state().graphs.count(graph) == 0) return not_live("cudaGraphInstantiate: this graph");
  *executable = new CUgraphExec_st{*graph, {}};
  state().executables.insert(*executable);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const std::lock_guard lock(device_mutex());
  if (state().executables.count(executable) == 0) return not_live("cudaGraphLaunch: this graph");
  if (!is_live(stream)) return not_live("cudaGraphLaunch: this stream");
  CUstream_st& target = of(stream);
  if (target.capture != nullptr) {
    spoil(*target.capture, cudaErrorStreamCaptureUnsupported, "a graph was launched in it");
    return fail(cudaErrorStreamCaptureUnsupported, "graphs inside graphs are not emulated");
  }
  if (stream == nullptr) {
    if (const cudaError_t error = refuse_implicit_order(); error != cudaSuccess) return error;
  }
  return launch_graph(*executable, target);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  const std::lock_guard lock(device_mutex());
  if (state().graphs.count(graph) == 0) return not_live("cudaGraphGetNodes: this graph");
  if (nodes != nullptr || count == nullptr)
    return fail(cudaErrorNotSupported, "cudaGraphGetNodes: only the number of nodes is emulated");
  *count = graph->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const std::lock_guard lock(device_mutex());
  if (state().graphs.erase(graph) == 0) return not_live("cudaGraphDestroy: this graph");
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  const std::lock_guard lock(device_mutex());
  if (state().executables.erase(executable) == 0) return not_live("cudaGraphExecDestroy: this graph");
  delete executable;  // launches that are on their way hold what they need
  return cudaSuccess;
}

}  // namespace scantape_emulated
