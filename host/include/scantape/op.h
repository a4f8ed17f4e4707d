#pragma once

#include "scantape/status.h"
#include "scantape/view.h"

/// Declares one direction of an op, `function(const Args&, Stream)`, and the workspace it wants, three times:
///   scantape::             checks every argument, then routes by device. What users call.
///   scantape::reference::  plain loops on the CPU. Trusts its arguments.
///   scantape::cuda::       launches kernels on the stream. Trusts its arguments; allocates and waits for nothing (but
///                          for a process' first matrix product on a device, which sets the vendor's library up).
#define SCANTAPE_DECLARE_OP(function, Args)                                 \
  Status function(const Args& args, Stream stream = {}) noexcept;           \
  std::int64_t function##_workspace(const Args& args) noexcept; /* bytes */ \
  namespace reference {                                                     \
  Status function(const Args& args) noexcept;                               \
  }                                                                         \
  namespace cuda {                                                          \
  Status function(const Args& args, Stream stream) noexcept;                \
  std::int64_t function##_workspace(const Args& args) noexcept;             \
  }                                                                         \
  static_assert(true, "a semicolon follows")
