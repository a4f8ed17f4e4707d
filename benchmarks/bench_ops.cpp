// Times every op, forward and backward, on the cases of tests/cases that are of a size people use. Each is
// compared with the reference first; what is wrong is not timed. Prints a table; --json FILE writes the same
// for programs.

#include <benchmark/benchmark.h>
#include <omp.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cases/instance.h"
#include "cases/runner.h"
#include "memory.h"
#include "report.h"
#include "roofs.h"
#include "scantape/device.h"
#include "scantape/version.h"

namespace scantape::bench {
namespace {

using cases::Ask;
using cases::Case;
using cases::Instance;
using cases::Place;

constexpr std::uint64_t kSeed = 1;
constexpr int kRepetitions = 5;
constexpr double kSecondsARepetition = 0.1;
constexpr int kEnqueuedOnGpu = 20;  // calls per wait: the wait is paid once for all of them

enum class Direction { forward, backward };
const char* name(Direction direction) {
  return direction == Direction::forward ? "forward" : "backward";
}

struct Job {
  const Case* c;
  DType dtype;
  Device device;
  Direction direction;
};

const char* kind_of(Device device) {
  return device.is_cpu() ? "cpu" : "cuda";
}

/// "scan/B32-L60-C512" -> "B32-L60-C512": what follows the op, up to the options.
std::string shape_of(const Case& c) {
  const std::string rest = c.name.substr(std::min(c.name.size(), c.op.size() + 1));
  return rest.substr(0, rest.find('/'));
}

std::string name_of(const Job& job) {
  return job.c->name + "/" + name(job.direction) + "/" + scantape::name(job.dtype) + "/" +
         kind_of(job.device);
}

/// One line that the next one replaces, on a terminal only.
void show_progress(const std::string& text) {
  if (isatty(STDERR_FILENO)) std::cerr << "\r\033[K" << text << std::flush;
}

/// The case as its caller sees it: without what forward keeps for backward alone.
Case without_saved(Case c) {
  for (cases::Output& output : c.outputs)
    if (output.saved && !output.cotangent) output.present = false;
  return c;
}

/// Each tensor of forward and backward once.
double all_bytes(Case c, DType dtype) {
  const double forward = forward_bytes(c, dtype);
  for (cases::Input& input : c.inputs) input.saved = false;
  for (cases::Output& output : c.outputs) output.saved = false;
  return forward + (c.backward ? backward_bytes(c, dtype) : 0);
}

/// A case in the memory of a device, checked in both directions. Numbers are drawn once for all that is timed
/// on them.
class Prepared {
 public:
  explicit Prepared(const Job& job) : job_(job) {
    const Place place{job.device, job.dtype};
    const cases::Rows rows = cases::compare(*job.c, place, kSeed);
    if (!cases::all_pass(rows)) {
      failure_ = rows.empty() ? "nothing was compared" : cases::failures(rows, kSeed);
      return;
    }
    instance_ = std::make_unique<Instance>(*job.c, cases::make_data(*job.c, job.dtype, kSeed), place);
    instance_->forward();
    if (job.c->backward) instance_->backward(Ask::overwrite);
    if (job.device.is_cpu()) measure_memory();
  }

  /// Of forward and backward: all tensors of both and what the op takes beside them. On the CPU.
  std::optional<std::int64_t> memory() const { return memory_; }

  bool serves(const Job& job) const {
    return job.c == job_.c && job.dtype == job_.dtype && job.device == job_.device;
  }
  const std::string& failure() const { return failure_; }
  Status launch(Direction direction) {
    return direction == Direction::forward ? instance_->launch_forward() : instance_->launch_backward();
  }

 private:
  /// The tensors are counted by their sizes: the instance holds copies of its own to compare with.
  void measure_memory() {
    const bool counted = forget_peak();
    const std::optional<std::int64_t> before = resident_bytes();
    const bool ran =
        instance_->launch_forward().ok() && (!job_.c->backward || instance_->launch_backward().ok());
    const std::optional<std::int64_t> most = peak_bytes();
    if (ran && counted && before && most)
      memory_ = static_cast<std::int64_t>(all_bytes(*job_.c, job_.dtype)) + *most - *before;
  }

