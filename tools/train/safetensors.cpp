#include "train/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "train/files.h"

namespace scantape::train {
namespace {

using nlohmann::ordered_json;

// Layout: u64 length of the header, the header (JSON, padded with blanks to 8 bytes), then the tensors' bytes.
// All numbers are little-endian, as is every machine that this project builds for.
constexpr std::size_t kPrefix = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;
constexpr const char* kMetadata = "__metadata__";

const char* format_name(DType dtype) {
  if (dtype != DType::f32 && dtype != DType::f64)
    throw Error(Code::invalid_argument,
                std::string("safetensors: a tensor is ") + scantape::name(dtype) + ", wants f32 or f64");
  return dtype == DType::f32 ? "F32" : "F64";
}

template <class T>
void append_values(std::string& bytes, const Tensor& tensor) {
  const auto values = tensor.values<T>();
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

struct Entry {
  std::string name;
  DType dtype;
  Shape shape;
  std::uint64_t begin, end;
};

/// Words every fault of a file in one way.
class Decoder {
 public:
  Decoder(const std::string& bytes, const std::string& source) : bytes_(bytes), source_(source) {}

  Safetensors run() {
    const ordered_json header = parse_header();
    Safetensors contents;
    std::vector<Entry> entries;
    for (const auto& [name, value] : header.items()) {
      if (name == kMetadata)
        contents.metadata = metadata(value);
      else
        entries.push_back(entry(name, value));
    }
    check_layout(entries);
    for (const Entry& entry : entries) contents.tensors.push_back({entry.name, tensor(entry)});
    return contents;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(Code::corrupt_data, source_ + ": " + what);
  }

  std::uint64_t data_size() const { return bytes_.size() - data_begin_; }

  ordered_json parse_header() {
    if (bytes_.size() < kPrefix) fail("has " + std::to_string(bytes_.size()) + " bytes, wants at least 8");
    std::uint64_t length = 0;
    std::memcpy(&length, bytes_.data(), kPrefix);
    if (length > kLongestHeader || length > bytes_.size() - kPrefix)
      fail("states a header of " + std::to_string(length) + " bytes in a file of " +
           std::to_string(bytes_.size()));
    data_begin_ = kPrefix + length;
    std::set<std::string> seen;
    const auto refuse_duplicates = [&](int depth, ordered_json::parse_event_t event, ordered_json& parsed) {
      if (event == ordered_json::parse_event_t::key && depth == 1 &&
          !seen.insert(parsed.get<std::string>()).second)
        fail("names tensor " + parsed.get<std::string>() + " twice");
      return true;
    };
    try {
      const auto begin = bytes_.begin() + kPrefix;
      ordered_json header =
          ordered_json::parse(begin, begin + static_cast<std::ptrdiff_t>(length), refuse_duplicates);
      if (!header.is_object()) fail("its header is not a JSON object");
      return header;
    } catch (const ordered_json::exception& error) {
      fail(std::string("its header is not JSON: ") + error.what());
    }
  }

  std::map<std::string, std::string> metadata(const ordered_json& value) const {
    std::map<std::string, std::string> result;
    if (!value.is_object()) fail("__metadata__ is not an object");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) fail("__metadata__." + key + " is not a string");
      result[key] = text.get<std::string>();
    }
    return result;
  }

  std::uint64_t number(const std::string& name, const ordered_json& value) const {
    if (!value.is_number_unsigned()) fail("tensor " + name + ": " + value.dump() + " is not a size");
    return value.get<std::uint64_t>();
  }

