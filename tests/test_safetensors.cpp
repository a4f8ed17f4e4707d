// safetensors: what is written is read; every malformed file is refused with a sentence that says what is wrong.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "train/files.h"
#include "train/safetensors.h"

namespace scantape::train {
namespace {

std::string file_of(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  return bytes + header + std::string(data_bytes, '\0');
}

std::string refusal(const std::string& bytes) {
  try {
    (void)decode_safetensors(bytes, "model.safetensors");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::corrupt_data);
    return error.what();
  }
  return "nothing was refused";
}

TEST(Safetensors, KeepsEveryBit) {
  Safetensors contents;
  contents.metadata["format"] = "scantape";
  contents.tensors.push_back({"a", Tensor::from({2, 3}, std::vector<float>{1, -2, 3.5F, 1e-38F, 0, -0.0F})});
  contents.tensors.push_back({"b", Tensor::from({}, std::vector<double>{1.0 / 3})});
  contents.tensors.push_back({"empty", Tensor::empty({0, 4}, DType::f32)});
  const std::string bytes = encode_safetensors(contents);
  EXPECT_EQ(bytes, encode_safetensors(contents));
  const Safetensors read = decode_safetensors(bytes, "here");
  EXPECT_EQ(read.metadata, contents.metadata);
  ASSERT_EQ(read.tensors.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read.tensors[i].name, contents.tensors[i].name);
    EXPECT_EQ(read.tensors[i].tensor.shape(), contents.tensors[i].tensor.shape());
  }
  EXPECT_EQ(read.at("b").values<double>(), contents.at("b").values<double>());
  EXPECT_EQ(encode_safetensors(read), bytes);
  EXPECT_THROW((void)read.at("c"), Error);
}

TEST(Safetensors, RefusesEachMalformation) {
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const struct {
    std::string bytes, wants;
  } cases[] = {
      {"abc", "3 bytes"},
      {file_of("{}", 0).substr(0, 9), "states a header of 2 bytes"},
      {std::string(8, '\xff'), "states a header of 18446744073709551615 bytes"},
      {file_of("{", 0), "not JSON"},
      {file_of("[]", 0), "not a JSON object"},
      {file_of("{" + a + "," + a + "}", 8), "twice"},
      {file_of("{" + a + "}", 7), "outside the file's 7 bytes"},
      {file_of("{" + a + "}", 9), "9 bytes of data, its tensors take 8"},
      {file_of(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8), "8 bytes for shape [3]"},
      {file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 8), "8 bytes for shape [1]"},
      {file_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", 8), "larger"},
      {file_of(R"({"a":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]}})", 8), "wants F32 or F64"},
      {file_of(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8), "is not a size"},
      {file_of(R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,2],"data_offsets":[0,8]}})", 8), "at most 6"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8), "outside"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2]}})", 8), "wants dtype, shape and data_offsets"},
      {file_of("{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8), "overlap"},
      {file_of("{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}})", 16), "gaps"},
      {file_of(R"({"__metadata__":{"x":1}})", 0), "__metadata__.x is not a string"},
  };
  for (const auto& [bytes, wants] : cases) {
    const std::string message = refusal(bytes);
    EXPECT_NE(message.find(wants), std::string::npos) << "wanted '" << wants << "' in: " << message;
    EXPECT_EQ(message.rfind("model.safetensors: ", 0), 0U) << message;
  }
}

TEST(Files, AFailedWriteLeavesTheEarlierFileWhole) {
  const auto directory = std::filesystem::temp_directory_path() / "scantape_test_files";
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  const auto path = directory / "model";
  write_file(path, "first");
  write_file(path, "second");
  EXPECT_EQ(read_file(path), "second");
  // /dev/full takes no byte: the error says why, and nothing half written stays.
  try {
    write_file("/dev/full/model", "x");
    FAIL() << "a file was written below a device";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::io);
  }
  EXPECT_THROW(append_line("/dev/full", "x"), Error);
  EXPECT_THROW((void)read_file(directory / "absent"), Error);
  for (const auto& entry : std::filesystem::directory_iterator(directory)) EXPECT_EQ(entry.path(), path);
  replace_link(directory / "last", "model");
  replace_link(directory / "last", "model");
  EXPECT_EQ(read_file(directory / "last"), "second");
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace scantape::train
