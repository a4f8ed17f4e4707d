#pragma once

#include "scantape/scan.h"

/// The part of scan whose a is a matrix (scan_dense.cu); scan.cu hands over to it.
namespace scantape::cuda {

Status scan_dense_forward(const ScanForward& args, Stream stream) noexcept;
Status scan_dense_backward(const ScanBackward& args, Stream stream) noexcept;
std::int64_t scan_dense_forward_workspace(const ScanForward& args) noexcept;
std::int64_t scan_dense_backward_workspace(const ScanBackward& args) noexcept;

}  // namespace scantape::cuda
