// Mamba-2 language models beside other people's code: tests/oracle/fixtures/mamba2_hf* has what transformers makes of
// them, mamba2_sequential what plain f64 arithmetic does. And their files: what is read, and what is refused.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "scantape/autograd/ops.h"
#include "scantape/autograd/tape.h"
#include "train/files.h"
#include "weights/mamba2_model.h"

namespace scantape::weights {
namespace {

namespace fs = std::filesystem;
using autograd::Mamba2LM;
using autograd::Random;
using nlohmann::json;
using Values = std::vector<double>;
using Ids = std::vector<std::int32_t>;

fs::path fixture_path(const std::string& name) {
  return fs::path(SCANTAPE_TEST_SOURCE_DIR) / "oracle" / "fixtures" / name;
}

Values values_of(const Tensor& tensor) {
  return tensor.to(DType::f64).values<double>();
}

double root_mean_square(const Values& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum / static_cast<double>(std::max<std::size_t>(values.size(), 1)));
}

/// Root mean square of the difference over that of what is wanted; NaN where anything is NaN.
double relative_error(const Values& got, const Values& want) {
  if (got.size() != want.size() || want.empty()) return std::nan("");
  Values difference(got.size());
  for (std::size_t i = 0; i < got.size(); ++i) difference[i] = got[i] - want[i];
  return root_mean_square(difference) / root_mean_square(want);
}

// ---- what tests/oracle/mamba2_fixture.py has as well ------------------------------------------------------------------

Random random_of(const std::string& text) {
  std::uint64_t value = 0xCBF29CE484222325U;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  return Random(value);
}

constexpr std::size_t kSamples = 96, kDirections = 3;

Values drawn(const std::string& text, std::int64_t count, double low, double high) {
  Random random = random_of(text);
  Values values(static_cast<std::size_t>(count));
  for (double& value : values) value = random.uniform(low, high);
  return values;
}

/// Norm, products with random directions, and elements of a gradient.
struct Digest {
  double norm;
  Values products, elements;
};

Digest digest_of(const std::string& name, const Values& gradient) {
  const auto count = static_cast<std::int64_t>(gradient.size());
  Digest digest{root_mean_square(gradient) * std::sqrt(static_cast<double>(count)), {}, gradient};
  for (std::size_t k = 0; k < kDirections; ++k) {
    const Values direction = drawn(name + "/direction " + std::to_string(k), count, -1, 1);
    double product = 0;
    for (std::size_t i = 0; i < gradient.size(); ++i) product += gradient[i] * direction[i];
    digest.products.push_back(product);
  }
  if (gradient.size() <= kSamples) return digest;
  Random random = random_of(name + "/samples");
  digest.elements.clear();
  for (std::size_t i = 0; i < kSamples; ++i)
    digest.elements.push_back(
        gradient[static_cast<std::size_t>(random.uniform() * static_cast<double>(count))]);
  return digest;
}

/// The larger one; NaN where either is.
double worse(double a, double b) {
  return std::isnan(a) || a > b ? a : b;
}

/// How far a gradient is from the one of which the fixture has the digest, in parts of its size: by elements, by the norm,
/// and by each product (in any one direction lies a third of a square's mean).
double gradient_error(const std::string& name, const Values& gradient, const Values& stored) {
  const Digest got = digest_of(name, gradient);
  double worst = relative_error(got.elements, Values(stored.begin() + 1 + kDirections, stored.end()));
  worst = worse(worst, std::abs(got.norm / stored[0] - 1));
  for (std::size_t k = 0; k < kDirections; ++k)
    worst = worse(worst, std::abs(got.products[k] - stored[1 + k]) / (stored[0] / std::sqrt(3.0)));
  return worst;
}

/// One of the models in a fixture.
class Oracle {
 public:
  Oracle(const std::string& file, std::string name) : name_(std::move(name)) {
    static std::map<std::string, Safetensors> files;
    if (files.count(file) == 0) files[file] = read_safetensors(fixture_path(file));
    file_ = &files.at(file);
  }

