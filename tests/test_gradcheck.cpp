// gradcheck itself: a right op passes, each kind of wrong one fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "scantape/autograd/gradcheck.h"
#include "scantape/autograd/ops.h"
#include "scantape/autograd/parameters.h"
#include "scantape/autograd/tape.h"

namespace scantape::autograd {
namespace {

using Values = std::vector<double>;

Tensor random_tensor(const Shape& shape, std::uint64_t seed) {
  Random random(seed);
  Values values(static_cast<std::size_t>(shape.elements()));
  for (double& value : values) value = random.normal();
  return Tensor::from(shape, values);
}

// [user_op]
/// y = x^3, elementwise: a user's own op with its backward.
Variable cube(const Variable& x, double factor = 3) {
  Values y = x.value().values<double>();
  for (double& value : y) value = value * value * value;
  return record("cube", {&x}, {Tensor::from(x.shape(), y)}, [x = Saved(x), factor](BackwardPass& pass) {
    const ConstView value = x.read(pass.op(), "x"), d_y = pass.cotangent(0);
    const Gradient d_x = pass.gradient(0);
    for (std::int64_t i = 0; i < value.elements(); ++i) {
      double& target = d_x.view.as<double>()[i];
      const double gradient = factor * value.as<double>()[i] * value.as<double>()[i] * d_y.as<double>()[i];
      target = d_x.mode == WriteMode::accumulate ? target + gradient : gradient;
    }
  })[0];
}
// [user_op]

GradcheckReport check(const DifferentiableFunction& function, const std::vector<Tensor>& inputs,
                      const GradcheckOptions& options = {}) {
  return gradcheck(function, inputs, options);
}

std::vector<Variable> one(const Variable& variable) {
  return {variable};
}

TEST(Gradcheck, PassesAUsersRightOp) {
  const auto report = check([](const auto& in) { return one(cube(in[0])); }, {random_tensor({2, 3}, 1)});
  EXPECT_TRUE(report.pass()) << report.text();
  EXPECT_LT(report.rows.at(0).max_rel_err, 1e-9);
}

TEST(Gradcheck, FailsASlightlyWrongFactor) {
  const auto report =
      check([](const auto& in) { return one(cube(in[0], 3.0001)); }, {random_tensor({2, 3}, 1)});
  EXPECT_FALSE(report.pass());
}

TEST(Gradcheck, FailsANaN) {
  const auto report =
      check([](const auto& in) { return one(cube(in[0], std::nan(""))); }, {random_tensor({2, 3}, 1)});
  EXPECT_FALSE(report.pass());
  EXPECT_TRUE(std::isnan(report.rows.at(0).max_rel_err));
}

TEST(Gradcheck, FailsWhatItCannotSee) {
  // The sum over a layer norm's row is the same whatever x is: its gradient is zero, and a check of zeros sees nothing.
  const auto zero = [](const std::vector<Variable>& in) {
    return one(cube(Variable(in[0].value().clone())));
  };
  EXPECT_THROW((void)check(zero, {random_tensor({2}, 1)}), Error);
  const auto partly = [](const std::vector<Variable>& in) {
    return std::vector<Variable>{
        cube(in[0]), record("constant", {&in[1]}, {Tensor::zeros({2}, DType::f64)}, [](BackwardPass& pass) {
          const Gradient d = pass.gradient(0);
          for (int i = 0; i < 2; ++i) d.view.as<double>()[i] = 0;
        })[0]};
  };
  const std::vector<Tensor> inputs{random_tensor({2}, 1), random_tensor({2}, 2)};
  EXPECT_FALSE(check(partly, inputs).pass());
  GradcheckOptions declared;
  declared.zero_gradients = {1};
  EXPECT_TRUE(check(partly, inputs, declared).pass());
  declared.zero_gradients = {0, 1};
  EXPECT_FALSE(check(partly, inputs, declared).pass());
}

TEST(Gradcheck, FailsAnOverwriteInPlaceOfAnAdd) {
  const auto overwriting = [](const Variable& x) {
    return record("careless", {&x}, {x.value().clone()}, [](BackwardPass& pass) {
      const ConstView d_y = pass.cotangent(0);
      const Gradient d_x = pass.gradient(0);
      for (std::int64_t i = 0; i < d_y.elements(); ++i) d_x.view.as<double>()[i] = d_y.as<double>()[i];
    })[0];
  };
  const auto used_twice = [&](const std::vector<Variable>& in) {
    return std::vector<Variable>{overwriting(in[0]), cube(in[0])};
  };
  EXPECT_FALSE(check(used_twice, {random_tensor({3}, 1)}).pass());
}

TEST(Gradcheck, RefusesInputsThatProveNothing) {
  const auto function = [](const std::vector<Variable>& in) { return one(silu(in[0])); };
  EXPECT_THROW((void)check(function, {Tensor::zeros({2}, DType::f32)}), Error);
  EXPECT_THROW((void)check(function, {Tensor::zeros({0}, DType::f64)}), Error);
  EXPECT_THROW((void)check(function, {}), Error);
}

TEST(Gradcheck, ViewsGatherTheirGradients) {
  const auto function = [](const std::vector<Variable>& in) {
    // One piece is read twice, one not at all.
    const auto parts = split(silu(in[0]), {{3}, {4}, {1}});
    const Variable whole = reshape(silu(parts[1]), {2, 12});
    return std::vector<Variable>{silu(parts[0]), softplus(parts[0]), neg_exp(whole), copy(whole)};
  };
  const auto report = check(function, {random_tensor({2, 3, 8}, 1)});
  EXPECT_TRUE(report.pass()) << report.text();
}

TEST(Gradcheck, ViewsAddToWhatIsThere) {
  const auto function = [](const std::vector<Variable>& in) {
    const Variable x = silu(in[0]);
    const auto first = split(x, {{3}, {5}}), second = split(x, {{4}, {4}});
    return std::vector<Variable>{silu(first[0]), silu(first[1]), softplus(second[0]), reshape(x, {6, 8})};
  };
  const auto report = check(function, {random_tensor({2, 3, 8}, 1)});
  EXPECT_TRUE(report.pass()) << report.text();
}

TEST(Views, WrongShapesAreNamed) {
  const Variable x = random_tensor({2, 3, 8}, 1);
  const auto message = [](const auto& call) {
    try {
      call();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_NE(message([&] {
              (void)split(x, {{3}, {4}});
            }).find("split: x has shape [2, 3, 8], wants [..., 7]"),
            std::string::npos);
  EXPECT_NE(message([&] {
              (void)reshape(x, {2, 25});
            }).find("reshape: x has shape [2, 3, 8], wants as many"),
            std::string::npos);
}

TEST(Gradcheck, ComposedOpsOfOneLayer) {
  const auto layer = [](const std::vector<Variable>& in) {
    const Variable u = layer_norm(in[0], in[1], in[2]);
    const Discretized system = discretize(softplus(in[3]), in[4], in[5]);
    const Scanned scanned = scan(system.A_bar, projection(u, system.B_bar), in[6]);
    return std::vector<Variable>{state_output(projection(scanned.h, in[7]), u, in[8], in[0]),
                                 scanned.final_state};
  };
  constexpr int B = 2, L = 5, E = 4, N = 3;
  Tensor A = random_tensor({N}, 5);
  for (int i = 0; i < N; ++i) A.mutable_data<double>()[i] = -0.3 - 0.2 * i;
  const auto report =
      check(layer, {random_tensor({B, L, E}, 1), random_tensor({E}, 2), random_tensor({E}, 3),
                    random_tensor({N}, 4), A, random_tensor({N, E}, 6), random_tensor({B, N}, 7),
                    random_tensor({E, N}, 8), random_tensor({E}, 9)});
  EXPECT_TRUE(report.pass()) << report.text();
}

/// Two blocks of a residual stream: each adds to it what a norm of it gave. The last value of the stream is left out of
/// the result at first, then y is: each cotangent comes alone, too.
TEST(Gradcheck, NormsOfAResidualStream) {
  for (const auto norm : {residual_layer_norm, residual_rms_norm})
    for (const bool with_bias : {true, false})
      for (const int wanted : {0, 1, 2}) {
        const auto stream = [&](const std::vector<Variable>& in) {
          const Variable bias = with_bias ? in[3] : Variable();
          const Normed first = norm(in[0], in[1], in[2], bias, 1e-5);
          const Normed second = norm(silu(first.y), first.r, in[2], bias, 1e-5);
          const Normed twice = norm(second.r, second.r, in[2], bias, 1e-5);  // one variable, two gradients
          if (wanted == 0) return std::vector<Variable>{twice.y};
          if (wanted == 1) return std::vector<Variable>{twice.r};
          return std::vector<Variable>{second.y, twice.y, twice.r};
        };
        std::vector<Tensor> inputs{random_tensor({2, 3, 5}, 1), random_tensor({2, 3, 5}, 2),
                                   random_tensor({5}, 3)};
        if (with_bias) inputs.push_back(random_tensor({5}, 4));
        const auto report = check(stream, inputs);
        EXPECT_TRUE(report.pass()) << report.text();
      }
}

TEST(Gradcheck, NormsWithoutAResidual) {
  const auto both = [](const std::vector<Variable>& in) {
    return std::vector<Variable>{layer_norm(in[0], in[1]), rms_norm(in[0], in[1], in[2])};
  };
  const auto report =
      check(both, {random_tensor({2, 3, 5}, 1), random_tensor({5}, 2), random_tensor({5}, 3)});
  EXPECT_TRUE(report.pass()) << report.text();
}

TEST(Gradcheck, ProjectionLayerNorm) {
  const auto fused = [](const std::vector<Variable>& in) {
    const Variable first = projection_layer_norm(in[0], in[1], in[2], in[3], in[4]);
    return std::vector<Variable>{projection_layer_norm(silu(first), in[1], {}, in[3]), first};
  };
  const auto report = check(fused, {random_tensor({2, 3, 5}, 1), random_tensor({5, 5}, 2),
                                    random_tensor({5}, 3), random_tensor({5}, 4), random_tensor({5}, 5)});
  EXPECT_TRUE(report.pass()) << report.text();
}

TEST(Gradcheck, DiscretizeInEveryForm) {
  const Tensor B = random_tensor({3, 2}, 3);
  for (const DiscretizeMethod method : {DiscretizeMethod::zoh, DiscretizeMethod::exp_euler,
                                        DiscretizeMethod::bilinear, DiscretizeMethod::euler}) {
    // Every output of the form, and dt through the op that makes it.
    const auto matrices = [method](const std::vector<Variable>& in) {
      const Discretized system = discretize(softplus(in[0]), in[1], in[2], method, true);
      EXPECT_FALSE(system.s.present());
      return std::vector<Variable>{silu(system.A_bar), silu(system.B_bar), silu(system.F)};
    };
    const auto dense = check(matrices, {random_tensor({}, 1), random_tensor({3, 3}, 2), B});
    EXPECT_TRUE(dense.pass()) << dense.text();
    const auto diagonal = check(matrices, {random_tensor({3}, 1), random_tensor({3}, 2), B});
    EXPECT_TRUE(diagonal.pass()) << diagonal.text();
    // A scan with the decays of each step and head, its input times s.
    const auto heads = [method](const std::vector<Variable>& in) {
      const Discretized system = discretize(softplus(in[0]), in[1], {}, method, true);
      EXPECT_FALSE(system.B_bar.present());
      return std::vector<Variable>{scan(system.A_bar, system.s).h, silu(system.F)};
    };
    const auto per_head = check(heads, {random_tensor({2, 4, 3}, 1), random_tensor({3}, 2)});
    EXPECT_TRUE(per_head.pass()) << per_head.text();
  }
}

/// The recurrence as its definition reads. What follows the decays' axes shares them; two axes are a matrix.
Values plain_scan(const Tensor& a, const Tensor& b, const Tensor& h0, const ScanOptions& options) {
  const Shape shape = b.shape();
  const std::int64_t B = shape[0], L = shape[1], channels = shape.elements() / (B * L);
  const std::int64_t shared = channels / a.shape().back(), own = a.shape().back();
  const Values decay = a.values<double>(), input = b.values<double>(), first = h0.values<double>();
  const Values flags =
      options.start.present() ? options.start.values<double>() : Values(static_cast<std::size_t>(B * L), 0.0);
  const auto at = [](const Values& values, std::int64_t i) { return values[static_cast<std::size_t>(i)]; };
  Values h(input.size()), state(static_cast<std::size_t>(channels)), moved(state.size());
  for (std::int64_t item = 0; item < B; ++item) {
    for (std::int64_t c = 0; c < channels; ++c)
      state[static_cast<std::size_t>(c)] = at(first, item * channels + c);
    for (std::int64_t step = 0; step < L; ++step) {
      const std::int64_t row =
          item * L + (options.direction == ScanDirection::reversed ? L - 1 - step : step);
      for (std::int64_t c = 0; c < channels; ++c) {
        double sum = options.minus_one ? at(state, c) : 0;
        if (a.shape().rank() == 2) {
          for (std::int64_t k = 0; k < channels; ++k) sum += at(decay, c * channels + k) * at(state, k);
        } else {
          sum += at(decay, (a.shape().rank() == 3 ? row * own : 0) + c / shared) * at(state, c);
        }
        moved[static_cast<std::size_t>(c)] = at(input, row * channels + c) + (at(flags, row) != 0 ? 0 : sum);
      }
      state = moved;
      std::copy(state.begin(), state.end(), h.begin() + row * channels);
    }
  }
  return h;
}

TEST(Gradcheck, ScansOfEveryFormAndOption) {
  const std::vector<std::pair<Shape, Shape>> forms = {{{3}, {2, 5, 3}},
                                                      {{2, 5, 3}, {2, 5, 3}},
                                                      {{3, 3}, {2, 5, 3}},
                                                      {{2, 5, 3}, {2, 5, 3, 2}},
                                                      {{2, 5, 2}, {2, 5, 2, 3, 2}}};
  const Tensor flags = Tensor::from({2, 5}, Values{0, 0, 1, 0, 0, 1, 0, -2, 0, 1});
  for (const auto& [decay, sequence] : forms) {
    Shape state{2};
    for (int axis = 2; axis < sequence.rank(); ++axis) state.append(sequence[axis]);
    const std::vector<Tensor> inputs = {random_tensor(decay, 1), random_tensor(sequence, 2),
                                        random_tensor(state, 3)};
    for (int choice = 0; choice < 8; ++choice) {
      ScanOptions options;
      options.direction = (choice & 1) != 0 ? ScanDirection::reversed : ScanDirection::forward;
      options.minus_one = (choice & 2) != 0;
      if ((choice & 4) != 0) options.start = flags;
      SCOPED_TRACE(scantape::name(decay) + " over " + scantape::name(sequence) + ", choice " +
                   std::to_string(choice));
      const Values got = scan(inputs[0], inputs[1], inputs[2], options).h.value().values<double>();
      EXPECT_LE(slice_error(got, plain_scan(inputs[0], inputs[1], inputs[2], options),
                            {2, 5, sequence.elements() / 10}),
                1e-13);
      const auto report = check(
          [&](const std::vector<Variable>& in) {
            const Scanned scanned = scan(in[0], in[1], in[2], options);
            return std::vector<Variable>{silu(scanned.h), scanned.final_state};
          },
          inputs);
      EXPECT_TRUE(report.pass()) << report.text();
    }
  }
}

TEST(Gradcheck, DiscretizedScan) {
  constexpr int B = 2, L = 5, N = 3;
  const Tensor start = Tensor::from({B, L}, Values{0, 0, 1, 0, 0, 1, 0, 0, 0, 1});
  for (const DiscretizeMethod method : {DiscretizeMethod::zoh, DiscretizeMethod::exp_euler,
                                        DiscretizeMethod::bilinear, DiscretizeMethod::euler})
    for (const bool varying : {true, false})
      for (const int form : {0, 1, 2}) {
        DiscretizedScanOptions options;
        options.method = method;
        if (form == 1) options.start = start;
        if (form == 2) options.direction = ScanDirection::reversed;
        // dt through the op that makes it; the last state feeds a second scan, whose A is the same variable.
        const auto layer = [&](const std::vector<Variable>& in) {
          const Variable dt = softplus(in[0]);
          const Scanned first = discretized_scan(dt, in[1], in[2], in[3], options);
          const Scanned second = discretized_scan(dt, in[1], silu(first.h), first.final_state, options);
          return std::vector<Variable>{second.h, second.final_state};
        };
        Tensor A = random_tensor({N}, 2);
        for (int i = 0; i < N; ++i) A.mutable_data<double>()[i] = -0.3 - 0.2 * i;
        const auto report = check(layer, {random_tensor(varying ? Shape{B, L, N} : Shape{N}, 1), A,
                                          random_tensor({B, L, N}, 3), random_tensor({B, N}, 4)});
        EXPECT_TRUE(report.pass()) << name(method) << "\n" << report.text();
      }
}

TEST(Gradcheck, CausalConv1d) {
  constexpr int B = 2, L = 6, C = 3;
  const Tensor start = Tensor::from({B, L}, Values{0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1});
  for (const std::int64_t taps : {1, 3, 5})
    for (const Activation activation : {Activation::silu, Activation::none})
      for (const bool starts : {false, true}) {
        CausalConv1dOptions options;
        options.activation = activation;
        if (starts) options.start = start;
        // The last inputs of one stretch are the state of the next, of the same weights.
        const auto layer = [&](const std::vector<Variable>& in) {
          const Variable bias = in[2], state = in.size() > 3 ? in[3] : Variable();
          const Convolved first = causal_conv1d(in[0], in[1], bias, state, options);
          const Convolved second = causal_conv1d(first.y, in[1], bias, first.final_state, options);
          std::vector<Variable> out{first.y, second.y};
          if (second.final_state.present()) out.push_back(second.final_state);
          return out;
        };
        std::vector<Tensor> inputs{random_tensor({B, L, C}, 1), random_tensor({C, taps}, 2),
                                   random_tensor({C}, 3)};
        if (taps > 1) inputs.push_back(random_tensor({B, taps - 1, C}, 4));
        const auto report = check(layer, inputs);
        EXPECT_TRUE(report.pass()) << "K=" << taps << " " << name(activation) << "\n" << report.text();
      }
}

TEST(Gradcheck, CausalConv1dStep) {
  for (const std::int64_t taps : {1, 2, 4})
    for (const bool given : {true, false}) {
      // Two steps, the second on the state that the first leaves.
      const auto steps = [&](const std::vector<Variable>& in) {
        const Variable bias = given ? in[3] : Variable(), state = given && taps > 1 ? in[4] : Variable();
        const Convolved first = causal_conv1d_step(in[0], state, in[2], bias);
        const Convolved second = causal_conv1d_step(in[1], first.final_state, in[2], bias, Activation::none);
        std::vector<Variable> out{first.y, second.y};
        if (second.final_state.present()) out.push_back(second.final_state);
        return out;
      };
      std::vector<Tensor> inputs{random_tensor({2, 3}, 1), random_tensor({2, 3}, 2),
                                 random_tensor({3, taps}, 3)};
      if (given) inputs.push_back(random_tensor({3}, 4));
      if (given && taps > 1) inputs.push_back(random_tensor({2, taps - 1, 3}, 5));
      const auto report = check(steps, inputs);
      EXPECT_TRUE(report.pass()) << "K=" << taps << " given " << given << "\n" << report.text();
    }
}

TEST(Gradcheck, GatedRmsNorm) {
  for (const std::int64_t groups : {1, 2, 6})
    for (const bool norm_before_gate : {false, true})
      for (const bool gated : {false, true}) {
        GatedRmsNormOptions options;
        options.groups = groups;
        options.norm_before_gate = norm_before_gate;
        options.eps = 0.3;
        const auto layer = [&](const std::vector<Variable>& in) {
          return one(gated_rms_norm(silu(in[0]), gated ? in[2] : Variable(), in[1], options));
        };
        std::vector<Tensor> inputs{random_tensor({2, 2, 6}, 1), random_tensor({6}, 2)};
        if (gated) inputs.push_back(random_tensor({2, 2, 6}, 3));
        const auto report = check(layer, inputs);
        EXPECT_TRUE(report.pass()) << "groups " << groups << "\n" << report.text();
      }
}

/// Two layers of one model: the second begins with the state that the first ends with, and shares its A, D and bias.
TEST(Gradcheck, SsdInEitherForm) {
  constexpr int B = 2, L = 6, H = 4, G = 2, P = 2, N = 3;
  Tensor A = random_tensor({H}, 3);
  for (int i = 0; i < H; ++i) A.mutable_data<double>()[i] = -0.3 - 0.2 * i;
  for (const std::int64_t chunk_length : {0, 1, 4})
    for (const int choice : {0, 1, 2, 3}) {
      SsdOptions options;
      options.chunk_length = chunk_length;
      options.dt_softplus = true;
      if (choice >= 2) options.dt_max = 0.9;
      if (choice % 2 == 1) options.start = Tensor::from({B, L}, Values{0, 0, 1, 0, 0, 1, 0, -2, 0, 0, 1, 0});
      const auto layers = [&](const std::vector<Variable>& in) {
        SsdInputs first{in[0], in[1], in[2], in[3], in[4], in[5], in[6], in[7], in[8]};
        if (choice == 0) first.z = {};
        if (choice == 1) first.dt_bias = {};
        if (choice == 3) first.initial_state = {};
        SsdInputs second = first;
        const SsdOutputs one = ssd(first, options);
        second.x = silu(one.out);
        second.initial_state = one.final_state;
        const SsdOutputs two = ssd(second, options);
        // What this choice leaves out is used all the same: a gradient of nothing would prove nothing.
        return std::vector<Variable>{two.out,     two.final_state, silu(in[6]),
                                     silu(in[7]), silu(in[8]),     one.final_state};
      };
      const auto report = check(
          layers,
          {random_tensor({B, L, H, P}, 1), random_tensor({B, L, H}, 2), A, random_tensor({B, L, G, N}, 4),
           random_tensor({B, L, G, N}, 5), random_tensor(choice < 2 ? Shape{H} : Shape{H, P}, 6),
           random_tensor({B, L, H, P}, 7), random_tensor({H}, 8), random_tensor({B, H, P, N}, 9)});
      EXPECT_TRUE(report.pass()) << "chunk " << chunk_length << ", choice " << choice << "\n"
                                 << report.text();
    }
}

/// Two layers of one model: the second begins with the state that the first ends with, and shares its A, D and bias.
TEST(Gradcheck, SelectiveScan) {
  constexpr int B = 2, L = 6, E = 4, G = 2, N = 3;
  Tensor A = random_tensor({E, N}, 3);
  for (int i = 0; i < E * N; ++i) A.mutable_data<double>()[i] = -0.3 - 0.1 * i;
  for (const int choice : {0, 1, 2, 3}) {
    SelectiveScanOptions options;
    options.dt_softplus = choice != 2;
    if (choice % 2 == 1) options.start = Tensor::from({B, L}, Values{0, 0, 1, 0, 0, 1, 0, -2, 0, 0, 1, 0});
    const auto layers = [&](const std::vector<Variable>& in) {
      SelectiveScanInputs first{in[0], in[1], in[2], in[3], in[4], in[5], in[6], in[7], in[8]};
      if (choice == 0) first.z = {};
      if (choice == 1) first.dt_bias = {};
      if (choice == 2) first.D = {};
      if (choice == 3) first.initial_state = {};
      SelectiveScanInputs second = first;
      const SelectiveScanOutputs one = selective_scan(first, options);
      second.u = silu(one.out);
      second.initial_state = one.final_state;
      const SelectiveScanOutputs two = selective_scan(second, options);
      // What this choice leaves out is used all the same: a gradient of nothing would prove nothing.
      return std::vector<Variable>{two.out,     two.final_state, silu(in[5]),    silu(in[6]),
                                   silu(in[7]), silu(in[8]),     one.final_state};
    };
    const auto report =
        check(layers, {random_tensor({B, L, E}, 1), random_tensor({B, L, E}, 2), A,
                       random_tensor({B, L, G, N}, 4), random_tensor({B, L, G, N}, 5), random_tensor({E}, 6),
                       random_tensor({B, L, E}, 7), random_tensor({E}, 8), random_tensor({B, E, N}, 9)});
    EXPECT_TRUE(report.pass()) << "choice " << choice << "\n" << report.text();
  }
}

TEST(Gradcheck, SelectiveScanStepByStep) {
  constexpr int B = 2, E = 4, N = 3;
  Tensor A = random_tensor({E, N}, 3);
  for (int i = 0; i < E * N; ++i) A.mutable_data<double>()[i] = -0.3 - 0.1 * i;
  const auto steps = [](const std::vector<Variable>& in) {
    SelectiveScanInputs inputs{in[0], in[1], in[2], in[3], in[4], in[5], in[6], in[7], in[8]};
    const SelectiveScanOutputs one = selective_scan_step(inputs, true);
    inputs.u = silu(one.out);
    inputs.initial_state = one.final_state;
    const SelectiveScanOutputs two = selective_scan_step(inputs, true);
    return std::vector<Variable>{two.out, two.final_state};
  };
  const auto report =
      check(steps, {random_tensor({B, E}, 1), random_tensor({B, E}, 2), A, random_tensor({B, 2, N}, 4),
                    random_tensor({B, 2, N}, 5), random_tensor({E}, 6), random_tensor({B, E}, 7),
                    random_tensor({E}, 8), random_tensor({B, E, N}, 9)});
  EXPECT_TRUE(report.pass()) << report.text();
}

TEST(Gradcheck, SsdStepByStep) {
  constexpr int B = 2, H = 2, P = 2, N = 3;
  Tensor A = random_tensor({H}, 3);
  for (int i = 0; i < H; ++i) A.mutable_data<double>()[i] = -0.3 - 0.2 * i;
  const auto steps = [](const std::vector<Variable>& in) {
    SsdStepOptions options;
    options.dt_softplus = true;
    SsdInputs inputs{in[0], in[1], in[2], in[3], in[4], in[5], in[6], in[7], in[8]};
    const SsdOutputs one = ssd_step(inputs, options);
    inputs.x = silu(one.out);
    inputs.initial_state = one.final_state;
    const SsdOutputs two = ssd_step(inputs, options);
    return std::vector<Variable>{two.out, two.final_state};
  };
  const auto report =
      check(steps, {random_tensor({B, H, P}, 1), random_tensor({B, H}, 2), A, random_tensor({B, 1, N}, 4),
                    random_tensor({B, 1, N}, 5), random_tensor({H}, 6), random_tensor({B, H, P}, 7),
                    random_tensor({H}, 8), random_tensor({B, H, P, N}, 9)});
  EXPECT_TRUE(report.pass()) << report.text();
}

TEST(Gradcheck, Losses) {
  // Differences of the two lie a quarter or more from the corners at 0, 1 and -1.
  const Tensor target = Tensor::from({6}, Values{0.1, 0, -0.1, 2, -1, 3});
  const Tensor prediction = Tensor::from({6}, Values{0.6, -0.4, 1.4, -0.5, 1.5, 2.4});
  const Tensor mask = Tensor::from({6}, Values{1, 1, 1, 1, 1, 0});
  for (const Variable& counted : {Variable(), Variable(mask)}) {
    const auto report = check(
        [&](const std::vector<Variable>& in) {
          return std::vector<Variable>{mse(in[0], target, counted), huber(in[0], target, 1, counted),
                                       quantile(in[0], target, 0.3, counted)};
        },
        {prediction});
    EXPECT_TRUE(report.pass()) << report.text();
  }
  Tape tape;
  EXPECT_THROW((void)huber(prediction, tape.leaf(target)), Error);
  EXPECT_THROW((void)quantile(prediction, target, 0.5, tape.leaf(mask)), Error);
}

TEST(Gradcheck, ALanguageModelsEnds) {
  // One table for both ends: its gradient is the sum of two.
  const Tensor ids = Tensor::from({2, 3}, std::vector<std::int32_t>{4, 0, 4, 1, 4, 2});
  const Tensor target = Tensor::from({2, 3}, std::vector<std::int32_t>{0, 4, 1, -100, 2, 3});
  const Tensor without_4 = Tensor::from({2, 3}, std::vector<std::int32_t>{0, 4, 1, 3, 2, 3});
  const auto report = check(
      [&](const std::vector<Variable>& in) {
        const Variable logits = projection(rms_norm(embedding(ids, in[0]), in[1]), in[0]);
        return std::vector<Variable>{cross_entropy(logits, target), cross_entropy(logits, without_4, 4)};
      },
      {random_tensor({5, 4}, 1), random_tensor({4}, 2)});
  EXPECT_TRUE(report.pass()) << report.text();
}

TEST(Gradcheck, IndicesHaveNoGradient) {
  Tape tape;
  const Tensor ids = Tensor::from({2}, std::vector<std::int32_t>{0, 1});
  EXPECT_THROW((void)tape.leaf(ids), Error);
  // Changed between forward and backward they would name other rows.
  Tensor changed = ids.clone();
  const Variable y = embedding(changed, tape.leaf(random_tensor({2, 3}, 1)));
  changed.mutable_data<std::int32_t>()[0] = 1;
  EXPECT_THROW(tape.backward({{y, random_tensor({2, 3}, 2)}}), Error);
}

TEST(SliceError, SeesASmallChannelBesideALargeOne) {
  const Values want{1e6, 1, 2e6, 2}, wrong{1e6, 1.5, 2e6, 2};
  EXPECT_GT(slice_error(wrong, want, {2, 2}), 0.1);
  EXPECT_EQ(slice_error(want, want, {2, 2}), 0);
}

TEST(SliceError, NaNInfinityAndWrongSizesFail) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(slice_error({1, nan}, {1, 1}, {2}) <= 1e300);
  EXPECT_FALSE(slice_error({nan, 1}, {1, 1}, {2}) <= 1e300);
  EXPECT_FALSE(slice_error({1, inf}, {1, inf}, {2}) <= 1e300);
  EXPECT_FALSE(slice_error({1}, {1, 1}, {2}) <= 1e300);
  EXPECT_FALSE(slice_error({1, 1}, {1, nan}, {2}) <= 1e300);
}

}  // namespace
}  // namespace scantape::autograd
