#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace scantape::train {

/// Writes a whole file and syncs it to the disk; throws Error(io) naming the path and the system's reason (a full
/// disk, say). The file is not to be there before, or is replaced only when the new one is complete.
void write_file(const std::filesystem::path& path, std::string_view bytes);
/// The same for bytes that come piece by piece: `give` hands each to `take`.
using Take = std::function<void(std::string_view)>;
void write_file(const std::filesystem::path& path, const std::function<void(const Take& take)>& give);

/// Reads a whole file; throws Error(io) naming the path.
std::string read_file(const std::filesystem::path& path);

/// Makes the entries of a directory durable.
void sync_directory(const std::filesystem::path& directory);

/// Appends one line and flushes it.
void append_line(const std::filesystem::path& path, std::string_view line);

/// Points the symbolic link `link` at `target` (relative), by rename: a reader sees the old one or the new one.
void replace_link(const std::filesystem::path& link, const std::filesystem::path& target);

}  // namespace scantape::train
