#include "scantape/selective_scan_step.h"

#include "pairwise.h"
#include "selective_scan.h"

namespace scantape::cases {
namespace {

SelectiveScanStepForward forward_arguments(const SelectiveScanCaseOptions& options, const Call& call) {
  SelectiveScanStepForward args;
  set_selective_scan_inputs(options, call, &args);
  args.state = call.input("state");
  args.out = call.output("out");
  args.next_state = call.output("next_state");
  return args;
}

Status forward(const SelectiveScanCaseOptions& options, const Call& call) {
  return run(SCANTAPE_DIRECTION(selective_scan_step_forward), forward_arguments(options, call), call);
}

Status backward(const SelectiveScanCaseOptions& options, const Call& call) {
  SelectiveScanStepBackward args;
  static_cast<SelectiveScanStepForward&>(args) = forward_arguments(options, call);
  args.out = args.next_state = View();  // not read
  set_selective_scan_gradients(call, &args);
  args.d_next_state = call.cotangent("next_state");
  args.d_state = call.gradient("state");
  return run(SCANTAPE_DIRECTION(selective_scan_step_backward), args, call);
}

Case step_case(const SelectiveScanShape& s, const SelectiveScanCaseOptions& options) {
  const Shape state{s.B, s.E, s.N};
  Case c;
  c.op = "selective_scan_step";
  c.name = c.op + "/" + size_name({{"B", s.B}, {"E", s.E}, {"G", s.G}, {"N", s.N}}) + "/" +
           selective_scan_title(options) + (options.out_cotangent ? "" : ",no d_out") +
           (options.final_cotangent ? "" : ",no d_next") + "," + name(options.layout) + options.note;
  c.options = selective_scan_case_options(s, options);
  c.inputs = selective_scan_inputs({s.B}, s, options);
  c.inputs.push_back({.name = "state",
                      .shape = state,
                      .fill = normal(),
                      .gradient = true,
                      .items = true,
                      .type = ElementType::wide});
  c.outputs = {{.name = "out",
                .shape = {s.B, s.E},
                .cotangent = options.out_cotangent,
                .items = true,
                .strided = true},
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
  const auto channels = static_cast<double>(s.B * s.E), N = static_cast<double>(s.N);
  c.forward_operations = channels * (20 * N + 30);
  c.backward_operations = channels * (50 * N + 60);
  return c;
}

}  // namespace

std::vector<Case> selective_scan_step_cases() {
  std::vector<Case> cases;
  const auto add = [&](Case c, bool properties) {
    c.properties = properties;
    cases.push_back(std::move(c));
  };
  const auto at = [](int index) { return static_cast<std::size_t>(index); };
  const std::vector<Layout> layouts = {Layout::dense, Layout::strided, Layout::misaligned};
  const std::vector<SelectiveScanShape> shapes = {
      {2, 1, 4, 1, 3}, {1, 1, 6, 2, 2}, {3, 1, 1, 1, 4}, {4, 1, 3, 3, 1}, {2, 1, 70, 2, 17}};
  for (const PairwiseRow& row : pairwise({5, 2, 2, 2, 2, 3})) {
    SelectiveScanCaseOptions options;
    options.D = row[1] == 0;
    options.z = row[2] == 0;
    options.dt_bias = row[3] == 0;
    options.softplus = row[4] == 0;
    options.layout = layouts[at(row[5])];
    add(step_case(shapes[at(row[0])], options), row[0] < 4);
  }
  add(step_case({2, 1, 4, 1, 3}, {.out_cotangent = false}), true);
  add(step_case({2, 1, 4, 1, 3}, {.final_cotangent = false}), true);
  add(step_case({1, 1, 1, 1, 1}, {.note = ",one number"}), true);
  add(step_case({0, 1, 4, 1, 3}, {}), false);
  for (const std::int64_t N : {1, 16, 100, 257, 1024}) add(step_case({2, 1, 5, 1, N}, {}), false);
  add(step_case({2, 1, 200, 1, 16}, {}), false);

  add(step_case({1, 1, 1536, 1, 16}, {}), false);
  cases.back().benchmark = true;
  add(step_case({32, 1, 512, 1, 16}, {}), false);
  cases.back().benchmark = true;
  return cases;
}

}  // namespace scantape::cases
