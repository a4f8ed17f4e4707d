#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "scantape/tensor.h"

namespace scantape {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// What a safetensors file holds: tensors of f64, f32, bf16, f16 and i32 on the CPU. metadata is the header's
/// "__metadata__".
struct Safetensors {
  std::vector<NamedTensor> tensors;  // in the order of their bytes in the file
  std::map<std::string, std::string> metadata;

  /// Null where there is none of that name.
  const Tensor* find(std::string_view name) const noexcept;
  /// The same; throws Error(corrupt_data) naming the tensor that is missing.
  const Tensor& at(const std::string& name) const;
};

/// Reads a file without copying it: the tensors lie over a private mapping of it, which they keep. Who writes to one
/// changes memory and never the file; a file may be replaced meanwhile by rename, as write_safetensors does, but must not
/// be cut short. Only a tensor whose bytes are not aligned to its elements is copied.
///
/// Everything is checked before memory is taken for any tensor. Throws Error(io) naming path and reason,
/// Error(corrupt_data) naming the file, the tensor and what was wrong: header length (100 MB at most), JSON, unknown
/// fields, dtype, shape, offsets that overlap, leave a gap or pass the end, a name given twice. A PyTorch file is refused
/// with how to convert it.
Safetensors read_safetensors(const std::filesystem::path& path);

/// Writes a file beside, syncs it and renames it into place: whoever looks sees a whole file or the earlier one. Tensors
/// may be on any device and of any layout; one at a time is copied. The same tensors give the same bytes. Throws
/// Error(io), and Error(invalid_argument) for a name that is given twice or reserved.
void write_safetensors(const std::filesystem::path& path, const Safetensors& contents);

/// The same in memory. decode copies every tensor; `source` names the bytes in errors.
std::string encode_safetensors(const Safetensors& contents);
Safetensors decode_safetensors(std::string_view bytes, const std::string& source);

}  // namespace scantape
