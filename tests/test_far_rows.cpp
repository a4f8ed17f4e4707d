// Rows that lie further apart than 32 bits count elements. The memory is address space alone: of its gigabytes only the
// pages with rows on them exist.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <vector>

#include "scantape/causal_conv1d.h"
#include "scantape/discretized_scan.h"
#include "scantape/gated_rms_norm.h"
#include "scantape/layer_norm.h"
#include "scantape/projection.h"
#include "scantape/scan.h"
#include "scantape/selective_scan.h"
#include "scantape/silu.h"
#include "scantape/ssd.h"
#include "scantape/state_output.h"
#include "scantape/tensor.h"

#if SCANTAPE_EMULATED
#include "common/store.cuh"
#include "common/timed.cuh"
#endif

namespace scantape {
namespace {

constexpr std::int64_t kRows = 3, kColumns = 20;
constexpr std::int64_t kStride = (std::int64_t{1} << 31) + 64;

/// kRows rows of floats, kStride elements apart.
class FarRows {
 public:
  FarRows() {
    void* pages =
        mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    data_ = pages == MAP_FAILED ? nullptr : static_cast<float*>(pages);
  }
  ~FarRows() {
    if (data_ != nullptr) munmap(data_, bytes());
  }
  FarRows(const FarRows&) = delete;
  FarRows& operator=(const FarRows&) = delete;

  explicit operator bool() const { return data_ != nullptr; }
  float* data() const { return data_; }

  View view(const Shape& shape) const {
    View view(data_, DType::f32, kCpu, shape);
    for (int axis = shape.rank() - 2; axis >= 0; --axis)
      view.strides[static_cast<std::size_t>(axis)] =
          axis == shape.rank() - 2 ? kStride
                                   : view.strides[static_cast<std::size_t>(axis + 1)] * shape[axis + 1];
    return view;
  }

  void fill(const std::vector<float>& values) const {
    for (std::int64_t row = 0; row < kRows; ++row)
      std::copy_n(values.begin() + row * kColumns, kColumns, data_ + row * kStride);
  }
  std::vector<float> values() const {
    std::vector<float> values;
    for (std::int64_t row = 0; row < kRows; ++row)
      values.insert(values.end(), data_ + row * kStride, data_ + row * kStride + kColumns);
    return values;
  }

 private:
  static std::size_t bytes() { return static_cast<std::size_t>(((kRows - 1) * kStride + kColumns) * 4); }
  float* data_ = nullptr;
};

std::vector<float> numbers(std::size_t count, float first) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = first + 0.37F * static_cast<float>(i % 7) - 0.11F * static_cast<float>(i % 5);
  return values;
}

constexpr std::size_t kCount = static_cast<std::size_t>(kRows * kColumns);

/// What an op gives for rows far apart must be, bit for bit, what it gives for rows side by side.
class FarRowsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!x_ || !y_) GTEST_SKIP() << "this machine gives no " << 2 * kRows * 8 << " GiB of address space";
    x_.fill(input_);
  }

  /// `run(x, y)` from far to far and from near to near.
  template <class Run>
  void expect_equal(const Shape& shape, Run run) {
    ASSERT_TRUE(run(x_.view(shape), y_.view(shape)).ok());
    const Tensor x = Tensor::from(shape, input_);
    Tensor y = Tensor::zeros(shape, DType::f32);
    ASSERT_TRUE(run(x.view(), y.writable()).ok());
    EXPECT_EQ(y_.values(), y.values<float>());
    EXPECT_NE(y_.values(), std::vector<float>(kCount, 0.0F));
  }

  const std::vector<float> input_ = numbers(kCount, -0.5F);
  FarRows x_, y_;
};

TEST_F(FarRowsTest, Silu) {
  expect_equal({kRows, kColumns}, [](const ConstView& x, const View& y) {
    SiluForward args;
    args.x = x;
    args.y = y;
    return silu_forward(args);
  });
}

TEST_F(FarRowsTest, LayerNormBothWays) {
  const Tensor weight = Tensor::from({kColumns}, numbers(kColumns, 1)),
               bias = Tensor::from({kColumns}, numbers(kColumns, 0));
  Tensor statistics = Tensor::zeros({kRows, 3}, DType::f32);
  const Tensor d_y = Tensor::from({kRows, kColumns}, numbers(kCount, 0.25F));
  expect_equal({kRows, kColumns}, [&](const ConstView& x, const View& y) {
    LayerNormForward args;
    args.x = x;
    args.weight = weight;
    args.bias = bias;
    args.y = y;
    args.statistics = statistics.writable();
    return layer_norm_forward(args);
  });
  expect_equal({kRows, kColumns}, [&](const ConstView& x, const View& d_x) {
    LayerNormBackward args;
    args.x = x;
    args.weight = weight;
    args.bias = bias;
    static_cast<ConstView&>(args.statistics) = statistics;
    args.d_y = d_y;
    args.d_x = {d_x, WriteMode::overwrite};
    return layer_norm_backward(args);
  });
}

