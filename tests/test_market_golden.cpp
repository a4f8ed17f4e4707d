// Real files: sums that were computed by other programs, and what the legacy and the fragment files get.
#include <algorithm>

#include "market/bars.h"
#include "market/inspect.h"
#include "market_support.h"

namespace scantape::market::testing {
namespace {

struct Golden {
  const char* path;
  int version;
  uint32_t length;
  uint64_t bars;
  const char* sum_close;
  const char* sum_volume;
  uint64_t first_ts;
  uint64_t last_ts;
};

constexpr Golden kGolden[] = {
    {"converted/6eh4-202401.ohlcv-1m.v1.dbn.zst", 1, 198, 29996, "32792697750000", "4310578",
     1704150000000000000, 1706745480000000000},
    {"converted/6eh4-202401.ohlcv-1m.v2.multiframe.dbn.zst", 2, 345, 29996, "32792697750000", "4310578",
     1704150000000000000, 1706745480000000000},
    {"converted/6eh4-202401.ohlcv-1m.v3.dbn", 3, 352, 29996, "32792697750000", "4310578", 1704150000000000000,
     1706745480000000000},
    {"converted/es-2013-parent.ohlcv-1m.v3.dbn.zst", 3, 968, 22246, "38618750000000000", "17929969",
     1381096800000000000, 1387577640000000000},
    {"databento-cpp/test_data.ohlcv-1h.v1.dbn", 1, 198, 2, "744175000000000", "122083", 1609160400000000000,
     1609164000000000000},
    {"databento-cpp/test_data.ohlcv-1m.v1.dbn", 1, 198, 2, "744250000000000", "505", 1609160400000000000,
     1609160460000000000},
    {"databento-cpp/test_data.ohlcv-1s.v1.dbn", 1, 198, 2, "744100000000000", "70", 1609160400000000000,
     1609160401000000000},
    {"dbn/test_data.ohlcv-1h.dbn", 2, 345, 2, "744175000000000", "122083", 1609160400000000000,
     1609164000000000000},
    {"dbn/test_data.ohlcv-1h.v1.dbn.zst", 1, 198, 2, "744175000000000", "122083", 1609160400000000000,
     1609164000000000000},
    {"dbn/test_data.ohlcv-1h.v2.dbn.zst", 2, 345, 2, "744175000000000", "122083", 1609160400000000000,
     1609164000000000000},
    {"dbn/test_data.ohlcv-1h.v3.dbn.zst", 3, 352, 2, "744175000000000", "122083", 1609160400000000000,
     1609164000000000000},
    {"dbn/test_data.ohlcv-1m.dbn", 2, 345, 2, "744250000000000", "505", 1609160400000000000,
     1609160460000000000},
    {"dbn/test_data.ohlcv-1m.v1.dbn.zst", 1, 198, 2, "744250000000000", "505", 1609160400000000000,
     1609160460000000000},
    {"dbn/test_data.ohlcv-1m.v2.dbn.zst", 2, 345, 2, "744250000000000", "505", 1609160400000000000,
     1609160460000000000},
    {"dbn/test_data.ohlcv-1m.v3.dbn.zst", 3, 352, 2, "744250000000000", "505", 1609160400000000000,
     1609160460000000000},
    {"dbn/test_data.ohlcv-1s.dbn", 2, 345, 2, "744100000000000", "70", 1609160400000000000,
     1609160401000000000},
    {"dbn/test_data.ohlcv-1s.v1.dbn.zst", 1, 198, 2, "744100000000000", "70", 1609160400000000000,
     1609160401000000000},
    {"dbn/test_data.ohlcv-1s.v2.dbn.zst", 2, 345, 2, "744100000000000", "70", 1609160400000000000,
     1609160401000000000},
    {"dbn/test_data.ohlcv-1s.v3.dbn.zst", 3, 352, 2, "744100000000000", "70", 1609160400000000000,
     1609160401000000000},
};

Bytes bar_bytes(const std::string& path) {
  DbnReader reader(path);
  return drain(reader).bar_bytes;
}

/// Files below the folder whose name has `ending`.
std::vector<std::string> files_ending(const std::string& folder, const std::vector<std::string>& endings) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().string();
    for (const std::string& ending : endings)
      if (name.ends_with(ending)) files.push_back(name);
  }
  std::sort(files.begin(), files.end());
  return files;
}

class GoldenFiles : public ::testing::TestWithParam<Golden> {};

