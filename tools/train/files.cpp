#include "train/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "scantape/error.h"

namespace scantape::train {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& what, const fs::path& path, int error) {
  throw Error(Code::io, what + " " + path.string() + " failed: " + std::strerror(error));
}

/// A file descriptor that is closed on every way out.
class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags, const char* what)
      : path_(path), descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (descriptor_ < 0) fail(what, path, errno);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("writing", path_, errno);
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
  }

  void sync_and_close() {
    if (::fsync(descriptor_) != 0) fail("syncing", path_, errno);
    const int closed = ::close(std::exchange(descriptor_, -1));
    if (closed != 0) fail("closing", path_, errno);
  }

 private:
  fs::path path_;
  int descriptor_;
};

}  // namespace

void write_file(const fs::path& path, std::string_view bytes) {
  write_file(path, [bytes](const Take& take) { take(bytes); });
}

void write_file(const fs::path& path, const std::function<void(const Take& take)>& give) {
  const fs::path partial = path.string() + ".partial";
  try {
    Descriptor file(partial, O_WRONLY | O_CREAT | O_TRUNC, "creating");
    give([&file](std::string_view bytes) { file.write(bytes); });
    file.sync_and_close();
  } catch (...) {
    ::unlink(partial.c_str());
    throw;
  }
  if (::rename(partial.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(partial.c_str());
    fail("renaming to", path, error);
  }
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  if (file) bytes << file.rdbuf();
  if (!file || file.bad())
    throw Error(Code::io, "reading " + path.string() + " failed: " + std::strerror(errno));
  return bytes.str();
}

void sync_directory(const fs::path& directory) {
  Descriptor(directory, O_RDONLY | O_DIRECTORY, "opening").sync_and_close();
}

void append_line(const fs::path& path, std::string_view line) {
  Descriptor file(path, O_WRONLY | O_CREAT | O_APPEND, "opening");
  file.write(std::string(line) + "\n");
}

void replace_link(const fs::path& link, const fs::path& target) {
  const fs::path partial = link.string() + ".partial";
  ::unlink(partial.c_str());
  if (::symlink(target.c_str(), partial.c_str()) != 0) fail("linking", partial, errno);
  if (::rename(partial.c_str(), link.c_str()) != 0) fail("renaming to", link, errno);
}

}  // namespace scantape::train
