// Training as a whole, on simulated bars and, where SCANTAPE_TEST_DATA points at them, on real ones.
#include <gtest/gtest.h>
#include <omp.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "market/counter_rng.h"
#include "market/synth.h"
#include "scantape/counters.h"
#include "scantape/version.h"
#include "train/files.h"
#include "train/trainer.h"
#include "weights/safetensors.h"

namespace scantape::train {
namespace {

namespace fs = std::filesystem;

/// A directory that is gone when the test ends.
class Scratch {
 public:
  Scratch() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    path_ = fs::temp_directory_path() /
            ("scantape_" + std::to_string(::getpid()) + "_" + test->test_suite_name() + "_" + test->name());
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Scratch() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

std::string simulated(const Scratch& scratch, int days, market::Process process = market::Process::ar,
                      std::uint64_t seed = 3) {
  market::SynthOptions options;
  options.out = scratch / ("bars" + std::to_string(seed));
  options.days = days;
  options.symbols = {"ES"};
  options.process = process;
  options.seed = seed;
  market::synthesize(options);
  return options.out;
}

TrainConfig small_config(const std::string& data_dir, const std::string& output_dir) {
  TrainConfig config;
  config.data_dir = data_dir;
  config.output_dir = output_dir;
  config.hidden_dim = 4;
  config.state_dim = 3;
  config.num_layers = 2;
  config.batch_size = 8;
  config.epochs = 3;
  config.learning_rate = 5e-3;
  return config;
}

market::Dataset dataset(const TrainConfig& config) {
  return market::Dataset(load(config.data_dir, config.read), dataset_options(config));
}

Summary run(const TrainConfig& config, Device device = kCpu) {
  Log log(true);
  return train(config, dataset(config), device, log);
}

std::vector<Json> metrics_of(const std::string& output_dir) {
  std::vector<Json> lines;
  std::ifstream file(output_dir + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  return lines;
}

std::string model_bytes(const std::string& output_dir, int epoch) {
  char name[64];
  std::snprintf(name, sizeof name, "/checkpoints/epoch-%04d/model.safetensors", epoch);
  return read_file(output_dir + name);
}

/// Every regular file and link below a directory.
std::set<std::string> tree(const std::string& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(directory))
    if (!entry.is_directory()) names.insert(fs::relative(entry.path(), directory).string());
  return names;
}

TEST(Train, LeavesAWholeRunThatLearns) {
  const Scratch scratch;
  const TrainConfig config = small_config(simulated(scratch, 4), scratch / "run");
  const Summary summary = run(config);
  std::set<std::string> want = {"config.json", "metrics.jsonl", "train.log", "summary.json"};
  for (const char* epoch : {"epoch-0001", "epoch-0002", "epoch-0003"})
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"})
      want.insert(std::string("checkpoints/") + epoch + "/" + file);
  std::set<std::string> have = tree(config.output_dir);
  have.erase("best");
  have.erase("last");
  for (auto name = have.begin(); name != have.end();)
    name = name->rfind("best/", 0) == 0 || name->rfind("last/", 0) == 0 ? have.erase(name) : std::next(name);
  EXPECT_EQ(have, want);
  EXPECT_EQ(fs::read_symlink(config.output_dir + "/last"), "checkpoints/epoch-0003");
  char best[64];
  std::snprintf(best, sizeof best, "checkpoints/epoch-%04d", static_cast<int>(summary.best_epoch));
  EXPECT_EQ(fs::read_symlink(config.output_dir + "/best"), best);

  const auto metrics = metrics_of(config.output_dir);
  ASSERT_EQ(metrics.size(), 3U);
  for (const Json& line : metrics)
    for (const char* key : {"train_loss", "val_loss", "val_baseline_loss", "learning_rate", "grad_norm"})
      EXPECT_TRUE(std::isfinite(line.at(key).get<double>())) << key;
  EXPECT_LT(metrics[2].at("train_loss").get<double>(), metrics[0].at("train_loss").get<double>());
  EXPECT_LT(metrics[2].at("val_loss").get<double>(), metrics[2].at("val_baseline_loss").get<double>());
  EXPECT_EQ(summary.epochs, 3);
  EXPECT_EQ(summary.skipped_steps, 0);
  EXPECT_EQ(summary.parameters, parameter_count(model_config(config)));
  EXPECT_EQ(Json::parse(read_file(config.output_dir + "/summary.json")).at("steps"), summary.steps);

  const std::string log = read_file(config.output_dir + "/train.log");
  for (const char* said : {"scantape ", "device cpu", " files, ", "stretches", "split at ", "parameters"})
    EXPECT_NE(log.find(said), std::string::npos) << said;
}

TEST(R6, TheLogSaysWhichBuildRan) {
  const Scratch scratch;
  TrainConfig config = small_config(simulated(scratch, 3), scratch / "run");
  config.epochs = 1;
  run(config);
  EXPECT_EQ(read_file(config.output_dir + "/train.log")
                .rfind(std::string("scantape ") + version() + " (" + git_hash(), 0),
            0U);
  const Json json = Json::parse(read_file(config.output_dir + "/config.json"));
  EXPECT_EQ(json.at("git_hash"), git_hash());
  EXPECT_EQ(json.at("config").at("seed"), config.seed);
}

/// Both kinds of state matrices.
class StateMatrices : public testing::TestWithParam<const char*> {
 protected:
  TrainConfig config(const Scratch& scratch) const {
    TrainConfig config = small_config(simulated(scratch, 4), scratch / "run");
    config.state_matrix = GetParam();
    return config;
  }
};

INSTANTIATE_TEST_SUITE_P(Train, StateMatrices, testing::Values("diagonal", "dense"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(StateMatrices, EveryParameterMoves) {
  const Scratch scratch;
  const TrainConfig config = this->config(scratch);
  run(config);
  const auto first = read_safetensors(config.output_dir + "/checkpoints/epoch-0001/model.safetensors");
  const auto third = read_safetensors(config.output_dir + "/checkpoints/epoch-0003/model.safetensors");
  for (const NamedTensor& named : first.tensors) {
    const auto before = named.tensor.values<float>(), after = third.at(named.name).values<float>();
    EXPECT_FALSE(std::equal(before.begin(), before.end(), after.begin())) << named.name;
    for (float value : after) EXPECT_TRUE(std::isfinite(value)) << named.name;
  }
}

TEST_P(StateMatrices, ACheckpointScoresAsItsLineSays) {
  const Scratch scratch;
  const TrainConfig config = this->config(scratch);
  run(config);
  const auto metrics = metrics_of(config.output_dir);
  for (int epoch = 1; epoch <= 3; ++epoch) {
    char name[64];
    std::snprintf(name, sizeof name, "/checkpoints/epoch-%04d", epoch);
    const LoadedModel loaded = load_model(config.output_dir + name, kCpu);
    const market::Dataset data(load(config.data_dir, config.read), loaded.state.data);
    for (const std::int64_t batch_size : {1, 7, 32}) {
      const Score validation = score(*loaded.model, data, data.validation_windows(), batch_size);
      EXPECT_EQ(validation.loss, metrics[static_cast<std::size_t>(epoch - 1)].at("val_loss").get<double>());
      EXPECT_EQ(validation.baseline_loss,
                metrics[static_cast<std::size_t>(epoch - 1)].at("val_baseline_loss").get<double>());
    }
  }
  EXPECT_EQ(load_model(config.output_dir, kCpu).state.epoch,
            load_model(config.output_dir + "/best", kCpu).state.epoch);
}

TEST(Train, TheSameBytesTwiceAndWithOneAndTwoThreads) {
  const Scratch scratch;
  const std::string bars = simulated(scratch, 4);
  const int threads_before = omp_get_max_threads();
  std::vector<std::string> models;
  for (const int threads : {1, 2, 2}) {
    omp_set_num_threads(threads);
    TrainConfig config = small_config(bars, scratch / ("run" + std::to_string(models.size())));
    config.hidden_dim = 64;  // wide enough for loops and products to share their work
    config.epochs = 1;
    run(config);
    models.push_back(model_bytes(config.output_dir, 1));
  }
  EXPECT_GT(std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator()), 1)
      << "no second thread ever ran";
  omp_set_num_threads(threads_before);
  EXPECT_EQ(models[0], models[1]);
  EXPECT_EQ(models[1], models[2]);
  TrainConfig other = small_config(bars, scratch / "other_seed");
  other.hidden_dim = 64;
  other.epochs = 1;
  other.seed = 2;
  run(other);
  EXPECT_NE(model_bytes(other.output_dir, 1), models[0]);
}

TEST(Train, CudaGivesTheLossesOfTheCpu) {
  if (!is_available(kCuda)) GTEST_SKIP() << "there is no device cuda";
  const Scratch scratch;
  const std::string bars = simulated(scratch, 3);
  const auto losses = [&](Device device, const std::string& output) {
    TrainConfig config = small_config(bars, scratch / output);
    config.max_steps = 5;
    config.batch_size = 4;
    config.sequence_length = 20;
    config.split = "97/3";
    const Summary summary = run(config, device);
    EXPECT_EQ(summary.steps, 5);
    if (device.is_cpu()) {
      EXPECT_EQ(summary.kernel_launches, 0);
      EXPECT_GT(summary.cpu_ops, 0);
    } else {
      EXPECT_GT(summary.kernel_launches, 5 * 20);
      EXPECT_EQ(summary.cpu_ops, 0) << "an op of a training step on cuda ran on the cpu";
    }
    const Json line = metrics_of(config.output_dir).at(0);
    return std::pair(line.at("train_loss").get<double>(), line.at("val_loss").get<double>());
  };
  const auto cpu = losses(kCpu, "cpu"), cuda = losses(kCuda, "cuda");
  EXPECT_LE(std::abs(cpu.first - cuda.first), 1e-4 * std::abs(cpu.first));
  EXPECT_LE(std::abs(cpu.second - cuda.second), 1e-4 * std::abs(cpu.second));
}

/// Replaces every bar from `cut` on by noise with the same stamps.
market::BarStore with_noise_from(market::BarStore store, std::uint64_t cut) {
  for (market::Contract& contract : store.contracts)
    for (std::size_t i = 0; i < contract.bars.size(); ++i) {
      market::Bar& bar = contract.bars[i];
      if (bar.ts_event < cut) continue;
      const auto price = [&](std::uint64_t which) {
        return static_cast<std::int64_t>(1'000'000'000 +
                                         market::random_below(9'000'000'000'000, 5, which, i));
      };
      std::int64_t prices[4] = {price(0), price(1), price(2), price(3)};
      std::sort(std::begin(prices), std::end(prices));
      bar.low = prices[0];
      bar.open = prices[1];
      bar.close = prices[2];
      bar.high = prices[3];
      bar.volume = 1 + market::random_below(100000, 6, 0, i);
    }
  return store;
}

void expect_no_leak(const TrainConfig& config) {
  const market::Dataset clean = dataset(config);
  const std::uint64_t cut = clean.plan().cuts.at(0);
  const market::Dataset noisy(with_noise_from(load(config.data_dir, config.read), cut),
                              dataset_options(config));
  ASSERT_EQ(noisy.plan().cuts.at(0), cut);
  Log log(true);
  TrainConfig on_noise = config;
  on_noise.output_dir += "_noise";
  train(config, clean, kCpu, log);
  train(on_noise, noisy, kCpu, log);
  for (int epoch = 1; epoch <= config.epochs; ++epoch)
    EXPECT_EQ(model_bytes(config.output_dir, epoch), model_bytes(on_noise.output_dir, epoch))
        << "epoch " << epoch;
  // The noise was seen where it is meant to be seen.
  EXPECT_NE(metrics_of(config.output_dir).at(0).at("val_loss"),
            metrics_of(on_noise.output_dir).at(0).at("val_loss"));
}

TEST(Train, NothingFromTheCutOnReachesTheWeights) {
  const Scratch scratch;
  expect_no_leak(small_config(simulated(scratch, 4), scratch / "run"));
}

std::string real_data(const char* which) {
  const char* root = std::getenv("SCANTAPE_TEST_DATA");
  return root == nullptr ? "" : std::string(root) + "/bars/" + which;
}

TEST(Train, NothingFromTheCutOnReachesTheWeightsOnRealBars) {
  const std::string bars = real_data("6e");
  if (bars.empty()) GTEST_SKIP() << "SCANTAPE_TEST_DATA is not set";
  const Scratch scratch;
  TrainConfig config = small_config(bars, scratch / "run");
  config.epochs = 2;
  expect_no_leak(config);
}

TEST(Train, RealBarsOfSeveralContracts) {
  const std::string bars = real_data("es");
  if (bars.empty()) GTEST_SKIP() << "SCANTAPE_TEST_DATA is not set";
  const Scratch scratch;
  TrainConfig config = small_config(bars, scratch / "run");
  config.epochs = 1;
  config.symbol = "ES.FUT";
  const market::Dataset data = dataset(config);
  EXPECT_GT(data.contracts().size(), 1U);
  for (const auto& windows : {data.training_windows(1, 1), data.validation_windows()})
    for (const market::Window& window : windows)
      for (std::int64_t row = window.first_bar; row <= window.first_bar + config.sequence_length; ++row)
        ASSERT_EQ(data.contract_index()[static_cast<std::size_t>(row)],
                  data.contract_index()[static_cast<std::size_t>(window.first_bar)]);
  Log log(true);
  EXPECT_TRUE(std::isfinite(train(config, data, kCpu, log).best_val_loss));
}

/// The conditional means of truth.csv by stamp.
std::map<std::uint64_t, double> truth(const std::string& bars) {
  std::map<std::uint64_t, double> means;
  std::ifstream file(bars + "/truth.csv");
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    const std::size_t first = line.find(','), last = line.rfind(',');
    means[std::stoull(line.substr(0, first))] = std::stod(line.substr(last + 1));
  }
  return means;
}

TEST(Train, LearnsMostOfWhatCanBeLearned) {
  const Scratch scratch;
  TrainConfig config = small_config(simulated(scratch, 20), scratch / "run");
  config.hidden_dim = 16;
  config.state_dim = 8;
  config.learning_rate = 0.01;
  config.epochs = 20;
  const market::Dataset data = dataset(config);
  Log log(true);
  const Summary summary = train(config, data, kCpu, log);
  const auto means = truth(config.data_dir);
  // The oracle on the very positions that validation scores.
  double oracle = 0, baseline = 0;
  std::int64_t positions = 0;
  for (const market::Window& window : data.validation_windows())
    for (std::int64_t position = window.score_begin; position < window.score_end; ++position) {
      const auto i = static_cast<std::size_t>(window.first_bar + position);
      if (data.mask()[i] == 0) continue;
      const double target = data.targets()[i];
      const double error = target - means.at(data.ts_event()[i]) / data.fitted().target_scale;
      oracle += error * error;
      baseline += target * target;
      ++positions;
    }
  oracle /= static_cast<double>(positions);
  baseline /= static_cast<double>(positions);
  EXPECT_NEAR(baseline, summary.val_baseline_loss, 1e-12 * baseline);
  EXPECT_LT(oracle, 0.6 * baseline);
  const double learned = (baseline - summary.best_val_loss) / (baseline - oracle);
  EXPECT_GE(learned, 0.9);
  EXPECT_LE(learned, 1.01) << "better than what can be known: something leaks";
  RecordProperty("learned", std::to_string(learned));
}

TEST(Train, FindsNothingWhereThereIsNothing) {
  std::vector<double> differences;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Scratch scratch;
    TrainConfig config =
        small_config(simulated(scratch, 5, market::Process::random_walk, seed), scratch / "run");
    config.hidden_dim = 2;
    config.state_dim = 2;
    config.num_layers = 1;
    config.epochs = 1;
    config.learning_rate = 1e-3;
    config.split = "90/10";
    config.seed = seed;
    const Summary summary = run(config);
    differences.push_back(summary.best_val_loss - summary.val_baseline_loss);
  }
  double mean = 0, variance = 0;
  for (double difference : differences) mean += difference / 20;
  for (double difference : differences) variance += (difference - mean) * (difference - mean) / 19;
  const double error = std::sqrt(variance / 20);
  EXPECT_GT(error, 0);
  EXPECT_LE(std::abs(mean), 3 * error) << "mean difference " << mean << ", standard error " << error;
}

TEST(Train, RefusesWhatIsWrongWithoutWritingAnything) {
  const Scratch scratch;
  const std::string bars = simulated(scratch, 3), output = scratch / "run";
  const auto refusal = [&](const std::function<void(TrainConfig&)>& change) {
    TrainConfig config = small_config(bars, output);
    change(config);
    try {
      validate(config);
      run(config);
    } catch (const Error& error) {
      EXPECT_FALSE(fs::exists(output)) << error.what();
      return std::string(error.what());
    }
    fs::remove_all(output);
    return std::string("nothing was refused");
  };
  const struct {
    std::function<void(TrainConfig&)> change;
    const char* wants;
  } cases[] = {
      {[](TrainConfig& c) { c.learning_rate = std::nan(""); }, "--learning-rate is nan"},
      {[](TrainConfig& c) { c.learning_rate = INFINITY; }, "--learning-rate is inf"},
      {[](TrainConfig& c) { c.learning_rate = 0; }, "--learning-rate is 0"},
      {[](TrainConfig& c) { c.state_dim = 0; }, "--state-dim is 0, wants at least 1"},
      {[](TrainConfig& c) { c.hidden_dim = -1; }, "--hidden-dim is -1"},
      {[](TrainConfig& c) { c.expand = 0; }, "--expand"},
      {[](TrainConfig& c) { c.state_matrix = "full"; },
       "--state-matrix is full, wants one of diagonal, dense"},
      {[](TrainConfig& c) { c.num_layers = 0; }, "--num-layers"},
      {[](TrainConfig& c) { c.epochs = 0; }, "--epochs"},
      {[](TrainConfig& c) { c.batch_size = 0; }, "--batch-size"},
      {[](TrainConfig& c) { c.sequence_length = 0; }, "--sequence-length"},
      {[](TrainConfig& c) { c.sequence_length = INT64_MAX; },
       "--sequence-length is 9223372036854775807, wants at most"},
      {[](TrainConfig& c) { c.stride = INT64_MAX; }, "--stride is"},
      {[](TrainConfig& c) { c.batch_size = INT64_MAX; }, "--batch-size is"},
      {[](TrainConfig& c) { c.epochs = INT64_MAX; }, "--epochs is"},
      {[](TrainConfig& c) { c.max_steps = INT64_MAX; }, "--max-steps is"},
      {[](TrainConfig& c) { c.hidden_dim = INT64_MAX; }, "--hidden-dim is"},
      {[](TrainConfig& c) { c.hidden_dim = c.expand = 1 << 20; }, "parameters is too large"},
      {[](TrainConfig& c) { c.publisher = 70000; }, "--publisher is 70000"},
      {[](TrainConfig& c) { c.weight_decay = -1; }, "--weight-decay"},
      {[](TrainConfig& c) { c.max_norm = std::nan(""); }, "--max-norm"},
      {[](TrainConfig& c) { c.max_gap = -1; }, "--max-gap"},
      {[](TrainConfig& c) { c.discretization = "foh"; },
       "--discretization is foh, wants one of zoh, exp_euler"},
      {[](TrainConfig& c) { c.activation = "relu"; }, "--activation is relu"},
      {[](TrainConfig& c) { c.dtype = "f16"; }, "--dtype is f16"},
      {[](TrainConfig& c) { c.model = "transformer"; }, "--model is transformer"},
      {[](TrainConfig& c) { c.split = "80/30"; }, "80/30"},
      {[](TrainConfig& c) { c.target = "close"; }, "close"},
      {[](TrainConfig& c) { c.read.bad_bars = "ignore"; }, "--bad-bars is ignore"},
      {[](TrainConfig& c) { c.symbol = "NQH4"; }, "NQH4"},
      {[](TrainConfig& c) { c.sequence_length = 100000; }, "100000"},
      {[](TrainConfig& c) { c.data_dir += "_not_there"; }, "_not_there"},
  };
  for (const auto& [change, wants] : cases) {
    const std::string message = refusal(change);
    EXPECT_NE(message.find(wants), std::string::npos) << "wanted '" << wants << "' in: " << message;
  }
}

TEST(Train, ADirectoryWithARunIsNotWrittenOver) {
  const Scratch scratch;
  TrainConfig config = small_config(simulated(scratch, 3), scratch / "run");
  config.epochs = 1;
  run(config);
  const std::string before = model_bytes(config.output_dir, 1);
  EXPECT_THROW(run(config), Error);
  EXPECT_EQ(model_bytes(config.output_dir, 1), before);
  config.output_dir = "/dev/null/run";
  EXPECT_THROW(run(config), Error);
}

TEST(Train, ARunThatLeftNoCheckpointCanBeStartedAgain) {
  const Scratch scratch;
  TrainConfig config = small_config(simulated(scratch, 3), scratch / "run");
  config.epochs = 1;
  config.learning_rate = 1e30;
  config.warmup_steps = 0;
  EXPECT_THROW(run(config), Error);
  EXPECT_NE(read_file(config.output_dir + "/train.log").find("ended: training diverged"), std::string::npos);
  config.learning_rate = 1e-3;
  EXPECT_EQ(run(config).epochs, 1);
  EXPECT_EQ(metrics_of(config.output_dir).size(), 1U);
  EXPECT_EQ(read_file(config.output_dir + "/train.log").find("ended:"), std::string::npos);
}

TEST(Train, APathThatIsNoTextDoesNotEndARun) {
  const Scratch scratch;
  TrainConfig config = small_config(simulated(scratch, 3), scratch / "run\xff");
  config.epochs = 1;
  EXPECT_EQ(run(config).epochs, 1);
}

TEST(Train, AFullDiskLeavesTheEarlierCheckpointWhole) {
  const Scratch scratch;
  TrainConfig config = small_config(simulated(scratch, 3), scratch / "run");
  config.epochs = 1;
  run(config);
  const LoadedModel loaded = load_model(config.output_dir, kCpu);
  autograd::AdamWOptimizer optimizer(loaded.model->parameters(), {});
  CheckpointState next = loaded.state;
  next.epoch = 2;
  // No file may grow beyond a kilobyte, as on a disk that is full: the write fails half way.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{1000, limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  std::string message;
  try {
    save_checkpoint(config.output_dir + "/checkpoints", next, loaded.model->parameters(), optimizer);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::io);
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &limit);
  EXPECT_NE(message.find("model.safetensors"), std::string::npos) << message;
  EXPECT_EQ(load_model(config.output_dir + "/last", kCpu).state.epoch, 1);
  std::int64_t entries = 0;
  for (const auto& entry : fs::directory_iterator(config.output_dir + "/checkpoints")) {
    EXPECT_EQ(entry.path().filename(), "epoch-0001");
    ++entries;
  }
  EXPECT_EQ(entries, 1);
}

TEST(Train, DivergenceEndsTheRunByName) {
  const Scratch scratch;
  TrainConfig config = small_config(simulated(scratch, 3), scratch / "run");
  config.learning_rate = 1e30;
  config.warmup_steps = 0;
  try {
    run(config);
    FAIL() << "a learning rate of 1e30 trained";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("training diverged"), std::string::npos) << error.what();
  }
}

