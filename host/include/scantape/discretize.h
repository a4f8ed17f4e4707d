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
/// Example
///   const Tensor dt = Tensor::full({1}, 0.1, DType::f64), A = Tensor::full({1}, -1, DType::f64);
///   const Tensor B = Tensor::from({1, 2}, std::vector<double>{1, 2});
///   Tensor A_bar = Tensor::empty({1}, DType::f64), B_bar = Tensor::empty({1, 2}, DType::f64);
///   DiscretizeForward forward;
///   forward.dt = dt;
///   forward.A = A;
///   forward.B = B;
///   forward.method = DiscretizeMethod::zoh;
///   forward.A_bar = A_bar.writable();
///   forward.B_bar = B_bar.writable();
///   require(discretize_forward(forward));  // A_bar is 0.9048
///                                          // B_bar is 0.0952, 0.1903
struct DiscretizeForward {
  ConstView dt, A, B;
  DiscretizeMethod method = DiscretizeMethod::zoh;
  View A_bar, B_bar, F;
  Workspace workspace;
};

/// Gradient of discretize, from dt, A, B alone; A_bar, B_bar and F are not read.
///
/// Shapes   d_A_bar, d_F [N] and d_B_bar [N, E], each may be absent (zero);  d_dt, d_A [N], d_B [N, E].
/// Example
///   const Tensor d_A_bar = Tensor::full({1}, 1, DType::f64);
///   Tensor d_dt = Tensor::empty({1}, DType::f64), d_A = Tensor::empty({1}, DType::f64);
///   DiscretizeBackward backward;
///   static_cast<DiscretizeForward&>(backward) = forward;
///   backward.d_A_bar = d_A_bar;
///   backward.d_dt = {d_dt.writable(), WriteMode::overwrite};
///   backward.d_A = {d_A.writable(), WriteMode::overwrite};
///   require(discretize_backward(backward));  // d_dt is -0.9048
///                                            // d_A is 0.0905
struct DiscretizeBackward : DiscretizeForward {
  ConstView d_A_bar, d_B_bar, d_F;
  Gradient d_dt, d_A, d_B;
};

SCANTAPE_DECLARE_OP(discretize_forward, DiscretizeForward);
SCANTAPE_DECLARE_OP(discretize_backward, DiscretizeBackward);

}  // namespace scantape
