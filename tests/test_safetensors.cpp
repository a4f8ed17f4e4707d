// safetensors: what is written is read, and by others too; every malformed file is refused with a sentence that says what
// is wrong; nothing half written stays.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "scantape/device.h"
#include "train/files.h"
#include "weights/safetensors.h"

namespace scantape {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using train::read_file;

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

/// A folder of its own, gone at the end.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("scantape_test_safetensors_" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  fs::path operator/(const char* name) const { return path_ / name; }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

 private:
  fs::path path_;
};

Safetensors every_type() {
  Safetensors contents;
  contents.metadata["format"] = "scantape";
  const auto add = [&](const char* name, const Tensor& tensor) {
    contents.tensors.push_back({name, tensor});
  };
  add("a", Tensor::from({2, 3}, std::vector<float>{1, -2, 3.5F, 1e-38F, 0, -0.0F}));
  add("b", Tensor::from({}, std::vector<double>{1.0 / 3}));
  add("empty", Tensor::empty({0, 4}, DType::f32));
  add("half", Tensor::from({3}, std::vector<double>{1, -2, 3}).to(DType::f16));
  add("brain", Tensor::from({3}, std::vector<double>{1, -2, 3}).to(DType::bf16));
  add("ids", Tensor::from({2}, std::vector<std::int32_t>{-1, 1 << 30}));
  return contents;
}

std::string bytes_of(const Tensor& tensor) {
  const Tensor plain = tensor.clone();
  return std::string(plain.view().as<char>(),
                     static_cast<std::size_t>(plain.elements() * size_of(plain.dtype())));
}

void expect_equal(const Safetensors& got, const Safetensors& want) {
  EXPECT_EQ(got.metadata, want.metadata);
  ASSERT_EQ(got.tensors.size(), want.tensors.size());
  for (std::size_t i = 0; i < want.tensors.size(); ++i) {
    EXPECT_EQ(got.tensors[i].name, want.tensors[i].name);
    EXPECT_EQ(got.tensors[i].tensor.shape(), want.tensors[i].tensor.shape()) << want.tensors[i].name;
    EXPECT_EQ(got.tensors[i].tensor.dtype(), want.tensors[i].tensor.dtype()) << want.tensors[i].name;
    EXPECT_EQ(bytes_of(got.tensors[i].tensor), bytes_of(want.tensors[i].tensor)) << want.tensors[i].name;
  }
}

TEST(Safetensors, KeepsEveryBit) {
  const Safetensors contents = every_type();
  const std::string bytes = encode_safetensors(contents);
  EXPECT_EQ(bytes, encode_safetensors(contents));
  const Safetensors read = decode_safetensors(bytes, "here");
  expect_equal(read, contents);
  EXPECT_EQ(read.at("b").values<double>(), contents.at("b").values<double>());
  EXPECT_EQ(encode_safetensors(read), bytes);
  EXPECT_EQ(read.find("c"), nullptr);
  EXPECT_THROW((void)read.at("c"), Error);

  const Folder folder;
  write_safetensors(folder / "model", contents);
  EXPECT_EQ(read_file(folder / "model"), bytes);
  expect_equal(read_safetensors(folder / "model"), contents);
}

