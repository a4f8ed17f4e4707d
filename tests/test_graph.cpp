// Graphs of the library: a training step captured once and replayed has the bits of the step that is called each time,
// and a capture that waits or asks for memory fails with words, in the emulator as on a GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "scantape/autograd/lti.h"
#include "scantape/autograd/optimizer.h"
#include "scantape/autograd/tape.h"
#include "scantape/counters.h"
#include "scantape/graph.h"

#if SCANTAPE_EMULATED
#include "scantape_emulator.h"
#endif

namespace scantape {
namespace {

using autograd::AdamWOptimizer;
using autograd::Lti;
using autograd::Tape;
using autograd::Variable;

class Graphs : public testing::Test {
 protected:
  void SetUp() override {
    if (!is_available(kCuda)) GTEST_SKIP() << "there is no device cuda";
  }
};

constexpr std::int64_t kBatch = 3, kLength = 9, kFeatures = 5;

Tensor random_tensor(const Shape& shape, std::uint64_t seed, DType dtype) {
  autograd::Random random(seed);
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (double& value : values) value = random.normal();
  return Tensor::from(shape, values).to(dtype).to(kCuda);
}

std::vector<double> values_of(const Tensor& tensor) {
  return tensor.to(DType::f64).values<double>();
}

/// A model, its optimiser and a batch whose values change in place.
struct Training {
  explicit Training(DType dtype, double max_norm = 1)
      : model(config(), dtype, kCuda, 11), optimizer(model.parameters(), options(max_norm)) {
    x = random_tensor({kBatch, kLength, kFeatures}, 1, dtype);
    target = random_tensor({kBatch, kLength, 1}, 2, dtype);
    mask = Tensor::full({kBatch, kLength, 1}, 1, dtype, kCuda);
  }
  static autograd::LtiConfig config() {
    autograd::LtiConfig config;
    config.features = kFeatures;
    config.hidden_dim = 6;
    config.state_dim = 4;
    config.num_layers = 2;
    return config;
  }
  static autograd::AdamWOptions options(double max_norm) {
    autograd::AdamWOptions options;
    options.max_norm = max_norm;
    return options;
  }

  /// Forward, loss, backward, norm of the gradient and the optimiser.
  void step() {
    Tape tape;
    const Variable l = autograd::mse(model.forward(&tape, x), Variable(target), Variable(mask));
    tape.backward(l);
    optimizer.step(l.value());
    loss = l.value();
  }
  /// The batch and the rate of step number t.
  void feed(int t) {
    x.copy_from(random_tensor(x.shape(), static_cast<std::uint64_t>(100 + t), x.dtype()));
    target.copy_from(random_tensor(target.shape(), static_cast<std::uint64_t>(200 + t), x.dtype()));
    optimizer.set_learning_rate(0.01 / t);
  }
  /// All that a step leaves behind.
  std::vector<std::vector<double>> state() {
    return {values_of(loss),
            values_of(model.parameters().values()),
            values_of(model.parameters().gradients()),
            values_of(optimizer.first_moment()),
            values_of(optimizer.second_moment()),
            values_of(optimizer.control())};
  }

  Lti model;
  AdamWOptimizer optimizer;
  Tensor x, target, mask, loss;
};

TEST_F(Graphs, AReplayedTrainingStepHasTheBitsOfACalledOne) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    SCOPED_TRACE(name(dtype));
    Training called(dtype), replayed(dtype);
    constexpr int kSteps = 6;
    std::vector<std::vector<std::vector<double>>> wanted;
    for (int t = 1; t <= kSteps; ++t) {
      called.feed(t);
      called.step();
      wanted.push_back(called.state());
    }
    replayed.feed(1);
    Graph graph = Graph::capture(kCuda, [&] { replayed.step(); });
    EXPECT_GT(graph.nodes(), 20);
    EXPECT_GT(graph.memory_bytes(), 0);
    for (int t = 2; t <= kSteps; ++t) {
      replayed.feed(t);
      const Counters before = counters();
      graph.replay();
      EXPECT_EQ(counters().kernel_launches, before.kernel_launches) << "nothing is launched one by one";
      EXPECT_EQ(replayed.state(), wanted[static_cast<std::size_t>(t - 1)]) << "step " << t;
    }
    EXPECT_EQ(replayed.optimizer.report().steps, kSteps);
    // Each step's rate is its own, and every step moves the parameters.
    EXPECT_NE(wanted[kSteps - 1][1], wanted[kSteps - 2][1]);
    EXPECT_NE(wanted[kSteps - 1][0], wanted[kSteps - 2][0]);
  }
}

TEST_F(Graphs, AStepThatIsNotFiniteIsSkippedInAReplay) {
  Training training(DType::f64), other(DType::f64);
  training.feed(1);
  Graph graph = Graph::capture(kCuda, [&] { training.step(); });
  const std::vector<double> before = values_of(training.model.parameters().values());
  training.x.copy_from(Tensor::full(training.x.shape(), std::nan(""), DType::f64));
  graph.replay();
  EXPECT_EQ(training.optimizer.report().skipped, 1);
  EXPECT_EQ(values_of(training.model.parameters().values()), before);
  training.feed(2);
  graph.replay();
  EXPECT_EQ(training.optimizer.report().steps, 2);
  other.feed(1);
  other.step();
  other.feed(2);
  other.step();
  EXPECT_EQ(values_of(training.model.parameters().values()), values_of(other.model.parameters().values()));
}

