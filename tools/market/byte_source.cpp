#include "market/byte_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "market/dbn_format.h"
#include "scantape/error.h"

namespace scantape::market {
namespace {

constexpr size_t kBufferSize = 128 * 1024;
constexpr uint32_t kFrameMagic = 0xFD2FB528;
constexpr uint32_t kSkippableMagic = 0x184D2A50;  // the low four bits are free

bool is_skippable(uint32_t magic) {
  return (magic & 0xFFFFFFF0u) == kSkippableMagic;
}
bool is_frame(uint32_t magic) {
  return magic == kFrameMagic || is_skippable(magic);
}

/// True where the bytes, fewer than four, may be the front of a frame that was cut.
bool may_begin_frame(std::span<const uint8_t> bytes) {
  constexpr uint8_t kFrame[] = {0x28, 0xB5, 0x2F, 0xFD};
  constexpr uint8_t kSkip[] = {0x50, 0x2A, 0x4D, 0x18};
  if (std::equal(bytes.begin(), bytes.end(), kFrame)) return true;
  return (bytes[0] & 0xF0) == kSkip[0] && std::equal(bytes.begin() + 1, bytes.end(), kSkip + 1);
}

class FileSource : public ByteSource {
 public:
  explicit FileSource(const std::string& path) : path_(path), file_(nullptr, &std::fclose) {
    // A pipe without a writer would be waited for, had it not been opened so.
    const int descriptor = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat info = {};
    if (descriptor < 0 || fstat(descriptor, &info) != 0) fail("cannot be opened", descriptor);
    if (!S_ISREG(info.st_mode)) {
      close(descriptor);
      throw Error(Code::io, fmt::format("{}: is not a regular file", path));
    }
    file_.reset(fdopen(descriptor, "rb"));
    if (!file_) fail("cannot be opened", descriptor);
    size_ = static_cast<uint64_t>(info.st_size);
  }

  size_t read(std::span<uint8_t> target) override {
    const size_t count = std::fread(target.data(), 1, target.size(), file_.get());
    if (count == 0 && std::ferror(file_.get())) fail("cannot be read");
    return count;
  }

  uint64_t size() const override { return size_; }

 private:
  /// Closes `descriptor` where it is one, and throws with what errno says.
  [[noreturn]] void fail(const char* what, int descriptor = -1) const {
    const int error = errno;
    if (descriptor >= 0) close(descriptor);
    throw Error(Code::io, fmt::format("{}: {}: {}", path_, what, std::strerror(error)));
  }

  std::string path_;
  std::unique_ptr<FILE, int (*)(FILE*)> file_;
  uint64_t size_ = 0;
};

class MemorySource : public ByteSource {
 public:
  explicit MemorySource(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  size_t read(std::span<uint8_t> target) override {
    const size_t count = std::min(target.size(), bytes_.size() - position_);
    std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(position_), count, target.begin());
    position_ += count;
    return count;
  }

  uint64_t size() const override { return bytes_.size(); }

 private:
  std::span<const uint8_t> bytes_;
  size_t position_ = 0;
};

}  // namespace

std::unique_ptr<ByteSource> open_file(const std::string& path) {
  return std::make_unique<FileSource>(path);
}

std::unique_ptr<ByteSource> memory_source(std::span<const uint8_t> bytes) {
  return std::make_unique<MemorySource>(bytes);
}

void DecodedStream::FreeContext::operator()(ZSTD_DCtx_s* context) const {
  ZSTD_freeDCtx(context);
}

DecodedStream::DecodedStream(std::unique_ptr<ByteSource> source, std::string name, bool allow_truncated)
    : source_(std::move(source)),
      name_(std::move(name)),
      allow_truncated_(allow_truncated),
      input_(kBufferSize),
      output_(kBufferSize) {}

DecodedStream::~DecodedStream() = default;

/// Moves what is left to the front and reads until the buffer is full or the source ends.
void DecodedStream::refill_input() {
  std::memmove(input_.data(), input_.data() + input_begin_, input_end_ - input_begin_);
  input_end_ -= input_begin_;
  input_begin_ = 0;
  while (!input_done_ && input_end_ < input_.size()) {
    const size_t count = source_->read(std::span(input_).subspan(input_end_));
    if (count == 0) input_done_ = true;
    input_end_ += count;
  }
}

void DecodedStream::sniff() {
  sniffed_ = true;
  refill_input();
  if (input_end_ < 4) return;
  const uint32_t magic = load<uint32_t>(input_.data());
  compressed_ = is_frame(magic);
  if (is_skippable(magic) && input_end_ >= 11 && std::memcmp(input_.data() + 8, "DBZ", 3) == 0)
    throw Error(
        Code::corrupt_data,
        fmt::format(
            "{}: is a DBZ file, the format before DBN (its first bytes are {}), which is not supported; "
            "convert it to DBN or download it again",
            name_, hex_bytes(input_.data(), 12)));
  if (!compressed_) return;
  context_.reset(ZSTD_createDCtx());
  if (!context_) throw Error(Code::out_of_memory, fmt::format("{}: no memory for a zstd decoder", name_));
  ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, kWindowLogMax);
}

