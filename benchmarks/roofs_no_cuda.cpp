#include "roofs.h"
#include "scantape/error.h"

namespace scantape::bench {

Roofs measure_cuda_roofs() {
  throw Error(Code::unsupported,
              "this build has no GPU to measure: timings of the emulator would say nothing");
}

}  // namespace scantape::bench