TEST(Safetensors, WritesTensorsOfAnyLayoutAndDevice) {
  const Tensor whole = Tensor::from({3, 4}, std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  Safetensors contents, plain;
  contents.tensors.push_back({"x", whole.slice(1, 1, 3)});
  plain.tensors.push_back({"x", Tensor::from({3, 2}, std::vector<double>{1, 2, 5, 6, 9, 10})});
  EXPECT_EQ(encode_safetensors(contents), encode_safetensors(plain));
  if (!is_available(kCuda)) return;
  contents.tensors[0].tensor = whole.to(kCuda).slice(1, 1, 3);
  EXPECT_EQ(encode_safetensors(contents), encode_safetensors(plain));
}

TEST(Safetensors, WritesNoNameTwiceAndNoReservedOne) {
  const Tensor x = Tensor::zeros({1}, DType::f32);
  const std::pair<const char*, const char*> pairs[] = {{"x", "x"}, {"__metadata__", "x"}, {"\xff", "x"}};
  for (const auto& [first, second] : pairs) {
    Safetensors contents;
    contents.tensors = {{first, x}, {second, x}};
    EXPECT_THROW((void)encode_safetensors(contents), Error) << first;
  }
  Safetensors absent;
  absent.tensors = {{"x", Tensor()}};
  EXPECT_THROW((void)encode_safetensors(absent), Error);
}

TEST(Safetensors, RefusesEachMalformation) {
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const std::string deep = R"({"a":)" + std::string(100000, '[');
  const struct {
    std::string bytes, wants;
  } cases[] = {
      {"", "0 bytes"},
      {"abc", "3 bytes"},
      {file_of("{}", 0).substr(0, 9), "states a header of 2 bytes"},
      {std::string(8, '\xff'), "states a header of 18446744073709551615 bytes"},
      {file_of("", 0), "not a JSON object"},
      {file_of("{", 0), "not JSON"},
      {file_of("{} x", 0), "not JSON"},
      {file_of(std::string("{}\0", 3), 0), "not JSON"},
      {file_of("{\"\xff\":1}", 0), "not JSON"},
      {file_of("[]", 0), "not a JSON object"},
      {file_of(" {}", 0), "not a JSON object"},
      {file_of("{" + a + "," + a + "}", 8), "names tensor a twice"},
      {file_of(R"({"__metadata__":{},"__metadata__":{}})", 0), "names tensor __metadata__ twice"},
      {file_of(R"({"__metadata__":{"x":"1","x":"2"}})", 0), "__metadata__.x twice"},
      {file_of(R"({"a":{"dtype":"F32","dtype":"F64","shape":[1],"data_offsets":[0,4]}})", 4), "dtype twice"},
      {file_of("{" + a + "}", 7), "tensor a is larger than the file"},
      {file_of("{" + a + "}", 9), "9 bytes of data, its tensors take 8"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 8),
       "outside the file's 8 bytes"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]}})", 8), "outside"},
      {file_of(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 12), "8 bytes for shape [3]"},
      {file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 8), "8 bytes for shape [1]"},
      {file_of(R"({"a":{"dtype":"F64","shape":[2],"data_offsets":[0,8]}})", 16), "shape [2] of f64"},
      {file_of(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,8]}})", 8), "8 bytes for shape [0]"},
      {file_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})", 8), "larger"},
      {file_of(R"({"a":{"dtype":"F32","shape":[0,18446744073709551615],"data_offsets":[0,0]}})", 0),
       "larger"},
      {file_of(R"({"a":{"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})", 0),
       "larger"},
      {file_of(R"({"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", 8),
       "I64, wants F64, F32, BF16, F16 or I32"},
      {file_of(R"({"a":{"dtype":"f32","shape":[2],"data_offsets":[0,8]}})", 8), "has dtype f32"},
      {file_of(R"({"a":{"dtype":32,"shape":[2],"data_offsets":[0,8]}})", 8), "has dtype 32"},
      {file_of(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8), "-2 is not a size"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8), "2.0 is not a size"},
      {file_of(R"({"a":{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,8]}})", 8),
       "not a size"},
      {file_of(R"({"a":{"dtype":"F32","shape":["2"],"data_offsets":[0,8]}})", 8), "a string is not a size"},
      {file_of(R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", 8), "its shape is no list"},
      {file_of(R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,2],"data_offsets":[0,8]}})", 8), "at most 6"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8), "outside"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8), "wants two numbers"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})", 8), "wants two numbers"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":8}})", 8), "wants two numbers"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2]}})", 8), "wants dtype, shape and data_offsets"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8), "unknown field x"},
      {file_of(R"({"a":null})", 0), "wants dtype, shape and data_offsets"},
      {file_of("{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8),
       "tensor b begins at 4, wants 8"},
      {file_of("{" + a + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 16), "overlap"},
      {file_of("{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}})", 16), "gaps"},
      {file_of(R"({"__metadata__":{"x":1}})", 0), "__metadata__.x is not a string"},
      {file_of(R"({"__metadata__":[]})", 0), "__metadata__ is not an object"},
      {file_of(deep, 0), "wants dtype, shape and data_offsets"},
  };
  for (const auto& [bytes, wants] : cases) {
    const std::string message = refusal(bytes);
    EXPECT_NE(message.find(wants), std::string::npos) << "wanted '" << wants << "' in: " << message;
    EXPECT_EQ(message.rfind("model.safetensors: ", 0), 0U) << message;
  }
}

TEST(Safetensors, RefusesAHeaderBeyondItsLimit) {
  // Just inside the file: only the limit is in the way.
  std::string bytes = file_of("{}" + std::string(99'999'998, ' '), 0);
  EXPECT_TRUE(decode_safetensors(bytes, "here").tensors.empty());
  bytes = file_of("{}" + std::string(99'999'999, ' '), 0);
  EXPECT_NE(refusal(bytes).find("states a header of 100000001 bytes"), std::string::npos);
}

