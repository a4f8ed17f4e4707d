#pragma once

#include "scantape/state_output.h"

namespace scantape::cpu {

/// state_output with an exponential that runs in vectors (f32; f64 takes the reference). Trusts its arguments.
Status state_output_forward(const StateOutputForward& args) noexcept;
Status state_output_backward(const StateOutputBackward& args) noexcept;

}  // namespace scantape::cpu
