/// The library against tests/oracle/fixtures: values and gradients that PyTorch computed from definitions of
/// its own (tests/oracle/make_fixtures.py). In f64, on the CPU and, where there is one, on cuda.

#include <cmath>
#include <fstream>
#include <map>

#include <nlohmann/json.hpp>

#include "case_tests.h"
#include "cases/compare.h"
#include "scantape/adamw.h"
#include "scantape/causal_conv1d.h"
#include "scantape/causal_conv1d_step.h"
#include "scantape/copy.h"
#include "scantape/cross_entropy.h"
#include "scantape/discretize.h"
#include "scantape/discretized_scan.h"
#include "scantape/embedding.h"
#include "scantape/gated_rms_norm.h"
#include "scantape/grad_norm.h"
#include "scantape/huber.h"
#include "scantape/layer_norm.h"
#include "scantape/mse.h"
#include "scantape/neg_exp.h"
#include "scantape/projection.h"
#include "scantape/projection_layer_norm.h"
#include "scantape/quantile.h"
#include "scantape/rms_norm.h"
#include "scantape/scan.h"
#include "scantape/selective_scan.h"
#include "scantape/selective_scan_step.h"
#include "scantape/silu.h"
#include "scantape/softplus.h"
#include "scantape/spectral_radius.h"
#include "scantape/ssd.h"
#include "scantape/ssd_step.h"
#include "scantape/state_output.h"
#include "scantape/tensor.h"

namespace scantape {
namespace {

using nlohmann::json;

constexpr double kTolerance = 1e-10;

json load(const std::string& op) {
  std::ifstream file(std::string(SCANTAPE_TEST_SOURCE_DIR) + "/oracle/fixtures/" + op + ".json");
  if (!file) throw Error(Code::io, "no fixture of " + op);
  return json::parse(file);
}

Shape shape_of(const json& tensor) {
  Shape shape;
  for (const json& size : tensor.at("shape")) shape.append(size.get<std::int64_t>());
  return shape;
}

/// The tensors of one fixture on a device: inputs and cotangents as written, targets for what is compared.
class Fixture {
 public:
  Fixture(const json& fixture, Device device) : json_(fixture), device_(device) {}

  Tensor input(const char* name) const { return tensor_of("inputs", name); }
  Tensor cotangent(const char* name) const { return tensor_of("cotangents", name); }
  double number(const char* name) const { return json_.at("options").at(name).get<double>(); }
  bool flag(const char* name) const { return json_.at("options").at(name).get<bool>(); }
  std::string text(const char* name) const { return json_.at("options").at(name).get<std::string>(); }

  /// A tensor of the shape that the fixture has for this output, to be compared at the end.
  View output(const char* name, std::optional<Shape> shape = {}) {
    const json& outputs = json_.at("outputs");
    Tensor& tensor = outputs_[name];
    tensor = Tensor::full(shape ? *shape : shape_of(outputs.at(name)), std::nan(""), DType::f64, device_);
    return tensor.writable();
  }
  ConstView written(const char* name) const { return outputs_.at(name).view(); }
  Gradient gradient(const char* name) {
    if (!json_.at("gradients").contains(name)) return {};
    gradients_[name] = Tensor::full(shape_of(json_["gradients"][name]), std::nan(""), DType::f64, device_);
    return {gradients_[name].writable(), WriteMode::overwrite};
  }

  template <class Args>
  void call(Status (*function)(const Args&, Stream) noexcept, std::int64_t (*size)(const Args&) noexcept,
            Args args) {
    const std::int64_t bytes = size(args);
    const Tensor room = Tensor::empty({bytes / 8 + 1}, DType::f64, device_);
    args.workspace = {const_cast<void*>(room.view().data), bytes};
    require(function(args, Stream{}));
    require(synchronize(device_));
  }

  /// Compares every output and every gradient of the fixture; none may be missing.
  void expect_equal(cases::ErrorRule rule = cases::ErrorRule::slice) const {
    expect_equal("outputs", outputs_, rule);
    expect_equal("gradients", gradients_, rule);
  }

