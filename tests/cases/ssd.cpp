#include "scantape/ssd.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "pairwise.h"
#include "ssd.h"
#include "timed.h"

namespace scantape::cases {
namespace {

constexpr double kLeast = 0.1, kMost = 0.4;

/// Time steps within the limits, below and above them, 0.03 or more away: 0.02 of that is a bias's. The first lies within.
Values around_limits(Rng& rng, const Shape& shape) {
  Values values;
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    const std::int64_t side = i == 0 ? 0 : rng.below(3);
    values.push_back(side == 0   ? rng.uniform(0.15, 0.35)
                     : side == 1 ? rng.uniform(0.02, 0.07)
                                 : rng.uniform(0.45, 0.6));
  }
  return values;
}

Fill fill_of(SsdTimeStep time_step) {
  switch (time_step) {
    case SsdTimeStep::as_given:
      return uniform(0.05, 0.5);
    case SsdTimeStep::softplus:
      return uniform(-3, 0.5);
    case SsdTimeStep::limits:
      return around_limits;
    case SsdTimeStep::both:
      return [](Rng& rng, const Shape& shape) {
        Values values = around_limits(rng, shape);
        for (double& value : values) value = std::log(std::expm1(value));
        return values;
      };
  }
  return {};
}

const char* name(SsdSkip skip) {
  return skip == SsdSkip::head ? "head" : skip == SsdSkip::channel ? "channel" : "none";
}
const char* name(SsdTimeStep time_step) {
  switch (time_step) {
    case SsdTimeStep::as_given:
      return "as given";
    case SsdTimeStep::softplus:
      return "softplus";
    case SsdTimeStep::limits:
      return "limits";
    case SsdTimeStep::both:
      return "both";
  }
  return "";
}

SsdForward forward_arguments(const SsdCaseOptions& options, const Call& call) {
  SsdForward args;
  set_ssd_inputs(options, call, &args);
  args.initial_state = call.input("initial_state");
  args.start = call.input("start");
  args.chunk_length = options.chunk;
  args.out = call.output("out");
  args.final_state = call.output("final_state");
  args.states = call.output("states");
  return args;
}

Status forward(const SsdCaseOptions& options, const Call& call) {
  return run(SCANTAPE_DIRECTION(ssd_forward), forward_arguments(options, call), call);
}

Status backward(const SsdCaseOptions& options, const Call& call) {
  SsdBackward args;
  static_cast<SsdForward&>(args) = forward_arguments(options, call);
  args.out = args.final_state = View();  // not read
  set_ssd_gradients(call, &args);
  args.d_final_state = call.cotangent("final_state");
  args.d_initial_state = call.gradient("initial_state");
  return run(SCANTAPE_DIRECTION(ssd_backward), args, call);
}

/// "chunk 16,D head,z,bias,softplus,h0,start,final,dense"
std::string title_of(const SsdCaseOptions& o) {
  std::ostringstream text;
  if (o.chunk == 0)
    text << "sequential";
  else
    text << "chunk " << o.chunk;
  text << ssd_title(o) << (o.initial_state ? ",h0" : "") << (o.start ? ",start" : "")
       << (o.final_state ? ",final" : "") << (o.out_cotangent ? "" : ",no d_out")
       << (o.final_state && !o.final_cotangent ? ",no d_final" : "") << "," << name(o.layout) << o.note;
  return text.str();
}

/// Numbers of either sign that are summed to one alone cancel: what they lose there is no error of the op.
Budget sum_budget(bool alone) {
  return {1e-10, alone ? 1e-3 : 1e-4};
}

Case ssd_case(const SsdShape& s, const SsdCaseOptions& options) {
  const Shape state{s.B, s.H, s.P, s.N}, sequence{s.B, s.L, s.H, s.P};
  const std::int64_t kept = (s.L - 1) / ssd_interval(s.L, options.chunk);
  const bool empty = s.B == 0, remembers = s.L > 1 || options.initial_state;
  Case c;
  c.op = "ssd";
  c.name = c.op + "/" + size_name({{"B", s.B}, {"L", s.L}, {"H", s.H}, {"G", s.G}, {"P", s.P}, {"N", s.N}}) +
           "/" + title_of(options);
  c.options = ssd_case_options(s, options);
  c.options.emplace_back("initial_state", options.initial_state ? "present" : "absent");
  c.options.emplace_back("start", options.start ? "present" : "absent");
  c.options.emplace_back("final_state", options.final_state ? "present" : "absent");
  c.options.emplace_back("form", options.chunk == 0 ? "sequential" : "chunked");
  c.inputs = ssd_inputs({s.B, s.L}, s, options);
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
                .shape = sequence,
                .cotangent = options.out_cotangent,
                .items = true,
                .strided = true,
                .row_axes = 2},
               {.name = "final_state",
                .shape = state,
                .present = options.final_state,
                .cotangent = options.final_state && options.final_cotangent,
                .items = true,
                .type = ElementType::wide},
               {.name = "states",
                .shape = {s.B, kept, s.H, s.P, s.N},
                .cotangent = false,
                .saved = true,
                .zero = kept == 0 || options.start,
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
  // A block has a chunk of a head, however short, and costs the emulator milliseconds: more of them are left to the CPU's
  // forms and to a GPU.
  constexpr std::int64_t kMostEmulatedBlocks = 16;
  const std::int64_t blocks = options.chunk == 0 ? 0 : s.B * s.H * ((s.L - 1) / options.chunk + 1);
  c.cpu_only = blocks > kMostEmulatedBlocks && std::string(cuda_backend()) == "emulated";
  const auto steps = static_cast<double>(s.B * s.L * s.H), P = static_cast<double>(s.P),
             N = static_cast<double>(s.N);
  const auto inside = static_cast<double>(std::min(options.chunk, s.L)) / 2;
  const double groups = static_cast<double>(s.G) / static_cast<double>(s.H);
  const double products = options.chunk == 0 ? 5 * P * N : 4 * P * N + 2 * inside * (P + N * groups);
  c.forward_operations = steps * (products + 6 * P + 30);
  c.backward_operations =
      steps *
      ((options.chunk == 0 ? 14 * P * N : 10 * P * N + 2 * inside * (3 * P + 3 * N * groups)) + 20 * P + 60);
  return c;
}

/// One that forgets all at once: decays of 0, whose gradients are 0 as well.
Case forgetting_case(std::int64_t length, std::int64_t chunk) {
  SsdCaseOptions options;
  options.time_step = SsdTimeStep::as_given;
  options.A = uniform(-30000, -20000);
  options.dt_bias = false;
  options.chunk = chunk;
  options.note = ",forgets";
  Case c = ssd_case({2, length, 2, 1, 3, 4}, options);
  for (Input& input : c.inputs)
    if (input.name == "A" || input.name == "initial_state") input.zero_gradient = true;
  c.finite_differences = false;
  return c;
}

Case unusual_case(const SsdShape& shape, std::int64_t chunk, const char* note, Fill A, Fill dt, bool start) {
  SsdCaseOptions options;
  options.time_step = SsdTimeStep::as_given;
  options.A = std::move(A);
  options.dt = std::move(dt);
  options.dt_bias = false;
  options.start = start;
  options.chunk = chunk;
  options.note = note;
  Case c = ssd_case(shape, options);
  c.finite_differences = false;
  return c;
}

}  // namespace