  const Tensor& at(const std::string& tensor) const { return file_->at(name_ + "/" + tensor); }
  std::string text(const std::string& key) const { return file_->metadata.at(name_ + "/" + key); }
  Mamba2Config config() const { return parse_mamba2_config(text("config.json"), name_); }

  /// The weights in a file of their own, as f32 where transformers had them so.
  Safetensors weights(DType dtype) const {
    Safetensors weights;
    const json table = json::parse(text("weights"));
    for (const auto& [tensor, drawn_as] : table.items()) {
      Shape shape;
      for (const json& size : drawn_as[0]) shape.append(size.get<std::int64_t>());
      const Values values = drawn(name_ + "/" + tensor, shape.elements(), drawn_as[1], drawn_as[2]);
      weights.tensors.push_back({tensor, Tensor::from(shape, values).to(dtype)});
    }
    return weights;
  }

  LoadedMamba2 model(DType dtype, DType stored, std::int64_t norm_groups = 0) const {
    Mamba2LoadOptions options;
    options.dtype = dtype;
    options.norm_groups = norm_groups;
    return make_mamba2(config(), weights(stored), name_, options);
  }

  /// Every parameter's gradient. The fixture has one of every parameter and of nothing else.
  void expect_gradients(const Mamba2LM& model, double tolerance) const {
    std::set<std::string> left;
    for (const NamedTensor& named : file_->tensors)
      if (named.name.rfind(name_ + "/gradient/", 0) == 0) left.insert(named.name);
    const auto& entries = model.parameters().entries();
    EXPECT_EQ(left.size(), entries.size());
    for (std::size_t i = 0; i < entries.size(); ++i) {
      std::string parameter = entries[i].name;
      if (left.count(name_ + "/gradient/" + parameter) == 0) parameter = "backbone.embedding.weight";
      const Values stored = values_of(at("gradient/" + parameter));
      EXPECT_TRUE(stored[0] > 0) << parameter;
      const double error = gradient_error(
          name_ + "/" + parameter, values_of(model.parameters().gradient(static_cast<int>(i))), stored);
      EXPECT_TRUE(error <= tolerance) << name_ << ": " << parameter << " is off by " << error;
      left.erase(name_ + "/gradient/" + parameter);
    }
    EXPECT_TRUE(left.empty()) << *left.begin();
  }