  Job job_;
  std::unique_ptr<Instance> instance_;
  std::string failure_;
  std::optional<std::int64_t> memory_;
};

/// The jobs, and what became of them.
class Session : public benchmark::BenchmarkReporter {
 public:
  explicit Session(std::vector<Job> jobs) : jobs_(std::move(jobs)), rows_(jobs_.size()) {}

  void register_benchmarks() {
    for (std::size_t i = 0; i < jobs_.size(); ++i)
      benchmark::RegisterBenchmark(name_of(jobs_[i]).c_str(),
                                   [this, i](benchmark::State& state) { run(state, i); })
          ->UseRealTime()
          ->MinTime(kSecondsARepetition)
          ->Repetitions(kRepetitions);
  }

  std::vector<Row> rows() const {
    std::vector<Row> ran;
    for (const std::optional<Row>& row : rows_)
      if (row && (!row->failure.empty() || !row->seconds.empty())) ran.push_back(*row);
    return ran;
  }

  bool ReportContext(const Context&) override { return true; }

  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration || run.iterations == 0) continue;
      for (std::size_t i = 0; i < jobs_.size(); ++i)
        if (rows_[i] && rows_[i]->failure.empty() && name_of(jobs_[i]) == run.run_name.function_name)
          rows_[i]->seconds.push_back(run.real_accumulated_time / static_cast<double>(run.iterations));
    }
  }

 private:
  void run(benchmark::State& state, std::size_t i) {
    const Job& job = jobs_[i];
    if (!rows_[i]) begin(i);
    Row& row = *rows_[i];
    const std::int64_t batch = job.device.is_cpu() ? 1 : kEnqueuedOnGpu;
    if (row.failure.empty()) row.failure = warm_up(job);
    if (!row.failure.empty()) {
      state.SkipWithError(row.failure.c_str());
      return;
    }
    Status status;
    while (state.KeepRunningBatch(batch)) {
      for (std::int64_t call = 0; call < batch && status.ok(); ++call)
        status = prepared_->launch(job.direction);
      if (status.ok() && !job.device.is_cpu()) status = synchronize(job.device);
      if (!status.ok()) state.SkipWithError((row.failure = status.message()).c_str());
    }
  }

  void begin(std::size_t i) {
    const Job& job = jobs_[i];
    const bool forward = job.direction == Direction::forward;
    Row row;
    row.op = job.c->op;
    row.direction = name(job.direction);
    row.dtype = scantape::name(job.dtype);
    row.device = kind_of(job.device);
    row.case_name = job.c->name;
    row.variant = job.c->variant();
    row.shape = shape_of(*job.c);
    row.bytes = forward ? forward_bytes(*job.c, job.dtype) : backward_bytes(*job.c, job.dtype);
    row.tensor_bytes = forward_bytes(without_saved(*job.c), job.dtype);
    row.operations = forward ? job.c->forward_operations : job.c->backward_operations;
    try {
      if (!prepared_ || !prepared_->serves(job)) {
        prepared_.reset();
        prepared_ = std::make_unique<Prepared>(job);
      }
      row.failure = prepared_->failure();
      row.memory = prepared_->memory();
    } catch (const Error& error) {
      row.failure = error.what();
    }
    rows_[i] = row;
    show_progress(name_of(job));
  }

  std::string warm_up(const Job& job) {
    Status status = prepared_->launch(job.direction);
    if (status.ok()) status = synchronize(job.device);
    return status.message();
  }

  std::vector<Job> jobs_;
  std::vector<std::optional<Row>> rows_;
  std::unique_ptr<Prepared> prepared_;
};

std::vector<Job> all_jobs(const std::vector<Device>& places) {
  std::vector<Job> jobs;
  for (const Device device : places)
    for (const Case& c : cases::all_cases()) {
      if (!c.benchmark) continue;
      for (const DType dtype : {DType::f32, DType::f64})
        for (const Direction direction : {Direction::forward, Direction::backward})
          if (direction == Direction::forward || c.backward) jobs.push_back({&c, dtype, device, direction});
    }
  return jobs;
}

struct Options {
  std::string json;
  bool cpu = true, cuda = true, list = false;
};

constexpr const char* kUsage =
    "Usage: bench_ops [--json FILE] [--device cpu|cuda|all] [--benchmark_filter=REGEX] ...\n"
    "Times each op, forward and backward, after comparing it with the reference. Names are\n"
    "op/sizes/.../direction/dtype/device; --benchmark_list_tests shows them. Threads: OMP_NUM_THREADS.\n"
    "Example: bench_ops --benchmark_filter='^scan/.*/f32/cpu' --json scan.json\n";

