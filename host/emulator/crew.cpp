/// The OS threads that run the blocks of a launch, and the watchdog that looks at each.

#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <ctime>
#include <mutex>
#include <thread>
#include <vector>

#include "executor.h"
#include "launch.h"

namespace scantape::emulator {
namespace {

constexpr double kTimeLimit = 20;
std::atomic<double> time_limit{kTimeLimit};

/// One launch: workers take its blocks in their order until none is left or one has a fault.
struct Job {
  const Launch* launch = nullptr;
  std::atomic<std::uint64_t> next{0};
  std::atomic<std::uint64_t> end{0};  // blocks from here on are not wanted any more
  std::mutex mutex;
  Fault fault;
  std::uint64_t fault_at = 0;

  explicit Job(const Launch& wanted) : launch(&wanted), end(wanted.blocks), fault_at(wanted.blocks) {}

  void work() {
    Worker& worker = Worker::of_this_thread();
    const Statistics before = worker.statistics();
    const Watchdog watchdog;
    for (;;) {
      const std::uint64_t position = next.fetch_add(1, std::memory_order_relaxed);
      if (position >= end.load(std::memory_order_relaxed)) break;
      if (worker.run_block(*launch, position)) continue;
      // Blocks before this one have all been taken and are run to their end: the earliest fault is told.
      const std::lock_guard lock(mutex);
      if (position >= fault_at) continue;
      fault_at = position;
      fault = worker.fault();
      end = position;
    }
    add_to_totals(0, before, worker.statistics());
  }
};

class Crew {
 public:
  /// Belongs to the process that made it: a forked child has none of its threads.
  static Crew& instance() {
    static Crew* crew = nullptr;
    static pid_t owner = 0;
    if (crew == nullptr || owner != getpid()) {
      crew = new Crew;  // never destroyed: its threads wait in it until the process ends
      owner = getpid();
    }
    return *crew;
  }

  void run(Job& job, int others) {
    {
      const std::lock_guard lock(mutex_);
      while (static_cast<int>(threads_) < others) {
        std::thread([this, number = threads_] { serve(number); }).detach();
        ++threads_;
      }
      job_ = &job;
      wanted_ = busy_ = others;
      ++round_;
    }
    begin_.notify_all();
    job.work();
    std::unique_lock lock(mutex_);
    end_.wait(lock, [this] { return busy_ == 0; });
  }

 private:
  void serve(int number) {
    std::uint64_t seen = 0;
    for (;;) {
      Job* job = nullptr;
      {
        std::unique_lock lock(mutex_);
        begin_.wait(lock, [&] { return round_ != seen; });
        seen = round_;
        if (number >= wanted_) continue;
        job = job_;
      }
      job->work();
      const std::lock_guard lock(mutex_);
      if (--busy_ == 0) end_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable begin_, end_;
  Job* job_ = nullptr;
  int threads_ = 0, wanted_ = 0, busy_ = 0;
  std::uint64_t round_ = 0;
};

// ---- the watchdog ----

int tick_signal() {
  return SIGRTMIN + 5;
}

std::uintptr_t interrupted_at(void* context) {
  const auto* const user = static_cast<const ucontext_t*>(context);
#if defined(__x86_64__)
  return static_cast<std::uintptr_t>(user->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return static_cast<std::uintptr_t>(user->uc_mcontext.pc);
#else
  (void)user;
  return 0;
#endif
}

/// The kernel's code is what was interrupted, for the engine takes this mark away while it works. So the
/// handler may leave for good, as siglongjmp would.
void handle_tick(int, siginfo_t*, void* context) {
  if (running_worker != nullptr) running_worker->tick(interrupted_at(context));
}

bool install_handler() {
  struct sigaction action {};
  action.sa_sigaction = handle_tick;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  return sigaction(tick_signal(), &action, nullptr) == 0;
}

/// A timer on the processor's time of one OS thread. A forked child has to make its own.
struct Timer {
  timer_t timer{};
  pid_t owner = 0;

  bool ready() {
    if (owner == getpid()) return true;
    static const bool installed = install_handler();
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = tick_signal();
    event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
    if (!installed || timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) != 0) return false;
    owner = getpid();
    return true;
  }
  void set(double seconds) {
    if (!ready()) return;
    const auto whole = static_cast<time_t>(seconds);
    const timespec each{whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
    const itimerspec times{each, each};
    timer_settime(timer, 0, &times, nullptr);
  }
  ~Timer() {
    if (owner == getpid()) timer_delete(timer);
  }
};

Timer& timer_of_this_thread() {
  static thread_local Timer timer;
  return timer;
}

}  // namespace

Watchdog::Watchdog() {
  timer_of_this_thread().set(time_limit / kIdleTicks);
}

Watchdog::~Watchdog() {
  timer_of_this_thread().set(0);
}

void set_time_limit(double seconds) noexcept {
  time_limit = seconds > 0 ? seconds : kTimeLimit;
}

Fault run_blocks(const Launch& launch, int workers) {
  Launch shared = launch;
  const std::uint64_t useful = launch.blocks < static_cast<std::uint64_t>(workers)
                                   ? launch.blocks
                                   : static_cast<std::uint64_t>(workers);
  shared.has_company = useful > 1;
  Job job(shared);
  if (useful > 1) {
    Crew::instance().run(job, static_cast<int>(useful) - 1);
  } else {
    job.work();
  }
  add_to_totals(1, {}, {});
  return job.fault;
}

}  // namespace scantape::emulator