TEST_F(Graphs, ManyReplaysWaitForNothing) {
  Training training(DType::f32), other(DType::f32);
  training.feed(1), other.feed(1);
  Graph graph = Graph::capture(kCuda, [&] { training.step(); });
  other.step();
#if SCANTAPE_EMULATED
  const std::int64_t launches = emulator::statistics().launches;
#endif
  for (int t = 2; t < 12; ++t) {
    training.optimizer.set_learning_rate(0.001 * t);
    graph.replay();
  }
#if SCANTAPE_EMULATED
  EXPECT_EQ(emulator::statistics().launches, launches) << "its streams run when somebody waits";
#endif
  for (int t = 2; t < 12; ++t) {
    other.optimizer.set_learning_rate(0.001 * t);
    other.step();
  }
  EXPECT_EQ(training.state(), other.state());
}

TEST_F(Graphs, TensorsThatLeaveTheStepOutliveTheGraph) {
  Training training(DType::f64);
  training.feed(1);
  {
    Graph graph = Graph::capture(kCuda, [&] { training.step(); });
    training.feed(2);
    graph.replay();
    Graph moved = std::move(graph);
    EXPECT_THROW(graph.replay(), Error);  // NOLINT: what was moved from holds nothing
    moved.replay();
  }
  EXPECT_TRUE(std::isfinite(training.loss.values<double>()[0]));
}

void expect_capture_fails(const std::function<void()>& step, const std::string& words) {
  try {
    Graph graph = Graph::capture(kCuda, step);
    ADD_FAILURE() << "captured " << graph.nodes() << " nodes; wants an error with \"" << words << "\"";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::cuda) << error.what();
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
  EXPECT_TRUE(synchronize(kCuda).ok()) << "the device works again";
  // And the next capture is a good one.
  Tensor y = Tensor::full({4}, 1, DType::f32, kCuda);
  Graph graph = Graph::capture(kCuda, [&] { y.fill_zero(); });
  EXPECT_EQ(graph.nodes(), 1);
  y.copy_from(Tensor::full({4}, 3, DType::f32));
  graph.replay();
  EXPECT_EQ(y.values<float>(), std::vector<float>(4, 0.0F));
}

TEST_F(Graphs, ACaptureThatReadsAValueFails) {
  const Tensor x = Tensor::full({4}, 1, DType::f32, kCuda);
  int calls = 0;
  expect_capture_fails(
      [&] {
        ++calls;
        (void)x.values<float>();
      },
      "cuda: ");
  EXPECT_EQ(calls, 2) << "once as it is, once to record it";
}

TEST_F(Graphs, ACaptureThatCopiesMuchFromTheHostFails) {
  Tensor x = Tensor::full({40}, 1, DType::f32, kCuda);
  const Tensor host = Tensor::full({40}, 2, DType::f32);
  expect_capture_fails([&] { x.copy_from(host); }, "cuda: ");
}

TEST_F(Graphs, ACaptureThatWaitsFails) {
  expect_capture_fails([] { require(synchronize(kCuda, current_stream())); }, "cuda: ");
}

TEST_F(Graphs, ACaptureThatAsksForMoreMemoryThanBeforeFails) {
  int calls = 0;
  expect_capture_fails(
      [&] {
        ++calls;
        for (int i = 0; i < calls; ++i) (void)Tensor::empty({1000}, DType::f32, kCuda);
        const Tensor larger = Tensor::empty({1000 * calls}, DType::f64, kCuda);
      },
      "graph: the step asked for 16000 bytes of new memory while it was captured");
}

TEST_F(Graphs, WhatTheStepThrowsIsPassedOn) {
  int calls = 0;
  EXPECT_THROW((void)Graph::capture(kCuda,
                                    [&] {
                                      if (++calls == 2) throw std::runtime_error("planted");
                                    }),
               std::runtime_error);
  EXPECT_TRUE(synchronize(kCuda).ok());
  EXPECT_THROW((void)Graph::capture(kCuda, [&] { (void)Graph::capture(kCuda, [] {}); }), Error);
  EXPECT_TRUE(synchronize(kCuda).ok());
}

TEST_F(Graphs, ScalarsFromTheHostAreThoseOfTheCapture) {
  Tensor x = Tensor::full({2}, 0, DType::f64, kCuda);
  double value = 1;
  Graph graph = Graph::capture(kCuda, [&] { x.copy_from(Tensor::full({2}, value++, DType::f64)); });
  EXPECT_EQ(x.values<double>(), (std::vector<double>{1, 1}));
  graph.replay();
  EXPECT_EQ(x.values<double>(), (std::vector<double>{2, 2}));
  graph.replay();
  EXPECT_EQ(x.values<double>(), (std::vector<double>{2, 2}));
}

TEST(GraphArguments, AreChecked) {
  EXPECT_THROW((void)Graph::capture(kCpu, [] {}), Error);
  Graph graph;
  EXPECT_THROW(graph.replay(), Error);
  EXPECT_EQ(graph.nodes(), 0);
  EXPECT_EQ(graph.memory_bytes(), 0);
}

// ---- small writes

TEST_F(Graphs, SmallWritesTakeTheirValuesAlong) {
  for (const std::int64_t bytes : {1, 3, 8, 63, 64, 65}) {
    SCOPED_TRACE(bytes);
    std::vector<unsigned char> source(static_cast<std::size_t>(bytes)), got(source.size());
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<unsigned char>(i * 7 + 1);
    const std::vector<unsigned char> wanted = source;
    void* data = nullptr;
    require(allocate(kCuda, bytes, &data));
    require(copy_bytes(kCuda, data, kCpu, source.data(), bytes));
    std::memset(source.data(), 0, source.size());  // too early for a copy that is still on its way
    require(copy_bytes(kCpu, got.data(), kCuda, data, bytes));
    EXPECT_EQ(got, wanted);
    deallocate(kCuda, data);
  }
}

}  // namespace
}  // namespace scantape
