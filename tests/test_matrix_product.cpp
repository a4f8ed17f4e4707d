// The CPU's matrix product against a plain loop, and what it promises about bits: one order of summation
// whatever the number of threads, the number of rows and a row's place among them.

#include "../host/cpu/matrix_product.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace scantape {
namespace {

using cpu::InstructionSet;

std::vector<InstructionSet> instruction_sets() {
  std::vector<InstructionSet> sets{InstructionSet::baseline};
  if (cpu::best_instruction_set() >= InstructionSet::avx2) sets.push_back(InstructionSet::avx2);
  if (cpu::best_instruction_set() >= InstructionSet::avx512) sets.push_back(InstructionSet::avx512);
  return sets;
}

struct Form {
  bool transpose_a, transpose_b, accumulate;
};

std::vector<Form> forms() {
  std::vector<Form> all;
  for (int bits = 0; bits < 8; ++bits) all.push_back({(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0});
  return all;
}

/// A row-major matrix whose rows lie `gap` elements further apart than they are long. The gaps hold NaN.
template <class T>
struct Matrix {
  std::int64_t rows, columns, ld;
  std::vector<T> values;

  Matrix(std::int64_t row_count, std::int64_t column_count, std::int64_t gap)
      : rows(row_count),
        columns(column_count),
        ld(column_count + gap),
        values(static_cast<std::size_t>(row_count * ld), std::numeric_limits<T>::quiet_NaN()) {}

  T& at(std::int64_t row, std::int64_t column) { return values[static_cast<std::size_t>(row * ld + column)]; }
  const T& at(std::int64_t row, std::int64_t column) const {
    return values[static_cast<std::size_t>(row * ld + column)];
  }
  template <class Next>
  void fill(const Next& next) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) at(row, column) = static_cast<T>(next());
    }
  }
};

template <class T>
struct Problem {
  Form form;
  std::int64_t m, n, k;
  Matrix<T> a, b, c;

  Problem(const Form& product_form, std::int64_t rows, std::int64_t columns, std::int64_t steps,
          std::int64_t gap)
      : form(product_form),
        m(rows),
        n(columns),
        k(steps),
        a(form.transpose_a ? k : m, form.transpose_a ? m : k, gap),
        b(form.transpose_b ? n : k, form.transpose_b ? k : n, gap),
        c(m, n, gap) {}

  void fill_random(unsigned seed) {
    std::mt19937 engine(seed);
    std::normal_distribution<double> normal;
    const auto next = [&] { return normal(engine); };
    a.fill(next);
    b.fill(next);
    c.fill(next);
  }
  void fill_whole(unsigned seed) {
    std::mt19937 engine(seed);
    std::uniform_int_distribution<int> small(-4, 4);
    const auto next = [&] { return small(engine); };
    a.fill(next);
    b.fill(next);
    c.fill(next);
  }

  MatrixProduct product() {
    MatrixProduct p;
    p.dtype = dtype_of<T>;
    p.transpose_a = form.transpose_a;
    p.transpose_b = form.transpose_b;
    p.accumulate = form.accumulate;
    p.m = m;
    p.n = n;
    p.k = k;
    p.a = a.values.data();
    p.lda = a.ld;
    p.b = b.values.data();
    p.ldb = b.ld;
    p.c = c.values.data();
    p.ldc = c.ld;
    return p;
  }
  void run(InstructionSet set) { ASSERT_TRUE(cpu::matrix_product(product(), set).ok()); }

  double a_at(std::int64_t row, std::int64_t step) const {
    return static_cast<double>(form.transpose_a ? a.at(step, row) : a.at(row, step));
  }
  double b_at(std::int64_t step, std::int64_t column) const {
    return static_cast<double>(form.transpose_b ? b.at(column, step) : b.at(step, column));
  }
  std::string describe(InstructionSet set) const {
    return std::string(name(dtype_of<T>)) + " " + cpu::name(set) + " " + std::to_string(m) + "x" +
           std::to_string(n) + "x" + std::to_string(k) + (form.transpose_a ? " T" : " N") +
           (form.transpose_b ? "T" : "N") + (form.accumulate ? " accumulate" : "");
  }
};

bool same_bits(double a, double b) {
  return a == b && std::signbit(a) == std::signbit(b);
}

