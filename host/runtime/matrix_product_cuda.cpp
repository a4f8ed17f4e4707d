// Matrix products on CUDA: plain cuBLASLt, the same text for the toolkit and for the emulator.
//
// One algorithm per dtype, n, k, transposes and alignment, asked for with a nominal m: a row's bits then do
// not depend on how many rows there are. Reductions across blocks are ruled out and there is no workspace, so
// every sum runs over k in one sequence. The library is column-major: it is handed the transposed product C^T
// = op(B)^T op(A)^T, for which row-major matrices are already in place.

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "common/matrix_product.h"
#include "runtime/cublas_lt.h"
#include "scantape/counters.h"

namespace scantape::cuda {
namespace {

constexpr std::int64_t kNominalRows = 2048;
constexpr std::int64_t kPackBytes = 16;

struct Failure {
  const char* step;
  std::string reason;
};

void check(const char* step, cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) throw Failure{step, cublasLtGetStatusString(status)};
}

void check(const char* step, cudaError_t error) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();  // reported here, not again by whoever asks next
  throw Failure{step, cudaGetErrorString(error)};
}

template <class Handle, cublasStatus_t (*kDestroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle_ != nullptr) (void)kDestroy(handle_);
  }
  Handle* slot() { return &handle_; }
  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};

using Handle = Owned<cublasLtHandle_t, cublasLtDestroy>;
using Description = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

/// A row-major matrix as stored.
struct Matrix {
  const void* data = nullptr;
  std::int64_t rows = 0, columns = 0, stride = 0;
};

/// A product as the library sees it: first * second = result, each a row-major matrix read as its own
/// transpose.
struct Operands {
  Matrix first, second, result;
};

Operands operands(const MatrixProduct& p, std::int64_t m) {
  const auto stored = [](const void* data, bool transpose, std::int64_t rows, std::int64_t columns,
                         std::int64_t ld) {
    return transpose ? Matrix{data, columns, rows, ld} : Matrix{data, rows, columns, ld};
  };
  return {stored(p.b, p.transpose_b, p.k, p.n, p.ldb), stored(p.a, p.transpose_a, m, p.k, p.lda),
          Matrix{p.c, m, p.n, p.ldc}};
}

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return CUDA_R_32F;
    case DType::f64:
      return CUDA_R_64F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    case DType::i32:
      break;
  }
  throw Failure{"naming the type of a matrix", "there is no such dtype"};
}

/// The type of C.
DType result_type(const MatrixProduct& p) {
  return p.f32_result ? DType::f32 : p.dtype;
}

/// The alignment that every row of a matrix has: that of a pack, or that of an element.
std::int64_t alignment(const Matrix& matrix, std::int64_t element) {
  // One row alone counts by its stride as well: its algorithm is that of many rows.
  const bool packs = reinterpret_cast<std::uintptr_t>(matrix.data) % kPackBytes == 0 &&
                     matrix.stride * element % kPackBytes == 0;
  return packs ? kPackBytes : element;
}

/// A stride that is possible for a matrix of this many columns and shows rows of the given alignment.
std::int64_t nominal_stride(std::int64_t columns, std::int64_t row_alignment, std::int64_t element) {
  const std::int64_t pack = kPackBytes / element;
  const std::int64_t stride = (columns + pack - 1) / pack * pack;
  return row_alignment == kPackBytes ? stride : stride + 1;
}

void describe(const MatrixProduct& p, Description& description) {
  const bool f64 = p.dtype == DType::f64;
  check("describing the product",
        cublasLtMatmulDescCreate(description.slot(), f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                 f64 ? CUDA_R_64F : CUDA_R_32F));
  const cublasOperation_t first = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t second = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  check("describing the product", cublasLtMatmulDescSetAttribute(
                                      description.get(), CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof(first)));
  check("describing the product",
        cublasLtMatmulDescSetAttribute(description.get(), CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                       sizeof(second)));
}

void lay_out(DType dtype, const Matrix& matrix, std::int64_t stride, Layout& layout) {
  check("laying out a matrix", cublasLtMatrixLayoutCreate(layout.slot(), data_type(dtype),
                                                          static_cast<std::uint64_t>(matrix.columns),
                                                          static_cast<std::uint64_t>(matrix.rows), stride));
}

template <class T>
void prefer(Preference& preference, cublasLtMatmulPreferenceAttributes_t what, T value) {
  check("stating preferences",
        cublasLtMatmulPreferenceSetAttribute(preference.get(), what, &value, sizeof(value)));
}

/// What an algorithm is chosen by. m is not part of it.
using Key = std::tuple<DType, DType, bool, bool, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                       std::int64_t>;

/// The types of the three operands, in their order.
std::array<DType, 3> types_of(const MatrixProduct& p) {
  return {p.dtype, p.dtype, result_type(p)};
}

/// The handle of one device and the algorithms chosen so far. Made on first use, kept until the process ends:
/// a destructor would run after CUDA's own.
class Library {
 public:
  static Library& of_current_device() {
    static std::mutex mutex;
    static auto* const libraries = new std::map<int, std::unique_ptr<Library>>;
    int device = 0;
    check("asking for the current device", cudaGetDevice(&device));
    const std::lock_guard<std::mutex> lock(mutex);
    std::unique_ptr<Library>& library = (*libraries)[device];
    if (library == nullptr) library.reset(new Library);
    return *library;
  }

  cublasLtHandle_t handle() const { return handle_.get(); }

