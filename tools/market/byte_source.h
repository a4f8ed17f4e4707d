#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

struct ZSTD_DCtx_s;

namespace scantape::market {

/// Where bytes come from, one chunk after the other.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  /// Fills the front of `target` and returns how many bytes it wrote; 0 only at the end. Throws io.
  virtual size_t read(std::span<uint8_t> target) = 0;

  /// Bytes in all.
  virtual uint64_t size() const = 0;
};

/// A regular file. Throws io, naming the path, where it cannot be opened or read.
std::unique_ptr<ByteSource> open_file(const std::string& path);

/// Bytes in memory, which must outlive the source.
std::unique_ptr<ByteSource> memory_source(std::span<const uint8_t> bytes);

/// The decoded bytes of a source, whether it holds them raw or as zstd: any number of frames, among them
/// empty and skippable ones, in whatever way they cut the data. Sniffed from the first bytes, never from a
/// name.
///
/// Memory: two buffers of 128 KiB and the window of zstd, which is bounded by kWindowLogMax.
/// Errors: corrupt_data for damage, for the format before DBN (".dbz"), for anything behind the last frame
/// that is not a frame, and, unless `allow_truncated`, for a stream that ends inside a frame.
class DecodedStream {
 public:
  /// 32 MiB. Every level of zstd up to 19 stays within 8 MiB; only `--long` and `--ultra` go beyond.
  static constexpr int kWindowLogMax = 25;

  /// `name` stands in messages.
  DecodedStream(std::unique_ptr<ByteSource> source, std::string name, bool allow_truncated);
  ~DecodedStream();
  DecodedStream(const DecodedStream&) = delete;
  DecodedStream& operator=(const DecodedStream&) = delete;

  /// Makes up to `count` decoded bytes (at most 64 KiB) available without consuming them; fewer only at the
  /// end.
  std::span<const uint8_t> peek(size_t count);

  /// Drops bytes that peek() has shown.
  void consume(size_t count);

  /// Decoded bytes consumed so far.
  uint64_t offset() const { return offset_; }

  bool compressed() const { return compressed_; }
  uint64_t file_size() const { return source_->size(); }

  /// True once the end was met inside a zstd frame (only with allow_truncated).
  bool truncated() const { return truncated_; }

 private:
  void refill_input();
  size_t decode(std::span<uint8_t> target);
  size_t decode_raw(std::span<uint8_t> target);
  size_t decode_zstd(std::span<uint8_t> target);
  bool next_frame();
  [[noreturn]] void fail_trailing();
  void sniff();

  struct FreeContext {
    void operator()(ZSTD_DCtx_s* context) const;
  };

  std::unique_ptr<ByteSource> source_;
  std::string name_;
  bool allow_truncated_;
  bool sniffed_ = false;
  bool compressed_ = false;
  bool truncated_ = false;
  bool ended_ = false;
  bool in_frame_ = false;
  std::unique_ptr<ZSTD_DCtx_s, FreeContext> context_;

  std::vector<uint8_t> input_;
  size_t input_begin_ = 0;
  size_t input_end_ = 0;
  bool input_done_ = false;
  uint64_t input_offset_ = 0;  // of input_[input_begin_] in the source

  std::vector<uint8_t> output_;
  size_t output_begin_ = 0;
  size_t output_end_ = 0;
  uint64_t offset_ = 0;
};

}  // namespace scantape::market
