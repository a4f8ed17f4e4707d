/// Products of cuBLASLt worked out by hand. The same text runs against the emulator's stand-in and, in a
/// native build, against the library itself: what the one is trusted with the other must confirm. Matrices
/// are column-major.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/matrix_product.h"
#include "runtime/cublas_lt.h"

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

/// What host/runtime makes of a product: x [rows, k] W[n, k]^T, each matrix `offset` elements behind an address of 256
/// bytes, rows as far apart as the strides say. Row-major.
template <class T>
std::vector<T> by_runtime(std::int64_t rows, std::int64_t n, std::int64_t k, const std::int64_t (&strides)[3],
                          const std::int64_t (&offsets)[3]) {
  const std::int64_t heights[3] = {rows, n, rows}, widths[3] = {k, k, n};
  std::vector<T> memory[3];
  for (int i = 0; i < 3; ++i) {
    // No element more than there has to be: a product that takes whole packs reads outside.
    memory[i].resize(static_cast<std::size_t>(offsets[i] + (heights[i] - 1) * strides[i] + widths[i]),
                     std::numeric_limits<T>::quiet_NaN());
    for (std::int64_t row = 0; row < heights[i]; ++row)
      for (std::int64_t j = 0; j < widths[i]; ++j)
        memory[i][static_cast<std::size_t>(offsets[i] + row * strides[i] + j)] =
            T(1) / static_cast<T>(3 + i + j) - static_cast<T>(row) / T(7);
  }
  const OnDevice<T> x(memory[0]), weight(memory[1]), y(memory[2]);
  scantape::MatrixProduct p;
  p.dtype = scantape::dtype_of<T>;
  p.transpose_b = true;
  p.m = rows;
  p.n = n;
  p.k = k;
  p.a = x.get() + offsets[0];
  p.lda = strides[0];
  p.b = weight.get() + offsets[1];
  p.ldb = strides[1];
  p.c = y.get() + offsets[2];
  p.ldc = strides[2];
  const scantape::Status status = scantape::cuda::matrix_product(p, {});
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const std::vector<T> got = y.read();
  std::vector<T> dense;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t j = 0; j < n; ++j) {
      const T value = got[static_cast<std::size_t>(offsets[2] + row * strides[2] + j)];
      double want = 0, size = 0;
      for (std::int64_t step = 0; step < k; ++step) {
        const double term =
            static_cast<double>(memory[0][static_cast<std::size_t>(offsets[0] + row * strides[0] + step)]) *
            static_cast<double>(memory[1][static_cast<std::size_t>(offsets[1] + j * strides[1] + step)]);
        want += term;
        size += std::abs(term);
      }
      const double tolerance =
          static_cast<double>(k + 2) * static_cast<double>(std::numeric_limits<T>::epsilon()) * size;
      EXPECT_TRUE(std::abs(static_cast<double>(value) - want) <= tolerance)
          << "[" << row << ", " << j << "] got " << static_cast<double>(value) << " want " << want;
      dense.push_back(value);
    }
  return dense;
}

// One row has no second one whose address could lose its alignment, but its algorithm is that of many rows: what is
// claimed of it follows its stride. The emulator refuses a claim that many rows would break.
TYPED_TEST(CublasLt, OneRowIsAlignedAsItsStrideSays) {
  using T = TypeParam;
  constexpr std::int64_t kPack = 16 / sizeof(T);
  for (const std::int64_t k : {kPack, 2 * kPack + 1, std::int64_t{1}, 4 * kPack - 1})
    for (const std::int64_t n : {std::int64_t{1}, kPack, kPack + 1, 3 * kPack})
      for (const std::int64_t gap : {std::int64_t{0}, std::int64_t{1}, kPack})
        for (int misaligned = 0; misaligned < 8; ++misaligned) {
          SCOPED_TRACE("k " + std::to_string(k) + ", n " + std::to_string(n) + ", gap " +
                       std::to_string(gap) + ", misaligned " + std::to_string(misaligned));
          const std::int64_t strides[3] = {k + gap, k + gap, n + gap};
          const std::int64_t offsets[3] = {misaligned & 1, misaligned >> 1 & 1, misaligned >> 2};
          const std::vector<T> one = by_runtime<T>(1, n, k, strides, offsets);
          std::vector<T> many = by_runtime<T>(5, n, k, strides, offsets);
          many.resize(one.size());
          EXPECT_EQ(one, many) << "the first of five rows has other bits than that row alone";
        }
}

// ---- matrices of 16 bits, in f32

template <class T>
constexpr cudaDataType_t kElement = kType<T>;
template <>
constexpr cudaDataType_t kElement<__nv_bfloat16> = CUDA_R_16BF;
template <>
constexpr cudaDataType_t kElement<__half> = CUDA_R_16F;

