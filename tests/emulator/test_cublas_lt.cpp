/// Products of cuBLASLt worked out by hand. The same text runs against the emulator's stand-in and, in a
/// native build, against the library itself: what the one is trusted with the other must confirm. Matrices
/// are column-major.

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#if SCANTAPE_EMULATED
#include "scantape_emulator.h"
#endif

namespace {

template <class T>
constexpr cudaDataType_t kType = sizeof(T) == 4 ? CUDA_R_32F : CUDA_R_64F;
template <class T>
constexpr cublasComputeType_t kCompute = sizeof(T) == 4 ? CUBLAS_COMPUTE_32F : CUBLAS_COMPUTE_64F;

template <class T>
struct Matrix {
  std::uint64_t rows, columns;
  std::int64_t stride;
  std::vector<T> values;  // stride * columns
};

template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values) : size_(values.size()) {
    EXPECT_EQ(cudaMalloc(&data_, size_ * sizeof(T)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~OnDevice() { EXPECT_EQ(cudaFree(data_), cudaSuccess); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  T* get() const { return data_; }
  std::vector<T> read() const {
    std::vector<T> values(size_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

/// Everything a product needs, created and destroyed together.
template <class T>
struct Product {
  Product(bool transpose_a, bool transpose_b, const Matrix<T>& a, const Matrix<T>& b, const Matrix<T>& d) {
    EXPECT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulDescCreate(&description, kCompute<T>, kType<T>), CUBLAS_STATUS_SUCCESS);
    const cublasOperation_t operations[2] = {transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                                             transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N};
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSA, &operations[0],
                                             sizeof(operations[0])),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSB, &operations[1],
                                             sizeof(operations[1])),
              CUBLAS_STATUS_SUCCESS);
    const Matrix<T>* const matrices[3] = {&a, &b, &d};
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(cublasLtMatrixLayoutCreate(&layouts[i], kType<T>, matrices[i]->rows, matrices[i]->columns,
                                           matrices[i]->stride),
                CUBLAS_STATUS_SUCCESS);
    }
    EXPECT_EQ(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{0});
    for (const auto which :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      prefer(which, static_cast<std::uint32_t>(sizeof(T)));
    }
  }
  ~Product() {
    EXPECT_EQ(cublasLtMatmulPreferenceDestroy(preference), CUBLAS_STATUS_SUCCESS);
    for (const cublasLtMatrixLayout_t layout : layouts) {
      EXPECT_EQ(cublasLtMatrixLayoutDestroy(layout), CUBLAS_STATUS_SUCCESS);
    }
    EXPECT_EQ(cublasLtMatmulDescDestroy(description), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtDestroy(handle), CUBLAS_STATUS_SUCCESS);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  template <class V>
  void prefer(cublasLtMatmulPreferenceAttributes_t attribute, V value) {
    EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
              CUBLAS_STATUS_SUCCESS);
  }

  cublasStatus_t choose() {
    cublasLtMatmulHeuristicResult_t result{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle, description, layouts[0], layouts[1], layouts[2], layouts[2], preference, 1, &result, &count);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    EXPECT_EQ(count, 1);
    algorithm = result.algo;
    return result.state;
  }

  cublasStatus_t run(T alpha, const T* a, const T* b, T beta, T* d) {
    return cublasLtMatmul(handle, description, &alpha, a, layouts[0], b, layouts[1], &beta, d, layouts[2], d,
                          layouts[2], &algorithm, nullptr, 0, nullptr);
  }

  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t layouts[3] = {};
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
};

template <class T>
std::vector<T> multiply(bool transpose_a, bool transpose_b, T alpha, const Matrix<T>& a, const Matrix<T>& b,
                        T beta, const Matrix<T>& d) {
  const OnDevice<T> a_data(a.values), b_data(b.values), d_data(d.values);
  Product<T> product(transpose_a, transpose_b, a, b, d);
  EXPECT_EQ(product.choose(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(product.run(alpha, a_data.get(), b_data.get(), beta, d_data.get()), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  return d_data.read();
}

template <class T>
class CublasLt : public testing::Test {
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "there is no GPU";
  }
};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(CublasLt, Types);

// A = (1 2 3; 4 5 6) and B = (7 8; 9 10; 11 12): A B = (58 64; 139 154).
TYPED_TEST(CublasLt, ProductsInAllFourTransposes) {
  using T = TypeParam;
  const Matrix<T> a{2, 3, 2, {1, 4, 2, 5, 3, 6}}, a_transposed{3, 2, 3, {1, 2, 3, 4, 5, 6}};
  const Matrix<T> b{3, 2, 3, {7, 9, 11, 8, 10, 12}}, b_transposed{2, 3, 2, {7, 8, 9, 10, 11, 12}};
  const Matrix<T> d{2, 2, 2, std::vector<T>(4, T(0))};
  const std::vector<T> wanted = {58, 139, 64, 154};
  EXPECT_EQ(multiply<T>(false, false, 1, a, b, 0, d), wanted);
  EXPECT_EQ(multiply<T>(true, false, 1, a_transposed, b, 0, d), wanted);
  EXPECT_EQ(multiply<T>(false, true, 1, a, b_transposed, 0, d), wanted);
  EXPECT_EQ(multiply<T>(true, true, 1, a_transposed, b_transposed, 0, d), wanted);
}

TYPED_TEST(CublasLt, ScalesAndAdds) {
  using T = TypeParam;
  const Matrix<T> a{2, 3, 2, {1, 4, 2, 5, 3, 6}}, b{3, 2, 3, {7, 9, 11, 8, 10, 12}};
  const Matrix<T> d{2, 2, 2, {1, 2, 3, 4}};
  EXPECT_EQ(multiply<T>(false, false, 2, a, b, 10, d), (std::vector<T>{126, 298, 158, 348}));
}

TYPED_TEST(CublasLt, WithBetaZeroTheOldValuesHaveNoSay) {
  using T = TypeParam;
  const Matrix<T> a{1, 1, 1, {3}}, b{1, 1, 1, {5}};
  const Matrix<T> d{1, 1, 1, {std::numeric_limits<T>::quiet_NaN()}};
  EXPECT_EQ(multiply<T>(false, false, 1, a, b, 0, d), (std::vector<T>{15}));
}

// Columns lie further apart than they are long; what lies between is left alone.
TYPED_TEST(CublasLt, StridesLargerThanColumns) {
  using T = TypeParam;
  const T gap = T(-77);
  const Matrix<T> a{2, 3, 4, {1, 4, gap, gap, 2, 5, gap, gap, 3, 6, gap, gap}};
  const Matrix<T> b{3, 2, 5, {7, 9, 11, gap, gap, 8, 10, 12, gap, gap}};
  const Matrix<T> d{2, 2, 3, {0, 0, gap, 0, 0, gap}};
  EXPECT_EQ(multiply<T>(false, false, 1, a, b, 0, d), (std::vector<T>{58, 139, gap, 64, 154, gap}));
}

// How the library uses it: row-major y = x W^T is column-major y^T = W x^T, with W read as its transpose.
TYPED_TEST(CublasLt, RowMajorLinearLayer) {
  using T = TypeParam;
  const Matrix<T> weight{3, 2, 3, {1, 0, 2, -1, 3, 1}};               // row-major [2, 3]: (1 0 2; -1 3 1)
  const Matrix<T> x{3, 4, 3, {1, 2, 3, 4, 5, 6, 0, 1, 0, 2, 2, -1}};  // row-major [4, 3]
  const Matrix<T> y{2, 4, 2, std::vector<T>(8, T(0))};                // row-major [4, 2]
  EXPECT_EQ(multiply<T>(true, false, 1, weight, x, 0, y), (std::vector<T>{7, 8, 16, 17, 0, 3, 0, 3}));
}

TYPED_TEST(CublasLt, ShapesThatDoNotFitAreRefused) {
  using T = TypeParam;
  const Matrix<T> a{2, 3, 2, {}}, b{4, 2, 4, {}}, d{2, 2, 2, {}};
  Product<T> product(false, false, a, b, d);
  EXPECT_NE(product.choose(), CUBLAS_STATUS_SUCCESS);
}

#if SCANTAPE_EMULATED
void expect_refused(cublasStatus_t status, const char* text) {
  EXPECT_EQ(status, CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_NE(std::string(cublasLtGetStatusString(status)).find(text), std::string::npos)
      << cublasLtGetStatusString(status);
}

TYPED_TEST(CublasLt, TheEmulatorChecksItsMatrices) {
  using T = TypeParam;
  const Matrix<T> a{2, 3, 2, {1, 4, 2, 5, 3, 6}}, b{3, 2, 3, {7, 9, 11, 8, 10, 12}};
  const Matrix<T> d{2, 2, 2, std::vector<T>(4, T(0))};
  const OnDevice<T> a_data(a.values), b_data(b.values), d_data(d.values);
  Product<T> product(false, false, a, b, d);
  const T one = 1;
  EXPECT_NE(product.run(1, a_data.get(), b_data.get(), 0, d_data.get()), CUBLAS_STATUS_SUCCESS)
      << "no algorithm yet";
  ASSERT_EQ(product.choose(), CUBLAS_STATUS_SUCCESS);
  expect_refused(product.run(1, a_data.get() + 1, b_data.get(), 0, d_data.get()), "A: ");
  expect_refused(product.run(1, a_data.get(), b.values.data(), 0, d_data.get()), "B: ");
  expect_refused(product.run(1, a_data.get(), b_data.get(), 0, a_data.get()), "D overlaps A or B");
  expect_refused(product.run(1, a_data.get(), b_data.get(), 0, nullptr), "are not in one live allocation");

  T* unwritten = nullptr;
  ASSERT_EQ(cudaMalloc(&unwritten, 6 * sizeof(T)), cudaSuccess);
  if (scantape::emulator::checks_accesses()) {
    expect_refused(product.run(1, unwritten, b_data.get(), 0, d_data.get()),
                   "A is read, but nobody has written");
    expect_refused(product.run(1, a_data.get(), b_data.get(), one, unwritten),
                   "C is read, but nobody has written");
  }
  EXPECT_EQ(product.run(1, a_data.get(), b_data.get(), 0, unwritten), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cudaFree(unwritten), cudaSuccess);

  product.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::uint32_t{512});
  ASSERT_EQ(product.choose(), CUBLAS_STATUS_SUCCESS);
  const cublasStatus_t status = product.run(1, a_data.get(), b_data.get(), 0, d_data.get() + 0);
  const bool aligned = reinterpret_cast<std::uintptr_t>(d_data.get()) % 512 == 0 && 2 * sizeof(T) % 512 == 0;
  EXPECT_EQ(status == CUBLAS_STATUS_SUCCESS, aligned);
}

TEST(CublasLtHandles, AreCheckedByTheEmulator) {
  cublasLtHandle_t handle = nullptr;
  ASSERT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtDestroy(handle), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtDestroy(handle), CUBLAS_STATUS_INVALID_VALUE);
  cublasLtMatmulDesc_t description = nullptr;
  EXPECT_EQ(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_64F),
            CUBLAS_STATUS_NOT_SUPPORTED);
  cublasLtMatrixLayout_t layout = nullptr;
  EXPECT_EQ(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 5, 2, 4), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 0, 2, 4), CUBLAS_STATUS_INVALID_VALUE);
}
#endif

}  // namespace