TEST_F(FarRowsTest, Projection) {
  const Tensor weight = Tensor::from({kColumns, kColumns}, numbers(kColumns * kColumns, -0.3F));
  expect_equal({kRows, kColumns}, [&](const ConstView& x, const View& y) {
    ProjectionForward args;
    args.x = x;
    args.weight = weight;
    args.y = y;
    return projection_forward(args);
  });
}

TEST_F(FarRowsTest, StateOutput) {
  const Tensor u = Tensor::from({kRows, kColumns}, numbers(kCount, 0.1F)),
               D = Tensor::from({kColumns}, numbers(kColumns, 1));
  expect_equal({kRows, kColumns}, [&](const ConstView& z, const View& out) {
    StateOutputForward args;
    args.z = z;
    args.u = u;
    args.D = D;
    args.residual = u;
    args.out = out;
    return state_output_forward(args);
  });
}

TEST_F(FarRowsTest, Scan) {
  const Tensor a = Tensor::from({kColumns}, numbers(kColumns, 0.2F));
  expect_equal({1, kRows, kColumns}, [&](const ConstView& b, const View& h) {
    ScanForward args;
    args.a = a;
    args.b = b;
    args.h = h;
    return scan_forward(args);
  });
}

TEST_F(FarRowsTest, ScanOfVaryingDecaysBothWays) {
  const Tensor values = Tensor::from({1, kRows, kColumns}, numbers(kCount, 0.3F));
  expect_equal({1, kRows, kColumns}, [&](const ConstView& a, const View& h) {
    ScanForward args;
    args.a = a;
    args.b = values;
    args.h = h;
    return scan_forward(args);
  });
  for (const bool to_decays : {true, false})
    expect_equal({1, kRows, kColumns}, [&](const ConstView& h, const View& target) {
      ScanBackward args;
      args.a = values;
      static_cast<ConstView&>(args.h) = h;
      args.d_h = h;
      (to_decays ? args.d_a : args.d_b) = {target, WriteMode::overwrite};
      return scan_backward(args);
    });
}

TEST_F(FarRowsTest, ScanByAMatrixBothWays) {
  const Tensor a = Tensor::from({kColumns, kColumns}, numbers(kColumns * kColumns, -0.3F));
  expect_equal({1, kRows, kColumns}, [&](const ConstView& b, const View& h) {
    ScanForward args;
    args.a = a;
    args.b = b;
    args.h = h;
    return scan_forward(args);
  });
  Tensor d_a = Tensor::zeros({kColumns, kColumns}, DType::f32);
  std::vector<std::vector<float>> sums;
  expect_equal({1, kRows, kColumns}, [&](const ConstView& h, const View& d_b) {
    ScanBackward args;
    args.a = a;
    static_cast<ConstView&>(args.h) = h;
    args.d_h = h;
    args.d_a = {d_a.writable(), WriteMode::overwrite};
    args.d_b = {d_b, WriteMode::overwrite};
    const Status status = scan_backward(args);
    sums.push_back(d_a.values<float>());
    return status;
  });
  ASSERT_EQ(sums.size(), 2u);
  EXPECT_EQ(sums[0], sums[1]);
}

TEST_F(FarRowsTest, ScanPerHeadBothWays) {
  const Tensor a = Tensor::from({1, kRows, 1}, numbers(kRows, 0.4F));
  expect_equal({1, kRows, 1, kColumns}, [&](const ConstView& b, const View& h) {
    ScanForward args;
    args.a = a;
    args.b = b;
    args.h = h;
    return scan_forward(args);
  });
  expect_equal({1, kRows, 1, kColumns}, [&](const ConstView& h, const View& d_b) {
    ScanBackward args;
    args.a = a;
    static_cast<ConstView&>(args.h) = h;
    args.d_h = h;
    args.d_b = {d_b, WriteMode::overwrite};
    return scan_backward(args);
  });
}

TEST_F(FarRowsTest, CausalConv1d) {
  const Tensor weight = Tensor::full({kColumns, 2}, 0.5, DType::f32);
  expect_equal({1, kRows, kColumns}, [&](const ConstView& x, const View& y) {
    CausalConv1dForward args;
    args.x = x;
    args.weight = weight;
    args.y = y;
    return causal_conv1d_forward(args);
  });
}

TEST_F(FarRowsTest, GatedRmsNorm) {
  const Tensor weight = Tensor::full({kColumns}, 2, DType::f32);
  Tensor statistics = Tensor::empty({kRows, 2}, DType::f32);
  expect_equal({kRows, kColumns}, [&](const ConstView& x, const View& y) {
    GatedRmsNormForward args;
    args.x = x;
    args.z = x;
    args.weight = weight;
    args.groups = 2;
    args.y = y;
    args.statistics = statistics.writable();
    return gated_rms_norm_forward(args);
  });
}

