#include "norm.h"

#include <cmath>

#include "check.h"

namespace scantape {

namespace {

const Wanted kRows{"... E", Layout::rows};

void check_eps(Check& check, double eps) noexcept {
  check.number("eps", eps, eps > 0 && std::isfinite(eps), "a finite number above 0");
}

}  // namespace

Status check_norm(const char* op, const char* statistics, const NormForward& args) noexcept {
  Check check(op);
  check.takes_16_bits();
  check.input("x", args.x, kRows);
  check.not_empty('E');
  check.optional_input("residual", args.residual, kRows);
  check.input("weight", args.weight, "E");
  check.optional_input("bias", args.bias, "E");
  check_eps(check, args.eps);
  check.output("y", args.y, kRows);
  check.require(args.residual.present || !args.r.present, "r is wanted, but there is no residual");
  check.optional_output("r", args.r, kRows);
  check.output("statistics", args.statistics, wide(statistics));
  check.may_be("y", "x");
  check.may_be("y", "residual");
  check.may_be("r", "x");
  check.may_be("r", "residual");
  return check.finish();
}

Status check_norm(const char* op, const char* statistics, const NormBackward& args) noexcept {
  Check check(op);
  check.takes_16_bits();
  const bool summed = args.residual.present;
  if (summed) {
    check.input("r", args.r, kRows);
  } else {
    check.input("x", args.x, kRows);
  }
  check.not_empty('E');
  check.input("weight", args.weight, "E");
  check.input("statistics", args.statistics, wide(statistics));
  check_eps(check, args.eps);
  check.optional_input("d_y", args.d_y, kRows);
  check.require(summed || !args.d_r.present, "d_r is given, but there is no residual");
  check.optional_input("d_r", args.d_r, kRows);
  check.gradient("d_x", args.d_x, kRows);
  check.require(summed || !args.d_residual.wanted(), "d_residual is wanted, but there is no residual");
  check.gradient("d_residual", args.d_residual, kRows);
  check.gradient("d_weight", args.d_weight, wide("E"));
  check.require(args.bias.present || !args.d_bias.wanted(), "d_bias is wanted, but there is no bias");
  check.gradient("d_bias", args.d_bias, wide("E"));
  check.may_be("d_x", "d_y");
  check.may_be("d_residual", "d_r");
  return check.finish();
}

}  // namespace scantape
