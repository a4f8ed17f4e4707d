/// Faults planted in kernels, and what the emulator says of each: kind, source line, block, thread. Beside
/// them right kernels of which it must say nothing, in every order of threads and blocks. Compiled with the
/// flags of the kernels.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cases/image.h"

namespace scantape {
constexpr const char* kPlantedFile = __FILE__;
}
#include "planted.h"

namespace scantape {
namespace {

constexpr unsigned kAll = 0xffffffffu;

/// A launch that blocks returns the fault that it meets. What lazy streams find stands in test_streams.cu.
class BlockingLaunches : public testing::Environment {
 public:
  void SetUp() override { emulator::set_blocking(true); }
};
const testing::Environment* const kBlockingLaunches =
    testing::AddGlobalTestEnvironment(new BlockingLaunches);  // GoogleTest owns it

class Emulator : public testing::Test {
 protected:
  void SetUp() override { before_ = emulator::order(); }
  void TearDown() override { emulator::set_order(before_); }

 private:
  emulator::Order before_;
};

/// Tests that need the access call-backs; the address sanitizer's build has none.
class EmulatorAccess : public Emulator {
 protected:
  void SetUp() override {
    Emulator::SetUp();
    if (!emulator::checks_accesses()) GTEST_SKIP() << "accesses are not checked beside the address sanitizer";
    emulator::set_order({});
  }
};

template <class Body>
void in_every_order(Body body) {
  for (const Direction threads : {Direction::forward, Direction::backward}) {
    for (const Direction blocks : {Direction::forward, Direction::backward}) {
      SCOPED_TRACE(std::string(threads == Direction::forward ? "threads forward" : "threads backward") +
                   (blocks == Direction::forward ? ", blocks forward" : ", blocks backward"));
      emulator::set_order({threads, blocks});
      body();
    }
  }
}

// ---- barriers of a scan loop ----

constexpr int kScanThreads = 128;
struct ScanRow {
  float sums[kScanThreads];
};

/// Inclusive sums of each block's 128 values, by doubling steps.
template <bool kFirstBarrier, bool kSecondBarrier>
__global__ void scan_kernel(const float* x, float* y) {
  ScanRow& row = shared_storage<ScanRow>();
  const int t = static_cast<int>(threadIdx.x);
  const int i = static_cast<int>(blockIdx.x) * kScanThreads + t;
  row.sums[t] = x[i];
  __syncthreads();
  for (int step = 1; step < kScanThreads; step *= 2) {
    float sum = row.sums[t];
    if (t >= step) sum += row.sums[t - step];  // @scan.read
    if (kFirstBarrier) __syncthreads();
    row.sums[t] = sum;  // @scan.write
    if (kSecondBarrier) __syncthreads();
  }
  y[i] = row.sums[t];
}

TEST_F(EmulatorAccess, MissingFirstBarrierOfAScanLoop) {
  const Buffer<float> x(2 * kScanThreads, 1.0f), y(2 * kScanThreads);
  Status status =
      launch("scan", scan_kernel<false, true>, dim3(2), dim3(kScanThreads), 0, {}, x.get(), y.get());
  // Forward: thread 0 has written its sum when thread 1 reads it.
  expect_fault(status, FaultKind::race, "scan.read", {0, 0, 0}, {1, 0, 0});
  expect_site(emulator::last_fault().other, "scan.write", {0, 0, 0}, {0, 0, 0});
  emulator::set_order({Direction::backward, Direction::backward});
  status = launch("scan", scan_kernel<false, true>, dim3(2), dim3(kScanThreads), 0, {}, x.get(), y.get());
  // Backward: thread 127 has read what thread 126 writes now.
  expect_fault(status, FaultKind::race, "scan.write", {1, 0, 0}, {126, 0, 0});
  expect_site(emulator::last_fault().other, "scan.read", {1, 0, 0}, {127, 0, 0});
}

TEST_F(EmulatorAccess, MissingSecondBarrierOfAScanLoop) {
  const Buffer<float> x(2 * kScanThreads, 1.0f), y(2 * kScanThreads);
  Status status =
      launch("scan", scan_kernel<true, false>, dim3(2), dim3(kScanThreads), 0, {}, x.get(), y.get());
  // Thread 2 reads what thread 0 wrote in the step before.
  expect_fault(status, FaultKind::race, "scan.read", {0, 0, 0}, {2, 0, 0});
  expect_site(emulator::last_fault().other, "scan.write", {0, 0, 0}, {0, 0, 0});
  emulator::set_order({Direction::backward, Direction::forward});
  status = launch("scan", scan_kernel<true, false>, dim3(2), dim3(kScanThreads), 0, {}, x.get(), y.get());
  const Fault& fault = emulator::last_fault();
  ASSERT_EQ(fault.kind, FaultKind::race) << status.message();
  EXPECT_EQ(fault.here.block, (Triple{0, 0, 0}));
  EXPECT_EQ(fault.here.line, line_of("scan.write"));
  EXPECT_EQ(fault.here.thread, (Triple{125, 0, 0}));
  expect_site(fault.other, "scan.read", {0, 0, 0}, {127, 0, 0});
}

TEST_F(Emulator, RightScanIsLeftAlone) {
  std::vector<float> values(3 * kScanThreads);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) - 2.0f;
  const Buffer<float> x(values);
  in_every_order([&] {
    const Buffer<float> y(values.size());
    expect_right(
        launch("scan", scan_kernel<true, true>, dim3(3), dim3(kScanThreads), 0, {}, x.get(), y.get()));
    const std::vector<float> result = y.read();
    float sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      sum = i % kScanThreads == 0 ? values[i] : sum + values[i];
      ASSERT_EQ(result[i], sum) << i;
    }
  });
}

// ---- inside a warp ----

struct WarpRow {
  int values[64];
};

/// Each lane reads its right neighbour's value, which was written in the same warp.
template <bool kHasBarrier>
__global__ void neighbour_kernel(int* y) {
  WarpRow& row = shared_storage<WarpRow>();
  const unsigned t = threadIdx.x;
  row.values[t] = 0;
  __syncthreads();
  row.values[t] = static_cast<int>(t) * 3;  // @warp.write
  if (kHasBarrier) __syncwarp();
  y[t] = row.values[t / 32 * 32 + (t + 1) % 32];  // @warp.read
}

/// A shuffle moves a value; it does not order what the lanes do to memory.
__global__ void shuffled_neighbour_kernel(int* y) {
  WarpRow& row = shared_storage<WarpRow>();
  const unsigned t = threadIdx.x;
  row.values[t] = static_cast<int>(t);  // @shuffled.write
  const int other = __shfl_xor_sync(kAll, static_cast<int>(t), 1);
  y[t] = row.values[other];  // @shuffled.read
}

TEST_F(EmulatorAccess, RaceInsideAWarp) {
  const Buffer<int> y(64);
  Status status = launch("neighbour", neighbour_kernel<false>, dim3(1), dim3(64), 0, {}, y.get());
  expect_fault(status, FaultKind::race, "warp.write", {0, 0, 0}, {1, 0, 0});
  expect_site(emulator::last_fault().other, "warp.read", {0, 0, 0}, {0, 0, 0});
  in_every_order([&] {
    EXPECT_FALSE(launch("neighbour", neighbour_kernel<false>, dim3(1), dim3(64), 0, {}, y.get()).ok());
    EXPECT_EQ(emulator::last_fault().kind, FaultKind::race);
  });
}

TEST_F(EmulatorAccess, ShufflesOrderNothing) {
  const Buffer<int> y(32);
  const Status status = launch("shuffled", shuffled_neighbour_kernel, dim3(1), dim3(32), 0, {}, y.get());
  expect_fault(status, FaultKind::race, "shuffled.read", {0, 0, 0}, {0, 0, 0});
  expect_site(emulator::last_fault().other, "shuffled.write", {0, 0, 0}, {1, 0, 0});
}

/// Two halves of a warp go their own ways; each orders its own lanes. With kAcross a lane looks into the
/// other half.
template <bool kAcross>
__global__ void halves_kernel(int* y) {
  WarpRow& row = shared_storage<WarpRow>();
  const unsigned lane = threadIdx.x;
  row.values[lane] = static_cast<int>(lane);  // @halves.write
  if (lane < 16) {
    __syncwarp(0x0000ffffu);
    y[lane] = row.values[(lane + 1) % 16];
  } else {
    __syncwarp(0xffff0000u);
    y[lane] = row.values[kAcross ? 31 - lane : 16 + (lane + 1) % 16];  // @halves.read
  }
}

/// Lane 0 and 1 meet, then 1 and 2: what lane 0 wrote is ordered before what lane 2 reads.
__global__ void chain_kernel(int* y) {
  WarpRow& row = shared_storage<WarpRow>();
  const unsigned lane = threadIdx.x;
  if (lane == 0) row.values[0] = 7;
  if (lane < 2) __syncwarp(0x3u);
  if (lane == 1 || lane == 2) __syncwarp(0x6u);
  if (lane == 2) y[0] = row.values[0];
}