TEST(Safetensors, TakesEmptyTensorsInAnyOrder) {
  const std::string bytes = file_of(R"({"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                    R"("a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
                                    R"("c":{"dtype":"F64","shape":[3,0],"data_offsets":[4,4]}})",
                                    4);
  const Safetensors read = decode_safetensors(bytes, "here");
  ASSERT_EQ(read.tensors.size(), 3U);
  EXPECT_EQ(read.at("c").shape(), (Shape{3, 0}));
}

TEST(Safetensors, RefusesPyTorchFilesAndSaysHowToConvert) {
  const std::string zip("PK\x03\x04\x00\x00\x08\x08\x00\x00\x00\x00", 12);
  const std::string pickle("\x80\x02\x8a\nl\xfc\x9c\x46\xf9\x20\x6a\xa8", 12);
  for (const auto& [bytes, what] : {std::pair(zip, "a zip of pickles"), std::pair(pickle, "a pickle")}) {
    const std::string message = refusal(bytes);
    EXPECT_NE(message.find(std::string("is a PyTorch file (") + what), std::string::npos) << message;
    EXPECT_NE(message.find("convert it"), std::string::npos) << message;
    EXPECT_NE(message.find("safetensors.torch.save_file"), std::string::npos) << message;
  }
  // A header's length may begin with the same byte.
  const std::string header = "{}" + std::string(0x280 - 2, ' ');
  EXPECT_TRUE(decode_safetensors(file_of(header, 0), "here").tensors.empty());
}

TEST(Safetensors, LiesOverTheFileAndNeverChangesIt) {
  const Folder folder;
  const fs::path path = folder / "model";
  write_safetensors(path, every_type());
  const std::string bytes = read_file(path);
  Tensor kept;
  {
    Safetensors read = read_safetensors(path), again = read_safetensors(path);
    const char* const a = read.at("a").view().as<char>();
    const char* const b = read.at("b").view().as<char>();
    EXPECT_EQ(b - a, 24) << "a tensor was copied";
    read.tensors[0].tensor.mutable_data<float>()[0] = 42;
    EXPECT_EQ(again.at("a").values<float>()[0], 1);
    kept = read.at("a");
  }
  EXPECT_EQ(read_file(path), bytes);
  // The mapping lives as long as a tensor does, whatever becomes of the name.
  write_safetensors(path, {});
  EXPECT_EQ(kept.values<float>()[0], 42);
  EXPECT_EQ(kept.values<float>()[2], 3.5F);
  // What lies over a file may be written to that file.
  write_safetensors(path, every_type());
  write_safetensors(path, read_safetensors(path));
  EXPECT_EQ(read_file(path), bytes);
}

TEST(Safetensors, CopiesOnlyWhatIsNotAligned) {
  const Folder folder;
  // Halves of odd number before floats, and a header that was not padded.
  const std::string header = R"({"h":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},)"
                             R"("f":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})";
  std::string bytes = file_of(header, 0);
  const float value = 1.5F;
  bytes += std::string("\x00\x3c", 2) + std::string(reinterpret_cast<const char*>(&value), 4);
  train::write_file(folder / "odd", bytes);
  const Safetensors read = read_safetensors(folder / "odd");
  EXPECT_EQ(static_cast<float>(read.at("h").values<Float16>()[0]), 1);
  EXPECT_EQ(read.at("f").values<float>()[0], 1.5F);
}

