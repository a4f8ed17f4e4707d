/// Matrix products of the emulated cuBLASLt. Matrices must lie in one live device allocation each, and what
/// is read must have been written: the products themselves are not watched by the access checks.

#include "../runtime/cublas_lt.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "error.h"
#include "memory.h"
#include "stream.h"

inline namespace scantape_emulated {

struct cublasLtContext {};

struct cublasLtMatmulDescOpaque_t {
  cudaDataType_t type = CUDA_R_32F;
  bool transpose_a = false, transpose_b = false;
};

struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  std::uint64_t rows, columns;
  std::int64_t stride;
};

struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace_bytes = 0;
  std::uint32_t reduction_schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignments[4] = {256, 256, 256, 256};
};

}  // namespace scantape_emulated

namespace scantape::emulator {
namespace {

constexpr std::uint64_t kAlgorithmMark = 0x73636e7461706531;  // what data[0] of our one algorithm holds

thread_local struct {
  cublasStatus_t code = CUBLAS_STATUS_SUCCESS;
  std::string text;
} last_refusal;

cublasStatus_t refuse(cublasStatus_t status, std::string text) {
  last_refusal.code = status;
  last_refusal.text = std::move(text);
  return status;
}

struct StatusName {
  cublasStatus_t code;
  const char* name;
  const char* text;
};
constexpr StatusName kStatuses[] = {
    {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS", "success"},
    {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED", "the library was not initialized"},
    {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED", "resource allocation failed"},
    {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE", "an invalid value was given"},
    {CUBLAS_STATUS_ARCH_MISMATCH, "CUBLAS_STATUS_ARCH_MISMATCH", "the device lacks a feature"},
    {CUBLAS_STATUS_MAPPING_ERROR, "CUBLAS_STATUS_MAPPING_ERROR", "mapping failed"},
    {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED", "execution failed"},
    {CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR", "internal error"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED", "not supported"},
    {CUBLAS_STATUS_LICENSE_ERROR, "CUBLAS_STATUS_LICENSE_ERROR", "license error"},
};

const StatusName* find(cublasStatus_t status) {
  for (const StatusName& entry : kStatuses) {
    if (entry.code == status) return &entry;
  }
  return nullptr;
}

std::mutex handles_mutex;
template <class T>
std::set<T>& handles() {
  static auto* const set = new std::set<T>;
  return *set;
}

template <class T>
bool is_live(T* handle) {
  const std::lock_guard lock(handles_mutex);
  return handles<T*>().count(handle) != 0;
}

template <class T>
cublasStatus_t create(T** place, T value) {
  if (place == nullptr) return refuse(CUBLAS_STATUS_INVALID_VALUE, "the place for the new object is null");
  *place = new T(value);
  const std::lock_guard lock(handles_mutex);
  handles<T*>().insert(*place);
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t destroy(T* handle) {
  {
    const std::lock_guard lock(handles_mutex);
    if (handles<T*>().erase(handle) == 0) {
      return refuse(CUBLAS_STATUS_INVALID_VALUE, "destroyed twice, or never created");
    }
  }
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
bool read_value(const void* value, std::size_t bytes, T* result) {
  if (value == nullptr || bytes != sizeof(T)) return false;
  std::memcpy(result, value, bytes);
  return true;
}

std::size_t size_of(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_32F:
      return 4;
    case CUDA_R_64F:
      return 8;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
  }
  return 0;
}

bool is_narrow(cudaDataType_t type) {
  return type == CUDA_R_16F || type == CUDA_R_16BF;
}

struct Operand {
  const char* name;
  const void* data;
  const cublasLtMatrixLayoutOpaque_t* layout;

  std::size_t column_bytes() const { return layout->rows * size_of(layout->type); }
  std::size_t step_bytes() const { return static_cast<std::size_t>(layout->stride) * size_of(layout->type); }
  std::size_t bytes() const { return (layout->columns - 1) * step_bytes() + column_bytes(); }
  std::uintptr_t first() const { return reinterpret_cast<std::uintptr_t>(data); }
};

std::string shape_of(const cublasLtMatrixLayoutOpaque_t& layout) {
  char text[48];
  std::snprintf(text, sizeof(text), "[%llu, %llu]", static_cast<unsigned long long>(layout.rows),
                static_cast<unsigned long long>(layout.columns));
  return text;
}

/// Empty where op(A) op(B) has the shape of C and D, and the types are ones that go together.
std::string check_shapes(const cublasLtMatmulDescOpaque_t& description, const cublasLtMatrixLayoutOpaque_t& a,
                         const cublasLtMatrixLayoutOpaque_t& b, const cublasLtMatrixLayoutOpaque_t& c,
                         const cublasLtMatrixLayoutOpaque_t& d) {
  if (a.type != b.type) return "A and B are of different types";
  if (c.type != d.type) return "C and D are of different types";
  const bool plain = a.type == description.type && d.type == description.type;
  const bool narrow =
      is_narrow(a.type) && description.type == CUDA_R_32F && (d.type == a.type || d.type == CUDA_R_32F);
  if (!plain && !narrow)
    return "the types of the matrices and of the product do not go together: f32 in f32, f64 in f64, bf16 or "
           "f16 in "
           "f32 with a result of f32 or of the same";
  const std::uint64_t m = description.transpose_a ? a.columns : a.rows,
                      k = description.transpose_a ? a.rows : a.columns;
  const std::uint64_t n = description.transpose_b ? b.rows : b.columns;
  const std::uint64_t other_k = description.transpose_b ? b.columns : b.rows;
  if (k != other_k || c.rows != m || c.columns != n || d.rows != m || d.columns != n) {
    return "column-major A " + shape_of(a) + (description.transpose_a ? "^T" : "") + " times B " +
           shape_of(b) + (description.transpose_b ? "^T" : "") + " does not give C " + shape_of(c) +
           " and D " + shape_of(d);
  }
  return "";
}

bool overlap(const Operand& x, const Operand& y) {
  return x.first() < y.first() + y.bytes() && y.first() < x.first() + x.bytes();
}

std::string check_operand(const Operand& operand, std::uint64_t alignment, bool is_read) {
  const DeviceMemory& memory = DeviceMemory::instance();
  std::string problem = memory.check_range(operand.data, operand.bytes());
  if (!problem.empty()) return std::string(operand.name) + ": " + problem;
  const std::size_t element = size_of(operand.layout->type);
  const bool steps_fit = operand.step_bytes() % alignment == 0 || alignment <= element;
  if (operand.first() % alignment != 0 || operand.first() % element != 0 || !steps_fit) {
    return std::string(operand.name) + " is not aligned to the " + std::to_string(alignment) +
           " bytes that its algorithm was asked for";
  }
  for (std::uint64_t column = 0; is_read && column < operand.layout->columns; ++column) {
    const auto* const start = static_cast<const char*>(operand.data) + column * operand.step_bytes();
    if (!memory.all_written(start, operand.column_bytes())) {
      return std::string(operand.name) + " is read, but nobody has written all of its column " +
             std::to_string(column);
    }
  }
  return "";
}

template <class To, class From>
To converted(From value) {
  if constexpr (std::is_same_v<To, From>)
    return value;
  else
    return static_cast<To>(value);
}

/// Sums over k from first to last in T, one column of D after the other. In is the type of A and B, Out that of C and D:
/// what is narrower than T is widened when it is read, and the result is rounded once.
template <class T, class In, class Out>
void multiply(const cublasLtMatmulDescOpaque_t& description, T alpha, const Operand& a, const Operand& b,
              T beta, const Operand& c, Out* d, const cublasLtMatrixLayoutOpaque_t& d_layout) {
  const std::size_t m = d_layout.rows, n = d_layout.columns;
  const std::size_t k = description.transpose_a ? a.layout->rows : a.layout->columns;
  const auto* const stored = static_cast<const In*>(a.data);
  auto a_stride = static_cast<std::size_t>(a.layout->stride);
  std::vector<T> packed;
  const T* a_data = nullptr;
  if constexpr (std::is_same_v<T, In>) a_data = stored;
  if (description.transpose_a || a_data == nullptr) {
    packed.resize(m * k);
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t p = 0; p < k; ++p)
        packed[p * m + i] =
            converted<T>(description.transpose_a ? stored[i * a_stride + p] : stored[p * a_stride + i]);
    }
    a_data = packed.data();
    a_stride = m;
  }
  const auto* const b_data = static_cast<const In*>(b.data);
  const auto b_stride = static_cast<std::size_t>(b.layout->stride);
  std::vector<T> sums(m);
  for (std::size_t j = 0; j < n; ++j) {
    sums.assign(m, T(0));
    for (std::size_t p = 0; p < k; ++p) {
      const T factor =
          converted<T>(description.transpose_b ? b_data[p * b_stride + j] : b_data[j * b_stride + p]);
      const T* const column = a_data + p * a_stride;
      for (std::size_t i = 0; i < m; ++i) sums[i] += column[i] * factor;
    }
    Out* const target = d + j * static_cast<std::size_t>(d_layout.stride);
    const Out* const old = static_cast<const Out*>(c.data) + j * static_cast<std::size_t>(c.layout->stride);
    for (std::size_t i = 0; i < m; ++i) {
      // With beta 0 C is not read: what it holds, NaN included, has no say.
      const T sum = beta == T(0) ? alpha * sums[i] : alpha * sums[i] + beta * converted<T>(old[i]);
      target[i] = converted<Out>(sum);
    }
  }
}

using Run = void (*)(const cublasLtMatmulDescOpaque_t& description, const void* alpha, const Operand& a,
                     const Operand& b, const void* beta, const Operand& c, void* d,
                     const cublasLtMatrixLayoutOpaque_t& d_layout);

template <class T, class In, class Out>
void multiply_scaled(const cublasLtMatmulDescOpaque_t& description, const void* alpha, const Operand& a,
                     const Operand& b, const void* beta, const Operand& c, void* d,
                     const cublasLtMatrixLayoutOpaque_t& d_layout) {
  T alpha_value, beta_value;
  std::memcpy(&alpha_value, alpha, sizeof(T));
  std::memcpy(&beta_value, beta, sizeof(T));
  multiply<T, In, Out>(description, alpha_value, a, b, beta_value, c, static_cast<Out*>(d), d_layout);
}

/// The types have been checked to go together.
Run run_for(cudaDataType_t in, cudaDataType_t out) {
  if (in == CUDA_R_64F) return &multiply_scaled<double, double, double>;
  if (in == CUDA_R_16BF)
    return out == CUDA_R_32F ? &multiply_scaled<float, __nv_bfloat16, float>
                             : &multiply_scaled<float, __nv_bfloat16, __nv_bfloat16>;
  if (in == CUDA_R_16F)
    return out == CUDA_R_32F ? &multiply_scaled<float, __half, float>
                             : &multiply_scaled<float, __half, __half>;
  return &multiply_scaled<float, float, float>;
}

std::uint64_t types_of(const cublasLtMatmulDescOpaque_t& description, const cublasLtMatrixLayoutOpaque_t& a,
                       const cublasLtMatrixLayoutOpaque_t& d) {
  return static_cast<std::uint64_t>(description.type) << 32 | static_cast<std::uint64_t>(a.type) << 16 |
         static_cast<std::uint64_t>(d.type);
}

bool is_zero(cudaDataType_t type, const void* value) {
  float f32 = 0;
  double f64 = 0;
  std::memcpy(type == CUDA_R_32F ? static_cast<void*>(&f32) : &f64, value, size_of(type));
  return f32 == 0 && f64 == 0;
}

}  // namespace
}  // namespace scantape::emulator

inline namespace scantape_emulated {

using namespace scantape::emulator;  // NOLINT: the API below is the face of what is above

const char* cublasLtGetStatusString(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS && last_refusal.code == status) return last_refusal.text.c_str();
  const StatusName* const entry = find(status);
  return entry == nullptr ? "unknown status" : entry->text;
}
const char* cublasLtGetStatusName(cublasStatus_t status) {
  const StatusName* const entry = find(status);
  return entry == nullptr ? "unknown status" : entry->name;
}
const char* cublasGetStatusString(cublasStatus_t status) {
  return cublasLtGetStatusString(status);
}
const char* cublasGetStatusName(cublasStatus_t status) {
  return cublasLtGetStatusName(status);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return create(handle, cublasLtContext{});
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return destroy(handle);
}
std::size_t cublasLtGetVersion() {
  return 120400;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  const bool f32 = compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F;
  const bool f64 = compute == CUBLAS_COMPUTE_64F && scale == CUDA_R_64F;
  if (!f32 && !f64) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED,
                  "the emulator computes in f32 with scales of f32 and in f64 with scales of f64");
  }
  cublasLtMatmulDescOpaque_t value;
  value.type = scale;
  return create(description, value);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return destroy(description);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              std::size_t bytes) {
  if (!is_live(description)) return refuse(CUBLAS_STATUS_INVALID_VALUE, "this is not a live description");
  std::int32_t operation = 0;
  const bool is_transpose =
      attribute == CUBLASLT_MATMUL_DESC_TRANSA || attribute == CUBLASLT_MATMUL_DESC_TRANSB;
  if (!is_transpose)
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "of a product only the transposes can be set");
  if (!read_value(value, bytes, &operation) || (operation != CUBLAS_OP_N && operation != CUBLAS_OP_T)) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "a transpose is CUBLAS_OP_N or CUBLAS_OP_T");
  }
  (attribute == CUBLASLT_MATMUL_DESC_TRANSA ? description->transpose_a : description->transpose_b) =
      operation == CUBLAS_OP_T;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t leading_dimension) {
  if (size_of(type) == 0) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "the emulator knows matrices of f32, f64, bf16 and f16");
  }
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 31;
  if (rows == 0 || columns == 0 || rows >= kLargest || columns >= kLargest || leading_dimension < 1 ||
      static_cast<std::uint64_t>(leading_dimension) < rows) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "a matrix [" + std::to_string(rows) + ", " +
                                                   std::to_string(columns) + "] cannot have its columns " +
                                                   std::to_string(leading_dimension) + " apart");
  }
  return create(layout, cublasLtMatrixLayoutOpaque_t{type, rows, columns, leading_dimension});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return create(preference, cublasLtMatmulPreferenceOpaque_t{});
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  if (!is_live(preference)) return refuse(CUBLAS_STATUS_INVALID_VALUE, "this is not a live preference");
  bool good = false;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      good = read_value(value, bytes, &preference->workspace_bytes);
      break;
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      good = read_value(value, bytes, &preference->reduction_schemes);
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: {
      std::uint32_t alignment = 0;
      good = read_value(value, bytes, &alignment) && alignment != 0 && (alignment & (alignment - 1)) == 0;
      if (good) preference->alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES] = alignment;
      break;
    }
  }
  return good ? CUBLAS_STATUS_SUCCESS
              : refuse(CUBLAS_STATUS_INVALID_VALUE, "preference " + std::to_string(attribute) +
                                                        ": unknown, or the value has the wrong size");
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* returned) {
  if (!is_live(handle)) return refuse(CUBLAS_STATUS_NOT_INITIALIZED, "this is not a live handle");
  if (!is_live(description) || !is_live(a) || !is_live(b) || !is_live(c) || !is_live(d) ||
      !is_live(preference) || requested < 1 || results == nullptr || returned == nullptr) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the heuristic was given something that is not alive");
  }
  const std::string problem = check_shapes(*description, *a, *b, *c, *d);
  if (!problem.empty()) return refuse(CUBLAS_STATUS_INVALID_VALUE, problem);
  cublasLtMatmulHeuristicResult_t result{};
  result.algo.data[0] = kAlgorithmMark;
  result.algo.data[1] = types_of(*description, *a, *d);
  result.algo.data[2] = (description->transpose_a ? 1u : 0u) | (description->transpose_b ? 2u : 0u);
  for (int i = 0; i < 4; ++i) result.algo.data[3 + i] = preference->alignments[i];
  result.state = CUBLAS_STATUS_SUCCESS;
  result.wavesCount = 1;
  results[0] = result;
  *returned = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* value, std::size_t bytes, std::size_t* written) {
  if (algorithm == nullptr || algorithm->data[0] != kAlgorithmMark || value == nullptr ||
      bytes != sizeof(std::int32_t)) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE,
                  "not an algorithm of the heuristic, or a value of the wrong size");
  }
  // No split over k, no reduction scheme, number 0 of one.
  const std::int32_t answer = attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? 1 : 0;
  std::memcpy(value, &answer, sizeof(answer));
  if (written != nullptr) *written = sizeof(answer);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  if (!is_live(handle)) return refuse(CUBLAS_STATUS_NOT_INITIALIZED, "this is not a live handle");
  if (!is_live(description) || !is_live(a_layout) || !is_live(b_layout) || !is_live(c_layout) ||
      !is_live(d_layout) || alpha == nullptr || beta == nullptr || !is_stream(stream)) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "the product was given something that is not alive");
  }
  const DeviceMemory& memory = DeviceMemory::instance();
  if (memory.contains(alpha) || memory.contains(beta)) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "alpha and beta are to be on the host");
  }
  if (workspace_bytes > 0) {
    const std::string problem = memory.check_range(workspace, workspace_bytes);
    if (!problem.empty()) return refuse(CUBLAS_STATUS_INVALID_VALUE, "the workspace: " + problem);
  }
  std::string problem = check_shapes(*description, *a_layout, *b_layout, *c_layout, *d_layout);
  if (!problem.empty()) return refuse(CUBLAS_STATUS_INVALID_VALUE, problem);
  const std::uint64_t transposes =
      (description->transpose_a ? 1u : 0u) | (description->transpose_b ? 2u : 0u);
  if (algorithm == nullptr || algorithm->data[0] != kAlgorithmMark ||
      algorithm->data[1] != types_of(*description, *a_layout, *d_layout) ||
      algorithm->data[2] != transposes) {
    return refuse(CUBLAS_STATUS_NOT_SUPPORTED,
                  "the algorithm is not one that the heuristic gave for this product");
  }
  const bool reads_c = !is_zero(description->type, beta);
  const Operand operands[4] = {
      {"A", a, a_layout}, {"B", b, b_layout}, {"C", c, c_layout}, {"D", d, d_layout}};
  for (int i = 0; i < 4; ++i) {
    if (i == 2 && !reads_c && c == nullptr) continue;
    problem = check_operand(operands[i], algorithm->data[3 + i], false);
    if (!problem.empty()) return refuse(CUBLAS_STATUS_INVALID_VALUE, problem);
  }
  if (overlap(operands[3], operands[0]) || overlap(operands[3], operands[1])) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "D overlaps A or B");
  }
  const bool in_place = c == d && c_layout->stride == d_layout->stride;
  if (c != nullptr && !in_place && overlap(operands[3], operands[2])) {
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "D overlaps C and is not the same matrix");
  }
  // The product may run long after this call: it keeps what the call was given.
  struct Given {
    cublasLtMatmulDescOpaque_t description;
    cublasLtMatrixLayoutOpaque_t layouts[4];
    const void* data[4];
    std::uint64_t alignments[4];
    double alpha = 0, beta = 0;  // hold the bytes of the scale type
    bool reads_c;
  };
  Given given{*description, {*a_layout, *b_layout, *c_layout, *d_layout}, {a, b, c, d}, {}, 0, 0, reads_c};
  for (int i = 0; i < 4; ++i) given.alignments[i] = algorithm->data[3 + i];
  std::memcpy(&given.alpha, alpha, size_of(description->type));
  std::memcpy(&given.beta, beta, size_of(description->type));
  Operation operation;
  operation.place =
      reinterpret_cast<std::uintptr_t>(__builtin_extract_return_addr(__builtin_return_address(0)));
  operation.run = [given](const Moment& moment) {
    const char* const names[4] = {"A", "B", "C", "D"};
    Operand now[4];
    for (int i = 0; i < 4; ++i) now[i] = {names[i], given.data[i], &given.layouts[i]};
    for (int i = 0; i < 4; ++i) {
      if (i == 2 && !given.reads_c) continue;
      std::string late = check_operand(now[i], given.alignments[i], i < 3);
      if (!late.empty()) return fail(cudaErrorLaunchFailure, "matrix product: " + late);
      late = touch(moment, now[i].data, now[i].step_bytes(), now[i].column_bytes(), now[i].layout->columns,
                   i == 3);
      if (!late.empty())
        return fail(FaultKind::stream_order, std::string("a matrix product ") +
                                                 (i == 3 ? "writes " : "reads ") + late + ", as its " +
                                                 names[i]);
    }
    const DeviceAccess access;
    void* const target = const_cast<void*>(given.data[3]);
    const Run run = run_for(given.layouts[0].type, given.layouts[3].type);
    run(given.description, &given.alpha, now[0], now[1], &given.beta, now[2], target, given.layouts[3]);
    for (std::uint64_t column = 0; column < given.layouts[3].columns; ++column) {
      auto* const start = static_cast<char*>(target) + column * now[3].step_bytes();
      DeviceMemory::instance().mark_written(start, now[3].column_bytes());
    }
    return cudaSuccess;
  };
  const cudaError_t error = enqueue(stream, std::move(operation));
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                              : refuse(CUBLAS_STATUS_EXECUTION_FAILED, cudaGetErrorString(error));
}

}  // namespace scantape_emulated