 private:
  Tensor tensor_of(const char* part, const char* name) const {
    if (!json_.at(part).contains(name)) return {};
    const json& tensor = json_[part][name];
    return Tensor::from(shape_of(tensor), tensor.at("values").get<std::vector<double>>(), device_);
  }
  void expect_equal(const char* part, const std::map<std::string, Tensor>& got, cases::ErrorRule rule) const {
    for (const auto& [name, want] : json_.at(part).items()) {
      ASSERT_TRUE(got.count(name) == 1) << json_["name"] << ": nothing computed for " << name;
      const double error =
          cases::relative_error(got.at(name).values<double>(), want.at("values").get<std::vector<double>>(),
                                shape_of(want), DType::f64, rule);
      EXPECT_TRUE(error <= kTolerance) << json_["name"] << " on " << scantape::name(device_) << ": " << part
                                       << " " << name << " is off by " << error;
    }
  }

  json json_;
  Device device_;
  std::map<std::string, Tensor> outputs_, gradients_;
};

ConstView view_of(const Tensor& tensor) {
  return tensor.present() ? tensor.view() : ConstView();
}

/// Runs `body` for every fixture of the op on every device; there must be some.
void for_each_fixture(const std::string& op, const std::function<void(Fixture&)>& body) {
  const json document = load(op);
  ASSERT_EQ(document.at("format_version"), 1);
  ASSERT_FALSE(document.at("cases").empty());
  for (const json& one : document["cases"])
    for (const Device device : {kCpu, kCuda}) {
      if (!is_available(device)) continue;
      SCOPED_TRACE(op + ": " + one["name"].get<std::string>() + " on " + name(device));
      Fixture fixture(one, device);
      ASSERT_NO_THROW(body(fixture));
    }
}

TEST(Fixtures, Projection) {
  for_each_fixture("projection", [](Fixture& f) {
    const Tensor x = f.input("x"), weight = f.input("weight"), bias = f.input("bias"), d_y = f.cotangent("y");
    ProjectionBackward args;
    args.x = x;
    args.weight = weight;
    args.bias = view_of(bias);
    args.y = f.output("y");
    f.call<ProjectionForward>(projection_forward, projection_forward_workspace, args);
    args.d_y = d_y;
    args.d_x = f.gradient("x");
    args.d_weight = f.gradient("weight");
    args.d_bias = f.gradient("bias");
    f.call(projection_backward, projection_backward_workspace, args);
    f.expect_equal();
  });
}

/// A norm that saves `numbers` a row.
void norm_follows(Fixture& f, std::int64_t numbers, Status (*forward)(const NormForward&, Stream) noexcept,
                  Status (*backward)(const NormBackward&, Stream) noexcept,
                  std::int64_t (*workspace)(const NormBackward&) noexcept) {
  const Tensor x = f.input("x"), residual = f.input("residual"), weight = f.input("weight"),
               bias = f.input("bias");
  const Tensor d_y = f.cotangent("y"), d_r = f.cotangent("r");
  Shape statistics = x.shape();
  statistics[statistics.rank() - 1] = numbers;
  Tensor saved = Tensor::empty(statistics, DType::f64, x.device());
  NormBackward args;
  args.x = x;
  args.residual = view_of(residual);
  args.weight = weight;
  args.bias = view_of(bias);
  args.eps = f.number("eps");
  args.y = f.output("y");
  if (residual.present()) args.r = f.output("r");
  args.statistics = saved.writable();
  f.call<NormForward>(
      forward, [](const NormForward&) noexcept -> std::int64_t { return 0; }, args);
  args.d_y = view_of(d_y);
  args.d_r = view_of(d_r);
  args.d_x = f.gradient("x");
  args.d_residual = f.gradient("residual");
  args.d_weight = f.gradient("weight");
  args.d_bias = f.gradient("bias");
  f.call(backward, workspace, args);
  f.expect_equal();
}

TEST(Fixtures, LayerNorm) {
  for_each_fixture("layer_norm", [](Fixture& f) {
    norm_follows(f, 3, layer_norm_forward, layer_norm_backward, layer_norm_backward_workspace);
  });
}

TEST(Fixtures, RmsNorm) {
  for_each_fixture("rms_norm", [](Fixture& f) {
    norm_follows(f, 1, rms_norm_forward, rms_norm_backward, rms_norm_backward_workspace);
  });
}

TEST(Fixtures, ProjectionLayerNorm) {
  for_each_fixture("projection_layer_norm", [](Fixture& f) {
    const Tensor x = f.input("x"), weight = f.input("weight"), bias = f.input("bias");
    const Tensor norm_weight = f.input("norm_weight"), norm_bias = f.input("norm_bias"),
                 d_y = f.cotangent("y");
    Shape statistics = x.shape();
    statistics[statistics.rank() - 1] = 3;
    Tensor saved = Tensor::empty(statistics, DType::f64, x.device());
    ProjectionLayerNormBackward args;
    args.x = x;
    args.weight = weight;
    args.bias = view_of(bias);
    args.norm_weight = norm_weight;
    args.norm_bias = view_of(norm_bias);
    args.eps = f.number("eps");
    args.y = f.output("y");
    args.statistics = saved.writable();
    f.call<ProjectionLayerNormForward>(projection_layer_norm_forward, projection_layer_norm_forward_workspace,
                                       args);
    args.d_y = d_y;
    args.d_x = f.gradient("x");
    args.d_weight = f.gradient("weight");
    args.d_bias = f.gradient("bias");
    args.d_norm_weight = f.gradient("norm_weight");
    args.d_norm_bias = f.gradient("norm_bias");
    f.call(projection_layer_norm_backward, projection_layer_norm_backward_workspace, args);
    f.expect_equal();
  });
}

TEST(Fixtures, Softplus) {
  for_each_fixture("softplus", [](Fixture& f) {
    const Tensor x = f.input("x"), d_y = f.cotangent("y");
    SoftplusBackward args;
    args.x = x;
    args.y = f.output("y");
    f.call<SoftplusForward>(softplus_forward, softplus_forward_workspace, args);
    args.d_y = d_y;
    args.d_x = f.gradient("x");
    f.call(softplus_backward, softplus_backward_workspace, args);
    f.expect_equal(cases::ErrorRule::element);
  });
}

TEST(Fixtures, Silu) {
  for_each_fixture("silu", [](Fixture& f) {
    const Tensor x = f.input("x"), d_y = f.cotangent("y");
    SiluBackward args;
    args.x = x;
    args.y = f.output("y");
    f.call<SiluForward>(silu_forward, silu_forward_workspace, args);
    args.d_y = d_y;
    args.d_x = f.gradient("x");
    f.call(silu_backward, silu_backward_workspace, args);
    f.expect_equal(cases::ErrorRule::element);
  });
}

TEST(Fixtures, NegExp) {
  for_each_fixture("neg_exp", [](Fixture& f) {
    const Tensor x = f.input("x"), d_y = f.cotangent("y");
    NegExpBackward args;
    args.x = x;
    args.y = f.output("y");
    f.call<NegExpForward>(neg_exp_forward, neg_exp_forward_workspace, args);
    args.d_y = d_y;
    args.d_x = f.gradient("x");
    f.call(neg_exp_backward, neg_exp_backward_workspace, args);
    f.expect_equal(cases::ErrorRule::element);
  });
}

TEST(Fixtures, Copy) {
  for_each_fixture("copy", [](Fixture& f) {
    const Tensor x = f.input("x"), d_y = f.cotangent("y");
    CopyBackward args;
    args.x = x;
    args.y = f.output("y");
    f.call<CopyForward>(copy_forward, copy_forward_workspace, args);
    args.d_y = d_y;
    args.d_x = f.gradient("x");
    f.call(copy_backward, copy_backward_workspace, args);
    f.expect_equal(cases::ErrorRule::element);
  });
}

DiscretizeMethod method_named(const std::string& wanted) {
  for (const DiscretizeMethod method : {DiscretizeMethod::zoh, DiscretizeMethod::exp_euler,
                                        DiscretizeMethod::bilinear, DiscretizeMethod::euler})
    if (wanted == name(method)) return method;
  throw Error(Code::invalid_argument, "no method is named " + wanted);
}

void expect_discretize_equal(const std::string& fixtures) {
  for_each_fixture(fixtures, [](Fixture& f) {
    const Tensor dt = f.input("dt"), A = f.input("A"), B = f.input("B");
    const Tensor d_A_bar = f.cotangent("A_bar"), d_B_bar = f.cotangent("B_bar"), d_F = f.cotangent("F");
    const Tensor d_s = f.cotangent("s");
    DiscretizeBackward args;
    args.dt = dt;
    args.A = A;
    args.B = view_of(B);
    args.method = method_named(f.text("method"));
    args.A_bar = f.output("A_bar");
    args.F = f.output("F");
    (B.present() ? args.B_bar : args.s) = f.output(B.present() ? "B_bar" : "s");
    f.call<DiscretizeForward>(discretize_forward, discretize_forward_workspace, args);
    args.d_A_bar = d_A_bar;
    args.d_B_bar = view_of(d_B_bar);
    args.d_F = d_F;
    args.d_s = view_of(d_s);
    args.d_dt = f.gradient("dt");
    args.d_A = f.gradient("A");
    args.d_B = f.gradient("B");
    f.call(discretize_backward, discretize_backward_workspace, args);
    f.expect_equal();
  });
}

TEST(Fixtures, Discretize) {
  expect_discretize_equal("discretize");
}

TEST(Fixtures, DiscretizePerHead) {
  expect_discretize_equal("discretize_per_head");
}

TEST(Fixtures, DiscretizeDense) {
  expect_discretize_equal("discretize_dense");
}

TEST(Fixtures, SpectralRadius) {
  for_each_fixture("spectral_radius", [](Fixture& f) {
    const Tensor A_bar = f.input("A_bar");
    SpectralRadius args;
    args.A_bar = A_bar;
    args.radius = f.output("radius");
    f.call(spectral_radius, spectral_radius_workspace, args);
    f.expect_equal();
  });
}

void scan_follows(Fixture& f, ScanDirection direction, bool minus_one) {
  const Tensor a = f.input("a"), b = f.input("b"), h0 = f.input("h0"), start = f.input("start");
  const Tensor d_h = f.cotangent("h"), d_final_state = f.cotangent("final_state");
  ScanBackward args;
  args.a = a;
  args.b = b;
  args.h0 = view_of(h0);
  args.start = view_of(start);
  args.direction = direction;
  args.minus_one = minus_one;
  args.h = f.output("h");
  args.final_state = f.output("final_state");
  f.call<ScanForward>(scan_forward, scan_forward_workspace, args);
  args.d_h = view_of(d_h);
  args.d_final_state = view_of(d_final_state);
  args.d_a = f.gradient("a");
  args.d_b = f.gradient("b");
  args.d_h0 = f.gradient("h0");
  f.call(scan_backward, scan_backward_workspace, args);
  f.expect_equal();
}

TEST(Fixtures, Scan) {
  for_each_fixture("scan", [](Fixture& f) { scan_follows(f, ScanDirection::forward, false); });
}

TEST(Fixtures, ScanForms) {
  for_each_fixture("scan_forms", [](Fixture& f) {
    const bool reversed = f.text("direction") == "reversed";
    scan_follows(f, reversed ? ScanDirection::reversed : ScanDirection::forward,
                 f.text("minus_one") == "yes");
  });
}

TEST(Fixtures, DiscretizedScan) {
  for_each_fixture("discretized_scan", [](Fixture& f) {
    const Tensor dt = f.input("dt"), A = f.input("A"), u = f.input("u"), h0 = f.input("h0"),
                 start = f.input("start");
    const Tensor d_h = f.cotangent("h"), d_final_state = f.cotangent("final_state");
    DiscretizedScanBackward args;
    args.dt = dt;
    args.A = A;
    args.u = u;
    args.h0 = view_of(h0);
    args.start = view_of(start);
    args.method = method_named(f.text("method"));
    args.direction = f.text("direction") == "reversed" ? ScanDirection::reversed : ScanDirection::forward;
    args.h = f.output("h");
    args.final_state = f.output("final_state");
    f.call<DiscretizedScanForward>(discretized_scan_forward, discretized_scan_forward_workspace, args);
    args.d_h = view_of(d_h);
    args.d_final_state = view_of(d_final_state);
    args.d_dt = f.gradient("dt");
    args.d_A = f.gradient("A");
    args.d_u = f.gradient("u");
    args.d_h0 = f.gradient("h0");
    f.call(discretized_scan_backward, discretized_scan_backward_workspace, args);
    f.expect_equal();
  });
}

Activation activation_named(const std::string& name) {
  return name == "silu" ? Activation::silu : Activation::none;
}

TEST(Fixtures, CausalConv1d) {
  for_each_fixture("causal_conv1d", [](Fixture& f) {
    const Tensor x = f.input("x"), weight = f.input("weight"), bias = f.input("bias"),
                 initial_state = f.input("initial_state"), start = f.input("start");
    const Tensor d_y = f.cotangent("y"), d_final_state = f.cotangent("final_state");
    CausalConv1dBackward args;
    args.x = x;
    args.weight = weight;
    args.bias = view_of(bias);
    args.initial_state = view_of(initial_state);
    args.start = view_of(start);
    args.activation = activation_named(f.text("activation"));
    args.y = f.output("y");
    if (weight.shape()[1] > 1) args.final_state = f.output("final_state");
    f.call<CausalConv1dForward>(causal_conv1d_forward, causal_conv1d_forward_workspace, args);
    args.d_y = view_of(d_y);
    args.d_final_state = view_of(d_final_state);
    args.d_x = f.gradient("x");
    args.d_weight = f.gradient("weight");
    args.d_bias = f.gradient("bias");
    args.d_initial_state = f.gradient("initial_state");
    f.call(causal_conv1d_backward, causal_conv1d_backward_workspace, args);
    f.expect_equal();
  });
}

TEST(Fixtures, CausalConv1dStep) {
  for_each_fixture("causal_conv1d_step", [](Fixture& f) {
    const Tensor x = f.input("x"), state = f.input("state"), weight = f.input("weight"),
                 bias = f.input("bias");
    const Tensor d_y = f.cotangent("y"), d_new_state = f.cotangent("new_state");
    CausalConv1dStepBackward args;
    args.x = x;
    args.state = view_of(state);
    args.weight = weight;
    args.bias = view_of(bias);
    args.activation = activation_named(f.text("activation"));
    args.y = f.output("y");
    if (weight.shape()[1] > 1) args.new_state = f.output("new_state");
    f.call<CausalConv1dStepForward>(causal_conv1d_step_forward, causal_conv1d_step_forward_workspace, args);
    args.d_y = view_of(d_y);
    args.d_new_state = view_of(d_new_state);
    args.d_x = f.gradient("x");
    args.d_state = f.gradient("state");
    args.d_weight = f.gradient("weight");
    args.d_bias = f.gradient("bias");
    f.call(causal_conv1d_step_backward, causal_conv1d_step_backward_workspace, args);
    f.expect_equal();
  });
}

TEST(Fixtures, GatedRmsNorm) {
  for_each_fixture("gated_rms_norm", [](Fixture& f) {
    const Tensor x = f.input("x"), z = f.input("z"), weight = f.input("weight"), d_y = f.cotangent("y");
    GatedRmsNormBackward args;
    args.x = x;
    args.z = view_of(z);
    args.weight = weight;
    args.groups = static_cast<std::int64_t>(f.number("groups"));
    args.norm_before_gate = f.text("norm_before_gate") == "yes";
    args.eps = f.number("eps");
    args.y = f.output("y");
    Shape rows = x.shape();
    rows[rows.rank() - 1] = args.groups;
    Tensor statistics = Tensor::empty(rows, DType::f64, x.device());
    args.statistics = statistics.writable();
    f.call<GatedRmsNormForward>(gated_rms_norm_forward, gated_rms_norm_forward_workspace, args);
    args.d_y = d_y;
    args.d_x = f.gradient("x");
    args.d_z = f.gradient("z");
    args.d_weight = f.gradient("weight");
    f.call(gated_rms_norm_backward, gated_rms_norm_backward_workspace, args);
    f.expect_equal();
  });
}

/// What ssd and its step are given alike. The tensors must outlive the call.
struct SsdTensors {
  std::map<std::string, Tensor> inputs;
  Tensor d_out;

