// Public Mamba-2 models: both kinds of config.json, the tensors that belong to one, and everything wrong in one message.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "weights/mamba2.h"

namespace scantape::weights {
namespace {

// A small model, with the keys and the Infinity that transformers writes.
const char* const kHuggingFace = R"({
  "architectures": ["Mamba2ForCausalLM"], "bos_token_id": 0, "chunk_size": 32, "conv_kernel": 4, "expand": 2,
  "head_dim": 8, "hidden_act": "silu", "hidden_size": 12, "layer_norm_epsilon": 1e-06, "model_type": "mamba2",
  "n_groups": 3, "num_heads": 3, "num_hidden_layers": 2, "rms_norm": true, "residual_in_fp32": false,
  "state_size": 5, "tie_word_embeddings": false, "time_step_limit": [0.25, Infinity], "time_step_max": 0.1,
  "torch_dtype": "float32", "use_bias": false, "use_conv_bias": true, "vocab_size": 33, "note": "an \"Infinity\" \\"
})";

const char* const kStateSpaces = R"({
  "d_model": 768, "d_intermediate": 0, "n_layer": 24, "vocab_size": 50277, "ssm_cfg": {"layer": "Mamba2"},
  "attn_layer_idx": [], "attn_cfg": {}, "rms_norm": true, "residual_in_fp32": true, "fused_add_norm": true,
  "pad_vocab_size_multiple": 16, "tie_embeddings": true
})";

std::string replaced(std::string text, const std::string& old, const std::string& with) {
  const std::size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return text.replace(at, old.size(), with);
}

std::string refusal(const std::string& text, Code code = Code::corrupt_data) {
  try {
    (void)parse_mamba2_config(text, "config.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_EQ(std::string(error.what()).rfind("config.json", 0), 0U) << error.what();
    return error.what();
  }
  return "nothing was refused";
}

void expect_in(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << "wanted '" << part << "' in: " << message;
}

TEST(Mamba2Config, OfTransformers) {
  const Mamba2Config config = parse_mamba2_config(kHuggingFace, "config.json");
  EXPECT_EQ(config.source, Mamba2Source::hugging_face);
  EXPECT_EQ(config.vocabulary, 33);
  EXPECT_EQ(config.hidden_dim, 12);
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.inner_dim(), 24);
  EXPECT_EQ(config.heads(), 3);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.groups, 3);
  EXPECT_EQ(config.norm_groups, 1);  // all channels together, whatever the groups are
  EXPECT_EQ(config.state_dim, 5);
  EXPECT_EQ(config.conv_width, 4);
  EXPECT_EQ(config.chunk_length, 32);
  EXPECT_EQ(config.conv_dim(), 24 + 2 * 3 * 5);
  EXPECT_EQ(config.projected_dim(), 2 * 24 + 2 * 3 * 5 + 3);
  EXPECT_EQ(config.dt_min, 0.25);
  EXPECT_EQ(config.dt_max, HUGE_VAL);
  EXPECT_EQ(config.eps, 1e-6);
  EXPECT_FALSE(config.residual_in_f32);
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_FALSE(config.norm_before_gate);
  // A key that transformers does not look at.
  EXPECT_FALSE(parse_mamba2_config(
                   replaced(kHuggingFace, R"("rms_norm")", R"("norm_before_gate": true, "rms_norm")"), "x")
                   .norm_before_gate);
  // Later versions write it as JSON has it.
  const auto later =
      parse_mamba2_config(replaced(kHuggingFace, "Infinity]", R"({"__float__": "Infinity"}])"), "x");
  EXPECT_EQ(later.dt_max, HUGE_VAL);
  EXPECT_EQ(parse_mamba2_config(replaced(kHuggingFace, "Infinity]", "0.5]"), "x").dt_max, 0.5);
}

