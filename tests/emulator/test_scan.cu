/// The scan engine (kernels/common/scan.cuh) by operators of its own: sums, maxima, and matrices, which do not
/// commute. All of them are exact, so that the engine has to give what a walk step by step gives, to the last bit,
/// whatever it combines first. And each of its threads counts how often it combines: the work is shared.

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <string>
#include <vector>

#include "common/scan.cuh"

namespace scantape {
constexpr const char* kPlantedFile = __FILE__;
}
#include "planted.h"

namespace scantape {
namespace {

using cuda::Sequences;

// ---- operators

struct Sum {
  using Map = std::int64_t;
  using State = std::int64_t;
  static constexpr const char* kName = "sum";
  static Map step(std::uint32_t random) { return static_cast<std::int64_t>(random % 2001) - 1000; }
  static State state(std::uint32_t random) { return random % 100; }
  static __host__ __device__ Map identity() { return 0; }
  static __host__ __device__ Map combine(Map later, Map earlier) { return later + earlier; }
  static __host__ __device__ State apply(Map map, State state) { return map + state; }
};

struct Max {
  using Map = int;
  using State = int;
  static constexpr const char* kName = "max";
  static Map step(std::uint32_t random) { return static_cast<int>(random % 1000003) - 500000; }
  static State state(std::uint32_t random) { return static_cast<int>(random % 1000) - 500000; }
  static __host__ __device__ Map identity() { return INT_MIN; }
  static __host__ __device__ Map combine(Map later, Map earlier) { return later > earlier ? later : earlier; }
  static __host__ __device__ State apply(Map map, State state) { return map > state ? map : state; }
};

/// 2 x 2 matrices over the integers modulo a prime, and what they act on. Nearly all are invertible: what a step does is
/// never forgotten.
struct Matrix {
  static constexpr std::uint32_t kPrime = 65521;  // products of two, and the sum of two of those, fit 64 bits
  struct Map {
    std::uint32_t a, b, c, d;
  };
  struct State {
    std::uint32_t x, y;
    bool operator==(const State& other) const { return x == other.x && y == other.y; }
  };
  static constexpr const char* kName = "matrix";

  static __host__ __device__ std::uint32_t dot(std::uint32_t a, std::uint32_t x, std::uint32_t b,
                                               std::uint32_t y) {
    return static_cast<std::uint32_t>((std::uint64_t{a} * x + std::uint64_t{b} * y) % kPrime);
  }
  static Map step(std::uint32_t random) {
    return {random % kPrime, random / 3 % kPrime, random / 7 % kPrime, random / 11 % kPrime};
  }
  static State state(std::uint32_t random) { return {random % kPrime, random / 5 % kPrime}; }
  static __host__ __device__ Map identity() { return {1, 0, 0, 1}; }
  static __host__ __device__ Map combine(const Map& later, const Map& earlier) {
    return {dot(later.a, earlier.a, later.b, earlier.c), dot(later.a, earlier.b, later.b, earlier.d),
            dot(later.c, earlier.a, later.d, earlier.c), dot(later.c, earlier.b, later.d, earlier.d)};
  }
  static __host__ __device__ State apply(const Map& map, const State& state) {
    return {dot(map.a, state.x, map.b, state.y), dot(map.c, state.x, map.d, state.y)};
  }
};

std::string text(std::int64_t value) {
  return std::to_string(value);
}
std::string text(const Matrix::State& state) {
  return std::to_string(state.x) + "," + std::to_string(state.y);
}

// ---- the scan that the engine runs

/// steps [B, L, C] and initial [B, C] to states [B, L, C]. A thread notes each combination in its own place of `counts`.
template <class Op>
struct Counted {
  using Map = typename Op::Map;
  using State = typename Op::State;
  using Sum = int;
  static constexpr int kSums = 0, kLongSteps = 8;

  std::int64_t length, channels;
  const Map* steps;
  const State* initial;
  State* states;
  std::int64_t* counts;

  class Thread {
   public:
    using Step = Map;

    __device__ Thread(const Counted& scan, std::int64_t item, std::int64_t channel, bool)
        : scan_(scan), item_(item), channel_(channel) {
      const std::int64_t block = (std::int64_t{blockIdx.z} * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
      self_ = block * blockDim.x * blockDim.y + threadIdx.y * blockDim.x + threadIdx.x;
    }
    __device__ Map identity() const { return Op::identity(); }
    __device__ Map compose(const Map& later, const Map& earlier) { return combine(later, earlier); }
    __device__ Map combine(const Map& later, const Map& earlier) {
      ++scan_.counts[self_];
      return Op::combine(later, earlier);
    }
    __device__ State apply(const Map& map, const State& state) {
      ++scan_.counts[self_];
      return Op::apply(map, state);
    }
    __device__ State initial() const {
      const State state = scan_.initial[item_ * scan_.channels + channel_];
      return state;
    }
    __device__ Map load(std::int64_t r) const {
      const Map map = scan_.steps[(item_ * scan_.length + r) * scan_.channels + channel_];
      return map;
    }
    __device__ void emit(std::int64_t r, bool exists, const Map&, const State& state) const {
      if (exists) scan_.states[(item_ * scan_.length + r) * scan_.channels + channel_] = state;
    }

   private:
    const Counted& scan_;
    std::int64_t item_, channel_, self_;
  };
};

/// Numbers that look random, from a linear congruence.
class Numbers {
 public:
  std::uint32_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(state_ >> 33);
  }

