#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "market/dbn_reader.h"
#include "market/dbn_writer.h"
#include "scantape/error.h"

/// What the tests of the market library share: files built in memory, a folder for a test, errors as values.
namespace scantape::market::testing {

using Bytes = std::vector<uint8_t>;

inline constexpr uint64_t kStart =
    1'704'150'000'000'000'000;  // 2024-01-01T23:00:00Z, on the grid of every cadence
inline constexpr uint32_t kId = 118;

inline uint64_t minutes(int64_t n) {
  return static_cast<uint64_t>(n) * static_cast<uint64_t>(kMinute);
}

/// A plausible bar `n` minutes after kStart.
inline Bar bar_at(int64_t n) {
  const int64_t price = 1'090'000'000 + 50'000 * ((n * 37) % 11 - 5);
  return {kStart + minutes(n), price,          price + 100'000,
          price - 50'000,      price + 50'000, static_cast<uint64_t>(10 + n % 7)};
}

/// Metadata of a minute-bar file of two days with one symbol.
inline Metadata bars_metadata(int version) {
  Metadata metadata;
  metadata.version = version;
  metadata.dataset = "GLBX.MDP3";
  metadata.schema = schema::kOhlcv1m;
  metadata.start = kStart;
  metadata.stype_in = stype::kRawSymbol;
  metadata.symbols = {"6EH4"};
  metadata.mappings = {{"6EH4", {{20240101, 20240103, std::to_string(kId)}}}};
  return metadata;
}

inline Bytes records_of(std::initializer_list<Bar> bars, uint32_t id = kId, uint8_t type = rtype::kOhlcv1m) {
  Bytes bytes;
  for (const Bar& bar : bars) append_bar(bytes, bar, id, 1, type);
  return bytes;
}

inline Bytes some_records(int64_t count) {
  Bytes bytes;
  for (int64_t n = 0; n < count; ++n) append_bar(bytes, bar_at(n), kId);
  return bytes;
}

inline Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

template <typename T>
void put_at(Bytes& bytes, size_t offset, T value) {
  ASSERT_LE(offset + sizeof value, bytes.size());
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

/// A record of any rtype: header, then the payload padded with zeros to `size`.
inline Bytes record_of(uint8_t type, size_t size, const Bytes& payload = {}, uint32_t id = kId,
                       uint64_t ts = kStart) {
  Bytes bytes(size, 0);
  bytes[0] = static_cast<uint8_t>(size / 4);
  bytes[1] = type;
  bytes[2] = 1;
  std::memcpy(bytes.data() + 4, &id, 4);
  std::memcpy(bytes.data() + 8, &ts, 8);
  std::copy(payload.begin(), payload.end(), bytes.begin() + 16);
  return bytes;
}

struct ReadResult {
  Metadata metadata;
  std::vector<Bar> bars;
  std::vector<uint8_t> types;
  Bytes bar_bytes;  // of all bar records, without ts_out
  std::vector<std::string> warnings;
  uint64_t dropped_bytes = 0;
};

inline ReadResult drain(DbnReader& reader) {
  ReadResult result;
  Record record;
  while (reader.next(record)) {
    result.types.push_back(record.type);
    if (!is_bar(record.type)) continue;
    result.bars.push_back(record.bar());
    result.bar_bytes.insert(result.bar_bytes.end(), record.bytes.begin(), record.bytes.begin() + kBarSize);
  }
  result.metadata = reader.metadata();
  result.warnings = reader.warnings();
  result.dropped_bytes = reader.dropped_bytes();
  return result;
}

inline ReadResult read_bytes(const Bytes& bytes, ReaderOptions options = {}) {
  DbnReader reader(memory_source(bytes), "file.dbn", options);
  return drain(reader);
}

/// The error that `action` throws; none where it does not.
struct Caught {
  Code code = Code::ok;
  std::string message = "no error";
};

inline Caught caught(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

inline ::testing::AssertionResult says(const std::string& text, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts)
    if (text.find(part) == std::string::npos)
      return ::testing::AssertionFailure() << "\"" << text << "\" does not say \"" << part << "\"";
  return ::testing::AssertionSuccess();
}

inline ::testing::AssertionResult fails(const std::function<void()>& action, Code code,
                                        std::initializer_list<std::string> parts) {
  const Caught error = caught(action);
  if (error.code != code)
    return ::testing::AssertionFailure() << "code " << static_cast<int>(error.code) << ": " << error.message;
  return says(error.message, parts);
}

/// Reading those bytes fails as corrupt data, with a message that names the file and all of `parts`.
inline ::testing::AssertionResult corrupt(const Bytes& bytes, std::initializer_list<std::string> parts,
                                          ReaderOptions options = {}) {
  const auto read = [&] { read_bytes(bytes, options); };
  if (const auto named = fails(read, Code::corrupt_data, {"file.dbn: "}); !named) return named;
  return fails(read, Code::corrupt_data, parts);
}

inline ::testing::AssertionResult warns(const std::vector<std::string>& warnings,
                                        std::initializer_list<std::string> parts) {
  std::string all;
  for (const std::string& warning : warnings) {
    if (says(warning, parts)) return ::testing::AssertionSuccess();
    all += "\n  " + warning;
  }
  return ::testing::AssertionFailure() << "no warning says it; there are:" << all;
}

/// A folder of its own, removed at the end.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "scantape-market-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const Bytes& bytes) const {
    write_file(path_ + "/" + name, bytes);
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

/// The folder of real data, where there is one.
inline std::optional<std::string> test_data() {
  const char* path = std::getenv("SCANTAPE_TEST_DATA");
  return path && *path ? std::optional<std::string>(path) : std::nullopt;
}

}  // namespace scantape::market::testing

#define SCANTAPE_NEEDS_TEST_DATA(name)                                \
  const auto name##_found = ::scantape::market::testing::test_data(); \
  if (!name##_found) GTEST_SKIP() << "SCANTAPE_TEST_DATA is not set"; \
  const std::string& name = *name##_found
