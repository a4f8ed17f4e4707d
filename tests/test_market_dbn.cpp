// The DBN reader and writer, on files built here: what they agree on, and what each kind of damage gets.
#include <zstd.h>

#include <numeric>

#include "market/bars.h"
#include "market/inspect.h"
#include "market_support.h"

namespace scantape::market::testing {
namespace {

Bytes raw_file(int version, const Bytes& records) {
  return encode_dbn(bars_metadata(version), records, Compression::none);
}

/// Offsets of the variable part of bars_metadata(version): they follow from the widths.
size_t width_of(int version) {
  return version == 1 ? 22 : 71;
}
constexpr size_t kSchemaDefinition = 108;
constexpr size_t kSymbolCount = 112;
size_t partial_count(int version) {
  return kSymbolCount + 4 + width_of(version);
}
size_t mapping_count(int version) {
  return partial_count(version) + 8;
}
size_t interval_count(int version) {
  return mapping_count(version) + 4 + width_of(version);
}
size_t start_date(int version) {
  return interval_count(version) + 4;
}

class DbnVersions : public ::testing::TestWithParam<std::tuple<int, Compression>> {};

TEST_P(DbnVersions, WrittenFilesReadBackBitForBit) {
  const auto [version, compression] = GetParam();
  Metadata metadata = bars_metadata(version);
  metadata.end = kStart + minutes(1000);
  metadata.limit = 1000;
  metadata.stype_in = stype::kParent;
  metadata.symbols = {"6E.FUT", "a", std::string(version == 1 ? 21 : 70, 'x')};
  metadata.partial = {"6EH4-6EM4"};
  metadata.not_found = {"NONE"};
  metadata.mappings.push_back({"6EM4", {{20240101, 20240102, "7"}, {20240102, 20240103, "8"}}});
  metadata.mappings.push_back({"6EU4", {}});
  const Bytes records = some_records(1000);
  const ReadResult result = read_bytes(encode_dbn(metadata, records, compression));

  EXPECT_EQ(result.bar_bytes, records);
  EXPECT_EQ(result.metadata.version, version);
  EXPECT_EQ(result.metadata.dataset, metadata.dataset);
  EXPECT_EQ(result.metadata.schema, metadata.schema);
  EXPECT_EQ(result.metadata.start, metadata.start);
  EXPECT_EQ(result.metadata.end, metadata.end);
  EXPECT_EQ(result.metadata.limit, metadata.limit);
  EXPECT_EQ(result.metadata.stype_in, metadata.stype_in);
  EXPECT_EQ(result.metadata.stype_out, metadata.stype_out);
  EXPECT_EQ(result.metadata.symbols, metadata.symbols);
  EXPECT_EQ(result.metadata.partial, metadata.partial);
  EXPECT_EQ(result.metadata.not_found, metadata.not_found);
  EXPECT_EQ(result.metadata.mappings, metadata.mappings);
  EXPECT_EQ(result.metadata.length % (version == 3 ? 8 : 1), 0u);
  EXPECT_EQ(result.warnings.size(), 2u) << "partial and not found";
}

INSTANTIATE_TEST_SUITE_P(All, DbnVersions,
                         ::testing::Combine(::testing::Values(1, 2, 3),
                                            ::testing::Values(Compression::none, Compression::zstd)));

TEST(Dbn, TheLayoutIsTheOneOfTheFormat) {
  // Byte by byte, so that writer and reader cannot share a mistake.
  Metadata metadata;
  metadata.version = 1;
  metadata.dataset = "GLBX.MDP3";
  metadata.schema = schema::kOhlcv1m;
  metadata.start = 1'609'160'400'000'000'000;
  metadata.limit = 2;
  metadata.stype_in = stype::kRawSymbol;
  metadata.symbols = {"ESH1"};
  metadata.mappings = {{"ESH1", {{20201228, 20201229, "5482"}}}};
  const Bar bar = {1'609'160'400'000'000'000, 372'025'000'000'000, 372'150'000'000'000,
                   372'025'000'000'000,       372'100'000'000'000, 353};
  const Bytes file = encode_dbn(metadata, records_of({bar}, 5482), Compression::none);
  ASSERT_EQ(file.size(), 206u + 56u);
  const auto expect_at = [&](size_t at, std::initializer_list<int> wanted) {
    for (const int byte : wanted) EXPECT_EQ(file[at++], byte) << "at " << at - 1;
  };
  expect_at(0, {'D', 'B', 'N', 1, 0xC6, 0, 0, 0, 'G', 'L', 'B', 'X'});
  expect_at(24, {6, 0, 0x00, 0x20, 0xA0, 0xAC, 0xDB, 0xE2, 0x54, 0x16});
  expect_at(42, {2, 0, 0, 0, 0, 0, 0, 0});
  expect_at(58, {1, 0, 0});
  expect_at(108, {0, 0, 0, 0, 1, 0, 0, 0, 'E', 'S', 'H', '1', 0});
  expect_at(138, {0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 'E', 'S', 'H', '1', 0});
  expect_at(172, {1, 0, 0, 0, 0x0C, 0x3F, 0x34, 0x01, 0x0D, 0x3F, 0x34, 0x01, '5', '4', '8', '2', 0});
  expect_at(206,
            {0x0E, 0x21, 0x01, 0x00, 0x6A, 0x15, 0x00, 0x00, 0x00, 0x20, 0xA0, 0xAC, 0xDB, 0xE2, 0x54, 0x16});
  expect_at(206 + 48, {0x61, 0x01, 0, 0, 0, 0, 0, 0});
}

TEST(Dbn, ZstdFilesHaveTwoFramesAndAChecksumOnTheSecond) {
  const Bytes file = encode_dbn(bars_metadata(2), some_records(10), Compression::zstd);
  const size_t first = ZSTD_findFrameCompressedSize(file.data(), file.size());
  ASSERT_LT(first, file.size());
  EXPECT_EQ(ZSTD_getFrameContentSize(file.data(), file.size()), encode_metadata(bars_metadata(2)).size());
  EXPECT_EQ(first + ZSTD_findFrameCompressedSize(file.data() + first, file.size() - first), file.size());
  EXPECT_EQ(file[4] & 4, 0) << "checksum flag of the metadata's frame";
  EXPECT_EQ(file[first + 4] & 4, 4) << "checksum flag of the records' frame";
}

TEST(Dbn, FramesMayCutAnywhereAndBeEmptyOrSkippable) {
  const Bytes raw = raw_file(2, some_records(300));
  const Bytes skippable = {0x5A, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 'a', 'b', 'c'};
  const Bytes empty = zstd_frame({});
  Bytes file = skippable;
  for (size_t at = 0, step = 1; at < raw.size(); at += step, step = step * 2 + 3) {
    const size_t count = std::min(step, raw.size() - at);
    file = file + zstd_frame(std::span(raw).subspan(at, count)) + empty + skippable;
  }
  EXPECT_EQ(read_bytes(file).bar_bytes, some_records(300));
}

TEST(Dbn, FilesLongerThanEveryBuffer) {
  // 1.1 MB of records: buffers of 128 KiB turn over many times, at every alignment of 56 to them.
  const Bytes records = some_records(20'000);
  EXPECT_EQ(read_bytes(raw_file(1, records)).bar_bytes, records);
  EXPECT_EQ(read_bytes(encode_dbn(bars_metadata(1), records, Compression::zstd)).bar_bytes, records);
}

TEST(Dbn, TsOutAddsEightBytes) {
  Metadata metadata = bars_metadata(3);
  metadata.ts_out = true;
  Bytes records;
  for (int n = 0; n < 3; ++n) {
    Bytes record = records_of({bar_at(n)});
    record[0] = 16;
    record.resize(64, 0xEE);
    records = records + record;
  }
  const ReadResult result = read_bytes(encode_dbn(metadata, records, Compression::none));
  EXPECT_EQ(result.bars, (std::vector<Bar>{bar_at(0), bar_at(1), bar_at(2)}));
  EXPECT_TRUE(result.metadata.ts_out);
  EXPECT_TRUE(result.warnings.empty());

  metadata.ts_out = false;
  const ReadResult without = read_bytes(encode_dbn(metadata, records, Compression::none));
  EXPECT_EQ(without.bars, result.bars) << "the front is read";
  EXPECT_EQ(without.warnings.size(), 1u) << "and it is said once";
  EXPECT_TRUE(warns(without.warnings, {"record 1", "64 bytes", "8 more"}));
}

// ---- The front of the file
// ----------------------------------------------------------------------------------------

TEST(DbnDamage, ShortFilesAndWrongMagicShowTheirFirstBytes) {
  EXPECT_TRUE(corrupt({}, {"0 bytes", "nothing", "wants at least the 8 bytes"}));
  EXPECT_TRUE(corrupt({'D', 'B', 'N', 1}, {"4 bytes", "44 42 4e 01"}));
  EXPECT_TRUE(corrupt({'P', 'K', 3, 4, 5, 6, 7, 8, 9}, {"50 4b 03 04", "44 42 4e", "--fragment"}));
  EXPECT_TRUE(corrupt(zstd_frame(Bytes{'n', 'o', 't', ' ', 'd', 'b', 'n', '!'}), {"6e 6f 74", "decoded"}));
}

TEST(DbnDamage, Versions) {
  for (const int version : {0, 5, 255}) {
    Bytes file = raw_file(1, some_records(1));
    file[3] = static_cast<uint8_t>(version);
    EXPECT_TRUE(corrupt(file, {"version " + std::to_string(version), "wants 1, 2 or 3"}));
  }
  Bytes file = raw_file(3, some_records(1));
  file[3] = 4;
  EXPECT_TRUE(fails([&] { read_bytes(file); }, Code::corrupt_data, {"file.dbn", "DBN v4 is not supported"}));
}

TEST(DbnDamage, LegacyFilesHaveTheirOwnMessage) {
  Bytes file = {0x51, 0x2A, 0x4D, 0x18, 0x90, 0, 0, 0, 'D', 'B', 'Z', 1};
  file.resize(200, 0);
  EXPECT_TRUE(fails([&] { read_bytes(file); }, Code::corrupt_data, {"file.dbn", "DBZ", "not supported"}));
}

TEST(DbnDamage, MetadataLength) {
  Bytes file = raw_file(1, some_records(1));
  put_at<uint32_t>(file, 4, 99);
  EXPECT_TRUE(corrupt(file, {"99 bytes of metadata", "at least 100"}));
  put_at<uint32_t>(file, 4, 0xFFFFFFFF);
  EXPECT_TRUE(corrupt(file, {"4294967295 bytes of metadata", "the file has"}));
  put_at<uint32_t>(file, 4, 65 << 20);
  EXPECT_TRUE(corrupt(zstd_frame(file), {"68157440 bytes of metadata", "limit"}));
  put_at<uint32_t>(file, 4, 1 << 20);
  EXPECT_TRUE(corrupt(zstd_frame(file), {"the file ends", "metadata goes on to byte"}));
  put_at<uint32_t>(file, 4, 102);
  EXPECT_TRUE(corrupt(file, {"metadata ends inside"}));
}

class DbnMetadataDamage : public ::testing::TestWithParam<int> {};

TEST_P(DbnMetadataDamage, EveryCountIsBoundedByWhatIsLeft) {
  const int version = GetParam();
  for (const size_t at : {kSymbolCount, partial_count(version), partial_count(version) + 4,
                          mapping_count(version), interval_count(version)}) {
    // The last three are small once their product with an item's size is cut to 32 bits.
    const uint64_t wrap = uint64_t{1} << 32, width = width_of(version);
    for (const uint64_t many : {uint64_t{1000}, uint64_t{0x10000000}, uint64_t{0xFFFFFFFF}, wrap / width + 1,
                                wrap / (width + 4) + 1, wrap / (width + 8) + 1}) {
      const uint32_t count = static_cast<uint32_t>(many);
      Bytes file = raw_file(version, some_records(2));
      put_at(file, at, count);
      EXPECT_TRUE(corrupt(file, {"byte " + std::to_string(at), std::to_string(count), "are left"}))
          << at << " " << count;
      EXPECT_TRUE(corrupt(zstd_frame(file), {"byte " + std::to_string(at), "are left"}));
    }
  }
}

TEST_P(DbnMetadataDamage, SchemaDefinition) {
  Bytes file = raw_file(GetParam(), some_records(1));
  put_at<uint32_t>(file, kSchemaDefinition, 12);
  EXPECT_TRUE(corrupt(file, {"byte 108", "12 bytes", "want 0"}));
}

TEST_P(DbnMetadataDamage, Dates) {
  const int version = GetParam();
  for (const uint32_t date : {20241301u, 20240230u, 20230229u, 20240100u, 0u, 0xFFFFFFFFu}) {
    Bytes file = raw_file(version, some_records(1));
    put_at(file, start_date(version), date);
    EXPECT_TRUE(corrupt(file, {"'6EH4'", std::to_string(date), "YYYYMMDD"}));
  }
  Bytes leap = raw_file(version, some_records(1));
  put_at(leap, start_date(version), 20200229u);
  EXPECT_EQ(read_bytes(leap).bars.size(), 1u);
  Bytes back = raw_file(version, some_records(1));
  put_at(back, start_date(version), 20240104u);
  EXPECT_TRUE(corrupt(back, {"'6EH4'", "20240104", "20240103"}));
}

TEST_P(DbnMetadataDamage, EmptyIntervalsAndSymbolsAreIgnored) {
  Metadata metadata = bars_metadata(GetParam());
  metadata.mappings.push_back(
      {"6EM4", {{20240101, 20240101, std::to_string(kId)}, {20240101, 20240103, ""}}});
  const ReadResult result = read_bytes(encode_dbn(metadata, some_records(1), Compression::none));
  std::vector<std::string> warnings;
  const SymbolTable table(result.metadata, "file.dbn", warnings);
  EXPECT_EQ(table.find(kId, 20240101), "6EH4");
  EXPECT_EQ(table.find(kId, 20240103), "") << "the end is exclusive";
  EXPECT_EQ(table.find(kId + 1, 20240101), "");
  EXPECT_TRUE(warnings.empty());
}

TEST_P(DbnMetadataDamage, SymbolsThatFillTheirFieldAreTakenWhole) {
  const int version = GetParam();
  Bytes file = raw_file(version, some_records(1));
  std::fill_n(file.begin() + static_cast<ptrdiff_t>(kSymbolCount + 4), width_of(version), 'q');
  EXPECT_EQ(read_bytes(file).metadata.symbols.at(0), std::string(width_of(version), 'q'));
}

TEST_P(DbnMetadataDamage, UnknownEnumsAreSaidNotFatal) {
  Bytes file = raw_file(GetParam(), some_records(1));
  put_at<uint16_t>(file, 24, 77);
  file[GetParam() == 1 ? 58 : 50] = 99;
  const ReadResult result = read_bytes(file);
  EXPECT_EQ(result.bars.size(), 1u);
  EXPECT_TRUE(warns(result.warnings, {"unknown schema 77"}));
  EXPECT_TRUE(warns(result.warnings, {"unknown symbol type 99"}));
}

TEST_P(DbnMetadataDamage, EveryCutOfTheMetadataIsAnError) {
  const Bytes whole = encode_metadata(bars_metadata(GetParam()));
  for (size_t count = 0; count < whole.size(); ++count) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(count));
    EXPECT_EQ(caught([&] { read_bytes(cut, {true, {}}); }).code, Code::corrupt_data) << count;
    EXPECT_EQ(caught([&] { read_bytes(zstd_frame(cut)); }).code, Code::corrupt_data) << count;
  }
}

INSTANTIATE_TEST_SUITE_P(Versions, DbnMetadataDamage, ::testing::Values(1, 2, 3));

TEST(DbnDamage, SymbolWidth) {
  for (const uint16_t width : {0, 1, 1025, 65535}) {
    Bytes file = raw_file(2, some_records(1));
    put_at<uint16_t>(file, 53, width);
    EXPECT_TRUE(corrupt(file, {"a symbol takes " + std::to_string(width) + " bytes", "2 to 1024"}));
  }
  Metadata narrow = bars_metadata(3);
  narrow.symbol_width = 10;
  const ReadResult result = read_bytes(encode_dbn(narrow, some_records(1), Compression::none));
  EXPECT_EQ(result.metadata.symbols.at(0), "6EH4") << "the field counts, not the usual 71";
  EXPECT_EQ(result.bars.size(), 1u);
}

TEST(DbnDamage, ReservedAndPaddingBytesAreIgnored) {
  Bytes file = raw_file(3, some_records(1));
  for (size_t at = 55; at < 108; ++at) file[at] = 0xAA;
  const size_t end = 8 + load<uint32_t>(file.data() + 4);
  ASSERT_EQ(file[end - 1], 0) << "there is padding to fill";
  file[end - 1] = 0xAA;
  EXPECT_EQ(read_bytes(file).bars.size(), 1u);
  EXPECT_TRUE(read_bytes(file).warnings.empty());
}

TEST(DbnDamage, ExtraBytesBehindTheMappingsAreSaid) {
  for (const int version : {1, 2}) {
    Bytes head = encode_metadata(bars_metadata(version));
    head.insert(head.end(), 5, 0xAB);
    put_at<uint32_t>(head, 4, static_cast<uint32_t>(head.size() - 8));
    const ReadResult result = read_bytes(head + some_records(2));
    EXPECT_EQ(result.bars.size(), 2u);
    EXPECT_TRUE(warns(result.warnings, {"5 extra bytes"}));
  }
}

TEST(DbnDamage, TwoSymbolsForOneIdOnOneDay) {
  Metadata metadata = bars_metadata(3);
  metadata.mappings.push_back({"6EM4", {{20240102, 20240104, std::to_string(kId)}}});
  const Bytes file = encode_dbn(metadata, some_records(1), Compression::none);
  Folder folder;
  const std::string path = folder.write("overlap.dbn", file);
  EXPECT_TRUE(fails([&] { inspect_file(path); }, Code::corrupt_data,
                    {"overlap.dbn", "118", "'6EH4' [20240101, 20240103)", "'6EM4' [20240102, 20240104)"}));
  EXPECT_TRUE(fails([&] { load_bars({path}); }, Code::corrupt_data, {"overlap.dbn"}));
  // A long interval hides behind a short one that starts later.
  Metadata nested = bars_metadata(3);
  nested.mappings = {{"A", {{20240101, 20240110, "1"}}},
                     {"A", {{20240102, 20240103, "1"}}},
                     {"B", {{20240105, 20240106, "1"}}}};
  EXPECT_TRUE(fails(
      [&] {
        std::vector<std::string> warnings;
        SymbolTable(nested, "nested", warnings);
      },
      Code::corrupt_data, {"nested", "'A'", "'B'"}));
  // Reuse on another day is legal.
  Metadata reused = bars_metadata(3);
  reused.mappings = {{"A", {{20240101, 20240102, "1"}}}, {"B", {{20240102, 20240103, "1"}}}};
  std::vector<std::string> warnings;
  const SymbolTable table(reused, "reused", warnings);
  EXPECT_EQ(table.find(1, 20240101), "A");
  EXPECT_EQ(table.find(1, 20240102), "B");
}

TEST(Dbn, MappingsByIdHaveTheRolesSwapped) {
  Metadata metadata = bars_metadata(3);
  metadata.stype_in = stype::kInstrumentId;
  metadata.stype_out = stype::kRawSymbol;
  metadata.mappings = {{"118", {{20240101, 20240102, "6EH4"}, {20240102, 20240103, "6EM4"}}}};
  std::vector<std::string> warnings;
  const SymbolTable table(metadata, "file", warnings);
  EXPECT_EQ(table.find(118, 20240101), "6EH4");
  EXPECT_EQ(table.find(118, 20240102), "6EM4");
}

TEST(DbnDamage, CompressedMetadataCannotTakeMoreThanTheLimit) {
  // 60 MiB of one-letter symbols in a file of a few KB: three times as much as strings.
  Metadata metadata = bars_metadata(2);
  metadata.symbol_width = 8;
  metadata.symbols.assign(7'000'000, "A");
  const Bytes file = zstd_frame(encode_metadata(metadata));
  ASSERT_LT(file.size(), 100'000u);
  EXPECT_TRUE(corrupt(file, {"more memory than the limit"}));
}

// ---- Records
// ------------------------------------------------------------------------------------------------------

TEST(DbnDamage, RecordLengths) {
  for (const int words : {1, 2, 3}) {
    Bytes records = some_records(3);
    records[56] = static_cast<uint8_t>(words);
    const Bytes file = raw_file(1, records);
    const std::string at = std::to_string(file.size() - 112);
    EXPECT_TRUE(
        corrupt(file, {"record 2 at byte " + at, std::to_string(4 * words) + " bytes", "at least 16"}));
    EXPECT_TRUE(corrupt(file, {"record 2 at byte " + at}, {true, {}})) << "not a matter of truncation";
  }
  Bytes zero = some_records(3);
  zero[56] = 0;
  EXPECT_TRUE(corrupt(raw_file(1, zero), {"record 2", "length of 0 bytes"}));
}

TEST(DbnDamage, KnownRecordsShorterThanTheirStruct) {
  Bytes records = some_records(2);
  records[56] = 12;
  const Bytes file = raw_file(2, Bytes(records.begin(), records.begin() + 56 + 48));
  EXPECT_TRUE(corrupt(file, {"record 2", "0x21 (ohlcv-1m)", "48 bytes", "wants 56"}));
  // The size of a definition depends on the version: the old one is too short for version 3.
  EXPECT_TRUE(corrupt(raw_file(3, record_of(0x13, 400)), {"record 1", "definition", "400", "wants 520"}));
  EXPECT_EQ(read_bytes(raw_file(2, record_of(0x13, 400))).types.size(), 1u);
}

TEST(DbnDamage, EveryCutInsideARecordIsAnErrorUnlessAllowed) {
  const Bytes whole = raw_file(3, some_records(2));
  const size_t head = whole.size() - 112;
  for (size_t count = head; count < whole.size(); ++count) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(count));
    const size_t rest = (count - head) % 56, kept = (count - head) / 56;
    if (rest == 0) {
      EXPECT_EQ(read_bytes(cut).bars.size(), kept);
      continue;
    }
    EXPECT_TRUE(corrupt(cut, {"record " + std::to_string(kept + 1), "truncated",
                              std::to_string(rest) + " of its 56 bytes", "--allow-truncated"}));
    const ReadResult result = read_bytes(cut, {true, {}});
    EXPECT_EQ(result.bars.size(), kept);
    EXPECT_EQ(result.dropped_bytes, rest);
    EXPECT_TRUE(warns(result.warnings, {"truncated", std::to_string(kept) + " whole records",
                                        std::to_string(rest) + " bytes"}));
  }
}

