#pragma once

/// cuBLASLt's header with the functions that this project calls under names of its own: they are ours, in a native build
/// to load the library when the first of them is called (cublas_lt_native.cpp), in an emulated one to stand in for it. A
/// program that links cuBLASLt itself so meets no second definition.
#define cublasLtCreate scantape_cublasLtCreate
#define cublasLtDestroy scantape_cublasLtDestroy
#define cublasLtGetStatusString scantape_cublasLtGetStatusString
#define cublasLtMatmul scantape_cublasLtMatmul
#define cublasLtMatmulAlgoConfigGetAttribute scantape_cublasLtMatmulAlgoConfigGetAttribute
#define cublasLtMatmulAlgoGetHeuristic scantape_cublasLtMatmulAlgoGetHeuristic
#define cublasLtMatmulDescCreate scantape_cublasLtMatmulDescCreate
#define cublasLtMatmulDescDestroy scantape_cublasLtMatmulDescDestroy
#define cublasLtMatmulDescSetAttribute scantape_cublasLtMatmulDescSetAttribute
#define cublasLtMatmulPreferenceCreate scantape_cublasLtMatmulPreferenceCreate
#define cublasLtMatmulPreferenceDestroy scantape_cublasLtMatmulPreferenceDestroy
#define cublasLtMatmulPreferenceSetAttribute scantape_cublasLtMatmulPreferenceSetAttribute
#define cublasLtMatrixLayoutCreate scantape_cublasLtMatrixLayoutCreate
#define cublasLtMatrixLayoutDestroy scantape_cublasLtMatrixLayoutDestroy

#include <cublasLt.h>