  Entry entry(const std::string& name, const ordered_json& value) const {
    if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") ||
        !value.contains("data_offsets"))
      fail("tensor " + name + " wants dtype, shape and data_offsets");
    Entry result{name, DType::f32, {}, 0, 0};
    if (value["dtype"] == "F64")
      result.dtype = DType::f64;
    else if (value["dtype"] != "F32")
      fail("tensor " + name + " has dtype " + value["dtype"].dump() + ", wants F32 or F64");
    if (!value["shape"].is_array() || value["shape"].size() > kMaxRank)
      fail("tensor " + name + ": its shape wants at most " + std::to_string(kMaxRank) + " sizes");
    std::uint64_t elements = 1;
    for (const ordered_json& size : value["shape"]) {
      const std::uint64_t n = number(name, size);
      if (n != 0 && elements > data_size() / n) fail("tensor " + name + " is larger than the file");
      elements *= n;
      result.shape.append(static_cast<std::int64_t>(n));
    }
    const ordered_json& offsets = value["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2)
      fail("tensor " + name + ": data_offsets wants two numbers");
    result.begin = number(name, offsets[0]);
    result.end = number(name, offsets[1]);
    if (result.begin > result.end || result.end > data_size())
      fail("tensor " + name + " lies outside the file's " + std::to_string(data_size()) + " bytes of data");
    if (result.end - result.begin != elements * static_cast<std::uint64_t>(size_of(result.dtype)))
      fail("tensor " + name + " has " + std::to_string(result.end - result.begin) + " bytes for shape " +
           scantape::name(result.shape));
    return result;
  }

  void check_layout(std::vector<Entry>& entries) const {
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) { return a.begin < b.begin; });
    std::uint64_t position = 0;
    for (const Entry& entry : entries) {
      if (entry.begin != position)
        fail("tensor " + entry.name + " begins at " + std::to_string(entry.begin) + ", wants " +
             std::to_string(position) + ": tensors may neither overlap nor leave gaps");
      position = entry.end;
    }
    if (position != data_size())
      fail("has " + std::to_string(data_size()) + " bytes of data, its tensors take " +
           std::to_string(position));
  }

  Tensor tensor(const Entry& entry) const {
    Tensor result = Tensor::empty(entry.shape, entry.dtype);
    require(copy_bytes(kCpu, result.writable().as<void>(), kCpu, bytes_.data() + data_begin_ + entry.begin,
                       static_cast<std::int64_t>(entry.end - entry.begin)));
    return result;
  }

  const std::string& bytes_;
  const std::string& source_;
  std::size_t data_begin_ = 0;
};

}  // namespace

const Tensor& Safetensors::at(const std::string& name) const {
  for (const NamedTensor& named : tensors)
    if (named.name == name) return named.tensor;
  throw Error(Code::corrupt_data, "there is no tensor " + name);
}

std::string encode_safetensors(const Safetensors& contents) {
  ordered_json header = ordered_json::object();
  if (!contents.metadata.empty()) header[kMetadata] = contents.metadata;
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : contents.tensors) {
    if (header.contains(name))
      throw Error(Code::invalid_argument, "safetensors: " + name + " is given twice");
    const auto bytes = static_cast<std::uint64_t>(tensor.elements() * size_of(tensor.dtype()));
    std::vector<std::int64_t> shape;
    for (int axis = 0; axis < tensor.shape().rank(); ++axis) shape.push_back(tensor.shape()[axis]);
    header[name] = {
        {"dtype", format_name(tensor.dtype())}, {"shape", shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + kPrefix - 1) / kPrefix * kPrefix, ' ');
  const std::uint64_t length = text.size();
  std::string bytes(reinterpret_cast<const char*>(&length), kPrefix);
  bytes += text;
  bytes.reserve(bytes.size() + offset);
  for (const NamedTensor& named : contents.tensors) {
    if (named.tensor.dtype() == DType::f32)
      append_values<float>(bytes, named.tensor);
    else
      append_values<double>(bytes, named.tensor);  // refuses other types
  }
  return bytes;
}

Safetensors decode_safetensors(const std::string& bytes, const std::string& source) {
  return Decoder(bytes, source).run();
}

void write_safetensors(const std::filesystem::path& path, const Safetensors& contents) {
  write_file(path, encode_safetensors(contents));
}

Safetensors read_safetensors(const std::filesystem::path& path) {
  return decode_safetensors(read_file(path), path.string());
}

}  // namespace scantape::train