TEST(DbnDamage, EveryCutInsideAZstdFrameIsAnErrorUnlessAllowed) {
  const Bytes whole = encode_dbn(bars_metadata(1), some_records(60), Compression::zstd);
  const size_t boundary = ZSTD_findFrameCompressedSize(whole.data(), whole.size());
  for (size_t count = boundary; count < whole.size(); ++count) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(count));
    if (count == boundary) {
      EXPECT_TRUE(warns(read_bytes(cut).warnings, {"holds no record", "ohlcv-1m"}));
      continue;
    }
    EXPECT_TRUE(corrupt(cut, {"zstd stream is truncated", "byte " + std::to_string(count)}));
    const ReadResult result = read_bytes(cut, {true, {}});
    EXPECT_LE(result.bars.size(), 60u);
    EXPECT_TRUE(warns(result.warnings, {"truncated inside a zstd frame"}));
  }
}

TEST(DbnDamage, AllowedTruncationKeepsTheRecordsOfWholeBlocks) {
  // Incompressible records fill several zstd blocks of 128 KiB; half of the file still holds whole ones.
  Bytes records;
  uint64_t x = 1;
  for (int64_t n = 0; n < 8000; ++n) {
    Bar bar = bar_at(n);
    x = x * 6364136223846793005u + 1442695040888963407u;
    bar.volume = x;
    bar.high += static_cast<int64_t>(x >> 20);
    append_bar(records, bar, kId);
  }
  const Bytes whole = encode_dbn(bars_metadata(2), records, Compression::zstd);
  const Bytes cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(whole.size() * 3 / 4));
  const ReadResult result = read_bytes(cut, {true, {}});
  EXPECT_GT(result.bars.size(), 2000u);
  EXPECT_LT(result.bars.size(), 8000u);
  EXPECT_TRUE(std::equal(result.bar_bytes.begin(), result.bar_bytes.end(), records.begin()));
}

