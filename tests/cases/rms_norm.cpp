#include "scantape/rms_norm.h"

#include "norm.h"

namespace scantape::cases {

std::vector<Case> rms_norm_cases() {
  return norm_cases(
      {"rms_norm", false, SCANTAPE_DIRECTION(rms_norm_forward), SCANTAPE_DIRECTION(rms_norm_backward)});
}

}  // namespace scantape::cases
