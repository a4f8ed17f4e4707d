#include "weights/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "train/files.h"

namespace scantape {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// Layout: u64 length of the header, the header (JSON, padded with blanks to 8 bytes), then the tensors' bytes.
// All numbers are little-endian, as is every machine that this project builds for.
constexpr std::size_t kPrefix = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;
constexpr const char* kMetadata = "__metadata__";
constexpr const char* kKnownTypes = "F64, F32, BF16, F16 or I32";

const char* format_name(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "F64";
    case DType::f32:
      return "F32";
    case DType::bf16:
      return "BF16";
    case DType::f16:
      return "F16";
    case DType::i32:
      return "I32";
  }
  throw Error(Code::invalid_argument, "safetensors: a tensor of an unknown dtype");
}

std::optional<DType> dtype_of_name(std::string_view name) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i32})
    if (name == format_name(dtype)) return dtype;
  return {};
}

/// One tensor as the header states it.
struct Entry {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::uint64_t> sizes, offsets;
  Shape shape{};  // of `sizes`, once they are checked

  std::uint64_t begin() const { return offsets[0]; }
  std::uint64_t end() const { return offsets[1]; }
};

[[noreturn]] void refuse(const std::string& source, const std::string& what) {
  throw Error(Code::corrupt_data, source + ": " + what);
}

/// Takes the header from nlohmann's parser event by event. Nothing is kept but what a header may hold, so no header makes
/// it hold more than a few times its own length.
class HeaderEvents {
 public:
  HeaderEvents(const std::string& source, std::vector<Entry>& entries,
               std::map<std::string, std::string>& metadata)
      : source_(source), entries_(entries), metadata_(metadata) {}

  bool null() { return unexpected("null"); }
  bool boolean(bool value) { return unexpected(value ? "true" : "false"); }
  bool number_integer(std::int64_t value) { return unexpected(std::to_string(value)); }
  bool number_float(double, const std::string& text) { return unexpected(text); }
  bool binary(ordered_json::binary_t&) { return unexpected("binary"); }

  bool number_unsigned(std::uint64_t value) {
    if (at_ != At::shape && at_ != At::offsets) return unexpected(std::to_string(value));
    std::vector<std::uint64_t>& numbers = at_ == At::shape ? entry().sizes : entry().offsets;
    if (at_ == At::shape && numbers.size() == kMaxRank)
      fail(tensor() + ": its shape wants at most " + std::to_string(kMaxRank) + " sizes");
    if (at_ == At::offsets && numbers.size() == 2) fail(tensor() + ": data_offsets wants two numbers");
    numbers.push_back(value);
    return true;
  }

  bool string(std::string& value) {
    if (at_ == At::text) {
      metadata_[key_] = value;
      at_ = At::metadata;
    } else if (at_ == At::dtype) {
      const std::optional<DType> dtype = dtype_of_name(value);
      if (!dtype) fail(tensor() + " has dtype " + value + ", wants " + kKnownTypes);
      entry().dtype = *dtype;
      at_ = At::fields;
    } else {
      return unexpected("a string");
    }
    return true;
  }

  bool start_object(std::size_t) {
    if (at_ == At::start)
      at_ = At::names;
    else if (at_ == At::metadata_value)
      at_ = At::metadata;
    else if (at_ == At::tensor_value)
      at_ = At::fields;
    else
      return unexpected("an object");
    return true;
  }

  bool key(std::string& value) {
    if (at_ == At::names) {
      if (!names_.insert(value).second) fail("names tensor " + value + " twice");
      at_ = value == kMetadata ? At::metadata_value : At::tensor_value;
      if (at_ == At::tensor_value) entries_.push_back({.name = value, .sizes = {}, .offsets = {}});
      fields_ = {};
    } else if (at_ == At::metadata) {
      key_ = value;
      if (metadata_.count(value) != 0) fail("names __metadata__." + value + " twice");
      at_ = At::text;
    } else {
      if (!fields_.insert(value).second) fail(tensor() + " has its " + value + " twice");
      if (value == "dtype")
        at_ = At::dtype;
      else if (value == "shape")
        at_ = At::shape_value;
      else if (value == "data_offsets")
        at_ = At::offsets_value;
      else
        fail(tensor() + " has the unknown field " + value + ", wants dtype, shape and data_offsets");
    }
    return true;
  }

