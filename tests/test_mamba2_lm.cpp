// What is the language model's own: tied gradients, the state as a value, steps and pieces, packed texts, places in the
// batch, what is learned. Beside public weights and other people's code it is in test_mamba2_weights.cpp.
#include "model_support.h"
#include "scantape/autograd/gradcheck.h"
#include "scantape/autograd/mamba2_lm.h"
#include "scantape/autograd/optimizer.h"
#include "scantape/counters.h"

namespace scantape::autograd {
namespace {

using Ids = std::vector<std::int32_t>;

Mamba2LMConfig small_config() {
  Mamba2LMConfig config;
  config.vocabulary = 11;
  config.hidden_dim = 6;
  config.head_dim = 3;
  config.groups = 2;
  config.state_dim = 4;
  config.conv_width = 3;
  config.chunk_length = 4;
  config.num_layers = 2;
  return config;
}

Tensor ids_of(const Shape& shape, std::int64_t vocabulary, std::uint64_t seed, Device device = kCpu) {
  Random random(seed);
  Ids ids(static_cast<std::size_t>(shape.elements()));
  for (std::int32_t& id : ids)
    id = static_cast<std::int32_t>(random.uniform(0, static_cast<double>(vocabulary)));
  return Tensor::from(shape, ids, device);
}

Tensor part_of(const Tensor& ids, std::int64_t begin, std::int64_t end) {
  return ids.slice(1, begin, end).clone();
}

/// Parameters that are far from a fresh model's, whose logits are next to nothing.
void scatter(Mamba2LM& model, std::uint64_t seed) {
  Random random(seed);
  for (std::size_t i = 0; i < model.parameters().entries().size(); ++i) {
    Tensor value = model.parameters().value(static_cast<int>(i));
    Values values = values_of(value);
    for (double& v : values) v += 0.3 * random.normal();
    value.copy_from(Tensor::from(value.shape(), values).to(value.dtype()));
  }
}

Values gradient_of(const Mamba2LM& model, const std::string& name) {
  return values_of(model.parameters().gradient(model.parameters().index(name)));
}

TEST(Mamba2LM, ParametersAreNamedAndCountedAsTheFormulaSays) {
  Mamba2LMConfig config = small_config();
  for (const bool tied : {true, false}) {
    config.tied_embeddings = tied;
    const Mamba2LM model(config, DType::f32, kCpu, 1);
    EXPECT_EQ(model.parameters().count(), Mamba2LM::parameter_count(config));
    const auto& entries = model.parameters().entries();
    ASSERT_EQ(entries.size(), 1U + 2 * 9 + 1 + (tied ? 0 : 1));
    EXPECT_EQ(entries[0].name, "backbone.embeddings.weight");
    EXPECT_EQ(entries[0].shape, (Shape{11, 6}));
    EXPECT_EQ(entries[10].name, "backbone.layers.1.norm.weight");
    EXPECT_EQ(entries[12].name, "backbone.layers.1.mixer.conv1d.weight");
    EXPECT_EQ(entries[12].shape, (Shape{12 + 2 * 2 * 4, 3}));
    EXPECT_EQ(entries.back().name, tied ? "backbone.norm_f.weight" : "lm_head.weight");
    for (const auto& entry : entries) {
      const bool matrix = entry.shape.rank() == 2;
      EXPECT_EQ(entry.decay, matrix) << entry.name;  // none on norms, biases, A_log, D, dt_bias
    }
  }
  // Each matrix by hand: 24 layers, D 768, P 64, N 128, K 4, one group, vocabulary 50,288, tied.
  Mamba2LMConfig large;
  large.vocabulary = 50288;
  large.hidden_dim = 768;
  large.state_dim = 128;
  large.num_layers = 24;
  EXPECT_EQ(Mamba2LM::parameter_count(large), 128'989'632);
}

TEST(Mamba2LM, IsMadeOfTheSeed) {
  const Mamba2LM a(small_config(), DType::f64, kCpu, 7), b(small_config(), DType::f64, kCpu, 7),
      other(small_config(), DType::f64, kCpu, 8), bare(small_config(), DType::f64, kCpu);
  const auto all = [](const Mamba2LM& model) {
    Values values;
    for (std::size_t i = 0; i < model.parameters().entries().size(); ++i)
      for (const double value : values_of(model.parameters().value(static_cast<int>(i))))
        values.push_back(value);
    return values;
  };
  EXPECT_EQ(all(a), all(b));
  EXPECT_NE(all(a), all(other));
  // What is drawn: the embedding's deviation, A in [1, 16], steps of time in [1e-3, 0.1]. Without a seed: none of it.
  const auto values = [](const Mamba2LM& model, const char* name) {
    return values_of(model.parameters().value(model.parameters().index(name)));
  };
  double square = 0;
  for (const double v : values(a, "backbone.embeddings.weight")) square += v * v;
  EXPECT_NEAR(std::sqrt(square / 66), 0.02, 0.005);
  for (const double v : values(a, "backbone.layers.1.mixer.A_log"))
    EXPECT_TRUE(v >= 0 && v <= std::log(16.0));
  for (const double v : values(a, "backbone.layers.1.mixer.dt_bias")) {
    const double dt = std::log1p(std::exp(v));
    EXPECT_TRUE(dt >= 0.999e-3 && dt <= 0.1001) << dt;
  }
  EXPECT_EQ(values(bare, "backbone.embeddings.weight"), Values(66, 0.0));
  EXPECT_EQ(values(bare, "backbone.layers.1.mixer.dt_bias"), Values(4, 0.0));
  EXPECT_EQ(values(bare, "backbone.norm_f.weight"), Values(6, 1.0));
}

/// Loss and logits as functions of every parameter, in each form of the model; finite differences know nothing of a table
/// that is used twice.
TEST(Mamba2LM, PassesGradcheckInEveryForm) {
  struct Form {
    bool tied, norm_first;
    std::int64_t groups, norm_groups, chunk;
  };
  for (const Form& form : {Form{true, false, 2, 0, 4}, Form{false, false, 1, 0, 0}, Form{true, true, 2, 1, 3},
                           Form{false, true, 4, 2, 7}}) {
    Mamba2LMConfig config = small_config();
    config.num_layers = form.groups == 4 ? 1 : 2;
    config.tied_embeddings = form.tied;
    config.norm_before_gate = form.norm_first;
    config.groups = form.groups;
    config.norm_groups = form.norm_groups;
    config.chunk_length = form.chunk;
    config.dt_min = 0.01;
    Mamba2LM model(config, DType::f64, kCpu, 3);
    scatter(model, 4);
    const Tensor ids = ids_of({2, 7}, config.vocabulary, 5);
    Tensor targets = ids_of({2, 7}, config.vocabulary, 6);
    targets.mutable_data<std::int32_t>()[3] = -7;
    // Recorded on the model's own tape: gradcheck's inputs take the places of the parameters.
    std::vector<Tensor> inputs;
    GradcheckOptions options;
    for (std::size_t i = 0; i < model.parameters().entries().size(); ++i) {
      inputs.push_back(model.parameters().value(static_cast<int>(i)).clone());
      options.names.push_back(model.parameters().entries()[i].name);
    }
    const auto report = gradcheck(
        [&](const std::vector<Variable>& in) {
          const auto on = [&](int index) { return in[static_cast<std::size_t>(index)]; };
          const Variable logits = model.forward_on(on, ids);
          return std::vector<Variable>{cross_entropy(logits, targets, -7), logits};
        },
        inputs, options);
    EXPECT_TRUE(report.pass()) << report.text();
    EXPECT_EQ(report.rows.size(), inputs.size());
  }
}

/// A tied table's gradient is the sum of what an untied model's two tables have.
TEST(Mamba2LM, TiedTablesAddTheirGradients) {
  Mamba2LMConfig config = small_config();
  Mamba2LM tied(config, DType::f64, kCpu, 3);
  scatter(tied, 4);
  config.tied_embeddings = false;
  Mamba2LM apart(config, DType::f64, kCpu, 3);
  for (const auto& entry : apart.parameters().entries()) {
    const std::string from = entry.name == "lm_head.weight" ? "backbone.embeddings.weight" : entry.name;
    apart.parameters()
        .value(apart.parameters().index(entry.name))
        .copy_from(tied.parameters().value(tied.parameters().index(from)));
  }
  const Tensor ids = ids_of({2, 9}, config.vocabulary, 5), targets = ids_of({2, 9}, config.vocabulary, 6);
  Values losses;
  for (Mamba2LM* model : {&tied, &apart}) {
    Tape tape;
    const Variable loss = model->loss(&tape, ids, targets);
    tape.backward(loss);
    losses.push_back(values_of(loss)[0]);
  }
  EXPECT_EQ(losses[0], losses[1]);
  Values sum = gradient_of(apart, "backbone.embeddings.weight");
  const Values head = gradient_of(apart, "lm_head.weight"),
               both = gradient_of(tied, "backbone.embeddings.weight");
  double smaller = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    smaller = std::max(smaller, std::min(std::abs(sum[i]), std::abs(head[i])));
    sum[i] += head[i];
  }
  EXPECT_GT(smaller, 1e-3) << "one of both is next to nothing";
  EXPECT_LE(largest_difference(both, sum), 1e-15);
  // Accumulated, a second text is added to the first.
  const Tensor more = ids_of({1, 5}, config.vocabulary, 7);
  Tape alone, added;
  tied.parameters().gradients().fill_zero();
  alone.backward(tied.loss(&alone, more, more));
  const Values second = gradient_of(tied, "backbone.embeddings.weight");
  Tape first;
  first.backward(tied.loss(&first, ids, targets));
  added.backward(tied.loss(&added, more, more, -100, WriteMode::accumulate));
  Values want = both;
  for (std::size_t i = 0; i < want.size(); ++i) want[i] += second[i];
  EXPECT_LE(largest_difference(gradient_of(tied, "backbone.embeddings.weight"), want), 1e-15);
}

/// Prefill and single steps, cut anywhere, are the whole; a state kept on the way may be gone back to.
TEST(Mamba2LM, PrefillAndStepsAreTheWhole) {
  constexpr std::int64_t kLength = 23;
  for (const DType dtype : {DType::f64, DType::f32})
    for (const std::int64_t width : {1, 2, 4}) {
      const double tolerance = dtype == DType::f64 ? 1e-12 : 1e-5;
      Mamba2LMConfig config = small_config();
      config.conv_width = width;
      Mamba2LM model(config, dtype, kCpu, 7);
      scatter(model, 8);
      const std::int64_t V = config.vocabulary;
      const Tensor ids = ids_of({2, kLength}, V, 1);
      const Values whole = values_of(model.forward(nullptr, ids));
      double scale = 0;
      for (const double value : whole) scale = std::max(scale, std::abs(value));
      ASSERT_GT(scale, 0.1);
      Mamba2LM::State state;
      const auto expect = [&](const Tensor& logits, std::int64_t begin, std::int64_t end) {
        const Values got = values_of(logits);
        ASSERT_EQ(got.size(), static_cast<std::size_t>(2 * (end - begin) * V));
        for (std::int64_t item = 0; item < 2; ++item)
          for (std::int64_t i = 0; i < (end - begin) * V; ++i) {
            const double a = got[static_cast<std::size_t>(item * (end - begin) * V + i)];
            const double b = whole[static_cast<std::size_t>((item * kLength + begin) * V + i)];
            ASSERT_TRUE(std::abs(a - b) <= tolerance * scale)
                << "step " << begin + i / V << ": " << a << " for " << b;
          }
      };
      const auto piece = [&](std::int64_t begin, std::int64_t end) {
        expect(model.forward_from(&state, part_of(ids, begin, end)), begin, end);
      };
      piece(0, 9);
      const Mamba2LM::State kept = state;  // handles: later steps must not write into what they share
      Mamba2LM::State cloned = state;
      for (Mamba2BlockState& layer : cloned)
        layer = {layer.conv.present() ? layer.conv.clone() : Tensor(), layer.ssm.clone()};
      for (std::int64_t t = 9; t < kLength; ++t) piece(t, t + 1);
      state = kept;
      piece(9, kLength);
      state = cloned;
      piece(9, 10);
      expect(model.next_logits(&state, part_of(ids, 10, kLength)), kLength - 1, kLength);
    }
}

/// A piece that fails in the second layer leaves the state of the first as it was.
TEST(Mamba2LM, APieceThatFailsLeavesTheState) {
  const Mamba2LM model(small_config(), DType::f32, kCpu, 7);
  const Tensor ids = ids_of({1, 5}, model.config().vocabulary, 1);
  Mamba2LM::State state;
  (void)model.next_logits(&state, ids);
  ASSERT_EQ(state.size(), 2U);
  const Values ssm = values_of(state[0].ssm), conv = values_of(state[0].conv);
  const Tensor whole = state[1].ssm;
  state[1].ssm = Tensor::zeros({1, 2}, DType::f32);
  EXPECT_THROW((void)model.next_logits(&state, ids), Error);
  EXPECT_THROW((void)model.forward_from(&state, ids), Error);
  EXPECT_EQ(values_of(state[0].ssm), ssm);
  EXPECT_EQ(values_of(state[0].conv), conv);
  state[1].ssm = whole;
  (void)model.next_logits(&state, ids);
  EXPECT_NE(values_of(state[0].ssm), ssm);
}

/// Nothing of an item depends on its place among others, or on what comes later.
TEST(Mamba2LM, PlaceAndFutureChangeNoBit) {
  Mamba2LM model(small_config(), DType::f32, kCpu, 7);
  scatter(model, 8);
  const std::int64_t V = model.config().vocabulary, L = 13;
  const Tensor ids = ids_of({5, L}, V, 1);
  const Values all = values_of(model.forward(nullptr, ids));
  for (std::int64_t item = 0; item < 5; ++item) {
    const Values alone = values_of(model.forward(nullptr, ids.slice(0, item, item + 1).clone()));
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + item * L * V)) << "item " << item;
    const Values shorter =
        values_of(model.forward(nullptr, part_of(ids.slice(0, item, item + 1).clone(), 0, 6)));
    EXPECT_TRUE(std::equal(shorter.begin(), shorter.end(), all.begin() + item * L * V)) << "item " << item;
  }
  EXPECT_EQ(values_of(model.forward(nullptr, ids)), all);
}

