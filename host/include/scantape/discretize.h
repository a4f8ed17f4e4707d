#pragma once

#include "scantape/op.h"

namespace scantape {

/// How a continuous state space model is made discrete; z = dt A:
///   zoh        A_bar = exp(z),              B_bar = dt phi1(z) B,    phi1(z) = (exp(z) - 1) / z
///   exp_euler  A_bar = exp(z),              B_bar = dt B             (what Mamba uses)
///   bilinear   A_bar = (1 + z/2)/(1 - z/2), B_bar = dt/(1 - z/2) B
///   euler      A_bar = 1 + z,               B_bar = dt B
enum class DiscretizeMethod : std::uint8_t { zoh, exp_euler, bilinear, euler };

const char* name(DiscretizeMethod method) noexcept;  // "zoh"

/// Discretisation of a diagonal state space model:  (dt, A, B) -> (A_bar, B_bar).
///
/// Shapes   dt, A, A_bar, F [N];  B, B_bar [N, E].  F = A_bar - 1 (optional), formed without cancellation.
/// Dtypes   f32 or f64, all equal.
/// Units    dt in the time unit whose inverse is A's; dt = 0 gives A_bar = 1, B_bar = 0.
/// Accuracy a few ulp for dt A from -5000 to -1e-8 and to 0; never (exp(z) - 1)/z, never expm1(dt A)/A.
/// Memory   rows of B, B_bar may be strided. Outputs overlap nothing. No workspace.
/// Async    enqueues on `stream`; does not synchronise or allocate. dt stays on the device. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap, unknown method), cuda.
/// Source   gradient derived in kernels/discretize.cu; Smith, Warrington, Linderman 2023, arXiv:2208.04933 (zoh).
struct DiscretizeForward {
  ConstView dt, A, B;
  DiscretizeMethod method = DiscretizeMethod::zoh;
  View A_bar, B_bar, F;
  Workspace workspace;
};

/// Gradient of discretize, from dt, A, B alone; A_bar, B_bar and F are not read.
///
/// Shapes   d_A_bar, d_F [N] and d_B_bar [N, E], each may be absent (zero);  d_dt, d_A [N], d_B [N, E].
struct DiscretizeBackward : DiscretizeForward {
  ConstView d_A_bar, d_B_bar, d_F;
  Gradient d_dt, d_A, d_B;
};

SCANTAPE_DECLARE_OP(discretize_forward, DiscretizeForward);
SCANTAPE_DECLARE_OP(discretize_backward, DiscretizeBackward);

}  // namespace scantape