TEST(Safetensors, ReadingNamesTheFile) {
  const Folder folder;
  const auto message_of = [](const fs::path& path, Code code) {
    try {
      (void)read_safetensors(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      return std::string(error.what());
    }
    return std::string("nothing was refused");
  };
  EXPECT_NE(message_of(folder / "absent", Code::io).find("absent failed: No such file"), std::string::npos);
  EXPECT_NE(message_of(folder / ".", Code::io).find("Is a directory"), std::string::npos);
  EXPECT_NE(message_of("/dev/zero", Code::io).find("/dev/zero"), std::string::npos);
  train::write_file(folder / "empty", "");
  EXPECT_NE(message_of(folder / "empty", Code::corrupt_data).find("empty: has 0 bytes"), std::string::npos);
  std::string bytes = encode_safetensors(every_type());
  for (const std::size_t length : {std::size_t{9}, bytes.size() / 2, bytes.size() - 1}) {
    train::write_file(folder / "cut", bytes.substr(0, length));
    EXPECT_NE(message_of(folder / "cut", Code::corrupt_data).find("cut: "), std::string::npos);
  }
}

TEST(Safetensors, AFailedWriteLeavesTheEarlierFileWhole) {
  const Folder folder;
  write_safetensors(folder / "model", every_type());
  const std::string bytes = read_file(folder / "model");
  Safetensors wrong = every_type();
  wrong.tensors.push_back(wrong.tensors[0]);
  EXPECT_THROW(write_safetensors(folder / "model", wrong), Error);
  EXPECT_EQ(read_file(folder / "model"), bytes);
  EXPECT_EQ(folder.files(), 1U);
}

// ---- the safetensors package

std::string from_hex(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  return bytes;
}

DType dtype_of_package(const std::string& name) {
  const std::pair<const char*, DType> types[] = {{"float64", DType::f64},
                                                 {"float32", DType::f32},
                                                 {"bfloat16", DType::bf16},
                                                 {"float16", DType::f16},
                                                 {"int32", DType::i32}};
  for (const auto& [known, dtype] : types)
    if (name == known) return dtype;
  throw Error(Code::corrupt_data, "fixture of dtype " + name);
}

TEST(Safetensors, ReadsWhatThePackageWrote) {
  std::ifstream file(std::string(SCANTAPE_TEST_SOURCE_DIR) + "/oracle/fixtures/safetensors.json");
  const json document = json::parse(file);
  ASSERT_EQ(document.at("cases").size(), 5U);
  for (const json& one : document["cases"]) {
    SCOPED_TRACE(one.at("name").get<std::string>());
    const Safetensors read = decode_safetensors(from_hex(one.at("hex")), "fixture");
    EXPECT_EQ(read.metadata, (one.at("metadata").get<std::map<std::string, std::string>>()));
    ASSERT_EQ(read.tensors.size(), one.at("tensors").size());
    for (const auto& [name, want] : one["tensors"].items()) {
      const Tensor& got = read.at(name);
      Shape shape;
      for (const json& size : want.at("shape")) shape.append(size.get<std::int64_t>());
      EXPECT_EQ(got.shape(), shape) << name;
      EXPECT_EQ(got.dtype(), dtype_of_package(want.at("dtype"))) << name;
      EXPECT_EQ(got.to(DType::f64).values<double>(), want.at("values").get<std::vector<double>>()) << name;
    }
  }
}

/// SCANTAPE_SAFETENSORS_PYTHON names a Python with the packages safetensors and numpy.
TEST(Safetensors, IsReadByThePackage) {
  const char* const python = std::getenv("SCANTAPE_SAFETENSORS_PYTHON");
  if (python == nullptr)
    GTEST_SKIP() << "SCANTAPE_SAFETENSORS_PYTHON names no Python with the package safetensors";
  const Folder folder;
  Safetensors contents = every_type();
  write_safetensors(folder / "model", contents);
  const std::string command = std::string(python) + " " + SCANTAPE_TEST_SOURCE_DIR +
                              "/oracle/make_safetensors.py --read " + (folder / "model").string();
  FILE* const pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string text;
  std::array<char, 4096> part;
  while (std::fgets(part.data(), static_cast<int>(part.size()), pipe) != nullptr) text += part.data();
  EXPECT_EQ(::pclose(pipe), 0);
  EXPECT_EQ(text,
            "a F32 2x3 0000803f000000c000006040eee36c0000000000000000"
            "80\n"
            "b F64  555555555555d53f\n"
            "brain BF16 3 803f00c04040\n"
            "empty F32 0x4 \n"
            "half F16 3 003c00c00042\n"
            "ids I32 2 ffffffff00000040\n");
}

}  // namespace

namespace train {
namespace {

TEST(Files, AFailedWriteLeavesTheEarlierFileWhole) {
  const auto directory = std::filesystem::temp_directory_path() / "scantape_test_files";
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  const auto path = directory / "model";
  write_file(path, "first");
  write_file(path, "second");
  EXPECT_EQ(read_file(path), "second");
  // Pieces, and one that does not come.
  write_file(path, [](const Take& take) {
    take("sec");
    take("ond");
  });
  EXPECT_EQ(read_file(path), "second");
  EXPECT_THROW(write_file(path,
                          [](const Take& take) {
                            take("third");
                            throw Error(Code::io, "no more");
                          }),
               Error);
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
}  // namespace train
}  // namespace scantape