TEST_F(Emulator, WarpBarriersOrderTheirLanes) {
  in_every_order([] {
    const Buffer<int> y(64);
    expect_right(launch("neighbour", neighbour_kernel<true>, dim3(1), dim3(64), 0, {}, y.get()));
    std::vector<int> result = y.read();
    for (int t = 0; t < 64; ++t)
      ASSERT_EQ(result[static_cast<std::size_t>(t)], (t / 32 * 32 + (t + 1) % 32) * 3);
    expect_right(launch("halves", halves_kernel<false>, dim3(1), dim3(32), 0, {}, y.get()));
    result = y.read();
    for (int t = 0; t < 32; ++t) ASSERT_EQ(result[static_cast<std::size_t>(t)], t / 16 * 16 + (t + 1) % 16);
    expect_right(launch("chain", chain_kernel, dim3(1), dim3(32), 0, {}, y.get()));
    EXPECT_EQ(y.read()[0], 7);
  });
}

TEST_F(EmulatorAccess, BarrierOfSomeLanesOrdersOnlyThem) {
  const Buffer<int> y(32);
  const Status status = launch("halves", halves_kernel<true>, dim3(1), dim3(32), 0, {}, y.get());
  expect_fault(status, FaultKind::race, "halves.read", {0, 0, 0}, {16, 0, 0});
  expect_site(emulator::last_fault().other, "halves.write", {0, 0, 0}, {15, 0, 0});
}

/// Each warp orders its own lanes; nobody orders one warp after the other.
__global__ void warps_apart_kernel(int* y) {
  WarpRow& row = shared_storage<WarpRow>();
  const unsigned t = threadIdx.x;
  row.values[t] = static_cast<int>(t);  // @apart.write
  __syncwarp();
  y[t] = row.values[(t + 32) % 64];  // @apart.read
}

TEST_F(EmulatorAccess, WarpBarriersOrderNoOtherWarp) {
  const Buffer<int> y(64);
  const Status status = launch("apart", warps_apart_kernel, dim3(1), dim3(64), 0, {}, y.get());
  expect_fault(status, FaultKind::race, "apart.read", {0, 0, 0}, {0, 0, 0});
  expect_site(emulator::last_fault().other, "apart.write", {0, 0, 0}, {32, 0, 0});
}

/// Four warps read one word, one thread writes it.
__global__ void one_writer_kernel(int* y, int writer) {
  WarpRow& row = shared_storage<WarpRow>();
  const auto t = static_cast<int>(threadIdx.x);
  if (t == 0) row.values[0] = 1;
  __syncthreads();
  if (t == writer) {
    row.values[0] = 2;  // @writer.write
  } else {
    y[t] = row.values[0];  // @writer.read
  }
}

TEST_F(EmulatorAccess, ManyReadersAndOneWriter) {
  const Buffer<int> y(128);
  in_every_order([&] {
    for (const int writer : {0, 1, 31, 32, 40, 70, 126, 127}) {
      SCOPED_TRACE(writer);
      const Status status = launch("writer", one_writer_kernel, dim3(1), dim3(128), 0, {}, y.get(), writer);
      const Fault& fault = emulator::last_fault();
      ASSERT_EQ(fault.kind, FaultKind::race) << status.message();
      const bool caught_writing = fault.here.thread[0] == static_cast<unsigned>(writer);
      EXPECT_EQ(fault.here.line, line_of(caught_writing ? "writer.write" : "writer.read"));
      EXPECT_EQ(fault.other.line, line_of(caught_writing ? "writer.read" : "writer.write"));
    }
    expect_right(launch("writer", one_writer_kernel, dim3(1), dim3(128), 0, {}, y.get(), -1));
  });
}

/// The writer and some lanes of its warp meet; another lane of that warp, which read the word, does not.
__global__ void reader_left_out_kernel(int* y, unsigned left_out) {
  WarpRow& row = shared_storage<WarpRow>();
  const unsigned lane = threadIdx.x;
  row.values[lane] = 1;
  __syncwarp();
  y[lane] = row.values[0];  // @left.read
  if (lane != left_out) __syncwarp(~(1u << left_out));
  if (lane == 0) row.values[0] = 2;  // @left.write
}

TEST_F(EmulatorAccess, OneOfManyReadersIsNotOrdered) {
  const Buffer<int> y(32);
  in_every_order([&] {
    for (const unsigned lane : {1u, 15u, 31u}) {
      const Status status =
          launch("left_out", reader_left_out_kernel, dim3(1), dim3(32), 0, {}, y.get(), lane);
      expect_fault(status, FaultKind::race, "left.write", {0, 0, 0}, {0, 0, 0});
      expect_site(emulator::last_fault().other, "left.read", {0, 0, 0}, {lane, 0, 0});
    }
  });
}

/// Both warps read a word; then one lane of the second writes it, after a barrier of its own warp only.
__global__ void other_warp_reads_kernel(int* y) {
  WarpRow& row = shared_storage<WarpRow>();
  const unsigned t = threadIdx.x;
  row.values[t] = 1;
  __syncthreads();
  y[t] = row.values[0];  // @other.read
  __syncwarp();
  if (t == 40) row.values[0] = 2;  // @other.write
}

TEST_F(EmulatorAccess, ReadersOfAnotherWarpAreRemembered) {
  const Buffer<int> y(64);
  const Status status = launch("other_warp", other_warp_reads_kernel, dim3(1), dim3(64), 0, {}, y.get());
  expect_fault(status, FaultKind::race, "other.write", {0, 0, 0}, {40, 0, 0});
  expect_site(emulator::last_fault().other, "other.read", {0, 0, 0}, {0, 0, 0});
}

// ---- between blocks and between launches ----

__global__ void next_block_kernel(float* y, int shift) {
  const unsigned block = (blockIdx.x + static_cast<unsigned>(shift)) % gridDim.x;
  y[block * blockDim.x + threadIdx.x] += 1.0f;  // @blocks.add
}

/// Every block writes the first element.
__global__ void same_element_kernel(float* y) {
  if (threadIdx.x == 3) y[0] = static_cast<float>(blockIdx.x);  // @blocks.write
}

/// Each thread reads one element and writes the one 32 further: of another block.
__global__ void read_of_another_block_kernel(float* y, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i + 32 < n) y[i + 32] = y[i] + 1.0f;  // @blocks.shift
}

TEST_F(EmulatorAccess, RaceBetweenBlocks) {
  const Buffer<float> y(128, 0.0f);
  Status status = launch("same_element", same_element_kernel, dim3(4), dim3(32), 0, {}, y.get());
  expect_fault(status, FaultKind::race, "blocks.write", {1, 0, 0}, {3, 0, 0});
  expect_site(emulator::last_fault().other, "blocks.write", {0, 0, 0}, {3, 0, 0});
  status =
      launch("read_of_another_block", read_of_another_block_kernel, dim3(4), dim3(32), 0, {}, y.get(), 128);
  expect_fault(status, FaultKind::race, "blocks.shift", {1, 0, 0}, {0, 0, 0});
  emulator::set_order({Direction::forward, Direction::backward});
  status = launch("same_element", same_element_kernel, dim3(4), dim3(32), 0, {}, y.get());
  expect_fault(status, FaultKind::race, "blocks.write", {2, 0, 0}, {3, 0, 0});
  expect_site(emulator::last_fault().other, "blocks.write", {3, 0, 0}, {3, 0, 0});
}

TEST_F(Emulator, LaunchesAreOrdered) {
  in_every_order([] {
    const Buffer<float> y(128, 0.0f);
    for (int shift = 0; shift < 4; ++shift) {
      expect_right(launch("next_block", next_block_kernel, dim3(4), dim3(32), 0, {}, y.get(), shift));
    }
    for (const float value : y.read()) ASSERT_EQ(value, 4.0f);
  });
}

// ---- addresses ----

__global__ void copy_kernel(const float* x, float* y, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  const float value = x[i];  // @copy.read
  y[i] = value;              // @copy.write
}

TEST_F(EmulatorAccess, OutOfBoundsRead) {
  const Buffer<float> x(100, 1.0f), y(128);
  const Status status = launch("copy", copy_kernel, dim3(4), dim3(32), 0, {}, x.get(), y.get(), 101);
  expect_fault(status, FaultKind::out_of_bounds, "copy.read", {3, 0, 0}, {4, 0, 0});
  EXPECT_NE(status.message().find("reads 4 bytes at 0 bytes behind the end of device allocation"),
            std::string::npos)
      << status.message();
  EXPECT_NE(status.message().find("(400 bytes)"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("kernel copy"), std::string::npos) << status.message();
}

TEST_F(EmulatorAccess, OutOfBoundsWrite) {
  const Buffer<float> x(128, 1.0f), y(100);
  Status status = launch("copy", copy_kernel, dim3(4), dim3(32), 0, {}, x.get(), y.get(), 101);
  expect_fault(status, FaultKind::out_of_bounds, "copy.write", {3, 0, 0}, {4, 0, 0});
  status = launch("copy", copy_kernel, dim3(1), dim3(32), 0, {}, x.get(), y.get() - 1, 1);
  expect_fault(status, FaultKind::out_of_bounds, "copy.write", {0, 0, 0}, {0, 0, 0});
  EXPECT_NE(status.message().find("4 bytes before the start of device allocation"), std::string::npos);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess) << "the write was reported, it must not be made";
}

TEST_F(EmulatorAccess, UseAfterFree) {
  float* freed = nullptr;
  ASSERT_EQ(cudaMalloc(&freed, 256), cudaSuccess);
  ASSERT_EQ(cudaMemset(freed, 0, 256), cudaSuccess);
  ASSERT_EQ(cudaFree(freed), cudaSuccess);
  const Buffer<float> y(64, 0.0f);
  Status status = launch("copy", copy_kernel, dim3(1), dim3(64), 0, {}, freed, y.get(), 64);
  expect_fault(status, FaultKind::use_after_free, "copy.read", {0, 0, 0}, {0, 0, 0});
  EXPECT_NE(status.message().find("byte 0 of freed device allocation"), std::string::npos)
      << status.message();
  status = launch("copy", copy_kernel, dim3(1), dim3(64), 0, {}, y.get(), freed, 64);
  expect_fault(status, FaultKind::use_after_free, "copy.write", {0, 0, 0}, {0, 0, 0});
}