TEST_P(GoldenFiles, Agree) {
  SCANTAPE_NEEDS_TEST_DATA(data);
  const Golden& golden = GetParam();
  const FileSummary file = inspect_file(data + "/dbn/" + golden.path);
  EXPECT_EQ(file.metadata.version, golden.version);
  EXPECT_EQ(file.metadata.length, golden.length);
  EXPECT_EQ(file.bars.count, golden.bars);
  EXPECT_EQ(to_decimal(file.bars.sum_close), golden.sum_close);
  EXPECT_EQ(to_decimal(file.bars.sum_volume), golden.sum_volume);
  EXPECT_EQ(file.bars.first_ts, golden.first_ts);
  EXPECT_EQ(file.bars.last_ts, golden.last_ts);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenFiles, ::testing::ValuesIn(kGolden));

TEST(GoldenData, TheSameBarsHaveTheSameBytesInEveryContainer) {
  SCANTAPE_NEEDS_TEST_DATA(data);
  const std::string converted = data + "/dbn/converted/6eh4-202401.ohlcv-1m.";
  const Bytes v1 = bar_bytes(converted + "v1.dbn.zst");
  EXPECT_EQ(v1.size(), 29996u * 56);
  EXPECT_EQ(bar_bytes(converted + "v2.multiframe.dbn.zst"), v1);
  EXPECT_EQ(bar_bytes(converted + "v3.dbn"), v1);
  Bytes daily;
  for (const std::string& path : find_data_files(data + "/bars/6e")) daily = daily + bar_bytes(path);
  EXPECT_EQ(daily, v1);
  for (const char* schema : {"1s", "1m", "1h"}) {
    const std::string stem = data + "/dbn/dbn/test_data.ohlcv-" + schema;
    const Bytes raw = bar_bytes(stem + ".dbn");
    for (const char* version : {".v1", ".v2", ".v3"}) EXPECT_EQ(bar_bytes(stem + version + ".dbn.zst"), raw);
  }
}

TEST(GoldenData, WrittenAgainTheRecordsStayTheSame) {
  SCANTAPE_NEEDS_TEST_DATA(data);
  const std::string path = data + "/dbn/converted/es-2013-parent.ohlcv-1m.v3.dbn.zst";
  DbnReader reader(path);
  const ReadResult real = drain(reader);
  for (const int version : {1, 2, 3}) {
    Metadata metadata = real.metadata;
    metadata.version = version;
    const ReadResult again = read_bytes(encode_dbn(metadata, real.bar_bytes, Compression::zstd));
    EXPECT_EQ(again.bar_bytes, real.bar_bytes);
    EXPECT_EQ(again.metadata.mappings, real.metadata.mappings);
  }
}

TEST(GoldenData, EveryWholeFileIsRead) {
  SCANTAPE_NEEDS_TEST_DATA(data);
  const std::vector<std::string> files = files_ending(data, {".dbn", ".dbn.zst"});
  EXPECT_GT(files.size(), 100u);
  for (const std::string& path : files) EXPECT_NO_THROW(inspect_file(path)) << path;
}

TEST(GoldenData, LegacyFilesAreRefusedByName) {
  SCANTAPE_NEEDS_TEST_DATA(data);
  const std::vector<std::string> files = files_ending(data, {".dbz"});
  EXPECT_EQ(files.size(), 10u);
  for (const std::string& path : files)
    EXPECT_TRUE(fails([&] { inspect_file(path); }, Code::corrupt_data, {path, "DBZ", "not supported"}));
}

TEST(GoldenData, FragmentsNeedTheirVersion) {
  SCANTAPE_NEEDS_TEST_DATA(data);
  const std::vector<std::string> files = files_ending(data, {".dbn.frag", ".dbn.frag.zst"});
  EXPECT_EQ(files.size(), 7u);
  for (const std::string& path : files) {
    EXPECT_TRUE(fails([&] { inspect_file(path); }, Code::corrupt_data, {path, "--fragment"}));
    InspectOptions options;
    options.fragment_version = path.find(".v3.") != std::string::npos   ? 3
                               : path.find(".v2.") != std::string::npos ? 2
                                                                        : 1;
    const FileSummary file = inspect_file(path, options);
    EXPECT_EQ(file.records.size(), 1u) << path;
    EXPECT_GE(file.records.at(0x13), path.find("multi-frame") != std::string::npos ? 8u : 1u) << path;
  }
}

}  // namespace
}  // namespace scantape::market::testing
