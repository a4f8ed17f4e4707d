#pragma once

#include <cstdint>

namespace scantape {

/// What this thread has had done since it started: kernels launched (matrix products of the vendor's library count as
/// one each), ops that ran on the CPU, and, on either device, directions of ssd that ran in its sequential and in its
/// chunked form. Differences of two readings prove where work ran, and how.
/// Example
///   #include "scantape/silu.h"
///   const std::int64_t before = counters().cpu_ops;
///   Tensor x = Tensor::zeros({2}, DType::f32);
///   SiluForward args;
///   args.x = args.y = x.writable();
///   require(silu_forward(args));
///   const double ops = static_cast<double>(counters().cpu_ops - before);  // ops is 1
struct Counters {
  std::int64_t kernel_launches = 0;
  std::int64_t cpu_ops = 0;
  std::int64_t ssd_sequential = 0;
  std::int64_t ssd_chunked = 0;
};

/// The counts so far of the thread that asks.
Counters counters() noexcept;

namespace detail {
/// Where the library counts.
Counters& mutable_counters() noexcept;

/// Tests may listen to this thread's launches of our own kernels: the name, and the address that tells apart what one
/// name is compiled for. Null: nobody listens.
using LaunchListener = void (*)(const char* name, const void* kernel);
LaunchListener& launch_listener() noexcept;
}  // namespace detail

}  // namespace scantape