TEST_F(EmulatorAccess, HostPointersAndNullPointers) {
  const Buffer<float> y(64, 0.0f);
  std::vector<float> host(64, 1.0f);
  Status status = launch("copy", copy_kernel, dim3(1), dim3(64), 0, {}, host.data(), y.get(), 64);
  expect_fault(status, FaultKind::host_pointer, "copy.read", {0, 0, 0}, {0, 0, 0});
  status = launch("copy", copy_kernel, dim3(1), dim3(64), 0, {}, y.get(), host.data(), 64);
  expect_fault(status, FaultKind::host_pointer, "copy.write", {0, 0, 0}, {0, 0, 0});
  EXPECT_EQ(host[0], 1.0f) << "the write was reported, it must not be made";
  status =
      launch("copy", copy_kernel, dim3(1), dim3(64), 0, {}, static_cast<const float*>(nullptr), y.get(), 64);
  expect_fault(status, FaultKind::out_of_bounds, "copy.read", {0, 0, 0}, {0, 0, 0});
}

TEST_F(EmulatorAccess, DeviceMemoryNobodyWrote) {
  const Buffer<float> x(64), y(64);
  const Status status = launch("copy", copy_kernel, dim3(1), dim3(64), 0, {}, x.get(), y.get(), 64);
  expect_fault(status, FaultKind::never_written, "copy.read", {0, 0, 0}, {0, 0, 0});
}

__global__ void wasteful_kernel(const float* x, float* y, std::int64_t at) {
  const float value = x[at];  // @wasteful.read
  y[0] = value == value ? 1.0f : 2.0f;
  y[0] = 3.0f;
}

// The tensors of the op tests lie in guard bands inside one allocation. Whoever reads one is found by the read itself:
// the value does not have to reach a result.
TEST_F(EmulatorAccess, GuardBandsOfTheOpTestsAreClosed) {
  const Buffer<float> y(1);
  const Shape shape{3, 5};
  for (const cases::Layout layout :
       {cases::Layout::dense, cases::Layout::strided, cases::Layout::misaligned}) {
    cases::Image image(shape, DType::f32, kCuda, layout);
    for (const bool again : {false, true}) {  // each time it is written
      image.write(cases::Values(15, 0.5));
      const View view = image.view();
      const auto reads = [&](std::int64_t at) {
        return launch("wasteful", wasteful_kernel, dim3(1), dim3(1), 0, {}, view.as<const float>(), y.get(),
                      at);
      };
      for (std::int64_t at = -6; at < 3 * view.strides[0] + 6; ++at) {
        SCOPED_TRACE("layout " + std::to_string(static_cast<int>(layout)) + ", element " +
                     std::to_string(at) + (again ? ", written twice" : ""));
        const bool inside = at >= 0 && at < 3 * view.strides[0] && at % view.strides[0] < shape[1];
        if (inside)
          expect_right(reads(at));
        else
          expect_fault(reads(at), FaultKind::never_written, "wasteful.read", {0, 0, 0}, {0, 0, 0});
      }
      image.fetch();
      EXPECT_EQ(image.guard_damage(), "");
    }
  }
}

TEST_F(EmulatorAccess, BytesCountAsNeverWrittenWhereThatIsAsked) {
  const Buffer<float> x(64, 1.0f), y(64);
  ASSERT_TRUE(emulator::forget_written(x.get() + 40, sizeof(float)));
  expect_right(launch("copy", copy_kernel, dim3(1), dim3(64), 0, {}, x.get(), y.get(), 40));
  const Status status = launch("copy", copy_kernel, dim3(1), dim3(64), 0, {}, x.get(), y.get(), 64);
  expect_fault(status, FaultKind::never_written, "copy.read", {0, 0, 0}, {40, 0, 0});
  EXPECT_EQ(x.read(), std::vector<float>(64, 1.0f)) << "the values stay";
  expect_right(launch("copy", copy_kernel, dim3(1), dim3(64), 0, {}, y.get(), x.get() + 40, 1));
  expect_right(launch("copy", copy_kernel, dim3(1), dim3(64), 0, {}, x.get(), y.get(), 64));
  std::vector<float> host(64);
  EXPECT_FALSE(emulator::forget_written(host.data(), 4));
  EXPECT_FALSE(emulator::forget_written(x.get() + 60, 5 * sizeof(float)));
}

struct Pair {
  float first[32];
  float second[32];
};

__global__ void unwritten_kernel(float* y) {
  Pair& pair = shared_storage<Pair>();
  const unsigned t = threadIdx.x;
  pair.first[t] = 1.0f;
  __syncthreads();
  if (t != 9) return;
  y[t] = pair.first[t] + pair.second[t];  // @unwritten.read
}

__global__ void shared_overrun_kernel(float* y, int distance) {
  Pair& pair = shared_storage<Pair>();
  pair.first[threadIdx.x] = pair.second[threadIdx.x] = 2.0f;
  __syncthreads();
  float* const values = pair.first;
  y[threadIdx.x] = values[static_cast<int>(threadIdx.x) + distance];  // @overrun.read
  values[static_cast<int>(threadIdx.x) + distance] = 0.0f;            // @overrun.write
}

__global__ void dynamic_overrun_kernel(float* y, int n) {
  float* const values = dynamic_shared<float>();
  const int t = static_cast<int>(threadIdx.x);
  for (int i = t; i < n; i += static_cast<int>(blockDim.x)) values[i] = 1.0f;  // @dynamic.write
  __syncthreads();
  y[t] = values[n - 1 - t];
}

TEST_F(EmulatorAccess, SharedMemoryReadBeforeWritten) {
  const Buffer<float> y(32);
  const Status status = launch("unwritten", unwritten_kernel, dim3(2), dim3(32), 0, {}, y.get());
  expect_fault(status, FaultKind::never_written, "unwritten.read", {0, 0, 0}, {9, 0, 0});
  EXPECT_NE(status.message().find("byte 164 of static shared memory (256 bytes)"), std::string::npos)
      << status.message();
}

TEST_F(EmulatorAccess, SharedMemoryOverrun) {
  const Buffer<float> y(64);
  Status status = launch("overrun", shared_overrun_kernel, dim3(1), dim3(32), 0, {}, y.get(), 60);
  expect_fault(status, FaultKind::out_of_bounds, "overrun.read", {0, 0, 0}, {4, 0, 0});
  status = launch("overrun", shared_overrun_kernel, dim3(1), dim3(32), 0, {}, y.get(), -2);
  expect_fault(status, FaultKind::out_of_bounds, "overrun.read", {0, 0, 0}, {0, 0, 0});
  status = launch("dynamic", dynamic_overrun_kernel, dim3(1), dim3(32), 64 * sizeof(float), {}, y.get(), 65);
  expect_fault(status, FaultKind::out_of_bounds, "dynamic.write", {0, 0, 0}, {0, 0, 0});
  EXPECT_NE(status.message().find("behind the end of dynamic shared memory (256 bytes)"), std::string::npos)
      << status.message();
  expect_right(
      launch("dynamic", dynamic_overrun_kernel, dim3(1), dim3(32), 64 * sizeof(float), {}, y.get(), 64));
}

__global__ void keep_kernel(float4* y, const float* x) {
  y[threadIdx.x] = *reinterpret_cast<const float4*>(x);  // @misaligned.read
}

TEST_F(EmulatorAccess, MisalignedVectors) {
  const Buffer<float> x(64, 1.0f);
  const Buffer<float4> y(32);
  expect_right(launch("keep", keep_kernel, dim3(1), dim3(32), 0, {}, y.get(), x.get() + 4));
  const Status status = launch("keep", keep_kernel, dim3(1), dim3(32), 0, {}, y.get(), x.get() + 1);
  expect_fault(status, FaultKind::misaligned, "misaligned.read", {0, 0, 0}, {0, 0, 0});
}

/// The index runs from one member into the next: inside shared memory, and still wrong.
__global__ void member_overrun_kernel(float* y, int last) {
  Pair& pair = shared_storage<Pair>();
  pair.first[threadIdx.x] = pair.second[threadIdx.x] = 2.0f;
  __syncthreads();
  const int t = static_cast<int>(threadIdx.x);
  y[t] = pair.first[t == 3 ? last : t];  // @member.read
}

TEST_F(EmulatorAccess, OverrunFromOneMemberIntoTheNext) {
  const Buffer<float> y(32);
  expect_right(launch("member", member_overrun_kernel, dim3(1), dim3(32), 0, {}, y.get(), 31));
  const Status status = launch("member", member_overrun_kernel, dim3(1), dim3(32), 0, {}, y.get(), 32);
  expect_fault(status, FaultKind::out_of_bounds, "member.read", {0, 0, 0}, {3, 0, 0});
  EXPECT_NE(status.message().find("index 32 of an array 'float [32]'"), std::string::npos)
      << status.message();
}

struct SharedPointer {
  float* address;
};