TEST(Checkpoint, NamesEveryTensorThatIsWrong) {
  const Scratch scratch;
  TrainConfig config = small_config(simulated(scratch, 3), scratch / "run");
  config.epochs = 1;
  run(config);
  const std::string path = config.output_dir + "/checkpoints/epoch-0001/model.safetensors";
  Safetensors contents = read_safetensors(path);
  contents.tensors.erase(contents.tensors.begin());
  contents.tensors.push_back({"stranger", Tensor::zeros({2}, DType::f32)});
  contents.tensors[0].tensor = Tensor::zeros({1, 1}, DType::f32);
  write_safetensors(path, contents);
  try {
    (void)load_model(config.output_dir, kCpu);
    FAIL() << "a wrong file was loaded";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.code(), Code::corrupt_data);
    for (const char* part : {"input_projection.weight is missing", "stranger is none", "wants f32 ["})
      EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  EXPECT_THROW((void)load_model(scratch / "nothing", kCpu), Error);

  // Whatever a state claims is looked at before it is believed.
  const std::string state_path = config.output_dir + "/checkpoints/epoch-0001/state.json";
  const Json state = Json::parse(read_file(state_path));
  const struct {
    const char *pointer, *value, *wants;
  } lies[] = {{"/format_version", "2", "format_version is 2"},
              {"/model/hidden_dim", "0", "hidden_dim"},
              {"/model/num_layers", "1000000000", "num_layers is 1000000000"},
              {"/model/state_dim", "1000000", "parameters"},
              {"/model/num_layers", "100000", "bytes"},
              {"/model/discretization", "\"foo\"", "foo"},
              {"/model/dtype", "\"f8\"", "f8"},
              {"/model/family", "\"rnn\"", "rnn"},
              {"/data/target", "\"close\"", "close"},
              {"/data/burn_in", "\"x\"", "state of a checkpoint"},
              {"/epoch", "null", "state of a checkpoint"}};
  for (const auto& [pointer, value, wants] : lies) {
    Json lie = state;
    lie[Json::json_pointer(pointer)] = Json::parse(value);
    write_file(state_path, text(lie));
    try {
      (void)load_model(config.output_dir, kCpu);
      ADD_FAILURE() << pointer << " = " << value << " was believed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::corrupt_data) << error.what();
      EXPECT_NE(std::string(error.what()).find(wants), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(config.output_dir), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace scantape::train