  cublasLtMatmulAlgo_t algorithm(const MatrixProduct& p, cublasLtMatmulDesc_t description) {
    const Operands actual = operands(p, p.m);
    const std::int64_t element = size_of(p.dtype);
    const std::int64_t aligned[3] = {alignment(actual.first, element), alignment(actual.second, element),
                                     alignment(actual.result, size_of(result_type(p)))};
    const Key key{p.dtype, result_type(p), p.transpose_a, p.transpose_b, p.n,
                  p.k,     aligned[0],     aligned[1],    aligned[2]};
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = algorithms_.find(key);
    if (found != algorithms_.end()) return found->second;
    return algorithms_.emplace(key, choose(p, description, aligned)).first->second;
  }

 private:
  Library() { check("creating the handle", cublasLtCreate(handle_.slot())); }

  cublasLtMatmulAlgo_t choose(const MatrixProduct& p, cublasLtMatmulDesc_t description,
                              const std::int64_t (&aligned)[3]) const {
    const Operands nominal = operands(p, kNominalRows);
    const Matrix* const matrices[3] = {&nominal.first, &nominal.second, &nominal.result};
    Layout layouts[3];
    for (int i = 0; i < 3; ++i) {
      const DType type = types_of(p)[static_cast<std::size_t>(i)];
      lay_out(type, *matrices[i], nominal_stride(matrices[i]->columns, aligned[i], size_of(type)),
              layouts[i]);
    }
    Preference preference;
    check("stating preferences", cublasLtMatmulPreferenceCreate(preference.slot()));
    prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{0});
    prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<std::uint32_t>(aligned[0]));
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<std::uint32_t>(aligned[1]));
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<std::uint32_t>(aligned[2]));
    prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<std::uint32_t>(aligned[2]));

    constexpr int kCandidates = 8;
    cublasLtMatmulHeuristicResult_t candidates[kCandidates];
    int count = 0;
    check("choosing an algorithm",
          cublasLtMatmulAlgoGetHeuristic(handle_.get(), description, layouts[0].get(), layouts[1].get(),
                                         layouts[2].get(), layouts[2].get(), preference.get(), kCandidates,
                                         candidates, &count));
    for (int i = 0; i < count; ++i) {
      if (candidates[i].state == CUBLAS_STATUS_SUCCESS && sums_in_one_sequence(candidates[i].algo)) {
        return candidates[i].algo;
      }
    }
    throw Failure{"choosing an algorithm", "none sums over k in one sequence"};
  }

  static bool sums_in_one_sequence(const cublasLtMatmulAlgo_t& algorithm) {
    std::int32_t splits = 0;
    std::size_t written = 0;
    check("reading an algorithm",
          cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits,
                                               sizeof(splits), &written));
    return splits <= 1;
  }

  Handle handle_;
  std::mutex mutex_;
  std::map<Key, cublasLtMatmulAlgo_t> algorithms_;
};

/// The product over no k.
void fill_with_zero(const MatrixProduct& p, cudaStream_t stream) {
  const auto element = static_cast<std::size_t>(size_of(result_type(p)));
  const auto row = static_cast<std::size_t>(p.n) * element;
  // A single row has no step that would have to be as wide as it is.
  const std::size_t step = p.m == 1 ? row : static_cast<std::size_t>(p.ldc) * element;
  check("writing zeros", cudaMemset2DAsync(p.c, step, 0, row, static_cast<std::size_t>(p.m), stream));
}

void multiply(const MatrixProduct& p, cudaStream_t stream) {
  Library& library = Library::of_current_device();
  Description description;
  describe(p, description);
  const cublasLtMatmulAlgo_t algorithm = library.algorithm(p, description.get());

  const Operands actual = operands(p, p.m);
  const Matrix* const matrices[3] = {&actual.first, &actual.second, &actual.result};
  Layout layouts[3];
  for (int i = 0; i < 3; ++i) {
    lay_out(types_of(p)[static_cast<std::size_t>(i)], *matrices[i],
            std::max(matrices[i]->stride, matrices[i]->columns), layouts[i]);
  }
  const float one_f32 = 1, scale_f32 = p.accumulate ? 1 : 0;
  const double one_f64 = 1, scale_f64 = p.accumulate ? 1 : 0;
  const bool f64 = p.dtype == DType::f64;
  const void* const alpha = f64 ? static_cast<const void*>(&one_f64) : &one_f32;
  const void* const beta = f64 ? static_cast<const void*>(&scale_f64) : &scale_f32;
  check("launching", cublasLtMatmul(library.handle(), description.get(), alpha, actual.first.data,
                                    layouts[0].get(), actual.second.data, layouts[1].get(), beta, p.c,
                                    layouts[2].get(), p.c, layouts[2].get(), &algorithm, nullptr, 0, stream));
}

Status failed(const MatrixProduct& p, const Failure& failure) {
  return Status::fail(Code::cuda, "matrix product [" + std::to_string(p.m) + ", " + std::to_string(p.k) +
                                      "] x [" + std::to_string(p.k) + ", " + std::to_string(p.n) + "], " +
                                      name(p.dtype) + ": " + failure.step + ": " + failure.reason);
}

}  // namespace

Status matrix_product(const MatrixProduct& product, Stream stream) noexcept {
  if (product.m == 0 || product.n == 0) return Status();
  if (product.k == 0 && product.accumulate) return Status();
  const auto cuda_stream = static_cast<cudaStream_t>(stream.handle);
  try {
    if (product.k == 0) {
      fill_with_zero(product, cuda_stream);
    } else {
      multiply(product, cuda_stream);
    }
    ++detail::mutable_counters().kernel_launches;
    return Status();
  } catch (const Failure& failure) {
    try {
      return failed(product, failure);
    } catch (const std::exception&) {
      return Status::fail(Code::cuda, "matrix product: the library failed");
    }
  } catch (const std::exception&) {
    return Status::fail(Code::out_of_memory, "matrix product: no memory on the host for its description");
  }
}

}  // namespace scantape::cuda