__global__ void stack_of_another_kernel(float* y) {
  SharedPointer& shared = shared_storage<SharedPointer>();
  float own[2] = {static_cast<float>(threadIdx.x), 1.0f};
  if (threadIdx.x == 5) shared.address = own;
  __syncthreads();
  y[threadIdx.x] = shared.address[threadIdx.x % 2];  // @stack.read
  __syncthreads();
}

TEST_F(EmulatorAccess, StackOfAnotherThread) {
  const Buffer<float> y(32);
  const Status status = launch("stack", stack_of_another_kernel, dim3(1), dim3(32), 0, {}, y.get());
  expect_fault(status, FaultKind::host_pointer, "stack.read", {0, 0, 0}, {0, 0, 0});
  EXPECT_NE(status.message().find("the stack of another thread"), std::string::npos) << status.message();
}

__global__ void spin_kernel(volatile int* flag) {
  while (*flag == 0) {  // @spin.read
  }
}

TEST_F(EmulatorAccess, SpinWaitsEnd) {
  const Buffer<int> flag(1, 0);
  emulator::set_access_limit(100000);
  const Status status = launch("spin", spin_kernel, dim3(1), dim3(1), 0, {}, flag.get());
  emulator::set_access_limit(0);
  expect_fault(status, FaultKind::endless, "spin.read", {0, 0, 0}, {0, 0, 0});
}

/// Nobody ever votes to end.
__global__ void vote_for_ever_kernel(int* y) {
  int rounds = 0;
  while (!__any_sync(kAll, rounds < 0)) ++rounds;  // @spin.vote
  y[threadIdx.x] = rounds;
}

__global__ void barriers_for_ever_kernel(int* y) {
  int rounds = 0;
  while (!__syncthreads_or(rounds < 0)) ++rounds;  // @spin.barrier
  y[threadIdx.x] = rounds;
}

TEST_F(Emulator, EndlessMeetingsEnd) {
  const Buffer<int> y(64);
  emulator::set_order({});
  emulator::set_access_limit(10000);
  Status status = launch("vote", vote_for_ever_kernel, dim3(1), dim3(32), 0, {}, y.get());
  expect_fault(status, FaultKind::endless, "spin.vote", {0, 0, 0}, {16, 0, 0});
  status = launch("barriers", barriers_for_ever_kernel, dim3(1), dim3(64), 0, {}, y.get());
  expect_fault(status, FaultKind::endless, "spin.barrier", {0, 0, 0}, {16, 0, 0});
  emulator::set_access_limit(0);
}

/// Touches nothing and meets nobody.
__global__ void compute_for_ever_kernel(int* y) {
  int rounds = 0;
  if (threadIdx.x == 3) {
    for (;;) asm volatile("" : "+r"(rounds));  // @spin.compute
  }
  y[threadIdx.x] = rounds;
}

TEST_F(EmulatorAccess, EndlessComputationEnds) {
  const Buffer<int> y(32);
  emulator::set_time_limit(0.1);
  for (int round = 0; round < 3; ++round) {
    const Status status = launch("compute", compute_for_ever_kernel, dim3(2), dim3(32), 0, {}, y.get());
    expect_fault(status, FaultKind::endless, "spin.compute", {0, 0, 0}, {3, 0, 0});
  }
  emulator::set_time_limit(0);
  expect_right(launch("neighbour", neighbour_kernel<true>, dim3(1), dim3(32), 0, {}, y.get()));
}

// ---- divergence ----

__global__ void early_return_kernel(float* y) {
  if (threadIdx.x == 40) return;
  __syncthreads();  // @early.barrier
  y[threadIdx.x] = 1.0f;
}

__global__ void two_barriers_kernel(float* y) {
  if (threadIdx.x < 50) {
    __syncthreads();  // @two.first
  } else {
    __syncthreads();  // @two.second
  }
  y[threadIdx.x] = 1.0f;
}

__global__ void divergent_loop_kernel(float* y) {
  for (unsigned i = 0; i <= threadIdx.x / 33; ++i) __syncthreads();  // @loop.barrier
  __syncthreads();                                                   // @loop.end
  y[threadIdx.x] = 1.0f;
}

TEST_F(Emulator, DivergentBarrier) {
  const Buffer<float> y(64);
  emulator::set_order({});
  Status status = launch("early_return", early_return_kernel, dim3(2), dim3(64), 0, {}, y.get());
  expect_fault(status, FaultKind::divergence, "early.barrier", {0, 0, 0}, {0, 0, 0});
  EXPECT_EQ(emulator::last_fault().other.thread, (Triple{40, 0, 0}));
  EXPECT_NE(status.message().find("thread (40, 0, 0) has returned from the kernel"), std::string::npos);

  status = launch("two_barriers", two_barriers_kernel, dim3(2), dim3(64), 0, {}, y.get());
  expect_fault(status, FaultKind::divergence, "two.second", {0, 0, 0}, {50, 0, 0});
  expect_site(emulator::last_fault().other, "two.first", {0, 0, 0}, {0, 0, 0});

  status = launch("divergent_loop", divergent_loop_kernel, dim3(2), dim3(64), 0, {}, y.get());
  expect_fault(status, FaultKind::divergence, "loop.barrier", {0, 0, 0}, {33, 0, 0});
  expect_site(emulator::last_fault().other, "loop.end", {0, 0, 0}, {0, 0, 0});

  emulator::set_order({Direction::backward, Direction::backward});
  status = launch("early_return", early_return_kernel, dim3(2), dim3(64), 0, {}, y.get());
  expect_fault(status, FaultKind::divergence, "early.barrier", {1, 0, 0}, {0, 0, 0});
}

__global__ void missing_lane_kernel(float* y) {
  float value = static_cast<float>(threadIdx.x);
  if (threadIdx.x != 39) value = __shfl_sync(kAll, value, 0);  // @lane.shuffle
  y[threadIdx.x] = value;
}

__global__ void missing_lane_at_barrier_kernel(float* y) {
  float value = static_cast<float>(threadIdx.x);
  if (threadIdx.x % 32 != 4) value = __shfl_xor_sync(kAll, value, 1);  // @barrier.shuffle
  __syncthreads();                                                     // @barrier.barrier
  y[threadIdx.x] = value;
}

__global__ void two_sides_kernel(float* y) {
  float value = static_cast<float>(threadIdx.x);
  if (threadIdx.x < 16) {
    value = __shfl_sync(kAll, value, 0);  // @sides.first
  } else {
    value = __shfl_sync(kAll, value, 0);  // @sides.second
  }
  y[threadIdx.x] = value;
}

__global__ void masks_kernel(float* y) {
  const unsigned mask = threadIdx.x < 30 ? kAll : 0xc0000000u;
  y[threadIdx.x] = __shfl_sync(mask, 1.0f, 31);  // @masks.shuffle
}

__global__ void outside_mask_kernel(float* y, unsigned mask, int source, int width) {
  y[threadIdx.x] = __shfl_sync(mask, 1.0f, source, width);  // @outside.shuffle
}

TEST_F(Emulator, LaneMissingFromAShuffle) {
  const Buffer<float> y(64);
  emulator::set_order({});
  Status status = launch("missing_lane", missing_lane_kernel, dim3(2), dim3(64), 0, {}, y.get());
  expect_fault(status, FaultKind::divergence, "lane.shuffle", {0, 0, 0}, {32, 0, 0});
  EXPECT_EQ(emulator::last_fault().other.thread, (Triple{39, 0, 0}));
  EXPECT_NE(status.message().find("for lane 7, which never comes: thread (39, 0, 0) has returned"),
            std::string::npos)
      << status.message();
  status = launch("missing_lane", missing_lane_at_barrier_kernel, dim3(2), dim3(64), 0, {}, y.get());
  expect_fault(status, FaultKind::divergence, "barrier.shuffle", {0, 0, 0}, {0, 0, 0});
  expect_site(emulator::last_fault().other, "barrier.barrier", {0, 0, 0}, {4, 0, 0});
  status = launch("two_sides", two_sides_kernel, dim3(1), dim3(32), 0, {}, y.get());
  expect_fault(status, FaultKind::divergence, "sides.second", {0, 0, 0}, {16, 0, 0});
  expect_site(emulator::last_fault().other, "sides.first", {0, 0, 0}, {0, 0, 0});
}

TEST_F(Emulator, WrongMasks) {
  const Buffer<float> y(64);
  emulator::set_order({});
  Status status = launch("masks", masks_kernel, dim3(1), dim3(32), 0, {}, y.get());
  expect_fault(status, FaultKind::divergence, "masks.shuffle", {0, 0, 0}, {0, 0, 0});
  EXPECT_EQ(emulator::last_fault().other.thread, (Triple{30, 0, 0}))
      << "lanes 30 and 31 went on without the others";
  status = launch("own", outside_mask_kernel, dim3(1), dim3(32), 0, {}, y.get(), 0xfffffffeu, 1, 32);
  expect_fault(status, FaultKind::divergence, "outside.shuffle", {0, 0, 0}, {0, 0, 0});
  status = launch("lacking", outside_mask_kernel, dim3(1), dim3(20), 0, {}, y.get(), kAll, 0, 32);
  expect_fault(status, FaultKind::divergence, "outside.shuffle", {0, 0, 0}, {0, 0, 0});
  status = launch("source", outside_mask_kernel, dim3(1), dim3(20), 0, {}, y.get(), 0x000fffffu, 20, 32);
  expect_fault(status, FaultKind::bad_shuffle, "outside.shuffle", {0, 0, 0}, {0, 0, 0});
  status = launch("width", outside_mask_kernel, dim3(1), dim3(32), 0, {}, y.get(), kAll, 0, 12);
  expect_fault(status, FaultKind::bad_shuffle, "outside.shuffle", {0, 0, 0}, {0, 0, 0});
}