TEST(DbnDamage, BitFlipsUnderAChecksumAreErrors) {
  const Bytes whole = encode_dbn(bars_metadata(1), some_records(60), Compression::zstd);
  const size_t boundary = ZSTD_findFrameCompressedSize(whole.data(), whole.size());
  int found = 0, flips = 0;
  for (size_t bit = (boundary + 5) * 8; bit < whole.size() * 8; bit += 7) {
    Bytes file = whole;
    file[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    ++flips;
    try {
      // A flip that changes nothing decoded is no damage.
      found += read_bytes(file).bar_bytes == some_records(60) ? 1 : 0;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::corrupt_data);
      EXPECT_TRUE(says(error.what(), {"zstd", "byte"}));
      ++found;
    }
  }
  EXPECT_GT(flips, 100);
  EXPECT_EQ(found, flips);
}

TEST(DbnDamage, WhatFollowsTheLastFrame) {
  const Bytes whole = encode_dbn(bars_metadata(1), some_records(3), Compression::zstd);
  const std::string at = "byte " + std::to_string(whole.size());
  EXPECT_TRUE(
      corrupt(whole + Bytes{'j', 'u', 'n', 'k', '!'}, {"5 bytes of trailing garbage", at, "6a 75 6e 6b"}));
  EXPECT_TRUE(corrupt(whole + Bytes{'j'}, {"1 bytes of trailing garbage", at}));
  EXPECT_TRUE(corrupt(whole + Bytes(300'000, 0), {"300000 bytes of zero padding", at}));
  EXPECT_TRUE(corrupt(whole + Bytes(3, 0), {"3 bytes of zero padding", at}));
  EXPECT_TRUE(corrupt(whole + Bytes{0x28, 0xB5}, {"truncated"})) << "the front of another frame";
  EXPECT_TRUE(corrupt(whole + Bytes(5, 0), {"zero padding"}, {true, {}})) << "not a truncation";
}

TEST(DbnDamage, ZeroPaddingBehindRawRecords) {
  const Bytes whole = raw_file(3, some_records(3));
  const std::string at = "from byte " + std::to_string(whole.size());
  for (const size_t count : {1u, 15u, 16u, 1000u, 300'000u})
    EXPECT_TRUE(corrupt(whole + Bytes(count, 0),
                        {std::to_string(count) + " bytes of zero padding", at, "after record 3"}));
  EXPECT_TRUE(corrupt(whole + Bytes{'x', 'y'}, {"record 4", "truncated"}));
}

TEST(DbnDamage, WindowsBeyondTheLimitAreRefused) {
  // A frame header that asks for a window of 2 GiB, as `zstd --long=31` makes them.
  const Bytes file = {0x28, 0xB5, 0x2F, 0xFD, 0x00, 21 << 3, 0x01, 0x00, 0x00};
  EXPECT_TRUE(corrupt(file, {"window limit", "--long"}));
}

TEST(Dbn, UnknownRtypesAreSkippedByLengthAndCounted) {
  const Bytes records =
      some_records(1) + record_of(0x77, 24) + record_of(0x77, 1020) + records_of({bar_at(1)});
  const ReadResult result = read_bytes(raw_file(3, records));
  EXPECT_EQ(result.bars, (std::vector<Bar>{bar_at(0), bar_at(1)}));
  EXPECT_TRUE(warns(result.warnings, {"record 2", "unknown rtype 0x77"}));
  Folder folder;
  const FileSummary summary = inspect_file(folder.write("a.dbn", raw_file(3, records)));
  EXPECT_EQ(summary.records.at(0x77), 2u);
  EXPECT_EQ(summary.records.at(0x21), 2u);
}

TEST(Dbn, TheRtypeCountsWhereTheSchemaDisagrees) {
  Metadata metadata = bars_metadata(2);
  metadata.schema = 4;  // trades
  const ReadResult result = read_bytes(encode_dbn(metadata, some_records(2), Compression::none));
  EXPECT_EQ(result.bars.size(), 2u);
  EXPECT_TRUE(warns(result.warnings, {"schema trades", "0x21 (ohlcv-1m)"}));
  metadata.schema = schema::kNone;
  EXPECT_TRUE(read_bytes(encode_dbn(metadata, some_records(2), Compression::none)).warnings.empty());
}

TEST(Dbn, BarsOutsideTheStatedRangeAreSaid) {
  Metadata metadata = bars_metadata(2);
  metadata.end = kStart + minutes(2);
  EXPECT_TRUE(warns(read_bytes(encode_dbn(metadata, some_records(3), Compression::none)).warnings,
                    {"1 bars lie outside", "record 3"}));
  metadata.start = kStart + 30 * static_cast<uint64_t>(kSecond);  // inside the first bar's minute
  metadata.end = kStart + minutes(3);
  EXPECT_TRUE(read_bytes(encode_dbn(metadata, some_records(3), Compression::none)).warnings.empty());
  metadata.start = kStart + minutes(1);
  EXPECT_TRUE(warns(read_bytes(encode_dbn(metadata, some_records(3), Compression::none)).warnings,
                    {"1 bars", "record 1"}));
}

TEST(Dbn, AnEndOfZeroIsNone) {
  Metadata metadata = bars_metadata(2);
  metadata.end = 0;
  const ReadResult result = read_bytes(encode_dbn(metadata, some_records(3), Compression::none));
  EXPECT_EQ(result.metadata.end, kUndefinedTimestamp);
  EXPECT_TRUE(result.warnings.empty());
}

TEST(Dbn, ACutBetweenRecordsShowsAgainstTheStatedEnd) {
  Metadata metadata = bars_metadata(2);
  metadata.start = kStart + minutes(60 * 24);  // a Tuesday, 23:00
  metadata.end = metadata.start + minutes(60 * 10);
  Bytes records;
  for (int n = 0; n < 60; ++n) append_bar(records, bar_at(60 * 24 + n), kId);
  EXPECT_TRUE(warns(read_bytes(encode_dbn(metadata, records, Compression::none)).warnings,
                    {"may have been truncated"}));
  metadata.limit = 60;  // asked for no more
  EXPECT_TRUE(read_bytes(encode_dbn(metadata, records, Compression::none)).warnings.empty());
  metadata.limit = 0;
  metadata.end = metadata.start + minutes(100);  // a quiet end
  EXPECT_TRUE(read_bytes(encode_dbn(metadata, records, Compression::none)).warnings.empty());
  // Friday's close to Sunday's open: nothing trades then.
  const uint64_t friday = kStart + minutes(4 * 24 * 60 - 62);
  metadata.start = friday;
  metadata.end = friday + minutes(2 * 24 * 60);
  Bar last = bar_at(0);
  last.ts_event = friday;
  EXPECT_TRUE(read_bytes(encode_dbn(metadata, records_of({last}), Compression::none)).warnings.empty());
}

TEST(Dbn, ErrorRecordsOfTheSenderAreShown) {
  const std::string text = "Lost the feed";
  const Bytes payload(text.begin(), text.end());
  for (const auto& [version, size] : {std::pair(1, 80), std::pair(2, 320), std::pair(3, 320)}) {
    const Bytes records = some_records(1) + record_of(rtype::kError, static_cast<size_t>(size), payload) +
                          record_of(rtype::kSystem, static_cast<size_t>(size));
    const ReadResult result = read_bytes(raw_file(version, records));
    EXPECT_TRUE(warns(result.warnings, {"record 2", "'Lost the feed'"}));
    EXPECT_EQ(result.warnings.size(), 1u);
  }
}

TEST(Dbn, LiveMappingsNameInstruments) {
  for (const int version : {1, 2, 3}) {
    Metadata metadata = bars_metadata(version);
    metadata.mappings.clear();
    Bytes payload(version == 1 ? 64 : 160, 0);
    const std::string in = "ES.FUT", out = "ESH4";
    std::copy(in.begin(), in.end(), payload.begin() + (version == 1 ? 0 : 1));
    std::copy(out.begin(), out.end(), payload.begin() + (version == 1 ? 22 : 73));
    const Bytes records = record_of(rtype::kSymbolMapping, payload.size() + 16, payload) + some_records(3);
    Folder folder;
    const std::string path = folder.write("live.dbn", encode_dbn(metadata, records, Compression::none));
    const FileSummary summary = inspect_file(path);
    ASSERT_EQ(summary.instruments.size(), 1u) << version;
    EXPECT_EQ(summary.instruments[0].symbol, "ESH4");
    EXPECT_EQ(summary.instruments[0].bars.count, 3u);
    EXPECT_EQ(load_bars({path}).contracts.at(0).symbol, "ESH4");
  }
}

// ---- Fragments
// ----------------------------------------------------------------------------------------------------

TEST(DbnFragment, OnlyWhenAskedFor) {
  const Bytes records = some_records(5);
  EXPECT_TRUE(corrupt(records, {"0e 21", "--fragment"}));
  for (const int version : {1, 2, 3}) {
    const ReadResult result = read_bytes(records, {false, version});
    EXPECT_EQ(result.bar_bytes, records);
    EXPECT_EQ(result.metadata.version, version);
    EXPECT_EQ(read_bytes(zstd_frame(records), {false, version}).bar_bytes, records);
  }
  EXPECT_TRUE(fails([&] { read_bytes(records, {false, 4}); }, Code::invalid_argument, {"4", "1, 2 or 3"}));
  EXPECT_TRUE(corrupt(record_of(0x13, 360), {"360", "wants 520", "--fragment right?"}, {false, 3}));
  EXPECT_EQ(read_bytes(record_of(0x13, 360), {false, 1}).types.size(), 1u);
}

TEST(DbnFragment, TsOutIsSeenFromTheFirstRecord) {
  Bytes record = records_of({bar_at(0)});
  record[0] = 16;
  record.resize(64, 0xEE);
  const ReadResult result = read_bytes(record, {false, 2});
  EXPECT_EQ(result.bars, std::vector<Bar>{bar_at(0)});
  EXPECT_TRUE(result.metadata.ts_out);
  EXPECT_TRUE(result.warnings.empty());
}

TEST(DbnFragment, FilesWithMetadataAreReadAsTheyAre) {
  const ReadResult result = read_bytes(raw_file(1, some_records(2)), {false, 3});
  EXPECT_EQ(result.metadata.version, 1);
  EXPECT_TRUE(warns(result.warnings, {"has metadata"}));
}

// ---- Writer
// -------------------------------------------------------------------------------------------------------

TEST(DbnWriter, RefusesWhatTheFormatCannotHold) {
  Metadata metadata = bars_metadata(1);
  metadata.symbols = {std::string(22, 'x')};
  EXPECT_TRUE(
      fails([&] { encode_metadata(metadata); }, Code::invalid_argument, {"22 characters", "at most 21"}));
  metadata = bars_metadata(4);
  EXPECT_TRUE(fails([&] { encode_metadata(metadata); }, Code::invalid_argument, {"version 4"}));
  EXPECT_TRUE(
      fails([] { write_file("/nonexistent/folder/x.dbn", {}); }, Code::io, {"/nonexistent/folder/x.dbn"}));
}

TEST(DbnReader, FilesThatCannotBeOpened) {
  EXPECT_TRUE(
      fails([] { DbnReader("/nonexistent.dbn"); }, Code::io, {"/nonexistent.dbn", "cannot be opened"}));
  Folder folder;
  EXPECT_TRUE(fails([&] { DbnReader(folder.path()); }, Code::io, {folder.path(), "not a regular file"}));
}

}  // namespace
}  // namespace scantape::market::testing