  bool end_object() {
    if (at_ == At::fields && fields_.size() != 3) fail(tensor() + " wants dtype, shape and data_offsets");
    at_ = at_ == At::names ? At::end : At::names;
    return true;
  }

  bool start_array(std::size_t) {
    if (at_ == At::shape_value)
      at_ = At::shape;
    else if (at_ == At::offsets_value)
      at_ = At::offsets;
    else
      return unexpected("a list");
    return true;
  }

  bool end_array() {
    if (at_ == At::offsets && entry().offsets.size() != 2)
      fail(tensor() + ": data_offsets wants two numbers");
    at_ = At::fields;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) {
    fail(std::string("its header is not JSON: ") + error.what());
  }

 private:
  /// What comes next.
  enum class At {
    start,
    names,
    metadata_value,
    metadata,
    text,
    tensor_value,
    fields,
    dtype,
    shape_value,
    shape,
    offsets_value,
    offsets,
    end
  };

  [[noreturn]] void fail(const std::string& what) const { refuse(source_, what); }
  Entry& entry() const { return entries_.back(); }
  std::string tensor() const { return "tensor " + entry().name; }

  bool unexpected(const std::string& what) const {
    switch (at_) {
      case At::metadata_value:
        fail("__metadata__ is not an object");
      case At::text:
        fail("__metadata__." + key_ + " is not a string");
      case At::tensor_value:
        fail(tensor() + " wants dtype, shape and data_offsets");
      case At::dtype:
        fail(tensor() + " has dtype " + what + ", wants " + kKnownTypes);
      case At::shape_value:
        fail(tensor() + ": its shape is no list of sizes");
      case At::offsets_value:
        fail(tensor() + ": data_offsets wants two numbers");
      case At::shape:
      case At::offsets:
        fail(tensor() + ": " + what + " is not a size");
      default:
        fail("its header is not a JSON object");
    }
  }

  const std::string& source_;
  std::vector<Entry>& entries_;
  std::map<std::string, std::string>& metadata_;
  At at_ = At::start;
  std::set<std::string> names_, fields_;
  std::string key_;
};

/// Checks a whole file. Words every fault in one way.
class Decoder {
 public:
  Decoder(std::string_view bytes, const std::string& source) : bytes_(bytes), source_(source) { run(); }

  /// In the order of their bytes.
  const std::vector<Entry>& entries() const { return entries_; }
  std::map<std::string, std::string> metadata() { return std::move(metadata_); }
  const char* bytes_of(const Entry& entry) const { return bytes_.data() + data_begin_ + entry.begin(); }

 private:
  [[noreturn]] void fail(const std::string& what) const { refuse(source_, what); }

  void run() {
    const std::string_view header = header_text();
    HeaderEvents events(source_, entries_, metadata_);
    ordered_json::sax_parse(header.begin(), header.end(), &events);
    for (Entry& entry : entries_) check(entry);
    check_layout();
  }

  std::uint64_t data_size() const { return bytes_.size() - data_begin_; }

  /// torch.save writes a zip of pickles, or one pickle: neither has a header of a length that fits.
  void refuse_pytorch() const {
    const bool zip = bytes_.substr(0, 4) == std::string_view("PK\x03\x04", 4);
    const bool pickle = bytes_.size() > 1 && bytes_[0] == '\x80' && bytes_[1] >= 2 && bytes_[1] <= 5;
    if (!zip && !pickle) return;
    fail(std::string("is a PyTorch file (") + (zip ? "a zip of pickles" : "a pickle") +
         "), which can run code in whoever reads it; convert it where PyTorch is: python3 -c \"import torch, "
         "safetensors.torch; safetensors.torch.save_file({name: tensor.clone().contiguous() for name, tensor "
         "in "
         "torch.load('pytorch_model.bin', map_location='cpu', weights_only=True).items()}, "
         "'model.safetensors')\"");
  }

