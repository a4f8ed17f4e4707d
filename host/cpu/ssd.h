#pragma once

#include "scantape/ssd.h"

namespace scantape::cpu {

/// ssd in either form: the chunked one here, by blocked products, the sequential one by the reference. Trusts its
/// arguments.
Status ssd_forward(const SsdForward& args) noexcept;
Status ssd_backward(const SsdBackward& args) noexcept;

}  // namespace scantape::cpu
