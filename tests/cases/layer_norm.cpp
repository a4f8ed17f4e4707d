#include "scantape/layer_norm.h"

#include "norm.h"

namespace scantape::cases {

std::vector<Case> layer_norm_cases() {
  return norm_cases(
      {"layer_norm", true, SCANTAPE_DIRECTION(layer_norm_forward), SCANTAPE_DIRECTION(layer_norm_backward)});
}

}  // namespace scantape::cases
