#include "scantape/cross_entropy.h"

#include "route.h"

namespace scantape {

namespace {

void check_rows(Check& check, const CrossEntropyForward& args) noexcept {
  check.takes_16_bits();
  check.input("logits", args.logits, {"... V", Layout::rows});
  check.not_empty('V');
  check.input("target", args.target, {"...", Layout::dense, DType::i32});
}

Status check(const CrossEntropyForward& args) noexcept {
  Check check("cross_entropy");
  check_rows(check, args);
  check.output("loss", args.loss, {"", Layout::dense, DType::f64});
  check.output("statistics", args.statistics, wide("... 2"));
  return check.finish();
}

Status check(const CrossEntropyBackward& args) noexcept {
  Check check("cross_entropy_backward");
  check_rows(check, args);
  check.input("statistics", args.statistics, wide("... 2"));
  check.input("d_loss", args.d_loss, {"", Layout::dense, DType::f64});
  check.gradient("d_logits", args.d_logits, {"... V", Layout::rows});
  check.may_be("d_logits", "logits");
  return check.finish();
}

}  // namespace

SCANTAPE_ROUTE_OP(cross_entropy_forward, CrossEntropyForward, logits, reference::cross_entropy_forward);
SCANTAPE_ROUTE_OP(cross_entropy_backward, CrossEntropyBackward, logits, reference::cross_entropy_backward);

}  // namespace scantape
