// The faster CPU forms against the reference: values, write modes, strided rows, and bits that depend on
// nothing but the row (or, for sums over rows, on nothing but the rows).

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "../host/cpu/projection.h"
#include "../host/cpu/state_output.h"

namespace scantape {
namespace {

/// Rows of numbers with `gap` numbers between them that nobody may touch.
template <class T>
struct Tensor {
  Shape shape;
  std::int64_t gap;
  std::vector<T> values;

  Tensor(const Shape& sizes, std::int64_t row_gap) : shape(sizes), gap(row_gap) {
    const std::int64_t rows = shape.back() == 0 ? 0 : shape.elements() / shape.back();
    values.assign(static_cast<std::size_t>(rows * (shape.back() + gap)), std::numeric_limits<T>::quiet_NaN());
  }
  View view() {
    View seen(values.data(), dtype_of<T>, kCpu, shape);
    std::int64_t stride = shape.back() + gap;
    for (int axis = shape.rank() - 2; axis >= 0; --axis) {
      seen.strides[axis] = stride;
      stride *= shape[axis];
    }
    return seen;
  }
  bool in_gap(std::size_t i) const {
    return static_cast<std::int64_t>(i) % (shape.back() + gap) >= shape.back();
  }
};

template <class T>
class Maker {
 public:
  explicit Maker(unsigned seed, double spread = 1) : engine_(seed), spread_(spread) {}

  Tensor<T>& random(const Shape& shape, std::int64_t gap = 0) {
    Tensor<T>& tensor = tensors_.emplace_back(shape, gap);
    std::normal_distribution<double> normal;
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      if (!tensor.in_gap(i)) tensor.values[i] = static_cast<T>(spread_ * normal(engine_));
    }
    return tensor;
  }

 private:
  std::mt19937 engine_;
  double spread_;
  std::deque<Tensor<T>> tensors_;
};

/// Largest error against the reference, relative to the value and the tensor's RMS; gaps must still be NaN.
template <class T>
void expect_close(const char* what, const Tensor<T>& got, const Tensor<T>& want, double tolerance) {
  double squares = 0;
  for (std::size_t i = 0; i < want.values.size(); ++i) {
    if (!want.in_gap(i)) squares += double(want.values[i]) * double(want.values[i]);
  }
  const double rms = std::sqrt(squares / static_cast<double>(want.shape.elements()));
  for (std::size_t i = 0; i < want.values.size(); ++i) {
    const double g = double(got.values[i]), w = double(want.values[i]);
    if (want.in_gap(i)) {
      ASSERT_TRUE(std::isnan(g)) << what << ": wrote between its rows";
    } else if (!(std::abs(g - w) <= tolerance * (std::abs(w) + rms))) {
      FAIL() << what << "[" << i << "] got " << g << " want " << w;
    }
  }
}

template <class T>
bool same_bits(const Tensor<T>& a, const Tensor<T>& b) {
  return std::memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(T)) == 0;
}

constexpr WriteMode kModes[] = {WriteMode::skip, WriteMode::overwrite, WriteMode::accumulate};

template <class T>
constexpr double kForwardBudget = sizeof(T) == 4 ? 1e-5 : 1e-10;
template <class T>
constexpr double kBackwardBudget = sizeof(T) == 4 ? 1e-4 : 1e-10;

template <class T>
class CpuForms : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(CpuForms, Types);

TYPED_TEST(CpuForms, ProjectionForward) {
  using T = TypeParam;
  for (const Shape& sizes :
       {Shape{1, 1, 1}, Shape{7, 5, 3}, Shape{130, 33, 65}, Shape{64, 16, 512}, Shape{3, 70, 0}}) {
    for (bool with_bias : {false, true}) {
      for (std::int64_t gap : {0, 3}) {
        Maker<T> make(static_cast<unsigned>(sizes[0]));
        ProjectionForward args;
        args.x = make.random({sizes[0], sizes[2]}, sizes[2] == 0 ? 0 : gap).view();
        args.weight = make.random({sizes[1], sizes[2]}).view();
        if (with_bias) args.bias = make.random({sizes[1]}).view();
        Tensor<T> got({sizes[0], sizes[1]}, gap), want = got;
        args.y = got.view();
        ASSERT_TRUE(cpu::projection_forward(args).ok());
        args.y = want.view();
        ASSERT_TRUE(reference::projection_forward(args).ok());
        expect_close("y", got, want, kForwardBudget<T>);
      }
    }
  }
}