// ---- what shuffles and votes give ----

template <class T>
__global__ void shuffles_kernel(T* y, int operand, int width) {
  const auto lane = static_cast<int>(threadIdx.x);
  const T value = static_cast<T>(lane) + T(100);
  y[lane] = __shfl_sync(kAll, value, operand, width);
  y[32 + lane] = __shfl_up_sync(kAll, value, static_cast<unsigned>(operand), width);
  y[64 + lane] = __shfl_down_sync(kAll, value, static_cast<unsigned>(operand), width);
  y[96 + lane] = __shfl_xor_sync(kAll, value, operand, width);
}

template <class T>
void check_shuffles() {
  const Buffer<T> y(128);
  for (const int width : {1, 2, 4, 8, 16, 32}) {
    for (const int operand : {0, 1, 3, 7, 16, 31}) {
      SCOPED_TRACE(width);
      SCOPED_TRACE(operand);
      expect_right(launch("shuffles", shuffles_kernel<T>, dim3(1), dim3(32), 0, {}, y.get(), operand, width));
      const std::vector<T> got = y.read();
      for (int lane = 0; lane < 32; ++lane) {
        const int start = lane / width * width, end = start + width;
        const int wanted[4] = {start + operand % width, lane - operand >= start ? lane - operand : lane,
                               lane + operand < end ? lane + operand : lane,
                               (lane ^ operand) < end ? lane ^ operand : lane};
        for (int kind = 0; kind < 4; ++kind) {
          ASSERT_EQ(got[static_cast<std::size_t>(kind * 32 + lane)], static_cast<T>(wanted[kind] + 100))
              << "lane " << lane << ", kind " << kind;
        }
      }
    }
  }
}

TEST_F(Emulator, ShufflesGiveWhatCudaSays) {
  in_every_order([] {
    check_shuffles<float>();
    check_shuffles<double>();
  });
  check_shuffles<int>();
  check_shuffles<unsigned>();
  check_shuffles<long long>();
}

__global__ void votes_kernel(int* y, int limit) {
  const auto t = static_cast<int>(threadIdx.x);
  const int yes = t < limit;
  const unsigned ballot = __ballot_sync(kAll, yes);
  y[0 * 64 + t] = static_cast<int>(ballot);
  y[1 * 64 + t] = __any_sync(kAll, yes) != 0;
  y[2 * 64 + t] = __all_sync(kAll, yes) != 0;
  y[3 * 64 + t] = __syncthreads_count(yes);
  y[4 * 64 + t] = __syncthreads_or(yes) != 0;
  y[5 * 64 + t] = __syncthreads_and(yes) != 0;
}

TEST_F(Emulator, VotesGiveWhatCudaSays) {
  const Buffer<int> y(6 * 64);
  in_every_order([&] {
    for (const int limit : {0, 1, 31, 32, 40, 63, 64}) {
      SCOPED_TRACE(limit);
      expect_right(launch("votes", votes_kernel, dim3(1), dim3(64), 0, {}, y.get(), limit));
      const std::vector<int> got = y.read();
      for (int t = 0; t < 64; ++t) {
        const int in_warp = std::min(32, std::max(0, limit - t / 32 * 32));
        const unsigned ballot = in_warp == 32 ? kAll : (1u << in_warp) - 1;
        const int wanted[6] = {
            static_cast<int>(ballot), in_warp > 0, in_warp == 32, limit, limit > 0, limit == 64};
        for (int kind = 0; kind < 6; ++kind)
          ASSERT_EQ(got[static_cast<std::size_t>(kind * 64 + t)], wanted[kind]) << t;
      }
    }
  });
}

// ---- right kernels ----

template <class T>
__global__ void narrow_kernel(const T* x, T* y, int n) {
  struct Row {
    T values[256];
  };
  Row& row = shared_storage<Row>();
  const auto t = static_cast<int>(threadIdx.x);
  const int i = static_cast<int>(blockIdx.x) * 256 + t;
  row.values[t] = i < n ? x[i] : T(0);
  __syncthreads();
  if (i < n) y[i] = static_cast<T>(row.values[t ^ 1] + 1);
}

/// Every thread reads and writes an element of its own.
template <class T>
__global__ void narrow_in_place_kernel(T* y, int n) {
  const int i = static_cast<int>(blockIdx.x * 256 + threadIdx.x);
  if (i < n) y[i] = static_cast<T>(y[i] + 1);
}

/// Neighbours in one word belong to different threads.
template <class T>
void check_narrow() {
  const int n = 255;
  std::vector<T> values(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) values[static_cast<std::size_t>(i)] = static_cast<T>(i % 100);
  const Buffer<T> x(values), y(values.size());
  expect_right(launch("narrow", narrow_kernel<T>, dim3(1), dim3(256), 0, {}, x.get(), y.get(), n));
  const std::vector<T> got = y.read();
  for (int i = 0; i < n; ++i) {
    const T other = (i ^ 1) < n ? values[static_cast<std::size_t>(i ^ 1)] : T(0);
    ASSERT_EQ(got[static_cast<std::size_t>(i)], static_cast<T>(other + 1)) << i;
  }
  expect_right(launch("narrow in place", narrow_in_place_kernel<T>, dim3(1), dim3(256), 0, {}, y.get(), n));
  EXPECT_EQ(y.read()[2], static_cast<T>(got[2] + 1));
}

TEST_F(Emulator, NarrowNeighboursAreNoRace) {
  in_every_order([] {
    check_narrow<std::uint8_t>();
    check_narrow<std::int16_t>();
    check_narrow<int>();
    check_narrow<double>();
  });
}

__global__ void cube_kernel(int* y) {
  const auto thread = static_cast<int>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
  const auto block = static_cast<int>(blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
  const auto threads = static_cast<int>(blockDim.x * blockDim.y * blockDim.z);
  int sum = 0;
  for (int round = 0; round < 3; ++round) sum = __syncthreads_count(thread % 2 == 0);
  y[block * threads + thread] = block * 1000 + thread + sum * 100000;
}

TEST_F(Emulator, BlocksAndGridsInThreeDimensions) {
  in_every_order([] {
    const Buffer<int> y(24 * 60);
    expect_right(launch("cube", cube_kernel, dim3(2, 3, 4), dim3(5, 4, 3), 0, {}, y.get()));
    const std::vector<int> got = y.read();
    for (int i = 0; i < 24 * 60; ++i)
      ASSERT_EQ(got[static_cast<std::size_t>(i)], i / 60 * 1000 + i % 60 + 30 * 100000);
  });
}

struct Columns {
  double first[7];
  float4 second[5];
};
constexpr float kTable[4] = {1.0f, 2.0f, 4.0f, 8.0f};
struct Parameters {
  const float* x;
  float* y;
  int n;
  double scale[9];
};

/// Arguments in a struct, constants, vectors, two kinds of shared memory and stack arrays: all allowed.
__global__ void mixture_kernel(const Parameters parameters) {
  Columns& columns = shared_storage<Columns>();
  float* const extra = dynamic_shared<float>();
  const auto t = static_cast<int>(threadIdx.x);
  float own[4];
  for (int i = 0; i < 4; ++i) own[(i + t) % 4] = kTable[i];
  if (t < 7) columns.first[t] = parameters.scale[t];
  if (t < 5) columns.second[t] = make_float4(own[0], own[1], own[2], own[3]);
  extra[t] = t < parameters.n ? __ldg(parameters.x + t) : 0.0f;
  __syncthreads();
  const float4 vector = columns.second[t % 5];
  if (t < parameters.n) {
    parameters.y[t] =
        extra[t] * static_cast<float>(columns.first[t % 7]) + vector.x + vector.y + vector.z + vector.w;
  }
}

TEST_F(Emulator, ArgumentsConstantsStacksAndBothKindsOfSharedMemory) {
  in_every_order([] {
    const Buffer<float> x(100, 3.0f), y(100);
    Parameters parameters{x.get(), y.get(), 100, {}};
    for (int i = 0; i < 9; ++i) parameters.scale[i] = i;
    expect_right(launch("mixture", mixture_kernel, dim3(1), dim3(128), 128 * sizeof(float), {}, parameters));
    const std::vector<float> got = y.read();
    for (int i = 0; i < 100; ++i)
      ASSERT_EQ(got[static_cast<std::size_t>(i)], 3.0f * static_cast<float>(i % 7) + 15.0f);
  });
}

// ---- after a fault ----

struct ThrownByKernel : std::runtime_error {
  using std::runtime_error::runtime_error;
};

__global__ void throwing_kernel(float* y) {
  if (threadIdx.x == 6) throw ThrownByKernel("seven is too many");
  __syncthreads();
  y[threadIdx.x] = 1.0f;
}

TEST_F(Emulator, ExceptionsInKernelsAreFaults) {
  const Buffer<float> y(32, 0.0f);
  emulator::set_order({});
  const Status status = launch("throwing", throwing_kernel, dim3(1), dim3(32), 0, {}, y.get());
  expect_fault(status, FaultKind::exception, nullptr, {0, 0, 0}, {6, 0, 0});
  EXPECT_NE(status.message().find("seven is too many"), std::string::npos) << status.message();
}

TEST_F(Emulator, TheNextLaunchWorksAfterEachFault) {
  const Buffer<float> x(2 * kScanThreads, 1.0f), y(2 * kScanThreads);
  const auto good = [&] {
    expect_right(
        launch("scan", scan_kernel<true, true>, dim3(2), dim3(kScanThreads), 0, {}, x.get(), y.get()));
    ASSERT_EQ(y.read()[kScanThreads - 1], static_cast<float>(kScanThreads));
  };
  for (int round = 0; round < 50; ++round) {
    EXPECT_FALSE(launch("early_return", early_return_kernel, dim3(1), dim3(64), 0, {}, y.get()).ok());
    good();
    EXPECT_FALSE(launch("missing_lane", missing_lane_kernel, dim3(1), dim3(64), 0, {}, y.get()).ok());
    good();
    EXPECT_FALSE(launch("throwing", throwing_kernel, dim3(1), dim3(32), 0, {}, y.get()).ok());
    good();
    if (!emulator::checks_accesses()) continue;
    EXPECT_FALSE(
        launch("scan", scan_kernel<false, true>, dim3(1), dim3(kScanThreads), 0, {}, x.get(), y.get()).ok());
    good();
    EXPECT_FALSE(launch("copy", copy_kernel, dim3(8), dim3(1024), 0, {}, x.get(), y.get(), 5000).ok());
    good();
  }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "what launch() reports it also takes from CUDA";
}

// ---- arithmetic ----

__global__ void approximations_kernel(const float* x, float* y, int n) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) {
    y[i] = __expf(x[i]);
    y[n + i] = __logf(::fabsf(x[i]) + 1e-3f);
    y[2 * n + i] = rsqrtf(::fabsf(x[i]) + 1e-3f);
    y[3 * n + i] = __fdividef(x[i], 3.0f);
  }
}