TEST(Mamba2Config, OfStateSpaces) {
  const Mamba2Config config = parse_mamba2_config(kStateSpaces, "config.json");
  EXPECT_EQ(config.source, Mamba2Source::state_spaces);
  EXPECT_EQ(config.vocabulary, 50288);
  EXPECT_EQ(config.hidden_dim, 768);
  EXPECT_EQ(config.num_layers, 24);
  EXPECT_EQ(config.inner_dim(), 1536);
  EXPECT_EQ(config.heads(), 24);
  EXPECT_EQ(config.state_dim, 128);
  EXPECT_EQ(config.groups, 1);
  EXPECT_EQ(config.conv_width, 4);
  EXPECT_EQ(config.chunk_length, 256);
  EXPECT_EQ(config.dt_min, 0);
  EXPECT_EQ(config.dt_max, HUGE_VAL);
  EXPECT_TRUE(config.tied_embeddings);
  const auto grouped =
      parse_mamba2_config(replaced(kStateSpaces, R"("layer": "Mamba2")",
                                   R"("layer": "Mamba2", "ngroups": 8, "dt_limit": [0, 0.2])"),
                          "x");
  EXPECT_EQ(grouped.groups, 8);
  EXPECT_EQ(grouped.norm_groups, 8);
  EXPECT_EQ(grouped.dt_max, 0.2);
  // A vocabulary that is a multiple already is not padded.
  EXPECT_EQ(parse_mamba2_config(replaced(kStateSpaces, "50277", "50288"), "x").vocabulary, 50288);
}

TEST(Mamba2Config, NamesAllThatIsWrongAtOnce) {
  std::string text = replaced(kHuggingFace, R"("state_size": 5,)", "");
  text = replaced(text, R"("expand": 2)", R"("expand": -1)");
  text = replaced(text, R"("conv_kernel": 4)", R"("conv_kernel": 4.5)");
  text = replaced(text, R"("tie_word_embeddings": false)", R"("tie_word_embeddings": 0)");
  expect_in(refusal(text), {"state_size is missing", "expand is -1, wants a size", "conv_kernel is 4.5",
                            "tie_word_embeddings is 0, wants true or false"});
  expect_in(refusal(replaced(kHuggingFace, R"("num_heads": 3)", R"("num_heads": 4)")),
            {"num_heads 4 times head_dim 8"});
  expect_in(refusal(replaced(kHuggingFace, R"("n_groups": 3)", R"("n_groups": 2)")),
            {"2 groups do not divide 3 heads"});
  expect_in(refusal(replaced(kHuggingFace, "[0.25, Infinity]", "[Infinity, 1]")), {"time_step_limit"});
  expect_in(refusal(replaced(kHuggingFace, "[0.25, Infinity]", "[NaN, 1]")),
            {"time_step_limit holds \"NaN\""});
  expect_in(refusal(replaced(kHuggingFace, "1e-06", "0")), {"epsilon"});
  expect_in(refusal(replaced(kHuggingFace, R"("hidden_size": 12)", R"("hidden_size": 99999999999)")),
            {"hidden_size"});
  expect_in(refusal("{"), {"is no JSON"});
  expect_in(refusal("[1]"), {"is no JSON object"});
  expect_in(refusal("{}"), {"neither hidden_size"});
}

TEST(Mamba2Config, RefusesWhatIsComputedInAnotherWay) {
  const std::pair<const char*, const char*> of_transformers[] = {
      {R"("model_type": "mamba2")", R"("model_type": "mamba")"},
      {R"("hidden_act": "silu")", R"("hidden_act": "gelu")"},
      {R"("use_bias": false)", R"("use_bias": true)"},
      {R"("use_conv_bias": true)", R"("use_conv_bias": false)"},
      {R"("rms_norm": true)", R"("rms_norm": false)"}};
  for (const auto& [old, with] : of_transformers)
    expect_in(refusal(replaced(kHuggingFace, old, with), Code::unsupported), {"is supported"});
  expect_in(refusal(replaced(kStateSpaces, R"({"layer": "Mamba2"})", "{}"), Code::unsupported), {"Mamba1"});
  expect_in(refusal(replaced(kStateSpaces, R"("attn_layer_idx": [])", R"("attn_layer_idx": [9])"),
                    Code::unsupported),
            {"attn_layer_idx is [9]"});
  for (const char* option :
       {R"("d_ssm": 512)", R"("D_has_hdim": true)", R"("rmsnorm": false)", R"("bias": true)"})
    (void)refusal(replaced(kStateSpaces, R"({"layer")", std::string("{") + option + R"(, "layer")"),
                  Code::unsupported);
}