TYPED_TEST(CpuForms, ProjectionBackward) {
  using T = TypeParam;
  for (const Shape& sizes :
       {Shape{1, 1, 1}, Shape{7, 5, 3}, Shape{130, 33, 65}, Shape{512, 16, 40}, Shape{0, 3, 5}}) {
    for (WriteMode mode : kModes) {
      Maker<T> make(static_cast<unsigned>(sizes[0]) + 1);
      ProjectionBackward args;
      args.x = make.random({sizes[0], sizes[2]}, 2).view();
      args.weight = make.random({sizes[1], sizes[2]}).view();
      args.bias = make.random({sizes[1]}).view();
      args.d_y = make.random({sizes[0], sizes[1]}, 1).view();
      Tensor<T>& d_x = make.random({sizes[0], sizes[2]}, 3);
      Tensor<T>& d_weight = make.random({sizes[1], sizes[2]});
      Tensor<T>& d_bias = make.random({sizes[1]});
      Tensor<T> want_x = d_x, want_weight = d_weight, want_bias = d_bias;
      args.d_x = Gradient(d_x.view(), mode);
      args.d_weight = Gradient(d_weight.view(), mode);
      args.d_bias = Gradient(d_bias.view(), mode);
      ASSERT_TRUE(cpu::projection_backward(args).ok());
      args.d_x.view = want_x.view();
      args.d_weight.view = want_weight.view();
      args.d_bias.view = want_bias.view();
      ASSERT_TRUE(reference::projection_backward(args).ok());
      expect_close("d_x", d_x, want_x, kBackwardBudget<T>);
      expect_close("d_weight", d_weight, want_weight, kBackwardBudget<T>);
      expect_close("d_bias", d_bias, want_bias, kBackwardBudget<T>);
    }
  }
}

template <class T>
struct StateOutput {
  Maker<T> make;
  StateOutputBackward args;
  Tensor<T>&out, &d_z, &d_u, &d_D, &d_residual;

  StateOutput(const Shape& shape, Activation activation, WriteMode mode, double spread)
      : make(31, spread),
        out(make.random(shape, 1)),
        d_z(make.random(shape, 2)),
        d_u(make.random(shape)),
        d_D(make.random({shape.back()})),
        d_residual(make.random(shape, 3)) {
    args.z = make.random(shape, 1).view();
    args.u = make.random(shape, 2).view();
    args.D = make.random({shape.back()}).view();
    args.residual = make.random(shape, 3).view();
    args.d_out = make.random(shape, 5).view();
    args.activation = activation;
    point(mode, out, d_z, d_u, d_D, d_residual);
  }
  void point(WriteMode mode, Tensor<T>& o, Tensor<T>& z, Tensor<T>& u, Tensor<T>& D, Tensor<T>& residual) {
    args.out = o.view();
    args.d_z = Gradient(z.view(), mode);
    args.d_u = Gradient(u.view(), mode);
    args.d_D = Gradient(D.view(), mode);
    args.d_residual = Gradient(residual.view(), mode);
  }
};

TYPED_TEST(CpuForms, StateOutput) {
  using T = TypeParam;
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 31}, Shape{2, 65, 17}, Shape{200, 130}}) {
    for (Activation activation : {Activation::silu, Activation::none}) {
      for (WriteMode mode : kModes) {
        for (double spread : {1.0, 5.0}) {
          StateOutput<T> got(shape, activation, mode, spread);
          Tensor<T> out = got.out, d_z = got.d_z, d_u = got.d_u, d_D = got.d_D, d_residual = got.d_residual;
          ASSERT_TRUE(cpu::state_output_forward(got.args).ok());
          ASSERT_TRUE(cpu::state_output_backward(got.args).ok());
          got.point(mode, out, d_z, d_u, d_D, d_residual);
          ASSERT_TRUE(reference::state_output_forward(got.args).ok());
          ASSERT_TRUE(reference::state_output_backward(got.args).ok());
          expect_close("out", got.out, out, 1e-6);
          expect_close("d_z", got.d_z, d_z, 1e-6);
          expect_close("d_u", got.d_u, d_u, 1e-6);
          expect_close("d_D", got.d_D, d_D, 1e-6);
          expect_close("d_residual", got.d_residual, d_residual, 0);
        }
      }
    }
  }
}

