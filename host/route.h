#pragma once

#include "check.h"
#include "runtime/cuda_device.h"
#include "scantape/counters.h"
#include "scantape/op.h"

#ifndef SCANTAPE_CUDA
#define SCANTAPE_CUDA 0
#endif

/// Defines scantape::function and scantape::function_workspace: the checks (an overload of `check` for Args),
/// then the form for the device of the argument `lead`. Arguments that the op refuses want no workspace.
#define SCANTAPE_ROUTE_OP(function, Args, lead, cpu_form)                      \
  Status function(const Args& args, [[maybe_unused]] Stream stream) noexcept { \
    SCANTAPE_TRY(check(args));                                                 \
    [[maybe_unused]] const Device lead_device = args.lead.device;              \
    if (lead_device.is_cpu()) {                                                \
      ++detail::mutable_counters().cpu_ops;                                    \
      return cpu_form(args);                                                   \
    }                                                                          \
    SCANTAPE_ROUTE_TO_CUDA(function);                                          \
  }                                                                            \
  std::int64_t function##_workspace(const Args& args) noexcept {               \
    if (args.lead.device.is_cpu() || !check(args).ok()) return 0;              \
    return SCANTAPE_ROUTE_WORKSPACE_TO_CUDA(function);                         \
  }                                                                            \
  static_assert(true, "a semicolon follows")

#if SCANTAPE_CUDA
#define SCANTAPE_ROUTE_TO_CUDA(function)                                                      \
  SCANTAPE_TRY(check_workspace(#function, args.workspace, cuda::function##_workspace(args))); \
  const runtime::CurrentDevice current(lead_device.index);                                    \
  SCANTAPE_TRY(current.status());                                                             \
  return cuda::function(args, stream)
#define SCANTAPE_ROUTE_WORKSPACE_TO_CUDA(function) cuda::function##_workspace(args)
#else
#define SCANTAPE_ROUTE_TO_CUDA(function) \
  return Status::fail(Code::unsupported, #function ": this build of scantape has no CUDA")
#define SCANTAPE_ROUTE_WORKSPACE_TO_CUDA(function) 0
#endif
