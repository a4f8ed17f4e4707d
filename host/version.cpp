#include "scantape/version.h"

#include "git_hash.h"

namespace scantape {

const char* version() noexcept {
  return SCANTAPE_VERSION;
}
const char* git_hash() noexcept {
  return SCANTAPE_GIT;
}

}  // namespace scantape
