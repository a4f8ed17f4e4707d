#include "scantape/registry.h"

#include "scantape/step_control.h"

namespace scantape {

const char* name(OpKind kind) noexcept {
  switch (kind) {
    case OpKind::differentiable:
      return "differentiable";
    case OpKind::optimiser:
      return "optimiser";
    case OpKind::utility:
      return "utility";
  }
  return "unknown";
}

namespace {

std::vector<DType> both_types() {
  return {DType::f32, DType::f64};
}
std::string rank_limit() {
  return "rank <= " + std::to_string(kMaxRank);
}

std::string control_shape() {
  return "[" + std::to_string(kStepControls) + "]";
}

OpOption given(const char* argument) {
  return {argument, {"present", "absent"}};
}

// An input or output without a gradient of its own.
OpArgument plain(const char* argument, const char* shape) {
  return {.name = argument, .shape = shape};
}
OpArgument with_gradient(const char* argument, const char* shape) {
  return {.name = argument, .shape = shape, .gradient = true};
}

OpInfo elementwise(const char* op) {
  return {.name = op,
          .inputs = {with_gradient("x", "[...]")},
          .outputs = {with_gradient("y", "[...]")},
          .options = {},
          .numbers = {},
          .dtypes = both_types(),
          .limits = {rank_limit()}};
}

OpInfo projection() {
  return {.name = "projection",
          .inputs = {with_gradient("x", "[..., I]"),
                     with_gradient("weight", "[O, I]"),
                     {.name = "bias", .shape = "[O]", .optional = true, .gradient = true}},
          .outputs = {with_gradient("y", "[..., O]")},
          .options = {given("bias")},
          .numbers = {},
          .dtypes = both_types(),
          .limits = {rank_limit()}};
}

OpInfo layer_norm() {
  return {.name = "layer_norm",
          .inputs = {with_gradient("x", "[..., E]"), with_gradient("weight", "[E]"),
                     with_gradient("bias", "[E]")},
          .outputs = {with_gradient("y", "[..., E]"), plain("statistics", "[..., 3]")},
          .options = {},
          .numbers = {{"eps", "finite, above 0", 1e-5}},
          .dtypes = both_types(),
          .limits = {rank_limit(), "E >= 1"}};
}

OpInfo discretize() {
  return {.name = "discretize",
          .inputs = {with_gradient("dt", "[N]"), with_gradient("A", "[N]"), with_gradient("B", "[N, E]")},
          .outputs = {with_gradient("A_bar", "[N]"),
                      with_gradient("B_bar", "[N, E]"),
                      {.name = "F", .shape = "[N]", .optional = true, .gradient = true}},
          .options = {{"method", {"zoh", "exp_euler", "bilinear", "euler"}}, given("F")},
          .numbers = {},
          .dtypes = both_types(),
          .limits = {"A diagonal"}};
}

OpInfo scan() {
  return {.name = "scan",
          .inputs = {with_gradient("a", "[C], [B, L, C] or [B, L, H]"),
                     with_gradient("b", "[B, L, C], [B, L, H, P] or [B, L, H, P, N]"),
                     {.name = "h0",
                      .shape = "as b without L",
                      .optional = true,
                      .gradient = true,
                      .gradient_when_absent = true},
                     {.name = "start", .shape = "[B, L]", .optional = true}},
          .outputs = {with_gradient("h", "as b"),
                      {.name = "final_state", .shape = "as b without L", .optional = true, .gradient = true}},
          .options = {{"decay", {"constant", "varying", "per head"}},
                      {"direction", {"forward", "reversed"}},
                      {"minus_one", {"no", "yes"}},
                      given("h0"),
                      given("start"),
                      given("final_state")},
          .numbers = {},
          .dtypes = both_types(),
          .limits = {"L >= 1"}};
}

OpInfo state_output() {
  return {.name = "state_output",
          .inputs = {with_gradient("z", "[..., E]"), with_gradient("u", "[..., E]"),
                     with_gradient("D", "[E]"), with_gradient("residual", "[..., E]")},
          .outputs = {with_gradient("out", "[..., E]")},
          .options = {{"activation", {"silu", "none"}}},
          .numbers = {},
          .dtypes = both_types(),
          .limits = {rank_limit()}};
}

OpInfo mse() {
  return {.name = "mse",
          .inputs = {with_gradient("prediction", "[...]"),
                     plain("target", "[...]"),
                     {.name = "mask", .shape = "[...]", .optional = true}},
          .outputs = {{.name = "loss", .shape = "[]", .gradient = true, .f64 = true}},
          .options = {given("mask")},
          .numbers = {},
          .dtypes = both_types(),
          .limits = {rank_limit()}};
}

OpInfo grad_norm() {
  return {
      .name = "grad_norm",
      .kind = OpKind::utility,
      .inputs = {plain("gradient", "[n]"), {.name = "loss", .shape = "[]", .optional = true, .f64 = true}},
      .outputs = {{.name = "control", .shape = control_shape(), .f64 = true, .in_place = true}},
      .options = {given("loss")},
      .numbers = {},
      .dtypes = both_types(),
      .limits = {}};
}

OpInfo adamw() {
  const auto state = [](const char* argument) {
    return OpArgument{.name = argument, .shape = "[n]", .in_place = true};
  };
  return {.name = "adamw",
          .kind = OpKind::optimiser,
          .inputs = {plain("gradient", "[n]"), {.name = "control", .shape = control_shape(), .f64 = true}},
          .outputs = {state("parameter"), state("first_moment"), state("second_moment")},
          .options = {},
          .numbers = {{"decayed_elements", "0 to n", 0},
                      {"beta1", "in [0, 1)", 0.9},
                      {"beta2", "in [0, 1)", 0.999},
                      {"eps", "above 0", 1e-8},
                      {"weight_decay", "0 or above", 0.01}},
          .dtypes = both_types(),
          .limits = {}};
}

}  // namespace

const std::vector<OpInfo>& registry() {
  static const std::vector<OpInfo> ops = {
      projection(), layer_norm(), elementwise("softplus"), elementwise("silu"),
      discretize(), scan(),       state_output(),          mse(),
      grad_norm(),  adamw(),
  };
  return ops;
}

const OpInfo* find_op(const std::string& name) {
  for (const OpInfo& op : registry())
    if (op.name == name) return &op;
  return nullptr;
}

}  // namespace scantape
