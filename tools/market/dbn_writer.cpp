#include "market/dbn_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "scantape/error.h"

namespace scantape::market {
namespace {

template <typename T>
void put(std::vector<uint8_t>& bytes, T value) {
  uint8_t raw[sizeof value];
  std::memcpy(raw, &value, sizeof value);
  bytes.insert(bytes.end(), raw, raw + sizeof value);
}

void put_text(std::vector<uint8_t>& bytes, const std::string& text, size_t width) {
  if (text.size() >= width)
    throw Error(Code::invalid_argument,
                fmt::format("'{}' has {} characters; a field of {} bytes holds at most {}", text, text.size(),
                            width, width - 1));
  bytes.insert(bytes.end(), text.begin(), text.end());
  bytes.insert(bytes.end(), width - text.size(), 0);
}

void put_symbols(std::vector<uint8_t>& bytes, const std::vector<std::string>& symbols, size_t width) {
  put(bytes, static_cast<uint32_t>(symbols.size()));
  for (const std::string& symbol : symbols) put_text(bytes, symbol, width);
}

void put_fixed(std::vector<uint8_t>& bytes, const Metadata& metadata) {
  const size_t begin = bytes.size();
  put_text(bytes, metadata.dataset, 16);
  put(bytes, metadata.schema);
  put(bytes, metadata.start);
  put(bytes, metadata.end);
  put(bytes, metadata.limit);
  if (metadata.version == 1) put(bytes, kUndefinedTimestamp);  // record_count, no longer filled
  put(bytes, metadata.stype_in);
  put(bytes, metadata.stype_out);
  put(bytes, static_cast<uint8_t>(metadata.ts_out));
  if (metadata.version > 1) put(bytes, metadata.symbol_width);
  bytes.resize(begin + kFixedMetadataSize, 0);
}

}  // namespace

std::vector<uint8_t> encode_metadata(const Metadata& metadata) {
  if (metadata.version < 1 || metadata.version > 3)
    throw Error(Code::invalid_argument,
                fmt::format("DBN version {} cannot be written; wants 1, 2 or 3", metadata.version));
  const size_t width = metadata.version == 1 ? kSymbolWidthV1 : metadata.symbol_width;
  std::vector<uint8_t> bytes = {'D', 'B', 'N', static_cast<uint8_t>(metadata.version), 0, 0, 0, 0};
  put_fixed(bytes, metadata);
  put(bytes, uint32_t{0});  // schema definition
  put_symbols(bytes, metadata.symbols, width);
  put_symbols(bytes, metadata.partial, width);
  put_symbols(bytes, metadata.not_found, width);
  put(bytes, static_cast<uint32_t>(metadata.mappings.size()));
  for (const SymbolMapping& mapping : metadata.mappings) {
    put_text(bytes, mapping.raw_symbol, width);
    put(bytes, static_cast<uint32_t>(mapping.intervals.size()));
    for (const MappingInterval& interval : mapping.intervals) {
      put(bytes, interval.start_date);
      put(bytes, interval.end_date);
      put_text(bytes, interval.symbol, width);
    }
  }
  if (metadata.version == 3) bytes.resize((bytes.size() + 7) / 8 * 8, 0);
  const uint32_t length = static_cast<uint32_t>(bytes.size() - kPreludeSize);
  std::memcpy(bytes.data() + 4, &length, sizeof length);
  return bytes;
}

void append_bar(std::vector<uint8_t>& records, const Bar& bar, uint32_t instrument_id, uint16_t publisher_id,
                uint8_t type) {
  put(records, static_cast<uint8_t>(kBarSize / 4));
  put(records, type);
  put(records, publisher_id);
  put(records, instrument_id);
  put(records, bar.ts_event);
  put(records, bar.open);
  put(records, bar.high);
  put(records, bar.low);
  put(records, bar.close);
  put(records, bar.volume);
}

std::vector<uint8_t> zstd_frame(std::span<const uint8_t> bytes, bool checksum) {
  const std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> context(ZSTD_createCCtx(), &ZSTD_freeCCtx);
  if (!context) throw Error(Code::out_of_memory, "no memory for a zstd encoder");
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, checksum ? 1 : 0);
  std::vector<uint8_t> frame(ZSTD_compressBound(bytes.size()));
  const size_t size = ZSTD_compress2(context.get(), frame.data(), frame.size(), bytes.data(), bytes.size());
  if (ZSTD_isError(size))
    throw Error(Code::io, fmt::format("zstd cannot compress: {}", ZSTD_getErrorName(size)));
  frame.resize(size);
  return frame;
}

std::vector<uint8_t> encode_dbn(const Metadata& metadata, std::span<const uint8_t> records,
                                Compression compression) {
  std::vector<uint8_t> bytes = encode_metadata(metadata);
  if (compression == Compression::none) {
    bytes.insert(bytes.end(), records.begin(), records.end());
    return bytes;
  }
  bytes = zstd_frame(bytes, false);
  const std::vector<uint8_t> frame = zstd_frame(records, true);
  bytes.insert(bytes.end(), frame.begin(), frame.end());
  return bytes;
}

void write_file(const std::string& path, std::span<const uint8_t> bytes) {
  const std::string beside = path + ".tmp";
  const auto fail = [&](const char* what) {
    const std::string reason = std::strerror(errno);
    unlink(beside.c_str());
    throw Error(Code::io, fmt::format("{}: cannot be {}: {}", path, what, reason));
  };
  const int file = open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) fail("created");
  while (!bytes.empty()) {
    const ssize_t count = write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int reason = errno;
      close(file);
      errno = reason;
      fail("written");
    }
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  const bool synced = fsync(file) == 0;
  if (close(file) != 0 || !synced) fail("written");
  if (rename(beside.c_str(), path.c_str()) != 0) fail("put in place");
}

}  // namespace scantape::market
