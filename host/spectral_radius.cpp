#include "scantape/spectral_radius.h"

#include "dense.h"

namespace scantape {

namespace {

Status check(const SpectralRadius& args) noexcept {
  Check check("spectral_radius");
  check.input("A_bar", args.A_bar, "N N");
  check.output("radius", args.radius, "");
  SCANTAPE_TRY(check.finish());
  return check_dense_size("spectral_radius", "A_bar", args.A_bar, kMostSpectralRowsOnCuda);
}

}  // namespace

SCANTAPE_ROUTE_OP(spectral_radius, SpectralRadius, A_bar, reference::spectral_radius);

}  // namespace scantape