/// Each element against the plain loop in double: n u sum |a b| is what any order of summation may be off by.
/// Nothing outside C is written.
template <class T>
void expect_product(Problem<T> problem, InstructionSet set, bool exact) {
  SCOPED_TRACE(problem.describe(set));
  const Matrix<T> before = problem.c;
  problem.run(set);
  const double u = static_cast<double>(std::numeric_limits<T>::epsilon()) / 2;
  for (std::int64_t row = 0; row < problem.m; ++row) {
    for (std::int64_t column = 0; column < problem.c.ld; ++column) {
      const double got = static_cast<double>(problem.c.at(row, column));
      if (column >= problem.n) {
        ASSERT_TRUE(std::isnan(got)) << "wrote beside row " << row;
        continue;
      }
      double want = problem.form.accumulate ? static_cast<double>(before.at(row, column)) : 0;
      double size = std::abs(want);
      for (std::int64_t step = 0; step < problem.k; ++step) {
        const double term = problem.a_at(row, step) * problem.b_at(step, column);
        want += term;
        size += std::abs(term);
      }
      const double tolerance = exact ? 0 : static_cast<double>(problem.k + 2) * u * size;
      if (!(std::abs(got - want) <= tolerance)) {
        FAIL() << "[" << row << ", " << column << "] got " << got << " want " << want << " within "
               << tolerance;
      }
    }
  }
}

template <class T>
class MatrixProductTest : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(MatrixProductTest, Types);

// Sizes about the tiles' edges (4 and 8 rows, 1 to 48 columns) and the groups of 256 steps.
TYPED_TEST(MatrixProductTest, AgreesWithAPlainLoop) {
  using T = TypeParam;
  const std::int64_t shapes[][3] = {{1, 1, 1},    {2, 3, 5},     {7, 15, 31},   {8, 16, 32},   {9, 17, 33},
                                    {4, 48, 16},  {5, 49, 17},   {3, 47, 255},  {16, 96, 256}, {17, 97, 257},
                                    {1, 512, 64}, {65, 1, 300},  {33, 31, 513}, {12, 24, 1},   {100, 130, 70},
                                    {8, 8, 1025}, {130, 40, 128}};
  unsigned seed = 1;
  for (InstructionSet set : instruction_sets()) {
    for (const auto& shape : shapes) {
      for (const Form& form : forms()) {
        Problem<T> dense(form, shape[0], shape[1], shape[2], 0);
        dense.fill_random(++seed);
        expect_product(dense, set, false);
        Problem<T> spread(form, shape[0], shape[1], shape[2], 3);
        spread.fill_whole(++seed);
        expect_product(spread, set, true);
      }
    }
  }
}

TYPED_TEST(MatrixProductTest, SizesMayBeZero) {
  using T = TypeParam;
  for (InstructionSet set : instruction_sets()) {
    for (const Form& form : forms()) {
      for (int zeros = 1; zeros < 8; ++zeros) {
        Problem<T> problem(form, (zeros & 1) != 0 ? 0 : 3, (zeros & 2) != 0 ? 0 : 5, (zeros & 4) != 0 ? 0 : 7,
                           2);
        problem.fill_random(11);
        expect_product(problem, set, true);
      }
    }
  }
}

TYPED_TEST(MatrixProductTest, ThreadsDoNotChangeBits) {
  using T = TypeParam;
  const int threads = omp_get_max_threads();
  for (InstructionSet set : instruction_sets()) {
    for (const Form& form : forms()) {
      for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{301, 77}, {3, 401}}) {
        Problem<T> one(form, rows, columns, 530, 1);
        one.fill_random(5);
        for (int count : {2, 3, 5}) {
          Problem<T> single = one, several = one;
          omp_set_num_threads(1);
          single.run(set);
          omp_set_num_threads(count);
          several.run(set);
          for (std::int64_t row = 0; row < one.m; ++row) {
            for (std::int64_t column = 0; column < one.n; ++column) {
              ASSERT_TRUE(same_bits(double(single.c.at(row, column)), double(several.c.at(row, column))))
                  << one.describe(set) << ", " << count << " threads, [" << row << ", " << column << "]";
            }
          }
        }
      }
    }
  }
  omp_set_num_threads(threads);
}