/// Two texts packed into one row, a start between them, are what they are apart: bit for bit, and so are their gradients'
/// sum to rounding.
TEST(Mamba2LM, PackedTextsAreSeparateTexts) {
  Mamba2LM model(small_config(), DType::f64, kCpu, 7);
  scatter(model, 8);
  const std::int64_t V = model.config().vocabulary;
  const Tensor ids = ids_of({1, 12}, V, 1), targets = ids_of({1, 12}, V, 2);
  Tensor start = Tensor::zeros({1, 12}, DType::f64);
  start.mutable_data<double>()[5] = 1;
  const Values packed = values_of(model.forward(nullptr, ids, WriteMode::overwrite, start));
  Values apart = values_of(model.forward(nullptr, part_of(ids, 0, 5)));
  for (const double value : values_of(model.forward(nullptr, part_of(ids, 5, 12)))) apart.push_back(value);
  EXPECT_EQ(packed, apart);
  EXPECT_NE(packed, values_of(model.forward(nullptr, ids)));

  const std::string name = "backbone.layers.0.mixer.in_proj.weight";
  Tape together, first, second;
  together.backward(model.loss(&together, ids, targets, -100, WriteMode::overwrite, start));
  const Values want = gradient_of(model, name);
  Values sum(want.size());
  const auto add = [&](Tape& tape, std::int64_t begin, std::int64_t end) {
    tape.backward(model.loss(&tape, part_of(ids, begin, end), part_of(targets, begin, end)));
    const Values got = gradient_of(model, name);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += got[i] * static_cast<double>(end - begin) / 12;
  };
  add(first, 0, 5);
  add(second, 5, 12);
  EXPECT_LE(largest_difference(want, sum), 1e-14);
}

