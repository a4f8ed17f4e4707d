/// What the cases of discretize cannot say: the forms agree where they mean the same, the numbers of a small and of a
/// large dt A are right by themselves, what is not finite ends, and how much is launched and asked for.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "scantape/autograd/ops.h"
#include "scantape/autograd/parameters.h"
#include "scantape/autograd/tape.h"
#include "scantape/counters.h"

namespace scantape::autograd {
namespace {

using Values = std::vector<double>;

constexpr DiscretizeMethod kMethods[] = {DiscretizeMethod::zoh, DiscretizeMethod::exp_euler,
                                         DiscretizeMethod::bilinear, DiscretizeMethod::euler};

class Discretize : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!is_available(GetParam())) GTEST_SKIP() << "there is no device " << name(GetParam());
  }
  Tensor tensor(const Shape& shape, const Values& values, DType dtype = DType::f64) const {
    return Tensor::from(shape, values).to(dtype).to(GetParam());
  }
};

INSTANTIATE_TEST_SUITE_P(Devices, Discretize, testing::Values(kCpu, kCuda),
                         [](const auto& info) { return info.param.is_cpu() ? "cpu" : "cuda"; });

Values random_values(std::int64_t count, std::uint64_t seed) {
  Random random(seed);
  Values values(static_cast<std::size_t>(count));
  for (double& value : values) value = random.normal();
  return values;
}

Values values_of(const Tensor& tensor) {
  return tensor.to(DType::f64).to(kCpu).values<double>();
}

Values diagonal_matrix(const Values& diagonal) {
  const std::size_t n = diagonal.size();
  Values matrix(n * n, 0.0);
  for (std::size_t i = 0; i < n; ++i) matrix[i * n + i] = diagonal[i];
  return matrix;
}

Values diagonal_of(const Values& matrix) {
  const auto n = static_cast<std::size_t>(std::sqrt(static_cast<double>(matrix.size())) + 0.5);
  Values diagonal;
  for (std::size_t i = 0; i < n; ++i) diagonal.push_back(matrix[i * n + i]);
  return diagonal;
}

void expect_close(const Values& got, const Values& want, double tolerance, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(std::abs(got[i] - want[i]) <= tolerance * std::abs(want[i]))
        << what << "[" << i << "] is " << got[i] << ", wants " << want[i];
}

/// Values and gradients of one discretisation, with random cotangents.
struct Result {
  Values A_bar, F, input, d_dt, d_A, d_B;
};

Result run(const Tensor& dt, const Tensor& A, const Tensor& B, DiscretizeMethod method, const Values& g_A_bar,
           const Values& g_input) {
  Tape tape;
  const Variable step = tape.leaf(dt), rates = tape.leaf(A), in = B.present() ? tape.leaf(B) : Variable();
  const Discretized system = discretize(step, rates, in, method, true);
  const Variable& input = B.present() ? system.B_bar : system.s;
  const auto like = [](const Values& values, const Variable& other) {
    return Tensor::from(other.shape(), values).to(other.dtype()).to(other.device());
  };
  tape.backward({{system.A_bar, like(g_A_bar, system.A_bar)}, {input, like(g_input, input)}});
  return {values_of(system.A_bar.value()), values_of(system.F.value()),
          values_of(input.value()),        values_of(tape.gradient(step)),
          values_of(tape.gradient(rates)), B.present() ? values_of(tape.gradient(in)) : Values()};
}