/// The last place of a float as large as `value`.
double ulp(double value) {
  return std::ldexp(1.0, std::max(std::ilogb(static_cast<float>(value)), -126) - 23);
}

// An error budget that is met here is to be met on a GPU: each is a little worse than what CUDA promises of it, and
// not so bad that a right kernel would miss its budget.
TEST_F(Emulator, ApproximationsAreWorseThanThoseOfAGpu) {
  constexpr int kCount = 4000;
  std::vector<float> values;
  for (int i = 0; i < kCount; ++i) values.push_back(-40.0f + 0.02f * static_cast<float>(i));
  const Buffer<float> x(values), y(4 * kCount);
  expect_right(
      launch("approximations", approximations_kernel, dim3(1), dim3(128), 0, {}, x.get(), y.get(), kCount));
  const std::vector<float> got = y.read();
  double worst[4] = {0, 0, 0, 0};
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto at = static_cast<double>(values[i]);
    const auto positive = static_cast<double>(std::fabs(values[i]) + 1e-3f);
    const double wanted[4] = {std::exp(at), std::log(positive), 1 / std::sqrt(positive), at / 3};
    for (std::size_t kind = 0; kind < 4; ++kind) {
      const auto value = static_cast<double>(got[kind * kCount + i]);
      double error = std::fabs(value - wanted[kind]) / ulp(wanted[kind]);
      // __expf is told by 2 + floor(1.173 |x|) units; __logf by an absolute error near 1.
      if (kind == 0) error /= 2 + std::floor(1.173 * std::fabs(at));
      if (kind == 1 && positive > 0.5 && positive < 2) error = std::fabs(value - wanted[kind]) / 3.6e-7;
      ASSERT_TRUE(error <= (kind == 1 && !(positive > 0.5 && positive < 2) ? 4
                            : kind == 0                                    ? 1.7
                                                                           : 3.6))
          << "kind " << kind << " at " << at;
      worst[kind] = std::max(worst[kind], error);
    }
  }
  EXPECT_GT(worst[0], 0.6) << "__expf";
  EXPECT_GT(worst[1], 1.0) << "__logf";
  EXPECT_GT(worst[2], 2.0) << "rsqrtf";
  EXPECT_GT(worst[3], 1.9) << "__fdividef";
}

/// Sums whose order nobody fixes are not to be had.
template <class T>
concept HasAtomicAdd = requires(T* address) {
  atomicAdd(address, T(1));
};
static_assert(!HasAtomicAdd<float> && !HasAtomicAdd<double> && !HasAtomicAdd<int>);

// ---- limits ----

__global__ void nothing_kernel() {}

struct Large {
  float values[10 * 1024];
};
__global__ void large_kernel(float* y, bool both) {
  Large& large = shared_storage<Large>();
  large.values[threadIdx.x] = 1.0f;
  if (both) dynamic_shared<float>()[threadIdx.x] = 1.0f;
  y[threadIdx.x] = large.values[threadIdx.x];
}
__global__ void no_dynamic_kernel(float* y) {
  y[threadIdx.x] = dynamic_shared<float>()[0];
}
__global__ void dynamic_kernel(float* y, int n) {
  float* const values = dynamic_shared<float>();
  for (int i = 0; i < n; ++i) values[i] = 1.0f;
  y[0] = values[n - 1];
}

TEST_F(Emulator, LimitsOfADevice) {
  const auto rejects = [](dim3 grid, dim3 block, const char* text) {
    const Status status = launch("nothing", nothing_kernel, grid, block, 0, {});
    EXPECT_EQ(status.code(), Code::cuda);
    EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
  };
  rejects(dim3(1), dim3(1025), "block is (1025, 1, 1)");
  rejects(dim3(1), dim3(0), "block is (0, 1, 1)");
  rejects(dim3(1), dim3(1, 1, 65), "block is (1, 1, 65)");
  rejects(dim3(1), dim3(64, 64, 1), "block is (64, 64, 1)");
  rejects(dim3(1), dim3(4294967295u, 4294967295u, 4), "wants 1 to 1024 threads");
  rejects(dim3(1, 65536), dim3(1), "grid is (1, 65536, 1)");
  rejects(dim3(1, 1, 65536), dim3(1), "grid is (1, 1, 65536)");
  rejects(dim3(2147483648u), dim3(1), "grid is (2147483648, 1, 1)");
  expect_right(launch("nothing", nothing_kernel, dim3(1, 65535), dim3(1), 0, {}));
  expect_right(launch("nothing", nothing_kernel, dim3(1), dim3(16, 1, 64), 0, {}));

  const std::int64_t launches = detail::mutable_counters().kernel_launches;
  EXPECT_TRUE(launch("nothing", nothing_kernel, dim3(0), dim3(32), 0, {}).ok());
  EXPECT_EQ(detail::mutable_counters().kernel_launches, launches) << "a grid without blocks is no launch";
  EXPECT_TRUE(launch("nothing", nothing_kernel, dim3(3), dim3(32), 0, {}).ok());
  EXPECT_EQ(detail::mutable_counters().kernel_launches, launches + 1);
}

__global__ void __launch_bounds__(64) bounded_kernel() {}
template <class T>
__global__ void __launch_bounds__(kScanThreads) bounded_template_kernel(T* y) {
  y[threadIdx.x] = T(1);
}
__global__ void __launch_bounds__(96, 4) bounded_twice_kernel() {}

TEST_F(Emulator, LaunchBoundsHoldForTheRealBlock) {
  const Buffer<float> y(2 * kScanThreads);
  const auto rejected = [](const Status& status, const char* text) {
    EXPECT_EQ(emulator::last_fault().kind, FaultKind::limits);
    EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
  };
  expect_right(launch("bounded", bounded_kernel, dim3(2), dim3(64), 0, {}));
  rejected(launch("bounded", bounded_kernel, dim3(2), dim3(65), 0, {}),
           "a block of (65, 1, 1) threads; the kernel's __launch_bounds__ say at most 64");
  rejected(launch("bounded", bounded_kernel, dim3(2), dim3(16, 5), 0, {}), "a block of (16, 5, 1) threads");
  expect_right(launch("twice", bounded_twice_kernel, dim3(1), dim3(96), 0, {}));
  rejected(launch("twice", bounded_twice_kernel, dim3(1), dim3(97), 0, {}), "say at most 96");
  expect_right(
      launch("template", bounded_template_kernel<float>, dim3(1), dim3(kScanThreads), 0, {}, y.get()));
  rejected(
      launch("template", bounded_template_kernel<float>, dim3(1), dim3(kScanThreads + 1), 0, {}, y.get()),
      "say at most 128");
  cudaFuncAttributes attributes{};
  ASSERT_EQ(cudaFuncGetAttributes(&attributes, bounded_kernel), cudaSuccess);
  EXPECT_EQ(attributes.maxThreadsPerBlock, 64);
  ASSERT_EQ(cudaFuncGetAttributes(&attributes, nothing_kernel), cudaSuccess);
  EXPECT_EQ(attributes.maxThreadsPerBlock, 1024);
  // Without the helper the launch itself refuses.
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(65);
  EXPECT_EQ(cudaLaunchKernelEx(&config, bounded_kernel), cudaErrorInvalidConfiguration);
  (void)cudaGetLastError();
}