struct Numbers {
  std::uint64_t rows, columns;
  std::int64_t stride;
  std::vector<float> values;  // stride * columns

  template <class T>
  std::vector<T> as() const {
    std::vector<T> list;
    for (const float value : values) list.push_back(static_cast<T>(value));
    return list;
  }
};

/// D = alpha op(A) op(B) + beta D of matrices whose elements are In and Out; what comes back as floats.
template <class In, class Out>
struct NarrowProduct {
  NarrowProduct(cudaDataType_t a_type, cudaDataType_t b_type, cudaDataType_t c_type, cudaDataType_t d_type,
                bool transpose_a, bool transpose_b, const Numbers& a, const Numbers& b, const Numbers& d) {
    EXPECT_EQ(cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
    const cublasOperation_t operations[2] = {transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                                             transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N};
    const cublasLtMatmulDescAttributes_t names[2] = {CUBLASLT_MATMUL_DESC_TRANSA,
                                                     CUBLASLT_MATMUL_DESC_TRANSB};
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(cublasLtMatmulDescSetAttribute(description, names[i], &operations[i], sizeof(operations[i])),
                CUBLAS_STATUS_SUCCESS);
    const Numbers* const matrices[4] = {&a, &b, &d, &d};
    const cudaDataType_t types[4] = {a_type, b_type, c_type, d_type};
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(cublasLtMatrixLayoutCreate(&layouts[i], types[i], matrices[i]->rows, matrices[i]->columns,
                                           matrices[i]->stride),
                CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
    const std::uint32_t alignments[4] = {sizeof(In), sizeof(In), sizeof(Out), sizeof(Out)};
    const cublasLtMatmulPreferenceAttributes_t attributes[4] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(preference, attributes[i], &alignments[i],
                                                     sizeof(alignments[i])),
                CUBLAS_STATUS_SUCCESS);
    const std::uint64_t none = 0;
    EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                   &none, sizeof(none)),
              CUBLAS_STATUS_SUCCESS);
  }
  ~NarrowProduct() {
    EXPECT_EQ(cublasLtMatmulPreferenceDestroy(preference), CUBLAS_STATUS_SUCCESS);
    for (const cublasLtMatrixLayout_t layout : layouts)
      EXPECT_EQ(cublasLtMatrixLayoutDestroy(layout), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtMatmulDescDestroy(description), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(cublasLtDestroy(handle), CUBLAS_STATUS_SUCCESS);
  }
  NarrowProduct(const NarrowProduct&) = delete;
  NarrowProduct& operator=(const NarrowProduct&) = delete;

  cublasStatus_t choose() {
    cublasLtMatmulHeuristicResult_t result{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle, description, layouts[0], layouts[1], layouts[2], layouts[3], preference, 1, &result, &count);
    algorithm = result.algo;
    return status == CUBLAS_STATUS_SUCCESS && count != 1 ? CUBLAS_STATUS_NOT_SUPPORTED : status;
  }
  cublasStatus_t run(float alpha, const In* a, const In* b, float beta, Out* d) {
    return cublasLtMatmul(handle, description, &alpha, a, layouts[0], b, layouts[1], &beta, d, layouts[2], d,
                          layouts[3], &algorithm, nullptr, 0, nullptr);
  }

  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t layouts[4] = {};
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
};