  std::string_view header_text() {
    if (bytes_.size() < kPrefix) fail("has " + std::to_string(bytes_.size()) + " bytes, wants at least 8");
    std::uint64_t length = 0;
    std::memcpy(&length, bytes_.data(), kPrefix);
    if (length > kLongestHeader || length > bytes_.size() - kPrefix) {
      refuse_pytorch();
      fail("states a header of " + std::to_string(length) + " bytes in a file of " +
           std::to_string(bytes_.size()) + ", wants one inside the file and of at most " +
           std::to_string(kLongestHeader));
    }
    data_begin_ = kPrefix + length;
    const std::string_view header = bytes_.substr(kPrefix, length);
    if (header.empty() || header[0] != '{') fail("its header is not a JSON object");
    // The parser would take it for the end.
    if (header.find('\0') != std::string_view::npos) fail("its header is not JSON: it holds a zero byte");
    return header;
  }

  void check(Entry& entry) const {
    const std::string tensor = "tensor " + entry.name;
    // Sizes are multiplied without the zeros among them, so that each of them fits on its own.
    std::int64_t bytes = size_of(entry.dtype);
    bool empty = false, fits = true;
    for (const std::uint64_t size : entry.sizes) {
      empty = empty || size == 0;
      fits = fits && size <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) &&
             (size == 0 || !__builtin_mul_overflow(bytes, static_cast<std::int64_t>(size), &bytes));
      if (fits) entry.shape.append(static_cast<std::int64_t>(size));
    }
    if (!fits || (!empty && static_cast<std::uint64_t>(bytes) > data_size()))
      fail(tensor + " is larger than the file");
    if (entry.begin() > entry.end() || entry.end() > data_size())
      fail(tensor + " lies outside the file's " + std::to_string(data_size()) + " bytes of data");
    if (entry.end() - entry.begin() != (empty ? 0 : static_cast<std::uint64_t>(bytes)))
      fail(tensor + " has " + std::to_string(entry.end() - entry.begin()) + " bytes for shape " +
           name(entry.shape) + " of " + name(entry.dtype));
  }

  void check_layout() {
    std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return a.begin() != b.begin() ? a.begin() < b.begin() : a.end() < b.end();
    });
    std::uint64_t position = 0;
    for (const Entry& entry : entries_) {
      if (entry.begin() != position)
        fail("tensor " + entry.name + " begins at " + std::to_string(entry.begin()) + ", wants " +
             std::to_string(position) + ": tensors may neither overlap nor leave gaps");
      position = entry.end();
    }
    if (position != data_size())
      fail("has " + std::to_string(data_size()) + " bytes of data, its tensors take " +
           std::to_string(position));
  }

  const std::string_view bytes_;
  const std::string& source_;
  std::size_t data_begin_ = 0;
  std::vector<Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

/// `owner` keeps the bytes, and tensors lie over them; without one they are copied.
Safetensors decode(std::string_view bytes, const std::string& source, const std::shared_ptr<void>& owner) {
  Decoder decoder(bytes, source);
  Safetensors contents;
  for (const Entry& entry : decoder.entries()) {
    const char* const from = decoder.bytes_of(entry);
    const auto size = static_cast<std::int64_t>(entry.end() - entry.begin());
    const bool aligned =
        reinterpret_cast<std::uintptr_t>(from) % static_cast<std::uintptr_t>(size_of(entry.dtype)) == 0;
    if (owner != nullptr && aligned) {
      const View view(const_cast<char*>(from), entry.dtype, kCpu, entry.shape);
      contents.tensors.push_back({entry.name, Tensor::over(view, owner)});
    } else {
      Tensor copy = Tensor::empty(entry.shape, entry.dtype);
      if (size > 0) require(copy_bytes(kCpu, copy.writable().as<void>(), kCpu, from, size));
      contents.tensors.push_back({entry.name, std::move(copy)});
    }
  }
  contents.metadata = decoder.metadata();
  return contents;
}