TEST_F(Emulator, LimitsOfSharedMemory) {
  emulator::set_order({});
  const Buffer<float> y(32, 0.0f);
  const std::size_t limit = 163 * 1024;
  expect_right(
      launch("dynamic", dynamic_kernel, dim3(1), dim3(1), limit, {}, y.get(), static_cast<int>(limit / 4)));
  Status status = launch("dynamic", dynamic_kernel, dim3(1), dim3(1), limit + 4, {}, y.get(), 1);
  EXPECT_EQ(status.code(), Code::cuda);
  EXPECT_NE(status.message().find("kernel dynamic"), std::string::npos) << status.message();

  // Static and dynamic shared memory count together: 40 KiB and 9 KiB are too much, 40 and 8 are not.
  status = launch("large", large_kernel, dim3(1), dim3(32), 9 * 1024, {}, y.get(), true);
  expect_fault(status, FaultKind::limits, nullptr, {0, 0, 0}, {0, 0, 0});
  expect_right(launch("large", large_kernel, dim3(1), dim3(32), 8 * 1024, {}, y.get(), true));
  status = launch("no_dynamic", no_dynamic_kernel, dim3(1), dim3(32), 0, {}, y.get());
  expect_fault(status, FaultKind::limits, nullptr, {0, 0, 0}, {0, 0, 0});

  // Without the helper nobody opts in: the launch itself must refuse.
  cudaLaunchConfig_t config{};
  config.gridDim = config.blockDim = dim3(1);
  config.dynamicSmemBytes = 48 * 1024 + 4;
  EXPECT_EQ(cudaLaunchKernelEx(&config, no_dynamic_kernel, y.get()), cudaErrorInvalidConfiguration);
  config.dynamicSmemBytes = 0;
  config.blockDim = dim3(1025);
  EXPECT_EQ(cudaLaunchKernelEx(&config, no_dynamic_kernel, y.get()), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(LaunchHelper, GridFor) {
  EXPECT_EQ(cuda::grid_for(0, 256, 100).x, 0u);
  EXPECT_EQ(cuda::grid_for(1, 256, 100).x, 1u);
  EXPECT_EQ(cuda::grid_for(256, 256, 100).x, 1u);
  EXPECT_EQ(cuda::grid_for(257, 256, 100).x, 2u);
  EXPECT_EQ(cuda::grid_for(1 << 20, 256, 100).x, 100u);
  EXPECT_EQ(cuda::grid_for(std::int64_t{1} << 62, 1, std::int64_t{1} << 40).x, 2147483647u);
}

// ---- beside the address sanitizer ----

#if defined(__SANITIZE_ADDRESS__)
TEST(EmulatorDeathTest, AddressSanitizerSeesBadAddresses) {
  const Buffer<float> x(100, 1.0f), y(128, 0.0f);
  EXPECT_DEATH((void)launch("copy", copy_kernel, dim3(4), dim3(32), 0, {}, x.get(), y.get(), 101),
               "use-after-poison.*\n.*READ of size 4|READ of size 4");
  EXPECT_DEATH((void)launch("copy", copy_kernel, dim3(4), dim3(32), 0, {}, y.get(), x.get(), 101),
               "WRITE of size 4");
  EXPECT_DEATH((void)launch("dynamic", dynamic_overrun_kernel, dim3(1), dim3(32), 256, {}, y.get(), 65),
               "WRITE of size 4");
  float* freed = nullptr;
  ASSERT_EQ(cudaMalloc(&freed, 256), cudaSuccess);
  ASSERT_EQ(cudaFree(freed), cudaSuccess);
  EXPECT_DEATH((void)launch("copy", copy_kernel, dim3(1), dim3(32), 0, {}, freed, y.get(), 32),
               "READ of size 4");
}
#endif

// ---- memory of the device, seen from the host ----

float touch_from_host(const float* device, int i) {
  return *const_cast<const volatile float*>(device + i);
}

TEST(EmulatorDeathTest, HostReadOfDeviceMemory) {
  const Buffer<float> x(64, 1.0f);
  EXPECT_DEATH(touch_from_host(x.get(), 2),
               "host code touched device memory: byte 8 of device allocation [0-9]+ .256 bytes");
  EXPECT_EQ(x.read()[2], 1.0f);
}

TEST(EmulatorDeathTest, HostWriteOfDeviceMemory) {
  const Buffer<float> x(64, 1.0f);
  EXPECT_DEATH(*const_cast<volatile float*>(x.get() + 1) = 5.0f,
               "host code touched device memory: byte 4 of device");
  EXPECT_EQ(x.read()[1], 1.0f) << "the child's device memory is its own";
}

__global__ void deep_kernel(float* y, int depth) {
  struct Deep {
    static float down(int depth) {
      volatile float waste[256];
      waste[depth % 256] = 1.0f;
      return depth == 0 ? waste[0] : down(depth - 1) + waste[depth % 256];
    }
  };
  y[threadIdx.x] = Deep::down(depth);
}

TEST(EmulatorDeathTest, StackOverflowNamesTheThread) {
  if (!emulator::checks_accesses()) GTEST_SKIP() << "the address sanitizer reports stack overflows itself";
  const Buffer<float> y(4, 0.0f);
  EXPECT_DEATH((void)launch("deep", deep_kernel, dim3(1), dim3(1), 0, {}, y.get(), 1000000),
               "the stack of thread 0 .linear. of block .0, 0, 0. overflowed");
}

TEST(EmulatorMemory, LeaksAreNamedByAllocation) {
  EXPECT_EQ(emulator::leak_report(), "");
  float* leaked = nullptr;
  ASSERT_EQ(cudaMalloc(&leaked, 1000), cudaSuccess);  // @leak
  const std::vector<emulator::LiveAllocation> live = emulator::live_allocations();
  ASSERT_EQ(live.size(), 1u);
  EXPECT_EQ(live[0].address, leaked);
  EXPECT_EQ(live[0].bytes, 1000u);
  const std::string report = emulator::leak_report();
  EXPECT_NE(report.find("test_emulator.cu:" + std::to_string(line_of("leak"))), std::string::npos) << report;
  EXPECT_NE(report.find("of 1000 bytes was not freed"), std::string::npos) << report;
  EXPECT_EQ(cudaFree(leaked), cudaSuccess);
  EXPECT_EQ(emulator::leak_report(), "");
}

TEST(EmulatorMemory, NewMemoryIsNotANumber) {
  float* data = nullptr;
  ASSERT_EQ(cudaMalloc(&data, 64 * sizeof(float)), cudaSuccess);
  std::vector<float> values(64, 0.0f);
  ASSERT_EQ(cudaMemcpy(values.data(), data, 256, cudaMemcpyDeviceToHost), cudaSuccess);
  for (const float value : values) ASSERT_TRUE(std::isnan(value));
  EXPECT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(cudaFree(data), cudaErrorInvalidValue) << "freed twice";
  EXPECT_NE(std::string(cudaGetErrorString(cudaErrorInvalidValue)).find("freed device allocation"),
            std::string::npos);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

TEST(EmulatorMemory, MemoryIsGivenOutAgainAndStaysBounded) {
  std::size_t free_before = 0, free_after = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free_before, &total), cudaSuccess);
  std::uintptr_t highest = 0, lowest = ~std::uintptr_t{0};
  for (int round = 0; round < 200; ++round) {
    float* data = nullptr;
    ASSERT_EQ(cudaMalloc(&data, (1 << 20) + round * 1000), cudaSuccess);
    highest = std::max(highest, reinterpret_cast<std::uintptr_t>(data));
    lowest = std::min(lowest, reinterpret_cast<std::uintptr_t>(data));
    ASSERT_EQ(cudaFree(data), cudaSuccess);
  }
  EXPECT_LT(highest - lowest, std::size_t{64} << 20);
  ASSERT_EQ(cudaMemGetInfo(&free_after, &total), cudaSuccess);
  EXPECT_EQ(free_after, free_before);
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, total + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(data, nullptr);
  EXPECT_EQ(cudaMalloc(&data, std::size_t{1} << 62), cudaErrorMemoryAllocation);
  (void)cudaGetLastError();
}

TEST(EmulatorMemory, CopiesStayInsideOneAllocation) {
  const Buffer<float> x(64, 1.0f), y(64, 2.0f);
  std::vector<float> host(128, 0.0f);
  EXPECT_EQ(cudaMemcpy(host.data(), x.get(), 260, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(x.get() + 60, host.data(), 20, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host.data(), host.data() + 64, 4, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(x.get(), y.get(), 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(x.get(), 0, 257), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(host.data(), 0, 4), cudaErrorInvalidValue);
  (void)cudaGetLastError();
  EXPECT_EQ(cudaMemcpy(x.get(), y.get(), 256, cudaMemcpyDeviceToDevice), cudaSuccess);
  EXPECT_EQ(x.read()[63], 2.0f);
  EXPECT_EQ(cudaMemcpy(host.data(), x.get(), 256, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(host[63], 2.0f);
  EXPECT_EQ(cudaMemset(x.get(), 0, 128), cudaSuccess);
  EXPECT_EQ(x.read()[31], 0.0f);
  EXPECT_EQ(x.read()[32], 2.0f);
}

TEST(EmulatorMemory, CopiesOfRows) {
  const Buffer<float> x(12, 1.0f);
  const std::vector<float> rows = {10, 11, 12, 13, 14, 15};
  ASSERT_EQ(cudaMemcpy2DAsync(x.get(), 16, rows.data(), 8, 8, 3, cudaMemcpyHostToDevice, nullptr),
            cudaSuccess);
  EXPECT_EQ(x.read(), (std::vector<float>{10, 11, 1, 1, 12, 13, 1, 1, 14, 15, 1, 1}));
  EXPECT_EQ(cudaMemcpy2DAsync(x.get(), 16, rows.data(), 8, 8, 4, cudaMemcpyHostToDevice, nullptr),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy2DAsync(x.get(), 16, rows.data(), 4, 8, 3, cudaMemcpyHostToDevice, nullptr),
            cudaErrorInvalidPitchValue);
  (void)cudaGetLastError();
}

/// The one kind of write that the call-backs do not see: a copy of the standard library.
__global__ void unseen_write_kernel(float* y, std::size_t bytes) {
  std::memset(y, 0, bytes);
}

TEST(EmulatorMemory, GuardBytes) {
  if (!emulator::checks_accesses()) GTEST_SKIP() << "the address sanitizer ends the process at the write";
  float* data = nullptr;
  ASSERT_EQ(cudaMalloc(&data, 100), cudaSuccess);
  EXPECT_TRUE(launch("unseen", unseen_write_kernel, dim3(1), dim3(1), 0, {}, data, std::size_t{101}).ok());
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  EXPECT_NE(std::string(cudaGetErrorString(cudaErrorIllegalAddress))
                .find("0 bytes behind the end of device allocation"),
            std::string::npos);
  EXPECT_EQ(cudaFree(data), cudaErrorInvalidValue) << "freed, and the damage is told";
  (void)cudaGetLastError();
}

TEST(EmulatorMemory, KindsOfPointers) {
  const Buffer<float> x(64, 1.0f);
  float* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, 256), cudaSuccess);
  cudaPointerAttributes attributes{};
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, x.get() + 63), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, x.get() + 64), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, pinned + 3), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, &attributes), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaErrorInvalidValue);
  (void)cudaGetLastError();
}