/// With and without a tape the same bits, and twice the same.
TEST(Mamba2LM, RecordingChangesNoBit) {
  Mamba2LM model(small_config(), DType::f32, kCpu, 7);
  scatter(model, 8);
  const Tensor ids = ids_of({2, 10}, model.config().vocabulary, 1);
  Tape tape;
  EXPECT_EQ(values_of(model.forward(&tape, ids)), values_of(model.forward(nullptr, ids)));
  Values first;
  for (int run = 0; run < 3; ++run) {
    Tape again;
    again.backward(model.loss(&again, ids, ids));
    const Values now = gradient_of(model, "backbone.embeddings.weight");
    if (run == 0) first = now;
    EXPECT_EQ(now, first);
  }
}

/// A text whose next token follows from the one before the last is learned by heart, and then continued.
TEST(Mamba2LM, LearnsATextAndContinuesIt) {
  Mamba2LMConfig config = small_config();
  config.hidden_dim = 12;
  config.num_layers = 1;
  Mamba2LM model(config, DType::f32, kCpu, 5);
  const Ids text = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6};
  const std::int64_t length = static_cast<std::int64_t>(text.size()) - 1;
  const Tensor ids = Tensor::from({1, length}, Ids(text.begin(), text.end() - 1));
  const Tensor targets = Tensor::from({1, length}, Ids(text.begin() + 1, text.end()));
  AdamWOptimizer optimizer(model.parameters(), {});
  optimizer.set_learning_rate(2e-2);
  double first = 0, last = 0;
  for (int step = 0; step < 300; ++step) {
    Tape tape;
    const Variable loss = model.loss(&tape, ids, targets);
    tape.backward(loss);
    optimizer.step(loss.value());
    last = values_of(loss)[0];
    if (step == 0) first = last;
  }
  EXPECT_NEAR(first, std::log(11.0), 0.05) << "a fresh model knows nothing";
  EXPECT_LT(last, 0.05);
  EXPECT_EQ(continue_greedily(model, Ids(text.begin(), text.begin() + 4), length - 3),
            Ids(text.begin() + 4, text.end()));
}