 private:
  std::uint64_t state_ = 20240607;
};

/// Segments of time that are to be walked side by side, by the head of scan.cuh.
std::int64_t threads_along_time(std::int64_t length) {
  constexpr std::int64_t kSteps = 8;
  if (length > 4096) return 64 * ((length + 2047) / 2048);
  return length > 64 * kSteps ? 64 : length > 16 * kSteps ? 32 : 16;
}

template <class Op>
void expect_walk(std::int64_t batch, std::int64_t length, std::int64_t channels) {
  using Scan = Counted<Op>;
  SCOPED_TRACE(std::string(Op::kName) + ", B " + std::to_string(batch) + ", L " + std::to_string(length) +
               ", C " + std::to_string(channels));
  Numbers numbers;
  std::vector<typename Op::Map> steps;
  std::vector<typename Op::State> initial;
  for (std::int64_t i = 0; i < batch * length * channels; ++i) steps.push_back(Op::step(numbers.next()));
  for (std::int64_t i = 0; i < batch * channels; ++i) initial.push_back(Op::state(numbers.next()));

  const Sequences size{batch, length, 1, channels};
  cuda::Room counter;
  (void)cuda::take_parts<Scan>(size, counter);
  const Buffer<char> memory(static_cast<std::size_t>(std::max<std::int64_t>(counter.bytes(), 1)));
  cuda::Room room(memory.get());
  const auto parts = cuda::take_parts<Scan>(size, room);
  const cuda::Grid grid = cuda::scan_grid(size, parts.count, length, Scan::kLongSteps);
  const auto product = [](dim3 sides) { return std::size_t{sides.x} * sides.y * sides.z; };
  const Buffer<typename Op::Map> steps_on(steps);
  const Buffer<typename Op::State> initial_on(initial), states(steps.size());
  const Buffer<std::int64_t> counts(product(grid.grid) * product(grid.block), 0);
  expect_right(cuda::launch_scan(
      size, parts, Scan{length, channels, steps_on.get(), initial_on.get(), states.get(), counts.get()},
      Stream{}));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);

  const std::vector<typename Op::State> got = states.read();
  for (std::int64_t item = 0; item < batch; ++item)
    for (std::int64_t channel = 0; channel < channels; ++channel) {
      typename Op::State want = initial[static_cast<std::size_t>(item * channels + channel)];
      for (std::int64_t t = 0; t < length; ++t) {
        const auto at = static_cast<std::size_t>((item * length + t) * channels + channel);
        want = Op::apply(steps[at], want);
        ASSERT_TRUE(got[at] == want) << "item " << item << ", step " << t << ", channel " << channel << ": "
                                     << text(got[at]) << ", wants " << text(want);
      }
    }
  const std::vector<std::int64_t> combined = counts.read();
  EXPECT_GE(*std::max_element(combined.begin(), combined.end()), 1) << "nothing was counted";
  EXPECT_LE(*std::max_element(combined.begin(), combined.end()), 4 * length / threads_along_time(length) + 64)
      << "a thread did the work of others";
}

template <class Op>
void expect_walks() {
  for (const std::int64_t length : {1, 2, 63, 64, 65, 128, 129, 513, 1030, 4096, 4097, 20000})
    expect_walk<Op>(1, length, 1);
  expect_walk<Op>(2, 70, 37);
  expect_walk<Op>(3, 300, 5);
  expect_walk<Op>(2, 4500, 3);
}

class ScanEngine : public testing::Test {
 protected:
  void SetUp() override { emulator::set_blocking(true); }
  void TearDown() override { emulator::set_blocking(false); }
};

TEST_F(ScanEngine, SumsAsAWalk) {
  expect_walks<Sum>();
}
TEST_F(ScanEngine, MaximaAsAWalk) {
  expect_walks<Max>();
}
TEST_F(ScanEngine, MatricesAsAWalk) {
  expect_walks<Matrix>();
}

/// The matrices above prove something about order only if they have one.
TEST_F(ScanEngine, TheMatricesDoNotCommute) {
  Numbers numbers;
  const Matrix::Map first = Matrix::step(numbers.next()), second = Matrix::step(numbers.next());
  const Matrix::State state = Matrix::state(numbers.next());
  EXPECT_FALSE(Matrix::apply(Matrix::combine(first, second), state) ==
               Matrix::apply(Matrix::combine(second, first), state));
  EXPECT_TRUE(Matrix::apply(Matrix::combine(second, first), state) ==
              Matrix::apply(second, Matrix::apply(first, state)));
}

}  // namespace
}  // namespace scantape