SsdLimits ssd_limits(SsdTimeStep time_step) {
  if (time_step == SsdTimeStep::limits || time_step == SsdTimeStep::both) return {kLeast, kMost};
  return {0, std::numeric_limits<double>::infinity()};
}

std::vector<Input> ssd_inputs(const Shape& rows, const SsdShape& s, const SsdCaseOptions& o) {
  const auto shaped = [&rows](std::initializer_list<std::int64_t> sizes) {
    Shape shape = rows;
    for (const std::int64_t size : sizes) shape.append(size);
    return shape;
  };
  const Shape x = shaped({s.H, s.P}), B = shaped({s.G, s.N});
  const auto data = [](const char* argument, const Shape& shape) {
    return Input{.name = argument,
                 .shape = shape,
                 .fill = normal(),
                 .gradient = true,
                 .items = true,
                 .strided = true,
                 .row_axes = 2};
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
  Input dt{.name = "dt",
           .shape = shaped({s.H}),
           .fill = o.dt ? o.dt : fill_of(o.time_step),
           .gradient = true,
           .items = true,
           .strided = true,
           .budget = sum_budget(rows.elements() * s.H <= 2)};
  Input z = data("z", x);
  z.present = z.gradient = o.z;
  return {data("x", x),
          dt,
          parameter("A", {s.H}, o.A, true),
          data("B", B),
          data("C", B),
          parameter("D", o.skip == SsdSkip::channel ? Shape{s.H, s.P} : Shape{s.H}, normal(),
                    o.skip != SsdSkip::none),
          z,
          parameter("dt_bias", {s.H}, uniform(-0.02, 0.02), o.dt_bias)};
}

std::vector<std::pair<std::string, std::string>> ssd_case_options(const SsdShape& s,
                                                                  const SsdCaseOptions& o) {
  return {{"skip", name(o.skip)},
          {"z", o.z ? "present" : "absent"},
          {"dt_bias", o.dt_bias ? "present" : "absent"},
          {"time_step", name(o.time_step)},
          {"groups", s.G == 1 ? "one" : "several"}};
}

std::string ssd_title(const SsdCaseOptions& o) {
  return std::string(",D ") + name(o.skip) + (o.z ? ",z" : "") + (o.dt_bias ? ",bias" : "") + "," +
         name(o.time_step);
}

std::vector<Case> ssd_cases() {
  std::vector<Case> cases;
  const auto add = [&](Case c, bool properties) {
    c.properties = properties;
    cases.push_back(std::move(c));
  };
  const auto at = [](int index) { return static_cast<std::size_t>(index); };
  const auto size = [](const auto& list) { return static_cast<int>(list.size()); };
  const std::vector<Layout> layouts = {Layout::dense, Layout::strided, Layout::misaligned};
  const std::vector<SsdSkip> skips = {SsdSkip::head, SsdSkip::channel, SsdSkip::none};
  const std::vector<SsdTimeStep> time_steps = {SsdTimeStep::softplus, SsdTimeStep::both,
                                               SsdTimeStep::as_given, SsdTimeStep::limits};
  const std::vector<std::int64_t> chunks = {0, 16, 7, 64, 1, 256};

  for (const std::int64_t chunk : {0, 1, 4, 64}) {
    for (const Layout layout : layouts)
      add(ssd_case({2, 7, 4, 2, 5, 3}, {.chunk = chunk, .layout = layout}), true);
    add(ssd_case({2, 6, 2, 1, 3, 2}, {.start = true, .chunk = chunk}), true);
    add(ssd_case({2, 5, 2, 2, 2, 3}, {.chunk = chunk, .out_cotangent = false}), true);
    add(ssd_case({2, 5, 2, 1, 2, 3}, {.chunk = chunk, .final_cotangent = false}), true);
    add(ssd_case({2, 1, 2, 1, 2, 3}, {.initial_state = false, .chunk = chunk}), true);
    add(ssd_case({1, 1, 1, 1, 1, 1}, {.chunk = chunk}), true);
    add(ssd_case({40, 3, 1, 1, 2, 1}, {.start = true, .chunk = chunk}), chunk == 0);
    add(ssd_case({0, 5, 2, 1, 3, 2}, {.chunk = chunk}), false);
    add(forgetting_case(20, chunk), false);
    add(unusual_case({2, 40, 2, 1, 3, 2}, chunk, ",grows", uniform(0.05, 0.3), {}, true), false);
    add(unusual_case({1, 50, 3, 1, 2, 2}, chunk, ",all steps", uniform(-1.5, -0.5), log_uniform(1e-8, 1e3),
                     false),
        false);
    cases.back().beyond_f16 = true;
  }
  // States that remember as many steps as there are. Tiles are small for the channels, which the emulator pays for.
  for (const auto& [length, chunk] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{4099, 0}, {1001, 64}, {1001, 256}})
    add(unusual_case({1, length, 1, 1, 1, 2}, chunk, ",slow", uniform(-2e-3, -2e-4), {}, chunk == 64), false);
  // Widths that vectors and tiles of products do not divide, and that they do.
  for (const auto& [P, N] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 128}, {64, 1}, {64, 16}, {16, 64}, {33, 17}, {31, 100}, {80, 8}, {130, 3}, {3, 257}})
    for (const std::int64_t chunk : {0, 16}) add(ssd_case({1, 35, 2, 1, P, N}, {.chunk = chunk}), false);
  add(ssd_case({1, 9, 80, 8, 2, 3}, {.chunk = 4}), false);
  add(ssd_case({1, 300, 1, 1, 2, 3}, {.chunk = 300}), false);

  // Every pair of options, at lengths around chunks.
  const std::vector<SsdShape> shapes = {
      {2, 0, 2, 1, 2, 3}, {1, 0, 4, 2, 3, 2}, {3, 0, 1, 1, 1, 4}, {1, 0, 3, 3, 5, 1}};
  const auto options_of = [&](const PairwiseRow& row) {  // of the ten axes from 2 on
    SsdCaseOptions options;
    options.skip = skips[at(row[2])];
    options.z = row[3] == 0;
    options.dt_bias = row[4] == 0;
    options.time_step = time_steps[at(row[5])];
    options.initial_state = row[6] == 0;
    options.start = row[7] == 1;
    options.final_state = row[8] == 0;
    options.layout = layouts[at(row[9])];
    options.chunk = chunks[at(row[1])];
    return options;
  };
  const std::vector<std::int64_t> short_lengths = {2, 5, 7, 8, 16, 17, 23};
  const auto sized = [&](const PairwiseRow& row, std::int64_t length) {
    SsdShape shape = shapes[at(row[10])];
    shape.L = length;
    return shape;
  };
  for (const PairwiseRow& row :
       pairwise({size(short_lengths), size(chunks), 3, 2, 2, 4, 2, 2, 2, 3, size(shapes)}))
    add(ssd_case(sized(row, short_lengths[at(row[0])]), options_of(row)), cases.size() % 2 == 0);
  std::vector<std::int64_t> all_lengths;
  for (std::int64_t length = 1; length <= 70; ++length) all_lengths.push_back(length);
  for (const std::int64_t length : {127, 128, 129, 255, 256, 257}) all_lengths.push_back(length);
  for (const PairwiseRow& row :
       pairwise({size(all_lengths), size(chunks), 3, 2, 2, 4, 2, 2, 2, 3, size(shapes)}, {}, 2)) {
    Case c = ssd_case(sized(row, all_lengths[at(row[0])]), options_of(row));
    const bool known =
        std::any_of(cases.begin(), cases.end(), [&](const Case& other) { return other.name == c.name; });
    if (!known) add(std::move(c), false);
  }

  // A model of bars; one of the size of a public model, as far as a processor goes.
  SsdCaseOptions timed;
  timed.initial_state = timed.z = false;
  for (const std::int64_t chunk : {0, 64}) {
    timed.chunk = chunk;
    add(ssd_case({32, 60, 8, 1, 64, 16}, timed), false);
    cases.back().benchmark = true;
    for (const std::int64_t length : {256, 1024}) {
      add(ssd_case({1, length, 8, 1, 64, 128}, timed), false);
      cases.back().benchmark = true;
    }
  }
  timed.chunk = 256;
  for (const SsdShape& shape : {SsdShape{1, 1024, 8, 1, 64, 128}, SsdShape{2, 4096, 24, 1, 64, 128}}) {
    add(ssd_case(shape, timed), false);
    cases.back().benchmark = true;
  }
  return cases;
}

}  // namespace scantape::cases
