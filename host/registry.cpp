#include "scantape/registry.h"

#include <limits>
#include <utility>

#include "scantape/causal_conv1d.h"
#include "scantape/discretize.h"
#include "scantape/selective_scan.h"
#include "scantape/spectral_radius.h"
#include "scantape/ssd.h"
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

bool OpArgument::exists_with(const std::string& option, const std::string& value) const {
  const std::size_t equals = only_with.find('=');
  if (equals == std::string::npos || only_with.substr(0, equals) != option) return true;
  return ("|" + only_with.substr(equals + 1) + "|").find("|" + value + "|") != std::string::npos;
}

namespace {

std::vector<DType> both_types() {
  return {DType::f32, DType::f64};
}
std::vector<DType> all_types() {
  return {DType::f32, DType::f64, DType::bf16, DType::f16};
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
OpArgument optional_with_gradient(const char* argument, const char* shape) {
  return {.name = argument, .shape = shape, .optional = true, .gradient = true};
}

// The weight or bias of an op that takes 16 bits: its gradient is never narrower than f32.
OpArgument parameter(const char* argument, const char* shape, bool optional) {
  return {.name = argument, .shape = shape, .optional = optional, .gradient = true, .wide_gradient = true};
}

OpInfo elementwise(const char* op) {
  return {.name = op,
          .inputs = {with_gradient("x", "[...]")},
          .outputs = {with_gradient("y", "[...]")},
          .options = {},
          .numbers = {},
          .dtypes = all_types(),
          .limits = {rank_limit()}};
}

OpInfo embedding() {
  return {.name = "embedding",
          .inputs = {{.name = "ids", .shape = "[...]", .i32 = true}, parameter("weight", "[V, D]", false)},
          .outputs = {with_gradient("y", "[..., D]")},
          .options = {},
          .numbers = {},
          .dtypes = all_types(),
          .limits = {rank_limit(), "on cuda: backward takes at most 2^32 ids"}};
}

OpInfo projection() {
  return {.name = "projection",
          .inputs = {with_gradient("x", "[..., I]"), parameter("weight", "[O, I]", false),
                     parameter("bias", "[O]", true)},
          .outputs = {with_gradient("y", "[..., O]")},
          .options = {given("bias")},
          .numbers = {},
          .dtypes = all_types(),
          .limits = {rank_limit()}};
}

OpInfo norm(const char* op, const char* statistics) {
  return {.name = op,
          .inputs = {with_gradient("x", "[..., E]"), optional_with_gradient("residual", "[..., E]"),
                     parameter("weight", "[E]", false), parameter("bias", "[E]", true)},
          .outputs = {with_gradient("y", "[..., E]"),
                      optional_with_gradient("r", "[..., E]"),
                      {.name = "statistics", .shape = statistics, .wide = true}},
          .options = {given("residual"), given("bias")},
          .numbers = {{"eps", "finite, above 0", 1e-5}},
          .dtypes = all_types(),
          .limits = {rank_limit(), "E >= 1", "r only beside a residual"}};
}

OpInfo projection_layer_norm() {
  return {.name = "projection_layer_norm",
          .inputs = {with_gradient("x", "[..., I]"), with_gradient("weight", "[E, I]"),
                     optional_with_gradient("bias", "[E]"), with_gradient("norm_weight", "[E]"),
                     optional_with_gradient("norm_bias", "[E]")},
          .outputs = {with_gradient("y", "[..., E]"), plain("statistics", "[..., 3]")},
          .options = {given("bias"), given("norm_bias")},
          .numbers = {{"eps", "finite, above 0", 1e-5}},
          .dtypes = both_types(),
          .limits = {rank_limit(), "E >= 1", "E <= 16384 on cuda"}};
}

OpInfo discretize() {
  const std::string matrix = "[N] or [B, L, H] or [N, N]", with_B = "form=diagonal|dense";
  return {
      .name = "discretize",
      .inputs = {with_gradient("dt", "[N] or [B, L, H] or []"),
                 with_gradient("A", "[N] or [H] or [N, N]"),
                 {.name = "B", .shape = "[N, E]", .optional = true, .gradient = true, .only_with = with_B}},
      .outputs =
          {with_gradient("A_bar", matrix.c_str()),
           {.name = "B_bar", .shape = "[N, E]", .optional = true, .gradient = true, .only_with = with_B},
           {.name = "F", .shape = matrix, .optional = true, .gradient = true},
           {.name = "s",
            .shape = "[B, L, H]",
            .optional = true,
            .gradient = true,
            .only_with = "form=per_head"}},
      .options = {{"form", {"diagonal", "per_head", "dense"}},
                  {"method", {"zoh", "exp_euler", "bilinear", "euler"}},
                  given("F")},
      .numbers = {},
      .dtypes = both_types(),
      .limits = {"dense on cuda: N <= " + std::to_string(kMostDenseStatesOnCuda)}};
}

OpInfo scan() {
  return {.name = "scan",
          .inputs =
              {{.name = "a", .shape = "[C], [C, C], [B, L, C] or [B, L, H]", .gradient = true, .wide = true},
               with_gradient("b", "[B, L, C], [B, L, H, P] or [B, L, H, P, N]"),
               {.name = "h0",
                .shape = "as b without L",
                .optional = true,
                .gradient = true,
                .gradient_when_absent = true,
                .wide = true},
               {.name = "start", .shape = "[B, L]", .optional = true}},
          .outputs = {with_gradient("h", "as b"),
                      {.name = "final_state",
                       .shape = "as b without L",
                       .optional = true,
                       .gradient = true,
                       .wide = true}},
          .options = {{"decay", {"constant", "varying", "per head", "dense"}},
                      {"direction", {"forward", "reversed"}},
                      {"minus_one", {"no", "yes"}},
                      given("h0"),
                      given("start"),
                      given("final_state")},
          .numbers = {},
          .dtypes = all_types(),
          .limits = {"L >= 1", "dense on cuda: C <= " + std::to_string(kMostDenseStatesOnCuda)}};
}

OpInfo discretized_scan() {
  return {.name = "discretized_scan",
          .inputs = {with_gradient("dt", "[N] or [B, L, N]"),
                     with_gradient("A", "[N]"),
                     with_gradient("u", "[B, L, N]"),
                     {.name = "h0",
                      .shape = "[B, N]",
                      .optional = true,
                      .gradient = true,
                      .gradient_when_absent = true},
                     {.name = "start", .shape = "[B, L]", .optional = true}},
          .outputs = {with_gradient("h", "[B, L, N]"), optional_with_gradient("final_state", "[B, N]")},
          .options = {{"step", {"constant", "varying"}},
                      {"method", {"zoh", "exp_euler", "bilinear", "euler"}},
                      {"direction", {"forward", "reversed"}},
                      given("h0"),
                      given("start"),
                      given("final_state")},
          .numbers = {},
          .dtypes = both_types(),
          .limits = {"L >= 1"}};
}

// What ssd and its step share: data, which may have 16 bits, and what stays wide beside it.
std::vector<OpArgument> ssd_inputs(const std::string& rows) {
  const auto wide = [](const char* argument, const char* shape, bool optional) {
    return OpArgument{.name = argument, .shape = shape, .optional = optional, .gradient = true, .wide = true};
  };
  const std::string x = "[" + rows + "H, P]", dt = "[" + rows + "H]", B = "[" + rows + "G, N]";
  return {with_gradient("x", x.c_str()),
          with_gradient("dt", dt.c_str()),
          wide("A", "[H]", false),
          with_gradient("B", B.c_str()),
          with_gradient("C", B.c_str()),
          {.name = "D",
           .shape = "[H] or [H, P]",
           .optional = true,
           .gradient = true,
           .wide = true,
           .only_with = "skip=head|channel"},
          optional_with_gradient("z", x.c_str()),
          wide("dt_bias", "[H]", true)};
}
std::vector<OpOption> ssd_options() {
  return {{"skip", {"head", "channel", "none"}},
          given("z"),
          given("dt_bias"),
          {"time_step", {"as given", "softplus", "limits", "both"}},
          {"groups", {"one", "several"}}};
}
std::vector<OpNumber> ssd_numbers() {
  return {{"dt_min", "0 or more", 0}, {"dt_max", "dt_min or more", std::numeric_limits<double>::infinity()}};
}
std::vector<std::string> ssd_limits() {
  return {"H, P, G, N >= 1", "G divides H", "P, N <= " + std::to_string(kMostSsdStatesOnCuda) + " on cuda"};
}

OpInfo ssd() {
  OpInfo op{
      .name = "ssd",
      .inputs = ssd_inputs("B, L, "),
      .outputs =
          {with_gradient("out", "[B, L, H, P]"),
           {.name = "final_state", .shape = "[B, H, P, N]", .optional = true, .gradient = true, .wide = true},
           {.name = "states", .shape = "[B, K, H, P, N]", .optional = true, .wide = true}},
      .options = ssd_options(),
      .numbers = ssd_numbers(),
      .dtypes = all_types(),
      .limits = ssd_limits()};
  op.inputs.push_back({.name = "initial_state",
                       .shape = "[B, H, P, N]",
                       .optional = true,
                       .gradient = true,
                       .gradient_when_absent = true,
                       .wide = true});
  op.inputs.push_back({.name = "start", .shape = "[B, L]", .optional = true});
  for (const char* argument : {"initial_state", "start", "final_state"})
    op.options.push_back(given(argument));
  op.options.push_back({"form", {"sequential", "chunked"}});
  op.numbers.push_back({"chunk_length", "0 to " + std::to_string(kMostSsdChunkLength), 0});
  op.limits.insert(op.limits.begin(), "L >= 1");
  return op;
}

OpInfo ssd_step() {
  OpInfo op{.name = "ssd_step",
            .inputs = ssd_inputs("B, "),
            .outputs = {with_gradient("out", "[B, H, P]"),
                        {.name = "next_state", .shape = "[B, H, P, N]", .gradient = true, .wide = true}},
            .options = ssd_options(),
            .numbers = ssd_numbers(),
            .dtypes = all_types(),
            .limits = ssd_limits()};
  op.inputs.push_back({.name = "state", .shape = "[B, H, P, N]", .gradient = true, .wide = true});
  return op;
}

// What selective_scan and its step share.
std::vector<OpArgument> selective_scan_inputs(const std::string& rows) {
  const auto wide = [](const char* argument, const char* shape, bool optional) {
    return OpArgument{.name = argument, .shape = shape, .optional = optional, .gradient = true, .wide = true};
  };
  const std::string u = "[" + rows + "E]", B = "[" + rows + "G, N]";
  return {with_gradient("u", u.c_str()),          with_gradient("dt", u.c_str()), wide("A", "[E, N]", false),
          with_gradient("B", B.c_str()),          with_gradient("C", B.c_str()),  wide("D", "[E]", true),
          optional_with_gradient("z", u.c_str()), wide("dt_bias", "[E]", true)};
}
std::vector<OpOption> selective_scan_options() {
  return {given("D"),
          given("z"),
          given("dt_bias"),
          {"time_step", {"as given", "softplus"}},
          {"groups", {"one", "several"}}};
}
std::vector<std::string> selective_scan_limits() {
  return {"E, G, N >= 1", "G divides E",
          "N <= " + std::to_string(kMostSelectiveScanStatesOnCuda) + " on cuda"};
}

OpInfo selective_scan() {
  OpInfo op{
      .name = "selective_scan",
      .inputs = selective_scan_inputs("B, L, "),
      .outputs =
          {with_gradient("out", "[B, L, E]"),
           {.name = "final_state", .shape = "[B, E, N]", .optional = true, .gradient = true, .wide = true},
           {.name = "states", .shape = "[B, K, E, N]", .optional = true, .wide = true}},
      .options = selective_scan_options(),
      .numbers = {},
      .dtypes = all_types(),
      .limits = selective_scan_limits()};
  op.inputs.push_back({.name = "initial_state",
                       .shape = "[B, E, N]",
                       .optional = true,
                       .gradient = true,
                       .gradient_when_absent = true,
                       .wide = true});
  op.inputs.push_back({.name = "start", .shape = "[B, L]", .optional = true});
  for (const char* argument : {"initial_state", "start", "final_state"})
    op.options.push_back(given(argument));
  op.limits.insert(op.limits.begin(), "L >= 1");
  return op;
}

OpInfo selective_scan_step() {
  OpInfo op{.name = "selective_scan_step",
            .inputs = selective_scan_inputs("B, "),
            .outputs = {with_gradient("out", "[B, E]"),
                        {.name = "next_state", .shape = "[B, E, N]", .gradient = true, .wide = true}},
            .options = selective_scan_options(),
            .numbers = {},
            .dtypes = all_types(),
            .limits = selective_scan_limits()};
  op.inputs.push_back({.name = "state", .shape = "[B, E, N]", .gradient = true, .wide = true});
  return op;
}

// The state of a convolution: a gradient at zero where it is left out.
OpArgument conv_state(const char* argument) {
  return {.name = argument,
          .shape = "[B, K-1, C]",
          .optional = true,
          .gradient = true,
          .gradient_when_absent = true};
}

std::string taps_limit() {
  return "1 <= K <= " + std::to_string(kMostConvTaps);
}

OpInfo causal_conv1d() {
  return {.name = "causal_conv1d",
          .inputs = {with_gradient("x", "[B, L, C]"),
                     parameter("weight", "[C, K]", false),
                     parameter("bias", "[C]", true),
                     conv_state("initial_state"),
                     {.name = "start", .shape = "[B, L]", .optional = true}},
          .outputs = {with_gradient("y", "[B, L, C]"), optional_with_gradient("final_state", "[B, K-1, C]")},
          .options = {{"activation", {"silu", "none"}},
                      given("bias"),
                      given("initial_state"),
                      given("start"),
                      given("final_state")},
          .numbers = {},
          .dtypes = all_types(),
          .limits = {"L >= 1", taps_limit()}};
}

OpInfo causal_conv1d_step() {
  return {.name = "causal_conv1d_step",
          .inputs = {with_gradient("x", "[B, C]"), conv_state("state"), parameter("weight", "[C, K]", false),
                     parameter("bias", "[C]", true)},
          .outputs = {with_gradient("y", "[B, C]"), optional_with_gradient("new_state", "[B, K-1, C]")},
          .options = {{"activation", {"silu", "none"}}, given("bias"), given("state"), given("new_state")},
          .numbers = {},
          .dtypes = all_types(),
          .limits = {taps_limit()}};
}

OpInfo gated_rms_norm() {
  return {
      .name = "gated_rms_norm",
      .inputs = {with_gradient("x", "[..., S]"), optional_with_gradient("z", "[..., S]"),
                 parameter("weight", "[S]", false)},
      .outputs = {with_gradient("y", "[..., S]"), {.name = "statistics", .shape = "[..., G]", .wide = true}},
      .options = {given("z"), {"norm_before_gate", {"no", "yes"}}},
      .numbers = {{"groups", "G, a divisor of S", 1}, {"eps", "finite, above 0", 1e-5}},
      .dtypes = all_types(),
      .limits = {rank_limit(), "S >= 1"}};
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

OpInfo loss(const char* op, std::vector<OpNumber> numbers = {}) {
  return {.name = op,
          .inputs = {with_gradient("prediction", "[...]"),
                     plain("target", "[...]"),
                     {.name = "mask", .shape = "[...]", .optional = true}},
          .outputs = {{.name = "loss", .shape = "[]", .gradient = true, .f64 = true}},
          .options = {given("mask")},
          .numbers = std::move(numbers),
          .dtypes = both_types(),
          .limits = {rank_limit()}};
}

OpInfo cross_entropy() {
  return {.name = "cross_entropy",
          .inputs = {with_gradient("logits", "[..., V]"), {.name = "target", .shape = "[...]", .i32 = true}},
          .outputs = {{.name = "loss", .shape = "[]", .gradient = true, .f64 = true},
                      {.name = "statistics", .shape = "[..., 2]", .wide = true}},
          .options = {},
          .numbers = {{"ignore_index", "any", -100}},
          .dtypes = all_types(),
          .limits = {rank_limit(), "V >= 1"}};
}

OpInfo spectral_radius() {
  return {.name = "spectral_radius",
          .kind = OpKind::utility,
          .inputs = {plain("A_bar", "[N, N]")},
          .outputs = {plain("radius", "[]")},
          .options = {},
          .numbers = {},
          .dtypes = both_types(),
          .limits = {"on cuda: N <= " + std::to_string(kMostSpectralRowsOnCuda)}};
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
      embedding(),
      projection(),
      norm("layer_norm", "[..., 3]"),
      norm("rms_norm", "[..., 1]"),
      projection_layer_norm(),
      elementwise("softplus"),
      elementwise("silu"),
      elementwise("neg_exp"),
      elementwise("copy"),
      discretize(),
      scan(),
      discretized_scan(),
      ssd(),
      ssd_step(),
      selective_scan(),
      selective_scan_step(),
      causal_conv1d(),
      causal_conv1d_step(),
      gated_rms_norm(),
      state_output(),
      loss("mse"),
      loss("huber", {{"k", "finite, above 0", 1}}),
      loss("quantile", {{"q", "above 0 and below 1", 0.5}}),
      cross_entropy(),
      spectral_radius(),
      grad_norm(),
      adamw(),
  };
  return ops;
}

const OpInfo* find_op(const std::string& name) {
  for (const OpInfo& op : registry())
    if (op.name == name) return &op;
  return nullptr;
}

}  // namespace scantape
