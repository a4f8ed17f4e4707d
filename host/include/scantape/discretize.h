#pragma once

#include "scantape/op.h"

namespace scantape {

/// How a continuous state space model is made discrete; z = dt A, for a matrix A by its own algebra:
///   zoh        A_bar = exp(z),              B_bar = dt phi1(z) B,    phi1(z) = (exp(z) - 1) / z
///   exp_euler  A_bar = exp(z),              B_bar = dt B             (what Mamba uses)
///   bilinear   A_bar = (1 + z/2)/(1 - z/2), B_bar = dt/(1 - z/2) B
///   euler      A_bar = 1 + z,               B_bar = dt B
enum class DiscretizeMethod : std::uint8_t { zoh, exp_euler, bilinear, euler };

const char* name(DiscretizeMethod method) noexcept;  // "zoh"

/// What A is. The shapes of A and dt say which: see DiscretizeForward.
enum class DiscretizeForm : std::uint8_t { diagonal, per_head, dense };

const char* name(DiscretizeForm form) noexcept;  // "per_head"

/// The most states of a dense A on cuda, where one block of threads holds the matrices.
inline constexpr std::int64_t kMostDenseStatesOnCuda = 64;

/// Discretisation of a state space model  x' = A x + B u,  u held constant over each step dt:  (dt, A, B) -> (A_bar,
/// B_bar), in one of three forms. F = A_bar - 1 (A_bar - I for a matrix) is formed without cancellation.
///
///   form       A        dt          A_bar, F    input          its output
///   diagonal   [N]      [N]         [N]         B [N, E]       B_bar [N, E]
///   dense      [N, N]   [] (one)    [N, N]      B [N, E]       B_bar [N, E]
///   per_head   [H]      [B, L, H]   [B, L, H]   none           s [B, L, H], with B_bar x = s (B x)
///
/// Shapes   those of the table. F is optional; what a form does not have must be absent.
/// Dtypes   f32 or f64, all equal.
/// Units    dt in the time unit whose inverse is A's; dt = 0 gives A_bar = 1, B_bar = 0, s = 0.
/// Accuracy diagonal, per_head: a few ulp for dt A from -5000 to -1e-8 and to 0; never (exp(z) - 1)/z, never
///          expm1(dt A)/A. dense: scaling and squaring of F and of the integral of exp(A t), never of exp itself, never
///          an inverse of A, which may be singular; bilinear by LU with partial pivoting.
/// Memory   rows of B, B_bar may be strided, and of [B, L, H] tensors; the rest is contiguous. Outputs overlap nothing.
///          CUDA, dense: workspace of a few N x N matrices. CPU, dense: such matrices are allocated.
/// Async    enqueues on `stream`; does not synchronise or allocate (cuda). dt stays on the device, also where it decides
///          how often a matrix is squared. Reentrant.
/// Errors   invalid_argument (shape, dtype, device, layout, overlap, unknown method, an argument that the form does not
///          have), unsupported (dense on cuda with N > 64), out_of_memory (dense on cpu), cuda.
/// Source   gradients derived in kernels/discretize.cu and kernels/discretize_dense.cuh; Smith, Warrington, Linderman
///          2023, arXiv:2208.04933 (zoh); Higham 2005, "The scaling and squaring method for the matrix exponential".
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
///
///   // A dense A, here a turn by a tenth of a radian, and one step a head.
///   const Tensor turn = Tensor::from({2, 2}, std::vector<double>{0, 1, -1, 0}), push = Tensor::full({2, 1}, 1, DType::f64);
///   const Tensor step = Tensor::full({}, 0.1, DType::f64), steps = Tensor::full({1, 3, 1}, 0.1, DType::f64);
///   Tensor turned = Tensor::empty({2, 2}, DType::f64), pushed = Tensor::empty({2, 1}, DType::f64);
///   DiscretizeForward dense;
///   dense.dt = step;
///   dense.A = turn;
///   dense.B = push;
///   dense.A_bar = turned.writable();
///   dense.B_bar = pushed.writable();
///   require(discretize_forward(dense));  // turned is 0.9950, 0.0998, -0.0998, 0.9950
///                                        // pushed is 0.1048, 0.0948
///   Tensor decay = Tensor::empty({1, 3, 1}, DType::f64), s = Tensor::empty({1, 3, 1}, DType::f64);
///   DiscretizeForward per_head;
///   per_head.dt = steps;
///   per_head.A = A;
///   per_head.A_bar = decay.writable();
///   per_head.s = s.writable();
///   require(discretize_forward(per_head));  // decay is 0.9048, 0.9048, 0.9048
///                                           // s is 0.0952, 0.0952, 0.0952
struct DiscretizeForward {
  ConstView dt, A, B;
  DiscretizeMethod method = DiscretizeMethod::zoh;
  View A_bar, B_bar, F, s;
  Workspace workspace;
};

/// Gradient of discretize, from dt, A, B alone; the outputs are not read.
///
/// Shapes   d_A_bar, d_F as A_bar, d_B_bar as B_bar, d_s as s: each may be absent (zero), those that the form does not
///          have must be;  d_dt, d_A, d_B as dt, A, B. d_A of per_head is summed over B and L.
/// Memory   CUDA: per_head wants a workspace for the partial sums of d_A. Squarings of a dense A are run again; a fixed
///          number of them is kept, so that the workspace follows from N alone.
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
  ConstView d_A_bar, d_B_bar, d_F, d_s;
  Gradient d_dt, d_A, d_B;
};

/// The form that the ranks of A and dt ask for.
inline DiscretizeForm form_of(const DiscretizeForward& args) noexcept {
  if (args.A.rank() == 2) return DiscretizeForm::dense;
  return args.dt.rank() == 3 ? DiscretizeForm::per_head : DiscretizeForm::diagonal;
}

SCANTAPE_DECLARE_OP(discretize_forward, DiscretizeForward);
SCANTAPE_DECLARE_OP(discretize_backward, DiscretizeBackward);

}  // namespace scantape