 private:
  std::string name_;
  const Safetensors* file_;
};

std::vector<std::string> names_in(const char* file) {
  std::vector<std::string> names;
  const std::string ending = "/config.json";
  for (const auto& [key, text] : read_safetensors(fixture_path(file)).metadata)
    if (key.ends_with(ending)) names.push_back(key.substr(0, key.size() - ending.size()));
  return names;
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::erase(name, ',');
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

/// Targets of a text by labels that a model is to shift by one, as transformers does.
Tensor shifted(const Tensor& labels) {
  const std::int64_t B = labels.shape()[0], L = labels.shape()[1];
  const Ids from = labels.values<std::int32_t>();
  Ids to(from.size(), -100);
  for (std::int64_t b = 0; b < B; ++b) std::copy_n(from.begin() + b * L + 1, L - 1, to.begin() + b * L);
  return Tensor::from({B, L}, to);
}

// ---- transformers -----------------------------------------------------------------------------------------------------

constexpr const char* kHuggingFace = "mamba2_hf.safetensors";

class HuggingFace : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Models, HuggingFace, testing::ValuesIn(names_in(kHuggingFace)), test_name);

TEST_P(HuggingFace, GivesTheSameLogitsLossAndGradients) {
  const Oracle oracle(kHuggingFace, GetParam());
  for (const DType dtype : {DType::f32, DType::f64}) {
    const LoadedMamba2 loaded = oracle.model(dtype, DType::f32);
    EXPECT_EQ(loaded.config.norm_groups, 1);
    autograd::Tape tape;
    const Tensor logits = loaded.model.forward(nullptr, oracle.at("ids")).value();
    EXPECT_EQ(logits.shape(), oracle.at("logits").shape());
    const double error = relative_error(values_of(logits), values_of(oracle.at("logits")));
    EXPECT_TRUE(error <= 1e-5) << name(dtype) << " is off by " << error;
    const auto loss = loaded.model.loss(&tape, oracle.at("ids"), shifted(oracle.at("labels")));
    EXPECT_NEAR(values_of(loss.value())[0], values_of(oracle.at("loss"))[0], 1e-5);
    tape.backward(loss);
    oracle.expect_gradients(loaded.model, 1e-4);
  }
}

TEST_P(HuggingFace, ContinuesWithTheSameTokens) {
  const Oracle oracle(kHuggingFace, GetParam());
  const Ids want = oracle.at("tokens").values<std::int32_t>();
  ASSERT_EQ(want.size(), 50U);
  for (const DType dtype : {DType::f32, DType::f64}) {
    const LoadedMamba2 loaded = oracle.model(dtype, DType::f32);
    Ids all = oracle.at("prompt").values<std::int32_t>();
    const std::size_t prompt = all.size();
    EXPECT_EQ(continue_greedily(loaded.model, all, 50), want) << name(dtype);
    // What the state gives on the way is what the whole text gives.
    all.insert(all.end(), want.begin(), want.end());
    const auto ids = [&](std::size_t begin, std::size_t end) {
      return Tensor::from({1, static_cast<std::int64_t>(end - begin)},
                          Ids(all.begin() + static_cast<std::ptrdiff_t>(begin),
                              all.begin() + static_cast<std::ptrdiff_t>(end)));
    };
    const Values whole = values_of(loaded.model.forward(nullptr, ids(0, all.size())).value());
    Mamba2LM::State state;
    Values pieces = values_of(loaded.model.forward_from(&state, ids(0, prompt)));
    for (std::size_t t = prompt; t < all.size(); ++t)
      for (const double value : values_of(loaded.model.forward_from(&state, ids(t, t + 1))))
        pieces.push_back(value);
    const double error = relative_error(pieces, whole);
    EXPECT_TRUE(error <= (dtype == DType::f64 ? 1e-12 : 1e-5)) << name(dtype) << ": " << error;
  }
}

/// With several groups it is their one mean over all channels that makes the difference, and the flag that decides.
TEST(HuggingFaceModels, NormGroupsAreAFlag) {
  const Oracle oracle(kHuggingFace, "four groups");
  const Values want = values_of(oracle.at("logits"));
  const auto error = [&](std::int64_t norm_groups) {
    const LoadedMamba2 loaded = oracle.model(DType::f64, DType::f32, norm_groups);
    EXPECT_EQ(loaded.config.norm_groups, norm_groups == 0 ? 1 : norm_groups);
    return relative_error(values_of(loaded.model.forward(nullptr, oracle.at("ids")).value()), want);
  };
  EXPECT_LE(error(0), 1e-5);
  EXPECT_LE(error(1), 1e-5);
  EXPECT_GT(error(4), 1e-2);
  EXPECT_GT(error(2), 1e-2);
}

/// The files of save_pretrained: one of f32 with tied embeddings; several of bf16 and their index.
TEST(HuggingFaceModels, AreReadFromTheirFolders) {
  for (const std::string name : {"whole", "sharded"}) {
    const Oracle oracle(kHuggingFace, name);
    const LoadedMamba2 loaded = load_mamba2(fixture_path("mamba2_hf_" + name));
    EXPECT_EQ(loaded.config.tied_embeddings, name == "whole");
    EXPECT_EQ(loaded.config.groups, 2);
    const double error = relative_error(values_of(loaded.model.forward(nullptr, oracle.at("ids")).value()),
                                        values_of(oracle.at("logits")));
    EXPECT_TRUE(error <= 1e-5) << name << " is off by " << error;
  }
}

// ---- plain arithmetic -------------------------------------------------------------------------------------------------

constexpr const char* kSequential = "mamba2_sequential.safetensors";

class Sequential : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Models, Sequential, testing::ValuesIn(names_in(kSequential)), test_name);

