#include "scantape/graph.h"

#include <string>
#include <utility>

#include "runtime/arena.h"
#include "runtime/cuda_device.h"
#include "scantape/error.h"

namespace scantape {

struct Graph::State {
  Device device;
  std::shared_ptr<runtime::Arena> arena;
  runtime::CudaGraph graph;

  explicit State(Device where) : device(where), arena(std::make_shared<runtime::Arena>(where)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { runtime::cuda_destroy_graph(device.index, graph); }
};

namespace {

/// This thread's workplace for as long as it lives.
class Elsewhere {
 public:
  Elsewhere(Stream stream, std::shared_ptr<runtime::Arena> arena)
      : before_(std::exchange(runtime::workplace(), {stream, std::move(arena)})) {}
  Elsewhere(const Elsewhere&) = delete;
  Elsewhere& operator=(const Elsewhere&) = delete;
  ~Elsewhere() { runtime::workplace() = std::move(before_); }

 private:
  runtime::Workplace before_;
};

}  // namespace

Graph::Graph() noexcept = default;
Graph::Graph(Graph&& other) noexcept = default;
Graph& Graph::operator=(Graph&& other) noexcept = default;
Graph::~Graph() = default;

Graph Graph::capture(Device device, const std::function<void()>& step) {
  if (device.is_cpu())
    throw Error(Code::invalid_argument,
                "graph: the device is cpu, wants cuda: the CPU runs calls as they are made");
  if (runtime::workplace().arena != nullptr)
    throw Error(Code::invalid_argument, "graph: a capture inside a capture");
  Graph result;
  result.state_ = std::make_unique<State>(device);
  State& state = *result.state_;
  {
    const Elsewhere ordinary({}, state.arena);
    step();
  }
  require(state.arena->seal());
  require(runtime::cuda_begin_capture(device.index, state.graph));
  try {
    const Elsewhere captured(state.graph.stream, state.arena);
    step();
  } catch (...) {
    (void)runtime::cuda_end_capture(device.index, state.graph);  // what went wrong is on its way already
    throw;
  }
  require(runtime::cuda_end_capture(device.index, state.graph));
  return result;
}

void Graph::replay() {
  if (state_ == nullptr)
    throw Error(Code::invalid_argument, "graph: nothing was captured that could be replayed");
  require(runtime::cuda_launch_graph(state_->device.index, state_->graph, {}));
}

std::int64_t Graph::nodes() const noexcept {
  return state_ == nullptr ? 0 : state_->graph.nodes;
}

std::int64_t Graph::memory_bytes() const noexcept {
  return state_ == nullptr ? 0 : state_->arena->bytes();
}

}  // namespace scantape