TEST(EmulatorStreams, HandlesAreChecked) {
  cudaStream_t stream = nullptr;
  cudaEvent_t start = nullptr, end = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&start), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&end), cudaSuccess);
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaErrorInvalidResourceHandle)
      << "not recorded yet";
  EXPECT_EQ(cudaEventRecord(start, stream), cudaSuccess);
  const Buffer<float> x(64);
  EXPECT_EQ(cudaMemsetAsync(x.get(), 0, 256, stream), cudaSuccess);
  EXPECT_TRUE(launch("nothing", nothing_kernel, dim3(1), dim3(1), 0, Stream{stream}).ok());
  EXPECT_EQ(cudaEventRecord(end, stream), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(nullptr, end, 0), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(end), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaSuccess);
  EXPECT_GE(milliseconds, 0.0f);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  EXPECT_FALSE(launch("nothing", nothing_kernel, dim3(1), dim3(1), 0, Stream{stream}).ok());
  EXPECT_EQ(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventDestroy(start), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(start), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventDestroy(end), cudaSuccess);
  (void)cudaGetLastError();
}

// ---- several workers ----

template <class Base>
class ManyWorkers : public Base {
 protected:
  void TearDown() override {
    emulator::set_workers(1);
    Base::TearDown();
  }
};
using Workers = ManyWorkers<Emulator>;
using WorkersAccess = ManyWorkers<EmulatorAccess>;

template <class Body>
void with_many_workers(Body body) {
  for (const int workers : {2, 3, 8}) {
    SCOPED_TRACE(workers);
    emulator::set_workers(workers);
    body();
  }
}

TEST_F(Workers, GiveTheBitsOfOne) {
  constexpr int kBlocks = 150;
  std::vector<float> values(kBlocks * kScanThreads);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  const Buffer<float> x(values), y(values.size());
  const auto run = [&] {
    expect_right(
        launch("scan", scan_kernel<true, true>, dim3(kBlocks), dim3(kScanThreads), 0, {}, x.get(), y.get()));
    return y.read();
  };
  const emulator::Statistics start = emulator::statistics();
  const std::vector<float> wanted = run();
  const emulator::Statistics middle = emulator::statistics();
  with_many_workers([&] {
    const emulator::Statistics before = emulator::statistics();
    EXPECT_EQ(run(), wanted);
    const emulator::Statistics after = emulator::statistics();
    EXPECT_EQ(after.blocks - before.blocks, kBlocks);
    EXPECT_EQ(after.launches - before.launches, 1);
    EXPECT_EQ(after.accesses - before.accesses, middle.accesses - start.accesses);
  });
}

/// Every block reads what all read, and writes its own bytes of words that blocks share.
__global__ void shared_words_kernel(const float* x, std::uint8_t* y, int n) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i];
  y[blockIdx.x + gridDim.x * threadIdx.x] = static_cast<std::uint8_t>(sum);
}

TEST_F(Workers, NeighboursOfOtherBlocksAreNoRace) {
  const Buffer<float> x(50, 1.0f);
  const Buffer<std::uint8_t> y(101 * 32);
  with_many_workers([&] {
    for (int round = 0; round < 10; ++round)
      expect_right(launch("words", shared_words_kernel, dim3(101), dim3(32), 0, {}, x.get(), y.get(), 50));
    for (const std::uint8_t value : y.read()) ASSERT_EQ(value, 50);
  });
}

TEST_F(WorkersAccess, FindRacesBetweenBlocks) {
  const Buffer<float> y(512, 0.0f);
  with_many_workers([&] {
    for (int round = 0; round < 30; ++round) {
      EXPECT_FALSE(launch("same_element", same_element_kernel, dim3(16), dim3(32), 0, {}, y.get()).ok());
      const Fault& fault = emulator::last_fault();
      ASSERT_EQ(fault.kind, FaultKind::race) << fault.text;
      EXPECT_EQ(fault.here.line, line_of("blocks.write"));
      EXPECT_EQ(fault.other.line, line_of("blocks.write"));
      EXPECT_NE(fault.here.block, fault.other.block);
      EXPECT_FALSE(launch("read_of_another_block", read_of_another_block_kernel, dim3(16), dim3(32), 0, {},
                          y.get(), 512)
                       .ok());
      ASSERT_EQ(emulator::last_fault().kind, FaultKind::race) << emulator::last_fault().text;
      EXPECT_EQ(emulator::last_fault().here.line, line_of("blocks.shift"));
    }
  });
}

__global__ void bad_blocks_kernel(float* y, int n) {
  const auto block = static_cast<int>(blockIdx.x);
  const bool bad = block == 5 || block == 6 || block == 9 || block == 40;
  for (int i = 0; i < 50; ++i) y[block] = 1.0f;
  y[bad ? n : block] = 2.0f;  // @bad.write
}

TEST_F(WorkersAccess, TheEarliestFaultIsTold) {
  const Buffer<float> y(64);
  with_many_workers([&] {
    for (int round = 0; round < 30; ++round) {
      const Status status = launch("bad_blocks", bad_blocks_kernel, dim3(64), dim3(1), 0, {}, y.get(), 64);
      expect_fault(status, FaultKind::out_of_bounds, "bad.write", {5, 0, 0}, {0, 0, 0});
    }
  });
}

TEST_F(WorkersAccess, EndlessThreadsEnd) {
  const Buffer<int> flag(1, 0), y(64);
  with_many_workers([&] {
    emulator::set_access_limit(100000);
    const Status status = launch("spin", spin_kernel, dim3(3), dim3(1), 0, {}, flag.get());
    emulator::set_access_limit(0);
    expect_fault(status, FaultKind::endless, "spin.read", {0, 0, 0}, {0, 0, 0});
    emulator::set_time_limit(0.1);
    EXPECT_FALSE(launch("compute", compute_for_ever_kernel, dim3(2), dim3(32), 0, {}, y.get()).ok());
    emulator::set_time_limit(0);
    EXPECT_EQ(emulator::last_fault().kind, FaultKind::endless);
    EXPECT_EQ(emulator::last_fault().here.line, line_of("spin.compute"));
  });
}

TEST_F(Workers, AForkedChildHasItsOwn) {
  const Buffer<float> y(512, 0.0f);
  emulator::set_workers(4);
  expect_right(launch("next_block", next_block_kernel, dim3(16), dim3(32), 0, {}, y.get(), 1));
  EXPECT_EXIT(
      {
        const bool good = launch("next_block", next_block_kernel, dim3(16), dim3(32), 0, {}, y.get(), 2).ok();
        std::_Exit(good ? 3 : 4);
      },
      testing::ExitedWithCode(3), "");
}

TEST_F(Workers, AreCounted) {
  EXPECT_THROW(emulator::set_workers(0), std::invalid_argument);
  EXPECT_THROW(emulator::set_workers(9), std::invalid_argument);
  EXPECT_EQ(emulator::workers(), 1);
}

// ---- several host threads ----

TEST(EmulatorThreads, HostThreadsLaunchAtTheSameTime) {
  std::vector<std::thread> threads;
  std::array<bool, 4> good{};
  for (std::size_t number = 0; number < good.size(); ++number) {
    threads.emplace_back([number, &good] {
      const Buffer<float> x(2 * kScanThreads, static_cast<float>(number)), y(2 * kScanThreads);
      bool all = true;
      for (int round = 0; round < 20; ++round) {
        all = all &&
              launch("scan", scan_kernel<true, true>, dim3(2), dim3(kScanThreads), 0, {}, x.get(), y.get())
                  .ok();
        all = all && y.read()[5] == 6.0f * static_cast<float>(number);
        // One thread's fault is not another's.
        if (number == 0)
          all = all && !launch("early", early_return_kernel, dim3(1), dim3(64), 0, {}, y.get()).ok();
        all = all && (emulator::last_fault().kind == FaultKind::none) == (number != 0);
      }
      good[number] = all;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const bool all : good) EXPECT_TRUE(all);
}

}  // namespace
}  // namespace scantape