/// The length of the header and the header.
std::string encoded_header(const Safetensors& contents) {
  ordered_json header = ordered_json::object();
  if (!contents.metadata.empty()) header[kMetadata] = contents.metadata;
  std::set<std::string_view> names;
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : contents.tensors) {
    if (name == kMetadata) throw Error(Code::invalid_argument, "safetensors: no tensor may be named " + name);
    if (!names.insert(name).second)
      throw Error(Code::invalid_argument, "safetensors: " + name + " is given twice");
    if (!tensor.present()) throw Error(Code::invalid_argument, "safetensors: " + name + " is absent");
    const auto bytes = static_cast<std::uint64_t>(tensor.elements() * size_of(tensor.dtype()));
    std::vector<std::int64_t> shape;
    for (int axis = 0; axis < tensor.shape().rank(); ++axis) shape.push_back(tensor.shape()[axis]);
    header[name] = {
        {"dtype", format_name(tensor.dtype())}, {"shape", shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const ordered_json::exception& error) {
    throw Error(Code::invalid_argument, std::string("safetensors: a name is not UTF-8: ") + error.what());
  }
  text.resize((text.size() + kPrefix - 1) / kPrefix * kPrefix, ' ');
  const std::uint64_t length = text.size();
  if (length > kLongestHeader)
    throw Error(Code::invalid_argument, "safetensors: a header of " + std::to_string(length) +
                                            " bytes, at most " + std::to_string(kLongestHeader) +
                                            " can be read");
  return std::string(reinterpret_cast<const char*>(&length), kPrefix) + text;
}

/// Hands out the whole file piece by piece.
template <class Take>
void encode(const Safetensors& contents, const Take& take) {
  take(std::string_view(encoded_header(contents)));
  for (const NamedTensor& named : contents.tensors) {
    const Tensor& tensor = named.tensor;
    // On the CPU and without gaps there is nothing to copy.
    const bool plain = tensor.device().is_cpu() && is_contiguous(tensor.view());
    const Tensor host = plain ? tensor : tensor.device().is_cpu() ? tensor.clone() : tensor.to(kCpu);
    take(std::string_view(host.view().as<char>(),
                          static_cast<std::size_t>(host.elements() * size_of(host.dtype()))));
  }
}

[[noreturn]] void fail_reading(const fs::path& path, int error) {
  throw Error(Code::io, "reading " + path.string() + " failed: " + std::strerror(error));
}

/// A whole file in memory, its pages read when they are looked at. Private: what is written stays in memory.
class MappedFile {
 public:
  explicit MappedFile(const fs::path& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) fail_reading(path, errno);
    struct stat status {};
    int error = ::fstat(file, &status) != 0 ? errno : 0;
    if (error == 0 && !S_ISREG(status.st_mode)) error = S_ISDIR(status.st_mode) ? EISDIR : ENODEV;
    if (error == 0 && status.st_size > 0) {
      size_ = static_cast<std::size_t>(status.st_size);
      data_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file, 0);
      if (data_ == MAP_FAILED) {
        data_ = nullptr;
        error = errno;
      }
    }
    ::close(file);  // the mapping stays
    if (error != 0) fail_reading(path, error);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }

  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace

const Tensor* Safetensors::find(std::string_view name) const noexcept {
  for (const NamedTensor& named : tensors)
    if (named.name == name) return &named.tensor;
  return nullptr;
}

const Tensor& Safetensors::at(const std::string& name) const {
  if (const Tensor* tensor = find(name)) return *tensor;
  throw Error(Code::corrupt_data, "there is no tensor " + name);
}

Safetensors read_safetensors(const fs::path& path) {
  const auto file = std::make_shared<MappedFile>(path);
  return decode(file->bytes(), path.string(), file);
}

void write_safetensors(const fs::path& path, const Safetensors& contents) {
  train::write_file(path, [&](const train::Take& take) { encode(contents, take); });
}

std::string encode_safetensors(const Safetensors& contents) {
  std::string bytes;
  encode(contents, [&](std::string_view piece) { bytes += piece; });
  return bytes;
}

Safetensors decode_safetensors(std::string_view bytes, const std::string& source) {
  return decode(bytes, source, nullptr);
}

}  // namespace scantape
