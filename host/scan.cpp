#include "scantape/scan.h"

#include "dense.h"
#include "route.h"
#include "scantape/discretize.h"

namespace scantape {

const char* name(ScanDirection direction) noexcept {
  switch (direction) {
    case ScanDirection::forward:
      return "forward";
    case ScanDirection::reversed:
      return "reversed";
  }
  return "unknown";
}

namespace {

/// The shapes of one form, as the sequence (b or h) and a show it.
struct Form {
  const char *sequence, *state, *decay;
};

// A sequence of more dimensions is taken for one with heads, the usual one for any other.
Form form_of(const ConstView& sequence) noexcept {
  if (sequence.rank() == 4) return {"B L H P", "B H P", "B L H"};
  if (sequence.rank() == 5) return {"B L H P N", "B H P N", "B L H"};
  return {"B L C", "B C", "C|C C|B L C"};
}

bool is_dense(const ScanForward& args) noexcept {
  return args.a.rank() == 2;
}

/// A matrix is read as one piece; decays of the other forms as rows.
Layout decay_layout(const ScanForward& args) noexcept {
  return is_dense(args) ? Layout::dense : Layout::rows;
}

void check_sequence(Check& check, const char* argument, const ConstView& sequence,
                    const ScanForward& args) noexcept {
  const Form form = form_of(sequence);
  check.takes_16_bits();
  check.input(argument, sequence, {form.sequence, Layout::rows});
  check.not_empty('L');
  check.input("a", args.a, wide(form.decay, decay_layout(args)));
  check.optional_input("h0", args.h0, wide(form.state));
  check.optional_input("start", args.start, "B L");
  check.number("direction", static_cast<double>(args.direction), args.direction <= ScanDirection::reversed,
               "forward or reversed");
}

Status check_size(const char* op, const ScanForward& args) noexcept {
  return is_dense(args) ? check_dense_size(op, "a", args.a, kMostDenseStatesOnCuda) : Status();
}

Status check(const ScanForward& args) noexcept {
  Check check("scan");
  check_sequence(check, "b", args.b, args);
  const Form form = form_of(args.b);
  check.output("h", args.h, {form.sequence, Layout::rows});
  check.optional_output("final_state", args.final_state, wide(form.state));
  SCANTAPE_TRY(check.finish());
  return check_size("scan", args);
}

Status check(const ScanBackward& args) noexcept {
  Check check("scan_backward");
  check_sequence(check, "h", args.h, args);
  const Form form = form_of(args.h);
  check.optional_input("d_h", args.d_h, {form.sequence, Layout::rows});
  check.optional_input("d_final_state", args.d_final_state, wide(form.state));
  const char* const decay = is_dense(args)       ? "C C"
                            : args.a.rank() == 1 ? "C"
                            : args.h.rank() == 3 ? "B L C"
                                                 : "B L H";
  check.gradient("d_a", args.d_a, wide(decay, decay_layout(args)));
  check.gradient("d_b", args.d_b, {form.sequence, Layout::rows});
  check.gradient("d_h0", args.d_h0, wide(form.state));
  SCANTAPE_TRY(check.finish());
  return check_size("scan_backward", args);
}

}  // namespace

SCANTAPE_ROUTE_OP(scan_forward, ScanForward, b, reference::scan_forward);
SCANTAPE_ROUTE_OP(scan_backward, ScanBackward, h, reference::scan_backward);

}  // namespace scantape