TEST_F(FarRowsTest, DiscretizedScan) {
  const Tensor dt = Tensor::full({kColumns}, 0.5, DType::f32), A = Tensor::full({kColumns}, -1, DType::f32);
  expect_equal({1, kRows, kColumns}, [&](const ConstView& u, const View& h) {
    DiscretizedScanForward args;
    args.dt = dt;
    args.A = A;
    args.u = u;
    args.h = h;
    return discretized_scan_forward(args);
  });
}

/// [1, kRows, kColumns] as [1, kRows, 4, 5].
template <class AnyView>
AnyView heads_of(AnyView rows) {
  rows.shape = Shape{1, kRows, 4, 5};
  rows.strides[2] = 5;
  rows.strides[3] = 1;
  return rows;
}

TEST_F(FarRowsTest, SsdBothWays) {
  const Tensor dt = Tensor::full({1, kRows, 4}, 0.5, DType::f32), A = Tensor::full({4}, -1, DType::f32),
               B = Tensor::from({1, kRows, 2, 3}, numbers(kRows * 6, 0.2F));
  for (const std::int64_t chunk_length : {0, 2}) {
    Tensor states = Tensor::zeros({1, (kRows - 1) / ssd_interval(kRows, chunk_length), 4, 5, 3}, DType::f32);
    const auto made = [&](const ConstView& x) {
      SsdBackward args;
      args.x = args.d_out = heads_of(x);
      args.dt = dt;
      args.A = A;
      args.B = args.C = B;
      args.chunk_length = chunk_length;
      args.states = states.writable();
      return args;
    };
    std::vector<double> room(1 << 16);
    const Workspace workspace{room.data(), static_cast<std::int64_t>(room.size() * sizeof(double))};
    expect_equal({1, kRows, kColumns}, [&](const ConstView& x, const View& out) {
      SsdForward args = made(x);
      args.out = heads_of(out);
      args.workspace = workspace;
      return ssd_forward(args);
    });
    expect_equal({1, kRows, kColumns}, [&](const ConstView& x, const View& d_x) {
      SsdBackward args = made(x);
      args.d_x = {heads_of(d_x), WriteMode::overwrite};
      args.workspace = workspace;
      return ssd_backward(args);
    });
  }
}

TEST_F(FarRowsTest, SelectiveScanBothWays) {
  const Tensor dt = Tensor::full({1, kRows, kColumns}, 0.5, DType::f32),
               A = Tensor::full({kColumns, 3}, -1, DType::f32),
               B = Tensor::from({1, kRows, 1, 3}, numbers(kRows * 3, 0.2F));
  Tensor states = Tensor::zeros({1, (kRows - 1) / selective_scan_interval(kRows), kColumns, 3}, DType::f32);
  const auto made = [&](const ConstView& u) {
    SelectiveScanBackward args;
    args.u = args.d_out = u;
    args.dt = dt;
    args.A = A;
    args.B = args.C = B;
    args.states = states.writable();
    return args;
  };
  expect_equal({1, kRows, kColumns}, [&](const ConstView& u, const View& out) {
    SelectiveScanForward args = made(u);
    args.out = out;
    return selective_scan_forward(args);
  });
  expect_equal({1, kRows, kColumns}, [&](const ConstView& u, const View& d_u) {
    SelectiveScanBackward args = made(u);
    args.d_u = {d_u, WriteMode::overwrite};
    return selective_scan_backward(args);
  });
}

#if SCANTAPE_EMULATED
/// Scans reach their channels through tracks.
TEST_F(FarRowsTest, TracksOfKernels) {
  for (const Shape& shape : {Shape{1, kRows, kColumns}, Shape{1, kRows, 1, kColumns}}) {
    y_.fill(std::vector<float>(kCount, 0.0F));
    const auto from = cuda::timed<float>(x_.view(shape)), to = cuda::timed<float>(y_.view(shape), true);
    for (std::int64_t column = 0; column < kColumns; ++column)
      for (std::int64_t row = 0; row < kRows; ++row)
        to.channel(column).put(row, from.channel(column).at(row));
    EXPECT_EQ(y_.values(), input_);
  }
}

/// Kernels reach strided rows through these two; the emulator's memory is too small for far ones, but their arithmetic
/// is the same in a host's hands.
TEST_F(FarRowsTest, SourcesAndTargetsOfKernels) {
  const auto from = cuda::source<float>(x_.view({kRows, kColumns}));
  const auto to = cuda::target<float>(y_.view({kRows, kColumns}));
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t column = 0; column + 4 < kColumns; column += 4)
      to.store(row, column, kColumns - column, from.load(row, column, kColumns - column));
    for (std::int64_t column = kColumns - 4; column < kColumns; ++column)
      to.put(row, column, from.at(row, column));
  }
  EXPECT_EQ(y_.values(), input_);
}
#endif

}  // namespace
}  // namespace scantape
