#include "scantape/causal_conv1d.h"

#include "case.h"
#include "pairwise.h"
#include "timed.h"

namespace scantape::cases {
namespace {

struct Options {
  bool silu = true, bias = true, initial_state = true, start = false, final_state = true;
  bool y_cotangent = true, final_cotangent = true;
  Layout layout = Layout::dense;

  Activation activation() const { return silu ? Activation::silu : Activation::none; }
};

CausalConv1dForward forward_arguments(const Options& options, const Call& call) {
  CausalConv1dForward args;
  args.x = call.input("x");
  args.weight = call.input("weight");
  args.bias = call.input("bias");
  args.initial_state = call.input("initial_state");
  args.start = call.input("start");
  args.activation = options.activation();
  args.y = call.output("y");
  args.final_state = call.output("final_state");
  return args;
}

Status forward(const Options& options, const Call& call) {
  return run(SCANTAPE_DIRECTION(causal_conv1d_forward), forward_arguments(options, call), call);
}

Status backward(const Options& options, const Call& call) {
  CausalConv1dBackward args;
  static_cast<CausalConv1dForward&>(args) = forward_arguments(options, call);
  args.y = args.final_state = View();  // not read
  args.d_y = call.cotangent("y");
  args.d_final_state = call.cotangent("final_state");
  args.d_x = call.gradient("x");
  args.d_weight = call.gradient("weight");
  args.d_bias = call.gradient("bias");
  args.d_initial_state = call.gradient("initial_state");
  return run(SCANTAPE_DIRECTION(causal_conv1d_backward), args, call);
}

std::string option_names(const Options& options) {
  return std::string(name(options.activation())) + (options.bias ? "" : ",no bias") +
         (options.initial_state ? "" : ",no state") + (options.start ? ",start" : "") +
         (options.final_state ? "" : ",no final") + (options.y_cotangent ? "" : ",no d_y") +
         (options.final_state && !options.final_cotangent ? ",no d_final" : "") + "," + name(options.layout);
}

Case conv_case(std::int64_t batch, std::int64_t length, std::int64_t channels, std::int64_t taps,
               const Options& options) {
  const Shape sequence{batch, length, channels}, state{batch, taps - 1, channels};
  const bool empty = batch == 0, d_final = options.final_state && options.final_cotangent && taps > 1;
  Case c;
  c.op = "causal_conv1d";
  c.name = c.op + "/" + size_name({{"B", batch}, {"L", length}, {"C", channels}, {"K", taps}}) + "/" +
           option_names(options);
  c.options = {{"activation", name(options.activation())},
               {"bias", options.bias ? "present" : "absent"},
               {"initial_state", options.initial_state ? "present" : "absent"},
               {"start", options.start ? "present" : "absent"},
               {"final_state", options.final_state ? "present" : "absent"}};
  c.inputs = {
      {.name = "x",
       .shape = sequence,
       .fill = normal(),
       .gradient = true,
       .zero_gradient = !options.y_cotangent && !d_final,
       .items = true,
       .strided = true},
      {.name = "weight",
       .shape = {channels, taps},
       .fill = normal(0, 0.7),
       .gradient = true,
       .zero_gradient = empty || !options.y_cotangent,
       .gradient_type = ElementType::wide},
      {.name = "bias",
       .shape = {channels},
       .fill = normal(0, 0.5),
       .present = options.bias,
       .gradient = options.bias,
       .zero_gradient = empty || !options.y_cotangent,
       .gradient_type = ElementType::wide},
      {.name = "initial_state",
       .shape = state,
       .fill = normal(),
       .present = options.initial_state,
       .gradient = taps > 1,
       .zero_gradient = !options.y_cotangent && (!d_final || length >= taps - 1),
       .items = true},
      {.name = "start",
       .shape = {batch, length},
       .fill = some_starts,
       .present = options.start,
       .items = true},
  };
  c.outputs = {
      {.name = "y", .shape = sequence, .cotangent = options.y_cotangent, .items = true, .strided = true},
      {.name = "final_state",
       .shape = state,
       .present = options.final_state,
       .cotangent = options.final_state && options.final_cotangent,
       .zero = !options.initial_state && options.start && length < taps,
       .items = true},
  };
  c.forward = [options](const Call& call) { return forward(options, call); };
  c.backward = [options](const Call& call) { return backward(options, call); };
  c.layout = options.layout;
  c.finite_differences = !empty;
  c.in_16_bits = true;
  const auto elements = static_cast<double>(sequence.elements()), terms = static_cast<double>(taps);
  const double gate = options.silu ? 10 : 0;
  c.forward_operations = (2 * terms + gate) * elements;
  c.backward_operations = (6 * terms + gate) * elements;
  return c;
}

}  // namespace

std::vector<Case> causal_conv1d_cases() {
  std::vector<Case> cases;
  const auto add = [&](Case c, bool properties) {
    c.properties = properties;
    cases.push_back(std::move(c));
  };
  const std::vector<Layout> layouts = {Layout::dense, Layout::strided, Layout::misaligned};
  const auto at = [](int index) { return static_cast<std::size_t>(index); };
  const auto size = [](const auto& list) { return static_cast<int>(list.size()); };

  // Both numbers of taps that registers hold, as other tests want them: small.
  for (const std::int64_t taps : {1, 4, 5, 16}) {
    for (const bool start : {false, true})
      for (const bool silu : {true, false})
        add(conv_case(3, 9, 5, taps, {.silu = silu, .start = start}), true);
    add(conv_case(2, 70, 3, taps, {.start = true, .layout = Layout::strided}), true);
    add(conv_case(2, 6, 4, taps, {.y_cotangent = false}), taps > 1);
    add(conv_case(2, 6, 4, taps, {.final_cotangent = false}), true);
    add(conv_case(2, 3, 4, taps, {.start = true, .y_cotangent = false}), false);
    cases.back().inputs[3].gradient = false;  // whether anything reaches the state is left to chance
    add(conv_case(40, 5, 7, taps, {.initial_state = false}), true);
    add(conv_case(0, 5, 3, taps, {}), false);
    add(conv_case(2, 1, 33, taps, {}), true);
  }
  for (const Layout layout : layouts) add(conv_case(2, 40, 3, 4, {.layout = layout}), true);
  // More stretches of time than threads along them; more blocks than partial sums have rows; channels beyond a tile of
  // blocks.
  add(conv_case(1, 12000, 1, 4, {.start = true}), false);
  add(conv_case(2100, 33, 1, 2, {}), false);
  add(conv_case(1, 2, 8200, 3, {.bias = false}), false);

  // Every pair of a number of taps and what can be given, with lengths on both sides of a thread's steps.
  const std::vector<std::int64_t> turns = {1, 2, 15, 16, 31, 32, 33, 65};
  for (const PairwiseRow& row : pairwise({16, size(turns), 2, 2, 2, 2, 2, 3})) {
    const Options options{.silu = row[2] == 0,
                          .bias = row[3] == 0,
                          .initial_state = row[4] == 0,
                          .start = row[5] == 1,
                          .final_state = row[6] == 0,
                          .layout = layouts[at(row[7])]};
    add(conv_case(2, turns[at(row[1])], 5, row[0] + 1, options), false);
  }
  constexpr std::int64_t kMaxDeep = 10000;
  const std::vector<std::int64_t> channels = {1, 3, 31, 64, 100}, taps = {1, 2, 4, 5, 16}, batches = {1, 3};
  const auto affordable = [&](const PairwiseRow& row) {
    return row[3] == 0 || batches[at(row[3])] * lengths()[at(row[0])] * channels[at(row[1])] <= kMaxDeep;
  };
  for (const PairwiseRow& row : pairwise({size(lengths()), 5, 5, 2, 2, 2, 3}, affordable))
    add(conv_case(batches[at(row[3])], lengths()[at(row[0])], channels[at(row[1])], taps[at(row[2])],
                  {.silu = row[4] == 0, .start = row[5] == 1, .layout = layouts[at(row[6])]}),
        false);

  // A block's convolution at the sizes of the other benchmarks: E + 2 N channels.
  add(conv_case(32, 60, 544, 4, {}), false);
  cases.back().benchmark = true;
  add(conv_case(8, 2048, 1152, 4, {}), false);
  cases.back().benchmark = true;
  add(conv_case(2, 4096, 1792, 4, {}), false);
  cases.back().benchmark = true;
  return cases;
}

}  // namespace scantape::cases