void expect_refused(const std::function<void()>& what, const std::string& wanted) {
  try {
    what();
    ADD_FAILURE() << "taken: wanted " << wanted;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(wanted), std::string::npos) << error.what();
  }
}

TEST(Mamba2LM, WhatIsWrongIsNamed) {
  Mamba2LMConfig config = small_config();
  config.vocabulary = 0;
  expect_refused([&] { (void)Mamba2LM(config, DType::f32, kCpu, 1); }, "vocabulary is 0");
  config = small_config();
  config.num_layers = 0;
  expect_refused([&] { (void)Mamba2LM(config, DType::f32, kCpu, 1); }, "num_layers 0");
  config = small_config();
  config.hidden_dim = -6;
  expect_refused([&] { (void)Mamba2LM(config, DType::f32, kCpu, 1); }, "hidden_dim is -6");
  config = small_config();
  config.norm_groups = 5;
  expect_refused([&] { (void)Mamba2LM(config, DType::f32, kCpu, 1); }, "norm_groups is 5");

  const Mamba2LM model(small_config(), DType::f32, kCpu, 1);
  const auto forward = [&](const Tensor& ids) {
    return [&model, ids] { (void)model.forward(nullptr, ids); };
  };
  expect_refused(forward({}), "ids are absent, want [B, L] i32 on cpu");
  expect_refused(forward(Tensor::zeros({3}, DType::i32)), "ids are [3] i32");
  expect_refused(forward(Tensor::zeros({2, 3}, DType::f32)), "ids are [2, 3] f32");
  expect_refused(forward(Tensor::zeros({2, 0}, DType::i32)), "ids are [2, 0] i32");
  expect_refused(forward(Tensor::from({1, 2}, Ids{3, 11})), "11");
  Mamba2LM::State state(1);
  expect_refused(
      [&] {
        (void)model.next_logits(&state, Tensor::from({1, 2}, Ids{3, 1}));
      },
      "the state is of 1 layers, wants 2");
  expect_refused([&] { (void)continue_greedily(model, {}, 3); }, "the prompt is empty");
  expect_refused(
      [&] {
        (void)continue_greedily(model, {1, -1}, 3);
      },
      "token -1 is not in the vocabulary, wants 0 to 10");
  expect_refused([&] { (void)continue_greedily(model, {11}, 3); }, "token 11");
}