TEST_P(Discretize, ADiagonalMatrixIsADiagonal) {
  constexpr std::int64_t kN = 5, kE = 3;
  const double dt = 0.3;
  const Values A = {-0.5, -3, -0.001, 0.25, -40}, B = random_values(kN * kE, 1),
               g_B_bar = random_values(kN * kE, 2), g_A_bar = random_values(kN, 3);
  for (const DiscretizeMethod method : kMethods) {
    const Tensor b = tensor({kN, kE}, B);
    const Result want = run(tensor({kN}, Values(kN, dt)), tensor({kN}, A), b, method, g_A_bar, g_B_bar);
    const Result got = run(tensor({}, {dt}), tensor({kN, kN}, diagonal_matrix(A)), b, method,
                           diagonal_matrix(g_A_bar), g_B_bar);
    const std::string what = name(method);
    expect_close(diagonal_of(got.F), want.F, 1e-12, what + " F");
    // Beside the identity: absolute there.
    for (std::size_t i = 0; i < A.size(); ++i)
      EXPECT_LE(std::abs(diagonal_of(got.A_bar)[i] - want.A_bar[i]),
                1e-14 * std::max(1.0, std::abs(want.A_bar[i])));
    expect_close(got.input, want.input, 1e-12, what + " B_bar");
    expect_close(got.d_B, want.d_B, 1e-12, what + " d_B");
    // The gradient of each rate; those beside the diagonal are other arguments of another function.
    double total = 0, size = 0;
    for (const double one : want.d_dt) {
      total += one;
      size += std::abs(one);
    }
    EXPECT_LE(std::abs(got.d_dt[0] - total), 1e-12 * size) << what << " d_dt";
    const Values d_A = diagonal_of(got.d_A);
    double largest = 0;
    for (const double one : want.d_A) largest = std::max(largest, std::abs(one));
    for (std::size_t i = 0; i < A.size(); ++i)
      EXPECT_LE(std::abs(d_A[i] - want.d_A[i]), 1e-12 * largest) << what << " d_A[" << i << "]";
  }
}

TEST_P(Discretize, EqualStepsPerHeadAreADiagonal) {
  constexpr std::int64_t kB = 2, kL = 3, kH = 4;
  const Values A = {-0.5, -3, -1e-5, -40}, g_A_bar = random_values(kB * kL * kH, 1),
               g_s = random_values(kB * kL * kH, 2);
  for (const DiscretizeMethod method : kMethods) {
    const Result got =
        run(tensor({kB, kL, kH}, Values(kB * kL * kH, 0.2)), tensor({kH}, A), {}, method, g_A_bar, g_s);
    Values sum(kH, 0.0), size(kH, 0.0);
    for (std::int64_t row = 0; row < kB * kL; ++row) {
      const auto part = [&](const Values& all) {
        return Values(all.begin() + row * kH, all.begin() + (row + 1) * kH);
      };
      // B of ones and one column: B_bar is s.
      const Result one = run(tensor({kH}, Values(kH, 0.2)), tensor({kH}, A), tensor({kH, 1}, Values(kH, 1.0)),
                             method, part(g_A_bar), part(g_s));
      EXPECT_EQ(part(got.A_bar), one.A_bar);
      EXPECT_EQ(part(got.F), one.F);
      EXPECT_EQ(part(got.input), one.input);
      expect_close(part(got.d_dt), one.d_dt, 1e-14, "d_dt");
      for (std::size_t head = 0; head < A.size(); ++head) {
        sum[head] += one.d_A[head];
        size[head] += std::abs(one.d_A[head]);
      }
    }
    for (std::size_t head = 0; head < A.size(); ++head)
      EXPECT_LE(std::abs(got.d_A[head] - sum[head]), 1e-14 * size[head])
          << name(method) << " d_A[" << head << "]";
  }
}