// Each value of silu against the function in double, over all that f32 can hold a result of, and beyond.
TEST(CpuStateOutput, SiluKeepsItsDigitsEverywhere) {
  std::vector<float> z;
  for (double x = -200; x <= 200; x += 0.0137) z.push_back(static_cast<float>(x));
  for (float x = 1e-38F; x < 1e38F; x *= 1.3F) {
    z.push_back(x);
    z.push_back(-x);
  }
  const auto count = static_cast<std::int64_t>(z.size());
  std::vector<float> zeros(z.size()), ones(z.size(), 1.0F), out(z.size()), d_z(z.size());
  const Shape row{1, count};
  StateOutputBackward args;
  args.z = ConstView(z.data(), DType::f32, kCpu, row);
  args.u = args.residual = ConstView(zeros.data(), DType::f32, kCpu, row);
  args.D = ConstView(zeros.data(), DType::f32, kCpu, {count});
  args.out = View(out.data(), DType::f32, kCpu, row);
  args.d_out = ConstView(ones.data(), DType::f32, kCpu, row);
  args.d_z = Gradient(View(d_z.data(), DType::f32, kCpu, row), WriteMode::overwrite);
  ASSERT_TRUE(cpu::state_output_forward(args).ok());
  ASSERT_TRUE(cpu::state_output_backward(args).ok());
  constexpr double kLeastNormal = std::numeric_limits<float>::min();
  for (std::size_t i = 0; i < z.size(); ++i) {
    const double x = double(z[i]), e = std::exp(-std::abs(x));
    const double sigmoid = x >= 0 ? 1 / (1 + e) : e / (1 + e), rest = x >= 0 ? e / (1 + e) : 1 / (1 + e);
    ASSERT_TRUE(std::abs(double(out[i]) - x * sigmoid) <= 5e-7 * std::abs(x * sigmoid) + 1e-6 * kLeastNormal)
        << z[i] << ": " << out[i];
    // The derivative has a zero at -1.278: relative to its two terms.
    const double terms = sigmoid + std::abs(sigmoid * x * rest);
    ASSERT_TRUE(std::abs(double(d_z[i]) - sigmoid * (1 + x * rest)) <= 5e-7 * terms + 1e-6 * kLeastNormal)
        << z[i] << ": " << d_z[i];
  }
}

TEST(CpuStateOutput, NotANumberStaysOne) {
  StateOutput<float> call({2, 40}, Activation::silu, WriteMode::overwrite, 1);
  // A payload in the low bits, which the exponential shifts about.
  for (std::uint32_t payload : {0x7fc00000U, 0x7fc00001U, 0xffc001ffU}) {
    std::memcpy(const_cast<void*>(call.args.z.data), &payload, sizeof payload);
    ASSERT_TRUE(cpu::state_output_forward(call.args).ok());
    ASSERT_TRUE(cpu::state_output_backward(call.args).ok());
    EXPECT_TRUE(std::isnan(call.out.values[0]));
    EXPECT_TRUE(std::isnan(call.d_z.values[0]));
    EXPECT_TRUE(std::isnan(call.d_D.values[0]));
    EXPECT_FALSE(std::isnan(call.out.values[1]));
  }
}

TEST(CpuStateOutput, ThreadsDoNotChangeBits) {
  const int threads = omp_get_max_threads();
  const auto run = [](int count) {
    omp_set_num_threads(count);
    auto call =
        std::make_unique<StateOutput<float>>(Shape{333, 130}, Activation::silu, WriteMode::overwrite, 1);
    EXPECT_TRUE(cpu::state_output_forward(call->args).ok());
    EXPECT_TRUE(cpu::state_output_backward(call->args).ok());
    return call;
  };
  const auto one = run(1);
  for (int count : {2, 3}) {
    const auto several = run(count);
    EXPECT_TRUE(same_bits(one->out, several->out));
    EXPECT_TRUE(same_bits(one->d_z, several->d_z));
    EXPECT_TRUE(same_bits(one->d_D, several->d_D));
  }
  omp_set_num_threads(threads);
}

// Vectors and what is left over at a row's end must agree: the same numbers at every place in a row.
TEST(CpuStateOutput, PlaceInARowDoesNotChangeBits) {
  constexpr std::int64_t kColumns = 67;
  std::vector<float> z(kColumns), u(kColumns, 0.5F), D(kColumns, 0.25F), out(kColumns), d_z(kColumns);
  for (float value : {-3.7F, -0.3F, 0.0F, 1.9F, 30.0F}) {
    std::fill(z.begin(), z.end(), value);
    StateOutputBackward args;
    args.z = ConstView(z.data(), DType::f32, kCpu, {1, kColumns});
    args.u = args.residual = args.d_out = ConstView(u.data(), DType::f32, kCpu, {1, kColumns});
    args.D = ConstView(D.data(), DType::f32, kCpu, {kColumns});
    args.out = View(out.data(), DType::f32, kCpu, {1, kColumns});
    args.d_z = Gradient(View(d_z.data(), DType::f32, kCpu, {1, kColumns}), WriteMode::overwrite);
    ASSERT_TRUE(cpu::state_output_forward(args).ok());
    ASSERT_TRUE(cpu::state_output_backward(args).ok());
    for (std::size_t i = 1; i < z.size(); ++i) {
      EXPECT_EQ(out[i], out[0]) << value << " at " << i;
      EXPECT_EQ(d_z[i], d_z[0]) << value << " at " << i;
    }
  }
}

}  // namespace
}  // namespace scantape