  explicit SsdTensors(const Fixture& f) : d_out(f.cotangent("out")) {
    for (const char* name :
         {"x", "dt", "A", "B", "C", "D", "z", "dt_bias", "initial_state", "start", "state"})
      inputs[name] = f.input(name);
  }
  ConstView view(const char* name) const { return view_of(inputs.at(name)); }

  template <class Args>
  void set(Fixture& f, Args* args) const {
    args->x = view("x");
    args->dt = view("dt");
    args->A = view("A");
    args->B = view("B");
    args->C = view("C");
    args->D = view("D");
    args->z = view("z");
    args->dt_bias = view("dt_bias");
    args->dt_softplus = f.flag("softplus");
    args->dt_min = f.number("low");
    if (f.number("high") > 0) args->dt_max = f.number("high");
    args->out = f.output("out");
  }
  template <class Args>
  void set_gradients(Fixture& f, Args* args) const {
    args->d_out = d_out;
    args->d_x = f.gradient("x");
    args->d_dt = f.gradient("dt");
    args->d_A = f.gradient("A");
    args->d_B = f.gradient("B");
    args->d_C = f.gradient("C");
    args->d_D = f.gradient("D");
    args->d_z = f.gradient("z");
    args->d_dt_bias = f.gradient("dt_bias");
  }
};

TEST(Fixtures, Ssd) {
  for (const std::int64_t chunk_length : {0, 1, 5, 16})
    for_each_fixture("ssd", [chunk_length](Fixture& f) {
      const SsdTensors tensors(f);
      const Tensor d_final_state = f.cotangent("final_state");
      SsdBackward args;
      tensors.set(f, &args);
      args.initial_state = tensors.view("initial_state");
      args.start = tensors.view("start");
      args.chunk_length = chunk_length;
      args.final_state = f.output("final_state");
      const Shape x = args.x.shape;
      Tensor states =
          Tensor::empty({x[0], (x[1] - 1) / ssd_interval(x[1], chunk_length), x[2], x[3], args.B.shape[3]},
                        DType::f64, args.x.device);
      args.states = states.writable();
      f.call<SsdForward>(ssd_forward, ssd_forward_workspace, args);
      tensors.set_gradients(f, &args);
      args.d_final_state = d_final_state;
      args.d_initial_state = f.gradient("initial_state");
      f.call(ssd_backward, ssd_backward_workspace, args);
      f.expect_equal();
    });
}

TEST(Fixtures, SsdStep) {
  for_each_fixture("ssd_step", [](Fixture& f) {
    const SsdTensors tensors(f);
    const Tensor d_next_state = f.cotangent("next_state");
    SsdStepBackward args;
    tensors.set(f, &args);
    args.state = tensors.view("state");
    args.next_state = f.output("next_state");
    f.call<SsdStepForward>(ssd_step_forward, ssd_step_forward_workspace, args);
    tensors.set_gradients(f, &args);
    args.d_next_state = d_next_state;
    args.d_state = f.gradient("state");
    f.call(ssd_step_backward, ssd_step_backward_workspace, args);
    f.expect_equal();
  });
}

/// What selective_scan and its step are given alike. The tensors must outlive the call.
struct SelectiveScanTensors {
  std::map<std::string, Tensor> inputs;
  Tensor d_out;