/// Takes our own arguments out; Google Benchmark reads the rest. Returns what is wrong or nothing.
std::string parse(std::vector<char*>& arguments, Options& options) {
  std::vector<char*> rest = {arguments[0]};
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string argument = arguments[i];
    const bool has_value = i + 1 < arguments.size();
    if (argument.rfind("--benchmark_list_tests", 0) == 0) options.list = true;
    if (argument == "--json" || argument == "--device") {
      if (!has_value) return argument + " wants a value";
      const std::string value = arguments[++i];
      if (argument == "--json")
        options.json = value;
      else if (value == "cpu" || value == "cuda" || value == "all")
        options.cpu = value != "cuda", options.cuda = value != "cpu";
      else
        return "--device is '" + value + "', wants cpu, cuda or all";
    } else {
      rest.push_back(arguments[i]);
    }
  }
  arguments = rest;
  return "";
}

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::array<char, 32> text;
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text.data();
}

std::string compiler() {
#if defined(__clang__)
  return std::string("clang ") + __clang_version__;
#else
  return std::string("g++ ") + __VERSION__;
#endif
}

Roofs measure_roofs(Device device) {
  show_progress(std::string("roofs of ") + kind_of(device));
  return device.is_cpu() ? measure_cpu_roofs() : measure_cuda_roofs();
}

Report begin_report(const std::vector<Device>& places) {
  Report report;
  report.backend = cuda_backend();
  report.git = git_hash();
  report.build_type = SCANTAPE_BUILD_TYPE;
  report.compiler = compiler();
  report.date = utc_now();
  report.threads = omp_get_max_threads();
  for (const Device device : places) {
    report.roofs[kind_of(device)] = measure_roofs(device);
    for (const DeviceInfo& info : devices())
      if (info.device == device) report.descriptions[kind_of(device)] = info.description;
  }
  return report;
}

int cannot_write(const std::string& path) {
  std::cerr << "bench_ops: cannot write " << path << "\n";
  return 4;
}

int run(int argc, char** argv) {
  std::vector<char*> arguments(argv, argv + argc);
  for (int i = 1; i < argc; ++i)
    if (std::string(argv[i]) == "--help" || std::string(argv[i]) == "-h") {
      std::cout << kUsage;
      return 0;
    }
  Options options;
  if (const std::string wrong = parse(arguments, options); !wrong.empty()) {
    std::cerr << "bench_ops: " << wrong << "\n" << kUsage;
    return 2;
  }
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;

  // The emulator's times say nothing about a GPU, so it is not timed.
  const bool gpu = std::strcmp(cuda_backend(), "native") == 0 && is_available(kCuda);
  if (!gpu && !options.cpu) {
    std::cerr << "bench_ops: no GPU answers this build (cuda is " << cuda_backend() << ")\n";
    return 4;
  }
  std::vector<Device> places;
  if (options.cpu) places.push_back(kCpu);
  if (options.cuda && gpu) places.push_back(kCuda);

  Session session(all_jobs(places));
  session.register_benchmarks();
  if (options.list) {
    benchmark::RunSpecifiedBenchmarks();
    return 0;
  }
  std::ofstream file;
  if (!options.json.empty()) file.open(options.json);
  if (!file) return cannot_write(options.json);
  Report report = begin_report(places);
  benchmark::RunSpecifiedBenchmarks(&session);
  // Once more after the ops, for a machine that was busy with something else before.
  for (const Device device : places) {
    Roofs& roofs = report.roofs[kind_of(device)];
    roofs = better_of(roofs, measure_roofs(device));
  }
  show_progress("");
  report.rows = session.rows();
  if (report.rows.empty()) {
    std::cerr << "bench_ops: no benchmark has such a name\n";
    return 2;
  }
  print_table(report, std::cout);
  if (file.is_open()) write_json(report, file);
  if (!file.flush()) return cannot_write(options.json);
  for (const Row& row : report.rows)
    if (!row.failure.empty()) return 1;
  return 0;
}

}  // namespace
}  // namespace scantape::bench

int main(int argc, char** argv) {
  try {
    return scantape::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "bench_ops: " << error.what() << "\n";
    return 4;
  }
}
