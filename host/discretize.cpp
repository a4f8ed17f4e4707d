#include "scantape/discretize.h"

#include "dense.h"

namespace scantape {

const char* name(DiscretizeMethod method) noexcept {
  switch (method) {
    case DiscretizeMethod::zoh:
      return "zoh";
    case DiscretizeMethod::exp_euler:
      return "exp_euler";
    case DiscretizeMethod::bilinear:
      return "bilinear";
    case DiscretizeMethod::euler:
      return "euler";
  }
  return "unknown";
}

const char* name(DiscretizeForm form) noexcept {
  switch (form) {
    case DiscretizeForm::diagonal:
      return "diagonal";
    case DiscretizeForm::per_head:
      return "per_head";
    case DiscretizeForm::dense:
      return "dense";
  }
  return "unknown";
}

namespace {

/// The shapes of one form: of dt, of A_bar and F.
struct Shapes {
  Wanted A, dt, A_bar;
};

Shapes shapes_of(DiscretizeForm form) noexcept {
  switch (form) {
    case DiscretizeForm::per_head:
      return {"H", {"B L H", Layout::rows}, {"B L H", Layout::rows}};
    case DiscretizeForm::dense:
      return {"N N", "", "N N"};
    case DiscretizeForm::diagonal:
      break;
  }
  return {"N|N N", "N|B L N", "N"};
}

// A leads: it is the parameter that says how many states there are.
void check_model(Check& check, const DiscretizeForward& args) noexcept {
  const DiscretizeForm form = form_of(args);
  const Shapes shapes = shapes_of(form);
  check.input("A", args.A, shapes.A);
  check.input("dt", args.dt, shapes.dt);
  if (form == DiscretizeForm::per_head)
    check.require(!args.B.present,
                  "B has no place where dt is [B, L, H]: s is the factor of whatever comes in");
  else
    check.input("B", args.B, {"N E", Layout::rows});
  check.number("method", static_cast<double>(args.method), args.method <= DiscretizeMethod::euler,
               "zoh, exp_euler, bilinear or euler");
}

Status check_size(const char* op, const DiscretizeForward& args) noexcept {
  if (form_of(args) != DiscretizeForm::dense) return {};
  return check_dense_size(op, "A", args.A, kMostDenseStatesOnCuda);
}

Status check(const DiscretizeForward& args) noexcept {
  constexpr const char* kOp = "discretize";
  const bool per_head = form_of(args) == DiscretizeForm::per_head;
  const Wanted as_A_bar = shapes_of(form_of(args)).A_bar;
  Check check(kOp);
  check_model(check, args);
  check.output("A_bar", args.A_bar, as_A_bar);
  check.optional_output("F", args.F, as_A_bar);
  if (per_head) {
    check.require(!args.B_bar.present, "B_bar has no place where dt is [B, L, H]: s takes it");
    check.output("s", args.s, as_A_bar);
  } else {
    check.require(!args.s.present, "s has no place where dt is not [B, L, H]: it is in B_bar");
    check.output("B_bar", args.B_bar, {"N E", Layout::rows});
  }
  SCANTAPE_TRY(check.finish());
  return check_size(kOp, args);
}

Status check(const DiscretizeBackward& args) noexcept {
  constexpr const char* kOp = "discretize_backward";
  const bool per_head = form_of(args) == DiscretizeForm::per_head;
  const Shapes shapes = shapes_of(form_of(args));
  Check check(kOp);
  check_model(check, args);
  check.optional_input("d_A_bar", args.d_A_bar, shapes.A_bar);
  check.optional_input("d_F", args.d_F, shapes.A_bar);
  if (per_head) {
    check.require(!args.d_B_bar.present, "d_B_bar has no place where dt is [B, L, H]: d_s takes it");
    check.require(!args.d_B.wanted(), "d_B is wanted, but where dt is [B, L, H] there is no B");
    check.optional_input("d_s", args.d_s, shapes.A_bar);
  } else {
    check.require(!args.d_s.present, "d_s has no place where dt is not [B, L, H]");
    check.optional_input("d_B_bar", args.d_B_bar, {"N E", Layout::rows});
    check.gradient("d_B", args.d_B, {"N E", Layout::rows});
  }
  check.gradient("d_dt", args.d_dt, shapes.dt);
  check.gradient("d_A", args.d_A, shapes.A);
  SCANTAPE_TRY(check.finish());
  return check_size(kOp, args);
}

}  // namespace

SCANTAPE_ROUTE_OP(discretize_forward, DiscretizeForward, A, reference::discretize_forward);
SCANTAPE_ROUTE_OP(discretize_backward, DiscretizeBackward, A, reference::discretize_backward);

}  // namespace scantape