  explicit SelectiveScanTensors(const Fixture& f) : d_out(f.cotangent("out")) {
    for (const char* name :
         {"u", "dt", "A", "B", "C", "D", "z", "dt_bias", "initial_state", "start", "state"})
      inputs[name] = f.input(name);
  }
  ConstView view(const char* name) const { return view_of(inputs.at(name)); }

  template <class Args>
  void set(Fixture& f, Args* args) const {
    args->u = view("u");
    args->dt = view("dt");
    args->A = view("A");
    args->B = view("B");
    args->C = view("C");
    args->D = view("D");
    args->z = view("z");
    args->dt_bias = view("dt_bias");
    args->dt_softplus = f.flag("softplus");
    args->out = f.output("out");
  }
  template <class Args>
  void set_gradients(Fixture& f, Args* args) const {
    args->d_out = d_out;
    args->d_u = f.gradient("u");
    args->d_dt = f.gradient("dt");
    args->d_A = f.gradient("A");
    args->d_B = f.gradient("B");
    args->d_C = f.gradient("C");
    args->d_D = f.gradient("D");
    args->d_z = f.gradient("z");
    args->d_dt_bias = f.gradient("dt_bias");
  }
};

TEST(Fixtures, SelectiveScan) {
  for_each_fixture("selective_scan", [](Fixture& f) {
    const SelectiveScanTensors tensors(f);
    const Tensor d_final_state = f.cotangent("final_state");
    SelectiveScanBackward args;
    tensors.set(f, &args);
    args.initial_state = tensors.view("initial_state");
    args.start = tensors.view("start");
    args.final_state = f.output("final_state");
    const Shape u = args.u.shape;
    Tensor states = Tensor::empty({u[0], (u[1] - 1) / selective_scan_interval(u[1]), u[2], args.A.shape[1]},
                                  DType::f64, args.u.device);
    args.states = states.writable();
    f.call<SelectiveScanForward>(selective_scan_forward, selective_scan_forward_workspace, args);
    tensors.set_gradients(f, &args);
    args.d_final_state = d_final_state;
    args.d_initial_state = f.gradient("initial_state");
    f.call(selective_scan_backward, selective_scan_backward_workspace, args);
    f.expect_equal();
  });
}

TEST(Fixtures, SelectiveScanStep) {
  for_each_fixture("selective_scan_step", [](Fixture& f) {
    const SelectiveScanTensors tensors(f);
    const Tensor d_next_state = f.cotangent("next_state");
    SelectiveScanStepBackward args;
    tensors.set(f, &args);
    args.state = tensors.view("state");
    args.next_state = f.output("next_state");
    f.call<SelectiveScanStepForward>(selective_scan_step_forward, selective_scan_step_forward_workspace,
                                     args);
    tensors.set_gradients(f, &args);
    args.d_next_state = d_next_state;
    args.d_state = f.gradient("state");
    f.call(selective_scan_step_backward, selective_scan_step_backward_workspace, args);
    f.expect_equal();
  });
}

TEST(Fixtures, StateOutput) {
  for_each_fixture("state_output", [](Fixture& f) {
    const Tensor z = f.input("z"), u = f.input("u"), D = f.input("D"), residual = f.input("residual");
    const Tensor d_out = f.cotangent("out");
    StateOutputBackward args;
    args.z = z;
    args.u = u;
    args.D = D;
    args.residual = residual;
    args.activation = f.text("activation") == "silu" ? Activation::silu : Activation::none;
    args.out = f.output("out");
    f.call<StateOutputForward>(state_output_forward, state_output_forward_workspace, args);
    args.d_out = d_out;
    args.d_z = f.gradient("z");
    args.d_u = f.gradient("u");
    args.d_D = f.gradient("D");
    args.d_residual = f.gradient("residual");
    f.call(state_output_backward, state_output_backward_workspace, args);
    f.expect_equal();
  });
}

template <class Forward, class Backward, class Set>
void expect_loss_equal(const std::string& op, Status (*forward)(const Forward&, Stream) noexcept,
                       std::int64_t (*forward_workspace)(const Forward&) noexcept,
                       Status (*backward)(const Backward&, Stream) noexcept,
                       std::int64_t (*backward_workspace)(const Backward&) noexcept, const Set& set) {
  for_each_fixture(op, [&](Fixture& f) {
    const Tensor prediction = f.input("prediction"), target = f.input("target"), mask = f.input("mask");
    const Tensor d_loss = f.cotangent("loss");
    Backward args;
    args.prediction = prediction;
    args.target = target;
    args.mask = view_of(mask);
    set(f, args);
    args.loss = f.output("loss");
    f.call<Forward>(forward, forward_workspace, args);
    args.d_loss = d_loss;
    args.d_prediction = f.gradient("prediction");
    f.call(backward, backward_workspace, args);
    f.expect_equal();
  });
}

TEST(Fixtures, Mse) {
  expect_loss_equal("mse", mse_forward, mse_forward_workspace, mse_backward, mse_backward_workspace,
                    [](const Fixture&, MseForward&) {});
}

TEST(Fixtures, Huber) {
  expect_loss_equal("huber", huber_forward, huber_forward_workspace, huber_backward, huber_backward_workspace,
                    [](const Fixture& f, HuberForward& args) { args.k = f.number("k"); });
}

TEST(Fixtures, Quantile) {
  expect_loss_equal("quantile", quantile_forward, quantile_forward_workspace, quantile_backward,
                    quantile_backward_workspace,
                    [](const Fixture& f, QuantileForward& args) { args.q = f.number("q"); });
}

TEST(Fixtures, Embedding) {
  for_each_fixture("embedding", [](Fixture& f) {
    const Tensor ids = f.input("ids").to(DType::i32), weight = f.input("weight"), d_y = f.cotangent("y");
    EmbeddingBackward args;
    args.ids = ids;
    args.weight = weight;
    args.y = f.output("y");
    f.call<EmbeddingForward>(embedding_forward, embedding_forward_workspace, args);
    args.d_y = d_y;
    args.d_weight = f.gradient("weight");
    f.call(embedding_backward, embedding_backward_workspace, args);
    f.expect_equal();
  });
}

TEST(Fixtures, CrossEntropy) {
  for_each_fixture("cross_entropy", [](Fixture& f) {
    const Tensor logits = f.input("logits"), target = f.input("target").to(DType::i32);
    const Tensor d_loss = f.cotangent("loss");
    Shape rows = target.shape();
    rows.append(2);
    Tensor statistics = Tensor::empty(rows, DType::f64, logits.device());
    CrossEntropyBackward args;
    args.logits = logits;
    args.target = target;
    args.ignore_index = static_cast<std::int32_t>(f.number("ignore_index"));
    args.loss = f.output("loss");
    args.statistics = statistics.writable();
    f.call<CrossEntropyForward>(cross_entropy_forward, cross_entropy_forward_workspace, args);
    args.d_loss = d_loss;
    args.d_logits = f.gradient("logits");
    f.call(cross_entropy_backward, cross_entropy_backward_workspace, args);
    f.expect_equal();
  });
}

void expect_follows(const Tensor& got, const json& want, const std::string& what) {
  const double error =
      cases::relative_error(got.values<double>(), want.at("values").get<std::vector<double>>(),
                            shape_of(want), DType::f64, cases::ErrorRule::slice);
  EXPECT_TRUE(error <= kTolerance) << what << " is off by " << error;
}

/// grad_norm and adamw together, as a training step calls them: twenty steps in a row, nothing set back
/// between.
void expect_run_follows(const json& run, Device device) {
  const json& options = run.at("options");
  Tensor parameter =
      Tensor::from(shape_of(run.at("start")), run["start"]["values"].get<std::vector<double>>(), device);
  Tensor m = Tensor::zeros(parameter.shape(), DType::f64, device), v = m.clone();
  std::vector<double> settings(kStepControls, 0.0);
  settings[kLearningRate] = options.at("lr");
  settings[kMaxNorm] = options.at("max_norm");
  Tensor control = Tensor::from({kStepControls}, settings, device);
  Fixture caller(run, device);
  int step = 0;
  for (const json& now : run.at("steps")) {
    const std::string where =
        run["name"].get<std::string>() + ", step " + std::to_string(++step) + " on " + name(device);
    const Tensor gradient =
        Tensor::from(parameter.shape(), now.at("gradient")["values"].get<std::vector<double>>(), device);
    GradNorm norm;
    norm.gradient = gradient;
    norm.control = control.writable();
    caller.call(grad_norm, grad_norm_workspace, norm);
    AdamW args;
    args.parameter = parameter.writable();
    args.gradient = gradient;
    args.first_moment = m.writable();
    args.second_moment = v.writable();
    args.control = control;
    args.decayed_elements = run.at("decayed");
    args.beta1 = options.at("beta1");
    args.beta2 = options.at("beta2");
    args.eps = options.at("eps");
    args.weight_decay = options.at("weight_decay");
    caller.call(adamw, adamw_workspace, args);
    const double want_norm = now.at("norm");
    const std::vector<double> scalars = control.values<double>();
    EXPECT_TRUE(std::abs(scalars[kGradNorm] - want_norm) <= kTolerance * want_norm) << where;
    EXPECT_EQ(scalars[kSteps], step) << where;
    expect_follows(parameter, now.at("parameter"), where + ": parameter");
    expect_follows(m, now.at("first_moment"), where + ": first moment");
    expect_follows(v, now.at("second_moment"), where + ": second moment");
  }
  EXPECT_EQ(step, 20);
}

TEST(Fixtures, AdamW) {
  const json document = load("adamw");
  ASSERT_FALSE(document.at("cases").empty());
  for (const json& run : document["cases"])
    for (const Device device : {kCpu, kCuda})
      if (is_available(device)) {
        ASSERT_NO_THROW(expect_run_follows(run, device));
      }
}

}  // namespace
}  // namespace scantape