template <class In, class Out>
std::vector<float> multiply_narrow(bool transpose_a, bool transpose_b, float alpha, const Numbers& a,
                                   const Numbers& b, float beta, const Numbers& d) {
  const OnDevice<In> a_data(a.as<In>()), b_data(b.as<In>());
  const OnDevice<Out> d_data(d.as<Out>());
  NarrowProduct<In, Out> product(kElement<In>, kElement<In>, kElement<Out>, kElement<Out>, transpose_a,
                                 transpose_b, a, b, d);
  EXPECT_EQ(product.choose(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(product.run(alpha, a_data.get(), b_data.get(), beta, d_data.get()), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  std::vector<float> result;
  for (const Out value : d_data.read()) result.push_back(static_cast<float>(value));
  return result;
}

template <class In_, class Out_>
struct NarrowTypes {
  using In = In_;
  using Out = Out_;
};

template <class T>
class CublasLtNarrow : public CublasLt<T> {};
using NarrowKinds =
    testing::Types<NarrowTypes<__nv_bfloat16, __nv_bfloat16>, NarrowTypes<__nv_bfloat16, float>,
                   NarrowTypes<__half, __half>, NarrowTypes<__half, float>>;
TYPED_TEST_SUITE(CublasLtNarrow, NarrowKinds);

TYPED_TEST(CublasLtNarrow, ProductsInAllFourTransposes) {
  using In = typename TypeParam::In;
  using Out = typename TypeParam::Out;
  const Numbers a{2, 3, 2, {1, 4, 2, 5, 3, 6}}, a_transposed{3, 2, 3, {1, 2, 3, 4, 5, 6}};
  const Numbers b{3, 2, 3, {7, 9, 11, 8, 10, 12}}, b_transposed{2, 3, 2, {7, 8, 9, 10, 11, 12}};
  const Numbers d{2, 2, 2, {1, 2, 3, 4}};
  const std::vector<float> wanted = {58, 139, 64, 154};
  EXPECT_EQ((multiply_narrow<In, Out>(false, false, 1, a, b, 0, d)), wanted);
  EXPECT_EQ((multiply_narrow<In, Out>(true, false, 1, a_transposed, b, 0, d)), wanted);
  EXPECT_EQ((multiply_narrow<In, Out>(false, true, 1, a, b_transposed, 0, d)), wanted);
  EXPECT_EQ((multiply_narrow<In, Out>(true, true, 1, a_transposed, b_transposed, 0, d)), wanted);
  EXPECT_EQ((multiply_narrow<In, Out>(false, false, 0.5F, a, b, 10, d)),
            (std::vector<float>{39, 89.5F, 62, 117}));
}

// Columns lie further apart than they are long; what lies between is left alone. With beta 0 the old values have no
// say, NaN included.
TYPED_TEST(CublasLtNarrow, StridesLargerThanColumns) {
  using In = typename TypeParam::In;
  using Out = typename TypeParam::Out;
  const float gap = -77, nan = std::numeric_limits<float>::quiet_NaN();
  const Numbers a{2, 3, 5, {1, 4, gap, gap, gap, 2, 5, gap, gap, gap, 3, 6, gap, gap, gap}};
  const Numbers b{3, 2, 7, {7, 9, 11, gap, gap, gap, gap, 8, 10, 12, gap, gap, gap, gap}};
  const Numbers d{2, 2, 3, {nan, nan, gap, nan, nan, gap}};
  EXPECT_EQ((multiply_narrow<In, Out>(false, false, 1, a, b, 0, d)),
            (std::vector<float>{58, 139, gap, 64, 154, gap}));
}

// Sums run in f32 and are rounded once: 256 + 1 + 1 is 258, which bf16 has, but 256 + 1 rounds back to 256 there.
TYPED_TEST(CublasLtNarrow, SumsInF32AreRoundedOnce) {
  using In = typename TypeParam::In;
  using Out = typename TypeParam::Out;
  const Numbers a{1, 3, 1, {256, 1, 1}}, ones{3, 1, 3, {1, 1, 1}}, d{1, 1, 1, {0}};
  EXPECT_EQ((multiply_narrow<In, Out>(false, false, 1, a, ones, 0, d)), (std::vector<float>{258}));
  // 2^11 + 1 and 2^11 + 3 are ties in f16 (to 2048 and 2052), 4097 is far from anything in bf16 but 4096.
  const float more[2] = {2049, 2051};
  for (const float sum : more) {
    const Numbers parts{1, 2, 1, {1024, sum - 1024}}, two{2, 1, 2, {1, 1}};
    float wanted = static_cast<float>(static_cast<Out>(sum));
    if (std::is_same_v<In, __nv_bfloat16>)
      wanted = static_cast<float>(static_cast<Out>(1024 + static_cast<float>(static_cast<In>(sum - 1024))));
    EXPECT_EQ((multiply_narrow<In, Out>(false, false, 1, parts, two, 0, d)), (std::vector<float>{wanted}))
        << sum;
  }
}

// Odd sizes in every place: 5 x 7 times 7 x 3 of small numbers, worked out by plain loops. All sums are exact.
TYPED_TEST(CublasLtNarrow, OddSizes) {
  using In = typename TypeParam::In;
  using Out = typename TypeParam::Out;
  Numbers a{7, 5, 7, {}}, b{7, 3, 9, std::vector<float>(27, 99)}, d{5, 3, 5, std::vector<float>(15, 0)};
  for (int i = 0; i < 35; ++i) a.values.push_back(static_cast<float>(i % 5) - 2);
  for (int j = 0; j < 3; ++j)
    for (int p = 0; p < 7; ++p)
      b.values[static_cast<std::size_t>(j * 9 + p)] = static_cast<float>((p + 2 * j) % 4) - 1;
  std::vector<float> wanted;
  for (int j = 0; j < 3; ++j)
    for (int i = 0; i < 5; ++i) {
      float sum = 0;
      for (int p = 0; p < 7; ++p)
        sum += a.values[static_cast<std::size_t>(i * 7 + p)] * b.values[static_cast<std::size_t>(j * 9 + p)];
      wanted.push_back(sum);
    }
  EXPECT_EQ((multiply_narrow<In, Out>(true, false, 1, a, b, 0, d)), wanted);
}

TEST(CublasLtNarrowLimits, F16OverflowsWhereF32DoesNot) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "there is no GPU";
  const Numbers a{1, 1, 1, {300}}, d{1, 1, 1, {0}};
  EXPECT_EQ((multiply_narrow<__half, float>(false, false, 1, a, a, 0, d)), (std::vector<float>{90000}));
  EXPECT_EQ((multiply_narrow<__half, __half>(false, false, 1, a, a, 0, d)),
            (std::vector<float>{std::numeric_limits<float>::infinity()}));
  EXPECT_EQ((multiply_narrow<__nv_bfloat16, __nv_bfloat16>(false, false, 1, a, a, 0, d)),
            (std::vector<float>{90112}));
}

#if SCANTAPE_EMULATED
TEST(CublasLtNarrowLimits, TypesThatDoNotGoTogetherAreRefused) {
  const Numbers one{1, 1, 1, {}};
  const auto choose = [&](cudaDataType_t a, cudaDataType_t b, cudaDataType_t c, cudaDataType_t d) {
    NarrowProduct<float, float> product(a, b, c, d, false, false, one, one, one);
    return product.choose();
  };
  EXPECT_EQ(choose(CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(choose(CUDA_R_16BF, CUDA_R_16F, CUDA_R_32F, CUDA_R_32F), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(choose(CUDA_R_32F, CUDA_R_16F, CUDA_R_32F, CUDA_R_32F), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(choose(CUDA_R_16F, CUDA_R_16F, CUDA_R_16BF, CUDA_R_16BF), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(choose(CUDA_R_16F, CUDA_R_16F, CUDA_R_32F, CUDA_R_16F), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(choose(CUDA_R_32F, CUDA_R_32F, CUDA_R_16F, CUDA_R_16F), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(choose(CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, CUDA_R_64F), CUBLAS_STATUS_INVALID_VALUE);
  cublasLtMatmulDesc_t description = nullptr;
  EXPECT_EQ(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_64F, CUDA_R_32F),
            CUBLAS_STATUS_NOT_SUPPORTED);
  cublasLtMatrixLayout_t layout = nullptr;
  constexpr auto kInt8 = static_cast<cudaDataType_t>(3);
  EXPECT_EQ(cublasLtMatrixLayoutCreate(&layout, kInt8, 4, 4, 4), CUBLAS_STATUS_NOT_SUPPORTED);
  // An algorithm is bound to the types that it was chosen for.
  const OnDevice<__half> x(std::vector<__half>(2)), y(std::vector<__half>(2));
  NarrowProduct<__half, __half> halves(CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, false, false, one, one,
                                       one);
  NarrowProduct<__half, float> mixed(CUDA_R_16F, CUDA_R_16F, CUDA_R_32F, CUDA_R_32F, false, false, one, one,
                                     one);
  ASSERT_EQ(mixed.choose(), CUBLAS_STATUS_SUCCESS);
  halves.algorithm = mixed.algorithm;
  EXPECT_EQ(halves.run(1, x.get(), x.get(), 0, y.get()), CUBLAS_STATUS_NOT_SUPPORTED);
}
#endif

#if SCANTAPE_EMULATED
void expect_refused(cublasStatus_t status, const char* text,
                    cublasStatus_t wanted = CUBLAS_STATUS_INVALID_VALUE) {
  EXPECT_EQ(status, wanted);
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
    // What memory holds shows when the product runs.
    scantape::emulator::set_blocking(true);
    expect_refused(product.run(1, unwritten, b_data.get(), 0, d_data.get()),
                   "A is read, but nobody has written", CUBLAS_STATUS_EXECUTION_FAILED);
    expect_refused(product.run(1, a_data.get(), b_data.get(), one, unwritten),
                   "C is read, but nobody has written", CUBLAS_STATUS_EXECUTION_FAILED);
    scantape::emulator::set_blocking(false);
  }
  EXPECT_EQ(product.run(1, a_data.get(), b_data.get(), 0, unwritten), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cudaFree(unwritten), cudaSuccess);

  // One column alone starts where it should, but its step is not what was claimed.
  const Matrix<T> column{3, 1, 3, {7, 9, 11}}, result{2, 1, 2, {0, 0}};
  Product<T> narrow(false, false, a, column, result);
  ASSERT_EQ(narrow.choose(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(narrow.run(1, a_data.get(), b_data.get(), 0, d_data.get()), CUBLAS_STATUS_SUCCESS);
  narrow.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, std::uint32_t{16});
  ASSERT_EQ(narrow.choose(), CUBLAS_STATUS_SUCCESS);
  expect_refused(narrow.run(1, a_data.get(), b_data.get(), 0, d_data.get()),
                 "B is not aligned to the 16 bytes");

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