/// In f32, element by element: F = dt A and B_bar = dt B to all digits where dt A is tiny; -1/A where it is huge.
TEST_P(Discretize, KeepsItsDigitsInF32) {
  const auto rotated = [](double a, double b) { return Values{a, b, -b, a}; };  // eigenvalues a +- i b
  for (const double z : {1e-6, 1e-5, 1e-4, 1e-3, 1e-2}) {
    const double dt = 0.0078125;  // a power of two: nothing is rounded before the op
    const Values A = {static_cast<float>(-z / dt), static_cast<float>(0.5 * z / dt),
                      static_cast<float>(-0.5 * z / dt), static_cast<float>(-z / dt)};
    const Result run32 =
        run(tensor({}, {dt}, DType::f32), tensor({2, 2}, A, DType::f32), tensor({2, 1}, {1, 0}, DType::f32),
            DiscretizeMethod::zoh, Values(4, 1.0), Values(2, 1.0));
    // exp(a + i b) - 1 in double, by what does not cancel.
    const double a = A[0] * dt, b = A[1] * dt, half = std::sin(b / 2);
    const double real = std::expm1(a) * std::cos(b) - 2 * half * half, imaginary = std::exp(a) * std::sin(b);
    expect_close(run32.F, rotated(real, imaginary), 1e-6, "F");
    // The first column of A^-1 F: (a - i b) (real + i imaginary) / |a + i b|^2, with A in place of dt A.
    const double square = A[0] * A[0] + A[1] * A[1];
    const Values Phi = {(A[0] * real + A[1] * imaginary) / square,
                        -(A[0] * imaginary - A[1] * real) / square};
    EXPECT_TRUE(std::abs(run32.input[0] - Phi[0]) <= 1e-6 * std::abs(Phi[0])) << "B_bar at " << z;
    EXPECT_TRUE(std::abs(run32.input[1] - Phi[1]) <= 1e-6 * std::abs(Phi[0])) << "B_bar at " << z;
  }
  // dt A = -5000 (1 +- i / 2): exp is gone, B_bar is -A^-1 B.
  const double dt = 0.5, a = -1e4, b = 5e3;
  const Result far = run(tensor({}, {dt}, DType::f32), tensor({2, 2}, rotated(a, b), DType::f32),
                         tensor({2, 1}, {1, 0}, DType::f32), DiscretizeMethod::zoh, Values(4, 1.0), {1, 0});
  expect_close(far.input, {-a / (a * a + b * b), -b / (a * a + b * b)}, 1e-6, "B_bar far left");
  for (const double value : far.A_bar) EXPECT_LE(std::abs(value), 1e-30);
  // d_A = A^-T g B^T A^-T, g the cotangent of B_bar; with x = A^-1 e_1 that is x_i x'_j, x' = A^-T e_1.
  const double x[] = {a / (a * a + b * b), b / (a * a + b * b)}, y[] = {x[0], -x[1]};
  expect_close(far.d_A, {y[0] * x[0], y[0] * x[1], y[1] * x[0], y[1] * x[1]}, 1e-5, "d_A far left");
}

/// A singular A (here of rank 1, its null space in the middle) is like any other: no inverse of A is ever formed.
TEST_P(Discretize, TakesASingularMatrix) {
  // A = -u u^T / |u|^2: exp(dt A) - I = (e^-dt - 1) P, Phi = dt (I - P) + (1 - e^-dt) P, P the projection on u.
  const double dt = 0.7, u[] = {1, 2, -2};
  Values A, F, Phi;
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j) {
      const double P = u[i] * u[j] / 9;
      A.push_back(-P);
      F.push_back(std::expm1(-dt) * P);
      Phi.push_back((i == j ? dt : 0) - (dt + std::expm1(-dt)) * P);
    }
  const Values identity = diagonal_matrix({1, 1, 1});
  for (const DType dtype : {DType::f64, DType::f32}) {
    const Result got = run(tensor({}, {dt}, dtype), tensor({3, 3}, A, dtype), tensor({3, 3}, identity, dtype),
                           DiscretizeMethod::zoh, random_values(9, 1), random_values(9, 2));
    expect_close(got.F, F, dtype == DType::f64 ? 1e-13 : 1e-5, "F");
    expect_close(got.input, Phi, dtype == DType::f64 ? 1e-13 : 1e-5, "Phi");
  }
}