/// What comes of numbers that are none is said, not continued with token 0.
TEST(Mamba2LM, LogitsThatAreNoNumbersEndTheText) {
  Mamba2LM model(small_config(), DType::f32, kCpu, 1);
  model.parameters().value(0).mutable_data<float>()[4 * 6] = std::nanf("");  // the table's row of token 4
  expect_refused([&] { (void)continue_greedily(model, {1}, 3); }, "the logit of token 4 is no number");
  EXPECT_TRUE(continue_greedily(model, {1}, 0).empty());
}

/// On cuda nobody looks at ids before the kernel runs: what comes of one outside of the vocabulary is NaN, from its step on
/// and in its own sequence alone.
TEST(Mamba2LM, WrongIdsOnCudaSpoilTheirSequenceFromThereOn) {
  if (!is_available(kCuda)) GTEST_SKIP() << "there is no device cuda";
  const Mamba2LM model(small_config(), DType::f32, kCuda, 7);
  const std::int64_t V = model.config().vocabulary, L = 9, kWrong = 5;
  Tensor ids = ids_of({2, L}, V, 1);
  ids.mutable_data<std::int32_t>()[kWrong] = static_cast<std::int32_t>(V);
  const Values logits = values_of(model.forward(nullptr, ids.to(kCuda)));
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const auto step = static_cast<std::int64_t>(i) / V;
    EXPECT_EQ(std::isnan(logits[i]), step >= kWrong && step < L) << "step " << step;
  }
}

