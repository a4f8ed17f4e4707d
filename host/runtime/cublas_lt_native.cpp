// cuBLASLt, loaded when the first matrix product on a GPU asks for it. Linked in the ordinary way it takes 210 MB
// and a tenth of a second of every process, also of those that never meet a GPU: its tables are relocated as it is
// loaded. Each function below has the type of the library's own and, by cublas_lt.h, a name of ours.

#include "runtime/cublas_lt.h"

#include <dlfcn.h>

#include <string>

namespace {

#define SCANTAPE_TEXT_OF(value) #value
#define SCANTAPE_TEXT(value) SCANTAPE_TEXT_OF(value)
constexpr const char* kLibrary = "libcublasLt.so." SCANTAPE_TEXT(CUBLAS_VER_MAJOR);

/// The loaded library; null, with the reason, where it cannot be loaded. It is never unloaded: handles outlive main.
struct Library {
  void* handle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  std::string reason;

  Library() {
    if (handle == nullptr) reason = dlerror();
  }
};

const Library& library() {
  static const Library* const loaded = new Library;
  return *loaded;
}

template <class Function>
Function* find(const char* name) {
  return library().handle == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library().handle, name));
}

}  // namespace

/// Defines a function of the library that hands its arguments on.
#define SCANTAPE_FORWARD(function, parameters, arguments)                    \
  extern "C" cublasStatus_t function parameters {                            \
    static const auto real = find<cublasStatus_t parameters>(#function);     \
    return real == nullptr ? CUBLAS_STATUS_NOT_INITIALIZED : real arguments; \
  }                                                                          \
  static_assert(true, "a semicolon follows")

extern "C" const char* cublasLtGetStatusString(cublasStatus_t status) {
  static const auto real = find<const char*(cublasStatus_t)>("cublasLtGetStatusString");
  return real == nullptr ? library().reason.c_str() : real(status);
}

SCANTAPE_FORWARD(cublasLtCreate, (cublasLtHandle_t * handle), (handle));
SCANTAPE_FORWARD(cublasLtDestroy, (cublasLtHandle_t handle), (handle));
SCANTAPE_FORWARD(cublasLtMatmulDescCreate,
                 (cublasLtMatmulDesc_t * description, cublasComputeType_t compute, cudaDataType_t scale),
                 (description, compute, scale));
SCANTAPE_FORWARD(cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t description), (description));
SCANTAPE_FORWARD(cublasLtMatmulDescSetAttribute,
                 (cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute,
                  const void* value, size_t bytes),
                 (description, attribute, value, bytes));
SCANTAPE_FORWARD(cublasLtMatrixLayoutCreate,
                 (cublasLtMatrixLayout_t * layout, cudaDataType type, uint64_t rows, uint64_t columns,
                  int64_t ld),
                 (layout, type, rows, columns, ld));
SCANTAPE_FORWARD(cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t layout), (layout));
SCANTAPE_FORWARD(cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t * preference), (preference));
SCANTAPE_FORWARD(cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t preference), (preference));
SCANTAPE_FORWARD(cublasLtMatmulPreferenceSetAttribute,
                 (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
                  const void* value, size_t bytes),
                 (preference, attribute, value, bytes));
SCANTAPE_FORWARD(cublasLtMatmulAlgoGetHeuristic,
                 (cublasLtHandle_t handle, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
                  cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                  cublasLtMatmulPreference_t preference, int wanted,
                  cublasLtMatmulHeuristicResult_t results[], int* found),
                 (handle, description, a, b, c, d, preference, wanted, results, found));
SCANTAPE_FORWARD(cublasLtMatmulAlgoConfigGetAttribute,
                 (const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute,
                  void* value, size_t bytes, size_t* written),
                 (algorithm, attribute, value, bytes, written));
SCANTAPE_FORWARD(cublasLtMatmul,
                 (cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha, const void* a,
                  cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                  const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                  cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                  size_t workspace_bytes, cudaStream_t stream),
                 (handle, description, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout,
                  algorithm, workspace, workspace_bytes, stream));