TEST_P(Sequential, GivesTheSameLogitsLossAndGradients) {
  const Oracle oracle(kSequential, GetParam());
  const LoadedMamba2 loaded = oracle.model(DType::f64, DType::f64);
  EXPECT_EQ(loaded.config.norm_groups, loaded.config.groups);
  const Tensor logits = loaded.model.forward(nullptr, oracle.at("ids")).value();
  const double error = relative_error(values_of(logits), values_of(oracle.at("logits")));
  EXPECT_TRUE(error <= 1e-10) << error;
  autograd::Tape tape;
  const auto loss = loaded.model.loss(&tape, oracle.at("ids"), oracle.at("targets"));
  EXPECT_NEAR(values_of(loss.value())[0], values_of(oracle.at("loss"))[0], 1e-12);
  tape.backward(loss);
  oracle.expect_gradients(loaded.model, 1e-8);
}

// ---- files --------------------------------------------------------------------------------------------------------------

/// A folder of its own with a small model in it, gone at the end.
class Folder {
 public:
  explicit Folder(const Oracle& oracle, bool with_weights = true)
      : path_(fs::temp_directory_path() / ("scantape_test_mamba2_" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
    put("config.json", oracle.text("config.json"));
    if (with_weights) write_safetensors(path_ / "model.safetensors", oracle.weights(DType::f32));
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const fs::path& path() const { return path_; }
  void put(const char* name, const std::string& text) const {
    fs::remove(path_ / name);
    train::write_file(path_ / name, text);
  }
  void put(const char* name, const Safetensors& file) const { write_safetensors(path_ / name, file); }

 private:
  const fs::path path_;
};

void expect_refused(const fs::path& path, Code code, const std::vector<std::string>& parts,
                    const Mamba2LoadOptions& options = {}) {
  try {
    (void)load_mamba2(path, options);
    ADD_FAILURE() << "taken: wanted " << parts.front();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "wanted '" << part << "' in: " << error.what();
  }
}

Tensor& tensor_of(Safetensors& file, const std::string& name) {
  for (NamedTensor& named : file.tensors)
    if (named.name == name) return named.tensor;
  throw std::runtime_error("no " + name);
}

bool same_parameters(const Mamba2LM& a, const Mamba2LM& b) {
  for (std::size_t i = 0; i < a.parameters().entries().size(); ++i) {
    const int index = static_cast<int>(i);
    if (a.parameters().entries()[i].name != b.parameters().entries()[i].name ||
        values_of(a.parameters().value(index)) != values_of(b.parameters().value(index)))
      return false;
  }
  return a.parameters().entries().size() == b.parameters().entries().size();
}

TEST(Mamba2Files, WhatIsWrittenIsReadAndStaysItself) {
  for (const char* name : {"four groups", "two groups"}) {
    const Oracle oracle(kHuggingFace, name);
    const Folder folder(oracle);
    const LoadedMamba2 first = load_mamba2(folder.path());
    const Safetensors written = mamba2_weights(first.model);
    EXPECT_EQ(written.tensors.size(), first.model.parameters().entries().size());
    EXPECT_EQ(written.at("backbone.layers.1.mixer.conv1d.weight").shape().rank(), 3);
    folder.put("model.safetensors", written);
    EXPECT_TRUE(same_parameters(load_mamba2(folder.path()).model, first.model));
    // What is learned afterwards is not written into the file that was read.
    LoadedMamba2 second = load_mamba2(folder.path());
    second.model.parameters().values().fill_zero();
    EXPECT_TRUE(same_parameters(load_mamba2(folder.path()).model, first.model));
  }
}

/// The state between two pieces, written to a file and read from it, goes on with the same bits.
TEST(Mamba2Files, AStateIsSavedAndRestored) {
  const Oracle oracle(kHuggingFace, "two groups");
  const Folder folder(oracle);
  const LoadedMamba2 loaded = load_mamba2(folder.path());
  const Tensor first = oracle.at("ids").slice(1, 0, 9).clone(),
               rest = oracle.at("ids").slice(1, 9, 21).clone();
  Mamba2LM::State state, restored;
  (void)loaded.model.forward_from(&state, first);
  Safetensors saved;
  for (std::size_t i = 0; i < state.size(); ++i) {
    saved.tensors.push_back({std::to_string(i) + ".conv", state[i].conv});
    saved.tensors.push_back({std::to_string(i) + ".ssm", state[i].ssm});
  }
  folder.put("state.safetensors", saved);
  const Safetensors read = read_safetensors(folder.path() / "state.safetensors");
  for (std::size_t i = 0; i < state.size(); ++i)
    restored.push_back({read.at(std::to_string(i) + ".conv"), read.at(std::to_string(i) + ".ssm")});
  const Values want = values_of(loaded.model.forward_from(&state, rest));
  EXPECT_EQ(values_of(loaded.model.forward_from(&restored, rest)), want);
  Mamba2LM::State fresh;
  EXPECT_NE(values_of(loaded.model.forward_from(&fresh, rest)), want);
}

TEST(Mamba2Files, TheOtherPackagesNamesAreTheSameModel) {
  const Oracle oracle(kHuggingFace, "two groups");
  const Folder folder(oracle);
  const LoadedMamba2 before = load_mamba2(folder.path());
  Safetensors file = oracle.weights(DType::f32);
  for (NamedTensor& named : file.tensors)
    if (named.name == "backbone.embeddings.weight") named.name = "backbone.embedding.weight";
  folder.put("model.safetensors", file);
  folder.put("config.json", R"({"d_model": 16, "n_layer": 2, "vocab_size": 27, "pad_vocab_size_multiple": 29,
      "rms_norm": true, "tie_embeddings": true, "ssm_cfg": {"layer": "Mamba2", "d_state": 16, "headdim": 4, "ngroups": 2,
      "chunk_size": 5}})");
  Mamba2LoadOptions options;
  EXPECT_EQ(load_mamba2(folder.path()).config.norm_groups, 2);
  options.norm_groups = 1;
  const LoadedMamba2 after = load_mamba2(folder.path(), options);
  EXPECT_TRUE(same_parameters(before.model, after.model));
  EXPECT_EQ(values_of(before.model.forward(nullptr, oracle.at("ids")).value()),
            values_of(after.model.forward(nullptr, oracle.at("ids")).value()));
}

TEST(Mamba2Files, TiedHeadsAreLeftOutOrTheSame) {
  const Oracle oracle(kHuggingFace, "two groups");
  const Folder folder(oracle);
  const LoadedMamba2 without = load_mamba2(folder.path());
  Safetensors file = oracle.weights(DType::f32);
  file.tensors.push_back({"lm_head.weight", file.at("backbone.embeddings.weight").clone()});
  folder.put("model.safetensors", file);
  EXPECT_TRUE(same_parameters(load_mamba2(folder.path()).model, without.model));
  tensor_of(file, "lm_head.weight").mutable_data<float>()[7] += 1;
  folder.put("model.safetensors", file);
  expect_refused(folder.path(), Code::corrupt_data, {"lm_head.weight that differs from the embeddings"});
}

TEST(Mamba2Files, WhatDoesNotFitIsNamedAllAtOnce) {
  const Oracle oracle(kHuggingFace, "two groups");
  const Folder folder(oracle);
  Safetensors file = oracle.weights(DType::f32);
  std::erase_if(file.tensors,
                [](const NamedTensor& named) { return named.name == "backbone.norm_f.weight"; });
  tensor_of(file, "backbone.layers.0.mixer.D") = Tensor::zeros({9}, DType::f32);
  file.tensors.push_back({"backbone.layers.2.norm.weight", Tensor::zeros({16}, DType::f32)});
  folder.put("model.safetensors", file);
  expect_refused(
      folder.path(), Code::corrupt_data,
      {folder.path().string(), "backbone.norm_f.weight [16] is missing",
       "backbone.layers.0.mixer.D has shape [9], wants [8]", "backbone.layers.2.norm.weight [16] is none"});
}

TEST(Mamba2Files, FoldersThatHoldNoModelAreRefused) {
  const Oracle oracle(kHuggingFace, "two groups");
  const Folder folder(oracle, false);
  expect_refused(folder.path() / "nowhere", Code::io, {"nowhere is no directory"});
  expect_refused(folder.path(), Code::io, {"holds no weights: neither model.safetensors nor"});
  folder.put("pytorch_model.bin", std::string("PK\x03\x04", 4) + std::string(60, 'x'));
  expect_refused(folder.path(), Code::corrupt_data,
                 {"pytorch_model.bin", "a PyTorch file (a zip of pickles)", "convert it",
                  "safetensors.torch.save_file"});
  folder.put("model.safetensors", std::string("no model"));
  expect_refused(folder.path(), Code::corrupt_data, {"model.safetensors", "header"});
  folder.put("model.safetensors", oracle.weights(DType::f32));
  Mamba2LoadOptions options;
  options.norm_groups = 3;
  expect_refused(folder.path(), Code::invalid_argument,
                 {"norm_groups is 3, wants 0 or a divisor of the inner dimension, 32"}, options);
  options.norm_groups = -1;
  expect_refused(folder.path(), Code::invalid_argument, {"norm_groups is -1"}, options);
  std::string config = oracle.text("config.json");
  config.replace(config.find("\"conv_kernel\": 4"), 16, "\"conv_kernel\": 17");
  folder.put("config.json", config);
  expect_refused(folder.path(), Code::unsupported, {"a convolution of 17 taps, at most 16"});
  fs::remove(folder.path() / "config.json");
  expect_refused(folder.path(), Code::io, {"holds no config.json"});
}

TEST(Mamba2Files, AnIndexMustSayWhereThingsAre) {
  const Oracle oracle(kHuggingFace, "two groups");
  const Folder folder(oracle, false);
  const Safetensors all = oracle.weights(DType::f32);
  json index = {{"metadata", {{"total_size", 1}}}, {"weight_map", json::object()}};
  Safetensors halves[2];
  for (std::size_t i = 0; i < all.tensors.size(); ++i) {
    halves[i % 2].tensors.push_back(all.tensors[i]);
    index["weight_map"][all.tensors[i].name] = i % 2 == 0 ? "even.safetensors" : "odd.safetensors";
  }
  folder.put("even.safetensors", halves[0]);
  folder.put("odd.safetensors", halves[1]);
  const auto put = [&](const json& text) { folder.put("model.safetensors.index.json", text.dump()); };
  put(index);
  const LoadedMamba2 loaded = load_mamba2(folder.path());
  EXPECT_TRUE(same_parameters(loaded.model, oracle.model(DType::f32, DType::f32).model));

  const std::string first = all.tensors[0].name;
  json wrong = index;
  wrong["weight_map"][first] = "odd.safetensors";
  put(wrong);
  expect_refused(
      folder.path(), Code::corrupt_data,
      {"does not say the same", "even.safetensors holds " + first, first + " is not in odd.safetensors"});
  for (const json& place :
       {json("../even.safetensors"), json("/etc/passwd"), json(".."), json(""), json(3)}) {
    wrong["weight_map"][first] = place;
    put(wrong);
    expect_refused(folder.path(), Code::corrupt_data, {"gives tensor " + first, "in the same directory"});
  }
  wrong["weight_map"][first] = "third.safetensors";
  put(wrong);
  expect_refused(folder.path(), Code::io, {"third.safetensors"});
  // The same tensor in both files.
  halves[1].tensors.push_back(all.tensors[0]);
  folder.put("odd.safetensors", halves[1]);
  put(index);
  expect_refused(folder.path(), Code::corrupt_data, {"odd.safetensors holds " + first});
  put(json::array());
  expect_refused(folder.path(), Code::corrupt_data, {"has no weight_map"});
  folder.put("model.safetensors.index.json", std::string("{"));
  expect_refused(folder.path(), Code::corrupt_data, {"is no JSON"});
}

}  // namespace
}  // namespace scantape::weights