/// The number of squarings follows from the data; data that are not finite must not make it endless.
TEST_P(Discretize, EndsWhereNothingIsFinite) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const DType dtype : {DType::f32, DType::f64})
    for (const auto& [dt, a] : {std::pair(inf, -1.0), std::pair(nan, -1.0), std::pair(0.1, inf),
                                std::pair(0.1, nan), std::pair(inf, nan)}) {
      const Result got =
          run(tensor({}, {dt}, dtype), tensor({2, 2}, {a, 1, -1, -1}, dtype), tensor({2, 1}, {1, 1}, dtype),
              DiscretizeMethod::zoh, Values(4, 1.0), Values(2, 1.0));
      EXPECT_FALSE(std::isfinite(got.F[0])) << dt << ", " << a;
      EXPECT_FALSE(std::isfinite(got.d_A[0])) << dt << ", " << a;
    }
}

/// dt = 0 is a step that does nothing, exactly.
TEST_P(Discretize, NothingHappensInNoTime) {
  const Values A = random_values(16, 1), B = random_values(8, 2);
  for (const DiscretizeMethod method : kMethods) {
    const Result got = run(tensor({}, {0}), tensor({4, 4}, A), tensor({4, 2}, B), method,
                           random_values(16, 3), random_values(8, 4));
    EXPECT_EQ(got.A_bar, diagonal_matrix({1, 1, 1, 1}));
    EXPECT_EQ(got.F, Values(16, 0.0));
    EXPECT_EQ(got.input, Values(8, 0.0));
    EXPECT_EQ(got.d_A, Values(16, 0.0));
    EXPECT_EQ(got.d_B, Values(8, 0.0));
  }
}

/// One block for the matrices, one grid for what is as wide as the input; and the workspace of a backward, which keeps
/// squarings, follows from N alone: a million times the step wants no more.
TEST(DiscretizeDense, LaunchesAndWorkspace) {
  if (!is_available(kCuda)) GTEST_SKIP() << "there is no device cuda";
  constexpr std::int64_t kN = 16, kE = 40;
  const auto launches = [](DiscretizeMethod method, double step) {
    const Tensor dt = Tensor::full({}, step, DType::f64, kCuda),
                 B = Tensor::full({kN, kE}, 1, DType::f64, kCuda);
    const Tensor A = Tensor::from({kN, kN}, random_values(kN * kN, 1)).to(kCuda);
    Tape tape;
    const Variable rates = tape.leaf(A);
    const std::int64_t before = counters().kernel_launches;
    const Discretized system = discretize(tape.leaf(dt), rates, tape.leaf(B), method);
    const std::int64_t forward = counters().kernel_launches - before;
    tape.backward({{system.A_bar, A}, {system.B_bar, B}});
    return std::pair(forward, counters().kernel_launches - before - forward);
  };
  for (const DiscretizeMethod method : kMethods) {
    EXPECT_EQ(launches(method, 0.01), (std::pair<std::int64_t, std::int64_t>(2, 3))) << name(method);
    EXPECT_EQ(launches(method, 1e4), (std::pair<std::int64_t, std::int64_t>(2, 3))) << name(method);
  }
  const Tensor dt = Tensor::full({}, 0.1, DType::f32, kCuda), A = Tensor::zeros({kN, kN}, DType::f32, kCuda);
  const Tensor B = Tensor::zeros({kN, kE}, DType::f32, kCuda);
  Tensor d_A = A.clone();
  DiscretizeBackward args;
  args.dt = dt;
  args.A = A;
  args.B = B;
  EXPECT_EQ(discretize_backward_workspace(args), 0) << "nothing is asked for";
  args.d_A_bar = A;
  args.d_A = Gradient(d_A.writable(), WriteMode::overwrite);
  const std::int64_t matrix = kN * kN * 4;
  EXPECT_GT(discretize_backward_workspace(args), 64 * matrix);
  EXPECT_LT(discretize_backward_workspace(args), 96 * matrix);
}

}  // namespace
}  // namespace scantape::autograd
