#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "market/dbn_format.h"

namespace scantape::market {

enum class Compression { none, zstd };

/// The prelude and metadata of `metadata.version`, laid out as Databento lays them out (version 3 padded to
/// eight bytes). `length` is computed, not taken. Throws invalid_argument where a symbol does not fit its
/// width, a count or a version is out of range.
std::vector<uint8_t> encode_metadata(const Metadata& metadata);

/// Appends one bar record, 56 bytes in every version.
void append_bar(std::vector<uint8_t>& records, const Bar& bar, uint32_t instrument_id,
                uint16_t publisher_id = 1, uint8_t type = rtype::kOhlcv1m);

/// `bytes` as one zstd frame; with or without the checksum at its end.
std::vector<uint8_t> zstd_frame(std::span<const uint8_t> bytes, bool checksum = true);

/// A whole DBN file in memory. As zstd it has two frames, the metadata (with its size stated, no checksum)
/// and the records (with a checksum), as the historical service writes them.
std::vector<uint8_t> encode_dbn(const Metadata& metadata, std::span<const uint8_t> records,
                                Compression compression);

/// Writes beside `path`, syncs and renames, so that there is never half a file. Throws io, naming the path.
void write_file(const std::string& path, std::span<const uint8_t> bytes);

}  // namespace scantape::market
