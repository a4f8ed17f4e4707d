#pragma once

namespace scantape {

#define SCANTAPE_VERSION_MAJOR 0
#define SCANTAPE_VERSION_MINOR 1
#define SCANTAPE_VERSION_PATCH 0

/// Of the linked library: "0.1.0".
/// Example
///   const bool same = version()[0] == '0' + SCANTAPE_VERSION_MAJOR;  // same is 1
const char* version() noexcept;
/// The git commit it was built from, "-dirty" where the tree had changes; "unknown" outside a checkout.
const char* git_hash() noexcept;

}  // namespace scantape
