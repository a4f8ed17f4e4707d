#include "scantape/ssd_step.h"

#include "pairwise.h"
#include "ssd.h"

namespace scantape::cases {
namespace {

SsdStepForward forward_arguments(const SsdCaseOptions& options, const Call& call) {
  SsdStepForward args;
  set_ssd_inputs(options, call, &args);
  args.state = call.input("state");
  args.out = call.output("out");
  args.next_state = call.output("next_state");
  return args;
}

Status forward(const SsdCaseOptions& options, const Call& call) {
  return run(SCANTAPE_DIRECTION(ssd_step_forward), forward_arguments(options, call), call);
}

Status backward(const SsdCaseOptions& options, const Call& call) {
  SsdStepBackward args;
  static_cast<SsdStepForward&>(args) = forward_arguments(options, call);
  args.out = args.next_state = View();  // not read
  set_ssd_gradients(call, &args);
  args.d_next_state = call.cotangent("next_state");
  args.d_state = call.gradient("state");
  return run(SCANTAPE_DIRECTION(ssd_step_backward), args, call);
}

Case step_case(const SsdShape& s, const SsdCaseOptions& options) {
  const Shape state{s.B, s.H, s.P, s.N};
  Case c;
  c.op = "ssd_step";
  c.name = c.op + "/" + size_name({{"B", s.B}, {"H", s.H}, {"G", s.G}, {"P", s.P}, {"N", s.N}}) + "/" +
           ssd_title(options).substr(1) + (options.out_cotangent ? "" : ",no d_out") +
           (options.final_cotangent ? "" : ",no d_next") + "," + name(options.layout) + options.note;
  c.options = ssd_case_options(s, options);
  c.inputs = ssd_inputs({s.B}, s, options);
  c.inputs.push_back({.name = "state",
                      .shape = state,
                      .fill = normal(),
                      .gradient = true,
                      .items = true,
                      .type = ElementType::wide});
  c.outputs = {{.name = "out",
                .shape = {s.B, s.H, s.P},
                .cotangent = options.out_cotangent,
                .items = true,
                .strided = true,
                .row_axes = 2},
               {.name = "next_state",
                .shape = state,
                .cotangent = options.final_cotangent,
                .items = true,
                .type = ElementType::wide}};
  for (Input& input : c.inputs) {
    const bool by_out = input.name == "C" || input.name == "D" || input.name == "z";
    if (by_out && !options.out_cotangent) input.zero_gradient = true;
    if (s.B == 0 && (input.name == "A" || input.name == "D" || input.name == "dt_bias"))
      input.zero_gradient = true;
  }
  c.forward = [options](const Call& call) { return forward(options, call); };
  c.backward = [options](const Call& call) { return backward(options, call); };
  c.aliases = {{"next_state", "state"}};
  c.layout = options.layout;
  c.in_16_bits = true;
  c.finite_differences = s.B > 0;
  const auto heads = static_cast<double>(s.B * s.H), P = static_cast<double>(s.P),
             N = static_cast<double>(s.N);
  c.forward_operations = heads * (5 * P * N + 6 * P + 30);
  c.backward_operations = heads * (14 * P * N + 20 * P + 60);
  return c;
}

}  // namespace

std::vector<Case> ssd_step_cases() {
  std::vector<Case> cases;
  const auto add = [&](Case c, bool properties) {
    c.properties = properties;
    cases.push_back(std::move(c));
  };
  const auto at = [](int index) { return static_cast<std::size_t>(index); };
  const std::vector<Layout> layouts = {Layout::dense, Layout::strided, Layout::misaligned};
  const std::vector<SsdSkip> skips = {SsdSkip::head, SsdSkip::channel, SsdSkip::none};
  const std::vector<SsdTimeStep> time_steps = {SsdTimeStep::softplus, SsdTimeStep::both,
                                               SsdTimeStep::as_given, SsdTimeStep::limits};
  const std::vector<SsdShape> shapes = {
      {2, 1, 2, 1, 2, 3}, {1, 1, 4, 2, 3, 2}, {3, 1, 1, 1, 1, 4}, {4, 1, 3, 3, 5, 1}, {2, 1, 6, 2, 33, 17}};
  for (const PairwiseRow& row : pairwise({5, 3, 2, 2, 4, 3})) {
    SsdCaseOptions options;
    options.skip = skips[at(row[1])];
    options.z = row[2] == 0;
    options.dt_bias = row[3] == 0;
    options.time_step = time_steps[at(row[4])];
    options.layout = layouts[at(row[5])];
    add(step_case(shapes[at(row[0])], options), row[0] < 4);
  }
  add(step_case({2, 1, 2, 1, 3, 4}, {.out_cotangent = false}), true);
  add(step_case({2, 1, 2, 1, 3, 4}, {.final_cotangent = false}), true);
  add(step_case({1, 1, 1, 1, 1, 1}, {.note = ",one number"}), true);
  add(step_case({0, 1, 2, 1, 3, 4}, {}), false);
  for (const auto& [P, N] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 128}, {64, 1}, {64, 16}, {31, 100}, {130, 3}, {3, 257}})
    add(step_case({2, 1, 2, 1, P, N}, {}), false);

  add(step_case({1, 1, 24, 1, 64, 128}, {}), false);
  cases.back().benchmark = true;
  add(step_case({16, 1, 8, 1, 64, 16}, {}), false);
  cases.back().benchmark = true;
  return cases;
}

}  // namespace scantape::cases
