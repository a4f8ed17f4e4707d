#include "scantape/embedding.h"

#include "route.h"

namespace scantape {

namespace {

Status check(const EmbeddingForward& args) noexcept {
  Check check("embedding");
  check.takes_16_bits();
  check.input("ids", args.ids, {"...", Layout::dense, DType::i32});
  check.input("weight", args.weight, {"V D", Layout::rows});
  check.output("y", args.y, {"... D", Layout::rows});
  return check.finish();
}

Status check(const EmbeddingBackward& args) noexcept {
  Check check("embedding_backward");
  check.takes_16_bits();
  check.input("ids", args.ids, {"...", Layout::dense, DType::i32});
  check.input("d_y", args.d_y, {"... D", Layout::rows});
  check.gradient("d_weight", args.d_weight, wide("V D", Layout::rows));
  SCANTAPE_TRY(check.finish());
  if (args.ids.device.is_cpu() || args.ids.elements() <= kMostIdsOnCuda) return {};
  return Status::fail(Code::unsupported,
                      "embedding_backward: ids has more than 2^32 elements, on cuda at most that");
}

}  // namespace

SCANTAPE_ROUTE_OP(embedding_forward, EmbeddingForward, ids, reference::embedding_forward);
SCANTAPE_ROUTE_OP(embedding_backward, EmbeddingBackward, ids, reference::embedding_backward);

}  // namespace scantape
