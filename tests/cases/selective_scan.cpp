#include "selective_scan.h"

#include <algorithm>
#include <sstream>

#include "pairwise.h"
#include "scantape/selective_scan.h"
#include "timed.h"

namespace scantape::cases {
namespace {

SelectiveScanForward forward_arguments(const SelectiveScanCaseOptions& options, const Call& call) {
  SelectiveScanForward args;
  set_selective_scan_inputs(options, call, &args);
  args.initial_state = call.input("initial_state");
  args.start = call.input("start");
  args.out = call.output("out");
  args.final_state = call.output("final_state");
  args.states = call.output("states");
  return args;
}

Status forward(const SelectiveScanCaseOptions& options, const Call& call) {
  return run(SCANTAPE_DIRECTION(selective_scan_forward), forward_arguments(options, call), call);
}

Status backward(const SelectiveScanCaseOptions& options, const Call& call) {
  SelectiveScanBackward args;
  static_cast<SelectiveScanForward&>(args) = forward_arguments(options, call);
  args.out = args.final_state = View();  // not read
  set_selective_scan_gradients(call, &args);
  args.d_final_state = call.cotangent("final_state");
  args.d_initial_state = call.gradient("initial_state");
  return run(SCANTAPE_DIRECTION(selective_scan_backward), args, call);
}

/// "D,z,bias,softplus,h0,start,final,dense"
std::string title_of(const SelectiveScanCaseOptions& o) {
  std::ostringstream text;
  text << selective_scan_title(o) << (o.initial_state ? ",h0" : "") << (o.start ? ",start" : "")
       << (o.final_state ? ",final" : "") << (o.out_cotangent ? "" : ",no d_out")
       << (o.final_state && !o.final_cotangent ? ",no d_final" : "") << "," << name(o.layout) << o.note;
  return text.str();
}

/// Numbers of either sign that are summed to one alone cancel: what they lose there is no error of the op.
Budget sum_budget(bool alone) {
  return {1e-10, alone ? 1e-3 : 1e-4};
}

Case scan_case(const SelectiveScanShape& s, const SelectiveScanCaseOptions& options) {
  const Shape state{s.B, s.E, s.N};
  const std::int64_t kept = (s.L - 1) / selective_scan_interval(s.L);
  const bool empty = s.B == 0, remembers = s.L > 1 || options.initial_state;
  Case c;
  c.op = "selective_scan";
  c.name = c.op + "/" + size_name({{"B", s.B}, {"L", s.L}, {"E", s.E}, {"G", s.G}, {"N", s.N}}) + "/" +
           title_of(options);
  c.options = selective_scan_case_options(s, options);
  c.options.emplace_back("initial_state", options.initial_state ? "present" : "absent");
  c.options.emplace_back("start", options.start ? "present" : "absent");
  c.options.emplace_back("final_state", options.final_state ? "present" : "absent");
  c.inputs = selective_scan_inputs({s.B, s.L}, s, options);
  c.inputs.push_back({.name = "initial_state",
                      .shape = state,
                      .fill = normal(),
                      .present = options.initial_state,
                      .gradient = true,
                      .items = true,
                      .type = ElementType::wide,
                      .budget = sum_budget(state.elements() == 1)});
  c.inputs.push_back(
      {.name = "start", .shape = {s.B, s.L}, .fill = some_starts, .present = options.start, .items = true});
  c.outputs = {{.name = "out",
                .shape = {s.B, s.L, s.E},
                .cotangent = options.out_cotangent,
                .items = true,
                .strided = true},
               {.name = "final_state",
                .shape = state,
                .present = options.final_state,
                .cotangent = options.final_state && options.final_cotangent,
                .items = true,
                .type = ElementType::wide},
               {.name = "states",
                .shape = {s.B, kept, s.E, s.N},
                .cotangent = false,
                .saved = true,
                .zero = kept == 0,
                .items = true,
                .type = ElementType::wide}};
  for (Input& input : c.inputs) {
    const bool by_out = input.name == "C" || input.name == "D" || input.name == "z";
    if (by_out && !options.out_cotangent) input.zero_gradient = true;
    if (input.name == "A" && !remembers) input.zero_gradient = true;
    if (empty && (input.name == "A" || input.name == "D" || input.name == "dt_bias"))
      input.zero_gradient = true;
  }
  c.forward = [options](const Call& call) { return forward(options, call); };
  c.backward = [options](const Call& call) { return backward(options, call); };
  c.layout = options.layout;
  c.in_16_bits = true;
  c.finite_differences = !empty;
  const auto steps = static_cast<double>(s.B * s.L * s.E), N = static_cast<double>(s.N);
  c.forward_operations = steps * (20 * N + 30);
  c.backward_operations = steps * (50 * N + 60);
  return c;
}

Case unusual_case(const SelectiveScanShape& shape, const char* note, Fill A, Fill dt, bool start) {
  SelectiveScanCaseOptions options;
  options.softplus = options.dt_bias = false;
  options.A = std::move(A);
  options.dt = std::move(dt);
  options.start = start;
  options.note = note;
  Case c = scan_case(shape, options);
  c.finite_differences = false;
  return c;
}

}  // namespace

std::vector<Input> selective_scan_inputs(const Shape& rows, const SelectiveScanShape& s,
                                         const SelectiveScanCaseOptions& o) {
  const auto shaped = [&rows](std::initializer_list<std::int64_t> sizes) {
    Shape shape = rows;
    for (const std::int64_t size : sizes) shape.append(size);
    return shape;
  };
  const Shape u = shaped({s.E}), B = shaped({s.G, s.N});
  const auto data = [](const char* argument, const Shape& shape, int row_axes) {
    return Input{.name = argument,
                 .shape = shape,
                 .fill = normal(),
                 .gradient = true,
                 .items = true,
                 .strided = true,
                 .row_axes = row_axes,
                 .budget = sum_budget(shape.elements() <= 2)};
  };
  const auto parameter = [&](const char* argument, const Shape& shape, Fill fill, bool present) {
    return Input{.name = argument,
                 .shape = shape,
                 .fill = std::move(fill),
                 .present = present,
                 .gradient = present,
                 .type = ElementType::wide,
                 .budget = sum_budget(shape.elements() <= 2)};
  };
  Input dt = data("dt", u, 1);
  dt.fill = o.dt ? o.dt : o.softplus ? uniform(-3, 0.5) : uniform(0.05, 0.5);
  Input z = data("z", u, 1);
  z.present = z.gradient = o.z;
  return {data("u", u, 1),
          dt,
          parameter("A", {s.E, s.N}, o.A, true),
          data("B", B, 2),
          data("C", B, 2),
          parameter("D", {s.E}, normal(), o.D),
          z,
          parameter("dt_bias", {s.E}, uniform(-0.02, 0.02), o.dt_bias)};
}

std::vector<std::pair<std::string, std::string>> selective_scan_case_options(
    const SelectiveScanShape& s, const SelectiveScanCaseOptions& o) {
  return {{"D", o.D ? "present" : "absent"},
          {"z", o.z ? "present" : "absent"},
          {"dt_bias", o.dt_bias ? "present" : "absent"},
          {"time_step", o.softplus ? "softplus" : "as given"},
          {"groups", s.G == 1 ? "one" : "several"}};
}

std::string selective_scan_title(const SelectiveScanCaseOptions& o) {
  return std::string(o.D ? "D," : "") + (o.z ? "z," : "") + (o.dt_bias ? "bias," : "") +
         (o.softplus ? "softplus" : "as given");
}

std::vector<Case> selective_scan_cases() {
  std::vector<Case> cases;
  const auto add = [&](Case c, bool properties) {
    c.properties = properties;
    cases.push_back(std::move(c));
  };
  const auto at = [](int index) { return static_cast<std::size_t>(index); };
  const auto size = [](const auto& list) { return static_cast<int>(list.size()); };
  const std::vector<Layout> layouts = {Layout::dense, Layout::strided, Layout::misaligned};

  for (const Layout layout : layouts) add(scan_case({3, 9, 6, 2, 5}, {.layout = layout}), true);
  add(scan_case({2, 10, 5, 1, 3}, {.start = true}), true);
  add(scan_case({2, 6, 4, 2, 3}, {.out_cotangent = false}), true);
  add(scan_case({2, 6, 4, 1, 3}, {.final_cotangent = false}), true);
  add(scan_case({2, 1, 4, 1, 3}, {.initial_state = false}), true);
  add(scan_case({1, 1, 1, 1, 1}, {}), true);
  add(scan_case({40, 3, 2, 1, 1}, {.start = true}), true);
  add(scan_case({0, 5, 4, 1, 3}, {}), false);
  // Decays of 0, whose gradients are 0 as well; of more than 1; all sizes of steps; as many as a state remembers.
  add(unusual_case({2, 20, 4, 1, 3}, ",forgets", uniform(-30000, -20000), {}, false), false);
  for (Input& input : cases.back().inputs)
    if (input.name == "A" || input.name == "initial_state") input.zero_gradient = true;
  add(unusual_case({2, 40, 4, 1, 3}, ",grows", uniform(0.05, 0.3), {}, true), false);
  add(unusual_case({1, 50, 4, 1, 3}, ",all steps", uniform(-1.5, -0.5), log_uniform(1e-8, 1e3), false),
      false);
  cases.back().beyond_f16 = true;
  for (const bool start : {false, true})
    add(unusual_case({1, 4099, 2, 1, 2}, ",slow", uniform(-2e-3, -2e-4), {}, start), false);
  // States of a lane, of a warp and of several rounds; channels of one block, of several, of several parts of a group.
  for (const std::int64_t N : {4, 15, 16, 17, 31, 32, 33, 100, 128, 129, 257, 1024})
    add(scan_case({1, 7, 3, 1, N}, {.start = N == 33}), false);
  for (const std::int64_t E : {8, 9, 63, 64, 65, 130, 520}) add(scan_case({1, 5, E, 1, 3}, {}), false);
  for (const std::int64_t E : {8, 20, 144}) add(scan_case({1, 5, E, 2, 20}, {}), false);
  add(scan_case({1, 3, 1100, 1, 2}, {}), false);
  add(scan_case({2, 4, 24, 8, 200}, {}), false);

  // Every pair of options, at lengths around intervals.
  const std::vector<SelectiveScanShape> shapes = {
      {2, 0, 4, 1, 3}, {1, 0, 6, 2, 2}, {3, 0, 1, 1, 4}, {1, 0, 3, 3, 1}};
  const auto options_of = [&](const PairwiseRow& row) {  // of the ten axes from 1 on
    SelectiveScanCaseOptions options;
    options.D = row[1] == 0;
    options.z = row[2] == 0;
    options.dt_bias = row[3] == 0;
    options.softplus = row[4] == 0;
    options.initial_state = row[5] == 0;
    options.start = row[6] == 1;
    options.final_state = row[7] == 0;
    options.layout = layouts[at(row[8])];
    return options;
  };
  const auto sized = [&](const PairwiseRow& row, std::int64_t length) {
    SelectiveScanShape shape = shapes[at(row[9])];
    shape.L = length;
    return shape;
  };
  const std::vector<std::int64_t> short_lengths = {2, 3, 4, 5, 9, 10, 17};
  for (const PairwiseRow& row : pairwise({size(short_lengths), 2, 2, 2, 2, 2, 2, 2, 3, size(shapes)}))
    add(scan_case(sized(row, short_lengths[at(row[0])]), options_of(row)), true);
  std::vector<std::int64_t> all_lengths;
  for (std::int64_t length = 1; length <= 70; ++length) all_lengths.push_back(length);
  for (const std::int64_t length : {127, 128, 129, 255, 256, 257}) all_lengths.push_back(length);
  for (const PairwiseRow& row : pairwise({size(all_lengths), 2, 2, 2, 2, 2, 2, 2, 3, size(shapes)}, {}, 2)) {
    Case c = scan_case(sized(row, all_lengths[at(row[0])]), options_of(row));
    const bool known =
        std::any_of(cases.begin(), cases.end(), [&](const Case& other) { return other.name == c.name; });
    if (!known) add(std::move(c), false);
  }

  // A model of bars, and a public one of Mamba-1's size.
  SelectiveScanCaseOptions timed;
  timed.initial_state = false;
  for (const SelectiveScanShape& shape :
       {SelectiveScanShape{32, 60, 512, 1, 16}, SelectiveScanShape{1, 512, 1536, 1, 16}}) {
    add(scan_case(shape, timed), false);
    cases.back().benchmark = true;
  }
  return cases;
}

}  // namespace scantape::cases