TEST(Mamba2LM, RunsOnCudaAsOnTheCpu) {
  if (!is_available(kCuda)) GTEST_SKIP() << "there is no device cuda";
  for (const DType dtype : {DType::f32, DType::f64}) {
    Mamba2LM on_cpu(small_config(), dtype, kCpu, 7), on_cuda(small_config(), dtype, kCuda, 7);
    scatter(on_cpu, 8);
    on_cuda.parameters().values().copy_from(on_cpu.parameters().values());
    const std::int64_t V = on_cpu.config().vocabulary;
    const Tensor ids = ids_of({2, 9}, V, 1), targets = ids_of({2, 9}, V, 2);
    Tape here, there;
    here.backward(on_cpu.loss(&here, ids, targets));
    const Counters before = counters();
    const Variable loss = on_cuda.loss(&there, ids.to(kCuda), targets.to(kCuda));
    there.backward(loss);
    EXPECT_GT(counters().kernel_launches, before.kernel_launches);
    EXPECT_EQ(counters().cpu_ops, before.cpu_ops) << "an op of the cuda model ran on the cpu";
    const Values got = values_of(on_cuda.parameters().gradients()),
                 want = values_of(on_cpu.parameters().gradients());
    EXPECT_LE(largest_difference(got, want), dtype == DType::f32 ? 1e-5 : 1e-12);
    const Ids prompt = {1, 2, 3};
    EXPECT_EQ(continue_greedily(on_cuda, prompt, 4), continue_greedily(on_cpu, prompt, 4));
  }
}

}  // namespace
}  // namespace scantape::autograd
