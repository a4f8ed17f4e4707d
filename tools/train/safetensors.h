#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "scantape/tensor.h"

namespace scantape::train {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// What a safetensors file holds. Tensors are on the CPU; metadata is the header's "__metadata__".
struct Safetensors {
  std::vector<NamedTensor> tensors;  // in the order of their bytes in the file
  std::map<std::string, std::string> metadata;

  /// The tensor of that name; throws Error(corrupt_data) naming the file's tensor that is missing.
  const Tensor& at(const std::string& name) const;
};

/// The bytes of a safetensors file: the same tensors give the same bytes. Tensors may be on any device.
std::string encode_safetensors(const Safetensors& contents);

/// Reads such bytes; `source` names them in errors. Everything is checked before anything is allocated: throws
/// Error(corrupt_data) saying what was wrong (header length, JSON, dtype, shape, offsets that overlap, leave a gap or
/// pass the end, a duplicate name).
Safetensors decode_safetensors(const std::string& bytes, const std::string& source);

void write_safetensors(const std::filesystem::path& path, const Safetensors& contents);
Safetensors read_safetensors(const std::filesystem::path& path);

}  // namespace scantape::train