// Row `row` of a product of many rows, computed as a product of one row, of some rows, and at another place.
TYPED_TEST(MatrixProductTest, RowsDoNotDependOnTheirNeighbours) {
  using T = TypeParam;
  for (InstructionSet set : instruction_sets()) {
    for (const Form& form : forms()) {
      Problem<T> whole(form, 43, 53, 517, 0);
      whole.fill_random(7);
      const Problem<T> before = whole;
      whole.run(set);
      for (std::int64_t count : {1, 2, 7, 9}) {
        for (std::int64_t first : {0, 1, 6, 13, 34}) {
          Problem<T> part(form, count, whole.n, whole.k, 0);
          part.b = before.b;
          for (std::int64_t row = 0; row < count; ++row) {
            for (std::int64_t step = 0; step < whole.k; ++step) {
              (form.transpose_a ? part.a.at(step, row) : part.a.at(row, step)) =
                  static_cast<T>(before.a_at(first + row, step));
            }
            for (std::int64_t column = 0; column < whole.n; ++column) {
              part.c.at(row, column) = before.c.at(first + row, column);
            }
          }
          part.run(set);
          for (std::int64_t row = 0; row < count; ++row) {
            for (std::int64_t column = 0; column < whole.n; ++column) {
              ASSERT_TRUE(same_bits(double(part.c.at(row, column)), double(whole.c.at(first + row, column))))
                  << part.describe(set) << ", row " << first + row << " of " << whole.m;
            }
          }
        }
      }
    }
  }
}

// The same for columns: the width of a tile is no part of an element's sum.
TYPED_TEST(MatrixProductTest, ColumnsDoNotDependOnTheirNeighbours) {
  using T = TypeParam;
  for (InstructionSet set : instruction_sets()) {
    Problem<T> whole(Form{false, true, false}, 9, 101, 300, 0);
    whole.fill_random(9);
    Problem<T> part(whole.form, whole.m, 1, whole.k, 0);
    part.a = whole.a;
    whole.run(set);
    for (std::int64_t column = 0; column < whole.n; ++column) {
      for (std::int64_t step = 0; step < whole.k; ++step) part.b.at(0, step) = whole.b.at(column, step);
      part.run(set);
      for (std::int64_t row = 0; row < whole.m; ++row) {
        ASSERT_TRUE(same_bits(double(part.c.at(row, 0)), double(whole.c.at(row, column))))
            << part.describe(set);
      }
    }
  }
}

TYPED_TEST(MatrixProductTest, AccumulateIsOldPlusOverwrite) {
  using T = TypeParam;
  for (InstructionSet set : instruction_sets()) {
    Problem<T> added(Form{true, false, true}, 19, 37, 700, 0);
    added.fill_random(3);
    Problem<T> written = added;
    written.form.accumulate = false;
    const Matrix<T> old = added.c;
    added.run(set);
    written.run(set);
    for (std::int64_t row = 0; row < old.rows; ++row) {
      for (std::int64_t column = 0; column < old.columns; ++column) {
        const T want = old.at(row, column) + written.c.at(row, column);
        ASSERT_TRUE(same_bits(double(added.c.at(row, column)), double(want))) << added.describe(set);
      }
    }
  }
}

TYPED_TEST(MatrixProductTest, AllInstructionSetsWithFmaGiveTheSameBits) {
  using T = TypeParam;
  if (cpu::best_instruction_set() < InstructionSet::avx512) GTEST_SKIP() << "one such set only";
  Problem<T> narrow(Form{false, true, false}, 61, 67, 600, 0);
  narrow.fill_random(13);
  Problem<T> wide = narrow;
  narrow.run(InstructionSet::avx2);
  wide.run(InstructionSet::avx512);
  EXPECT_EQ(narrow.c.values, wide.c.values);
}

// NaN and infinity reach exactly the elements that they are part of: no padding mixes rows.
TYPED_TEST(MatrixProductTest, NotANumberStaysInItsRow) {
  using T = TypeParam;
  for (InstructionSet set : instruction_sets()) {
    Problem<T> problem(Form{false, false, false}, 10, 20, 30, 0);
    problem.fill_random(17);
    problem.a.at(3, 29) = std::numeric_limits<T>::quiet_NaN();
    problem.b.at(0, 19) = std::numeric_limits<T>::infinity();
    problem.run(set);
    for (std::int64_t row = 0; row < 10; ++row) {
      for (std::int64_t column = 0; column < 20; ++column) {
        EXPECT_EQ(std::isnan(problem.c.at(row, column)), row == 3) << row << ", " << column;
        if (row != 3) {
          EXPECT_EQ(std::isinf(problem.c.at(row, column)), column == 19);
        }
      }
    }
  }
}

TEST(MatrixProduct, TakesTheBestInstructionSet) {
  Problem<float> chosen(Form{false, false, false}, 21, 22, 300, 0);
  chosen.fill_random(19);
  Problem<float> best = chosen;
  ASSERT_TRUE(cpu::matrix_product(chosen.product()).ok());
  best.run(cpu::best_instruction_set());
  EXPECT_EQ(chosen.c.values, best.c.values);
}

}  // namespace
}  // namespace scantape