void DecodedStream::fail_trailing() {
  const uint64_t at = input_offset_;
  const std::string front = hex_bytes(input_.data() + input_begin_, input_end_ - input_begin_);
  uint64_t count = 0;
  bool zeros = true;
  do {
    for (size_t i = input_begin_; i < input_end_; ++i) zeros = zeros && input_[i] == 0;
    count += input_end_ - input_begin_;
    input_begin_ = input_end_;
    refill_input();
  } while (input_begin_ < input_end_);
  throw Error(
      Code::corrupt_data,
      zeros
          ? fmt::format(
                "{}: {} bytes of zero padding follow the last zstd frame at byte {}; wants the end of "
                "the file there",
                name_, count, at)
          : fmt::format("{}: {} bytes of trailing garbage follow the last zstd frame at byte {} ({}); wants "
                        "another frame or the end of the file there",
                        name_, count, at, front));
}

/// Between two frames: true where another one begins, false at a clean end.
bool DecodedStream::next_frame() {
  if (input_end_ - input_begin_ < 4) refill_input();
  const std::span<const uint8_t> rest = std::span(input_).subspan(input_begin_, input_end_ - input_begin_);
  if (rest.empty()) return false;
  if (rest.size() < 4 ? !may_begin_frame(rest) : !is_frame(load<uint32_t>(rest.data()))) fail_trailing();
  in_frame_ = true;
  return true;
}

size_t DecodedStream::decode_raw(std::span<uint8_t> target) {
  if (input_begin_ == input_end_) refill_input();
  const size_t count = std::min(target.size(), input_end_ - input_begin_);
  std::memcpy(target.data(), input_.data() + input_begin_, count);
  input_begin_ += count;
  input_offset_ += count;
  return count;
}

size_t DecodedStream::decode_zstd(std::span<uint8_t> target) {
  while (true) {
    if (!in_frame_ && !next_frame()) return 0;
    if (input_begin_ == input_end_) refill_input();
    ZSTD_inBuffer in = {input_.data() + input_begin_, input_end_ - input_begin_, 0};
    ZSTD_outBuffer out = {target.data(), target.size(), 0};
    const size_t hint = ZSTD_decompressStream(context_.get(), &out, &in);
    if (ZSTD_isError(hint)) {
      const bool window = ZSTD_getErrorCode(hint) == ZSTD_error_frameParameter_windowTooLarge;
      throw Error(
          Code::corrupt_data,
          fmt::format("{}: zstd data is {} near byte {} ({} bytes were decoded before): {}", name_,
                      window ? "beyond the window limit of 32 MiB (compress it without --long or --ultra)"
                             : "corrupt",
                      input_offset_ + in.pos, offset_ + (output_end_ - output_begin_) + out.pos,
                      ZSTD_getErrorName(hint)));
    }
    input_begin_ += in.pos;
    input_offset_ += in.pos;
    in_frame_ = hint != 0;
    if (out.pos != 0) return out.pos;
    if (!in_frame_ || in.pos != 0) continue;
    // Neither input taken nor output made, inside a frame: the source has ended.
    if (!input_done_) continue;
    if (!allow_truncated_)
      throw Error(
          Code::corrupt_data,
          fmt::format(
              "{}: zstd stream is truncated: the file ends at byte {} inside a frame; download it again, or "
              "keep the whole records before the cut with --allow-truncated",
              name_, input_offset_));
    truncated_ = true;
    return 0;
  }
}

size_t DecodedStream::decode(std::span<uint8_t> target) {
  return compressed_ ? decode_zstd(target) : decode_raw(target);
}

std::span<const uint8_t> DecodedStream::peek(size_t count) {
  if (!sniffed_) sniff();
  if (output_end_ - output_begin_ < count && !ended_) {
    std::memmove(output_.data(), output_.data() + output_begin_, output_end_ - output_begin_);
    output_end_ -= output_begin_;
    output_begin_ = 0;
    while (!ended_ && output_end_ < output_.size()) {
      const size_t made = decode(std::span(output_).subspan(output_end_));
      if (made == 0) ended_ = true;
      output_end_ += made;
      // Enough for the caller: an error further on is reported when it is reached.
      if (output_end_ >= count) break;
    }
  }
  return std::span(output_).subspan(output_begin_, std::min(count, output_end_ - output_begin_));
}

void DecodedStream::consume(size_t count) {
  output_begin_ += count;
  offset_ += count;
}

}  // namespace scantape::market
