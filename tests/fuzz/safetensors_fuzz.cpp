// libFuzzer target for the reader of safetensors. Start it on real files:
//   safetensors_fuzz -max_total_time=60 -timeout=10 CORPUS
// Besides crashes, bad accesses and hangs it looks for memory - no input may make the reader hold more than a multiple of
// its size - and for what is read and not written again as it was.
#include <sanitizer/allocator_interface.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "scantape/error.h"
#include "weights/safetensors.h"

namespace {

using namespace scantape;

// An entry of a header takes 50 bytes there, and ten times that as a tensor.
constexpr int64_t kMemoryLimit = int64_t{1} << 20;
constexpr int64_t kMemoryPerByte = 40;

std::atomic<int64_t> held{0};
std::atomic<int64_t> most_held{0};

void on_malloc(const volatile void*, size_t size) {
  const int64_t now = held += static_cast<int64_t>(size);
  if (now > most_held) most_held = now;
}

void on_free(const volatile void* memory) {
  if (memory) held -= static_cast<int64_t>(__sanitizer_get_allocated_size(memory));
}

void demand(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

std::string bytes_of(const Tensor& tensor) {
  return std::string(tensor.view().as<char>(),
                     static_cast<size_t>(tensor.elements() * size_of(tensor.dtype())));
}

void write_again(const Safetensors& contents) {
  const std::string bytes = encode_safetensors(contents);
  const Safetensors again = decode_safetensors(bytes, "what was written");
  demand(again.metadata == contents.metadata, "the metadata differ");
  demand(again.tensors.size() == contents.tensors.size(), "the tensors differ in number");
  for (const NamedTensor& named : contents.tensors) {
    const Tensor* found = again.find(named.name);
    demand(found != nullptr && found->shape() == named.tensor.shape() &&
               found->dtype() == named.tensor.dtype() && bytes_of(*found) == bytes_of(named.tensor),
           "a tensor differs");
  }
  demand(encode_safetensors(again) == bytes, "written again it differs");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  [[maybe_unused]] static const int hooks = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
  const int64_t before = held;
  most_held = before;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const Safetensors contents = decode_safetensors(bytes, "input");
    demand(most_held - before <= kMemoryLimit + kMemoryPerByte * static_cast<int64_t>(size),
           "it held too much");
    write_again(contents);
  } catch (const Error& error) {
    // The only way out: the file is at fault, and a sentence says how.
    demand(error.code() == Code::corrupt_data && std::string(error.what()).rfind("input: ", 0) == 0,
           "an error of another kind");
    demand(most_held - before <= kMemoryLimit + kMemoryPerByte * static_cast<int64_t>(size),
           "it held too much");
  }
  return 0;
}
