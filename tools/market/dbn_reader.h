#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "market/byte_source.h"
#include "market/dbn_format.h"

namespace scantape::market {

struct ReaderOptions {
  /// Keep the whole records before a cut and say how much was dropped, instead of an error.
  bool allow_truncated = false;
  /// The DBN version of a file that holds records only, without metadata. Files with metadata ignore it.
  std::optional<int> fragment_version;
};

/// One record as it stands in the file. `bytes` belongs to the reader and holds until the next call.
struct Record {
  uint64_t number = 0;  // from 1
  uint64_t offset = 0;  // of its first byte in the decoded file
  uint8_t type = 0;
  uint16_t publisher_id = 0;
  uint32_t instrument_id = 0;
  uint64_t ts_event = 0;
  bool known = false;  // the rtype is known, hence the length was checked
  std::span<const uint8_t> bytes;

  /// The bar in it; only where is_bar(type).
  Bar bar() const;

  /// The time that dates the record: when it was received, where the rtype says so, else ts_event.
  uint64_t index_ts() const;
};

/// What a symbol mapping record of a live capture says.
struct LiveMapping {
  uint32_t instrument_id = 0;
  std::string symbol;
};

/// Reads a DBN file of version 1, 2 or 3, raw or zstd, from front to back.
///
/// Memory   bounded: the buffers of DecodedStream, one record, and metadata that may take at most 24 MiB plus
/// the
///          size of the file. Every count in the file is checked against the bytes that are left before
///          memory is taken for it.
/// Errors   corrupt_data, naming the file, the record number and byte, what was found and
/// wanted;
///          io from the source.
/// Threads  one reader, one thread; readers are independent of each other.
class DbnReader {
 public:
  explicit DbnReader(const std::string& path, ReaderOptions options = {});
  DbnReader(std::unique_ptr<ByteSource> source, std::string name, ReaderOptions options = {});

  const std::string& name() const { return name_; }
  const Metadata& metadata() const { return metadata_; }
  bool has_metadata() const { return has_metadata_; }
  uint64_t file_size() const { return stream_.file_size(); }

  /// The next record whatever its rtype, in the order of the file; false at the end.
  bool next(Record& record);

  /// Records by rtype, unknown ones among them, up to now.
  const std::map<uint8_t, uint64_t>& counts() const { return counts_; }

  /// What is odd but not wrong, in the order found. Complete after next() has returned false.
  const std::vector<std::string>& warnings() const { return warnings_; }

  /// Decoded bytes of an unfinished record that were dropped (only with allow_truncated).
  uint64_t dropped_bytes() const { return dropped_bytes_; }

 private:
  void read_metadata();
  void read_fixed_metadata();
  void read_variable_metadata(uint64_t left);
  void skip_metadata_rest(uint64_t left);
  std::span<const uint8_t> take_metadata(size_t count, uint64_t& left, const char* what);
  uint32_t take_count(uint64_t& left, uint64_t bytes_each, uint64_t memory_each, const char* what);
  std::string take_symbol(uint64_t& left, const char* what);
  void take_symbols(uint64_t& left, const char* what, std::vector<std::string>& target);
  void take_mapping(uint64_t& left);
  void use_memory(uint64_t bytes);
  bool end_of_records(size_t available);
  void check_length(const Record& record, size_t length);
  void note_record(const Record& record);
  [[noreturn]] void fail_length_zero();
  void finish();
  void warn(std::string text);
  void warn_once(unsigned kind, std::string text);

  std::string name_;
  ReaderOptions options_;
  DecodedStream stream_;
  Metadata metadata_;
  bool has_metadata_ = true;
  uint64_t memory_left_ = 0;

  uint64_t records_ = 0;
  size_t taken_ = 0;  // bytes of the record handed out last, still in the stream
  bool done_ = false;
  bool ts_out_known_ = true;
  std::map<uint8_t, uint64_t> counts_;
  std::vector<std::string> warnings_;
  unsigned warned_ = 0;
  uint64_t outside_ = 0;
  std::string first_outside_;
  uint64_t last_ts_ = 0;
  bool any_ts_ = false;
  uint64_t dropped_bytes_ = 0;
};

/// The mapping in a symbol mapping record of either size.
LiveMapping parse_live_mapping(const Record& record);

/// The text of an error or system record.
std::string record_text(const Record& record);

/// Which symbol an instrument has on a UTC date, from the metadata of a file and from the symbol mapping
/// records of a live capture.
class SymbolTable {
 public:
  SymbolTable() = default;

  /// Throws corrupt_data, naming file and mapping, where one id has two symbols on one day.
  SymbolTable(const Metadata& metadata, const std::string& file, std::vector<std::string>& warnings);

  void add_live(const LiveMapping& mapping) { live_[mapping.instrument_id] = mapping.symbol; }

  /// Printable ASCII, '?' for any other byte. Empty where no mapping covers the date.
  const std::string& find(uint32_t instrument_id, uint32_t date) const;

  bool empty() const { return entries_.empty() && live_.empty(); }

 private:
  struct Entry {
    uint32_t instrument_id;
    uint32_t start_date;
    uint32_t end_date;
    uint32_t symbol;
  };
  void add(const std::string& id, const MappingInterval& dates, const std::string& symbol,
           const std::string& file, std::vector<std::string>& warnings);
  void check_overlaps(const std::string& file);

  std::vector<Entry> entries_;
  std::vector<std::string> symbols_;
  std::map<uint32_t, std::string> live_;
  uint64_t not_ids_ = 0;
};

}  // namespace scantape::market