Safetensors file_of(const std::vector<WantedTensor>& wanted) {
  Safetensors file;
  for (const WantedTensor& want : wanted)
    file.tensors.push_back({want.name, Tensor::zeros(want.shape, DType::bf16)});
  return file;
}

void rename(Safetensors& file, const std::string& old, const std::string& with) {
  for (NamedTensor& named : file.tensors)
    if (named.name == old) named.name = with;
}

TEST(Mamba2Tensors, AreThoseOfTheFormat) {
  const auto wanted = mamba2_tensors(parse_mamba2_config(kHuggingFace, "x"));
  ASSERT_EQ(wanted.size(), 1U + 2 * 9 + 2);
  EXPECT_EQ(wanted[0].name, "backbone.embeddings.weight");
  EXPECT_EQ(wanted[0].shape, (Shape{33, 12}));
  EXPECT_EQ(wanted[11].name, "backbone.layers.1.mixer.in_proj.weight");
  EXPECT_EQ(wanted[11].shape, (Shape{81, 12}));
  EXPECT_EQ(wanted[12].name, "backbone.layers.1.mixer.conv1d.weight");
  EXPECT_EQ(wanted[12].shape, (Shape{54, 1, 4}));
  EXPECT_EQ(wanted[20].name, "lm_head.weight");
  EXPECT_FALSE(wanted[20].optional);
  std::int64_t parameters = 0;
  for (const WantedTensor& want : mamba2_tensors(parse_mamba2_config(kStateSpaces, "x")))
    if (!want.optional) parameters += want.shape.elements();
  EXPECT_EQ(parameters, 128'989'632);  // mamba2-130m
}

TEST(Mamba2Tensors, AreMatchedByEitherName) {
  const auto wanted = mamba2_tensors(parse_mamba2_config(kHuggingFace, "x"));
  Safetensors file = file_of(wanted);
  std::reverse(file.tensors.begin(), file.tensors.end());
  const auto found = match_tensors(file, wanted, "model");
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], file.find(wanted[i].name));
  rename(file, "backbone.embeddings.weight", "backbone.embedding.weight");
  EXPECT_EQ(match_tensors(file, wanted, "model")[0], file.find("backbone.embedding.weight"));
}

TEST(Mamba2Tensors, TiedOnesNeedNoHead) {
  auto config = parse_mamba2_config(kHuggingFace, "x");
  Safetensors file = file_of(mamba2_tensors(config));
  config.tied_embeddings = true;
  EXPECT_NE(match_tensors(file, mamba2_tensors(config), "model").back(), nullptr);
  file.tensors.pop_back();
  EXPECT_EQ(match_tensors(file, mamba2_tensors(config), "model").back(), nullptr);
}

TEST(Mamba2Tensors, AllThatIsWrongIsInOneMessage) {
  const auto wanted = mamba2_tensors(parse_mamba2_config(kHuggingFace, "x"));
  Safetensors file = file_of(wanted);
  rename(file, "backbone.layers.0.mixer.D", "backbone.layers.0.mixer.E");
  rename(file, "lm_head.weight", "backbone.embedding.weight");  // beside the other name it is one too many
  for (NamedTensor& named : file.tensors) {
    if (named.name == "backbone.norm_f.weight") named.tensor = Tensor::zeros({13}, DType::f32);
    if (named.name == "backbone.layers.1.mixer.A_log") named.tensor = Tensor::zeros({3}, DType::i32);
  }
  try {
    (void)match_tensors(file, wanted, "model.safetensors");
    FAIL() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::corrupt_data);
    expect_in(error.what(),
              {"model.safetensors; ", "backbone.layers.0.mixer.D [3] is missing",
               "lm_head.weight [33, 12] is missing", "backbone.norm_f.weight has shape [13], wants [12]",
               "backbone.layers.1.mixer.A_log is i32", "backbone.layers.0.mixer.E [3] is none of the model's",
               "backbone.embedding.weight [33, 12] is none of the model's"});
  }
}

}  // namespace
}  // namespace scantape::weights
