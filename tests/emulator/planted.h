/// What the tests of planted faults share. Each says before which file it is:
///   namespace scantape { constexpr const char* kPlantedFile = __FILE__; }
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/launch.cuh"
#include "common/shared.cuh"
#include "scantape_emulator.h"

namespace scantape {
namespace {

using cuda::dynamic_shared;
using cuda::launch;
using cuda::shared_storage;
using emulator::Direction;
using emulator::Fault;
using emulator::FaultKind;

/// The line of the test that ends with the comment "@<mark>".
inline int line_of(const std::string& mark) {
  std::ifstream file(kPlantedFile);
  std::string text;
  const std::string wanted = "// @" + mark;
  for (int line = 1; std::getline(file, text); ++line) {
    if (text.size() >= wanted.size() &&
        text.compare(text.size() - wanted.size(), wanted.size(), wanted) == 0) {
      return line;
    }
  }
  ADD_FAILURE() << "no line is marked " << wanted << " in " << kPlantedFile;
  return -1;
}

inline std::string file_name(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

/// Device memory of one test.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t size) : size_(size) {
    if (cudaMalloc(&data_, size * sizeof(T)) != cudaSuccess) throw std::runtime_error("no device memory");
  }
  Buffer(std::size_t size, T value) : Buffer(std::vector<T>(size, value)) {}
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) {
    EXPECT_EQ(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~Buffer() { EXPECT_EQ(cudaFree(data_), cudaSuccess) << cudaGetErrorString(cudaPeekAtLastError()); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* get() const { return data_; }
  std::vector<T> read() const {
    std::vector<T> values(size_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

using Triple = std::array<unsigned, 3>;

inline void expect_site(const emulator::FaultSite& site, const char* mark, Triple block, Triple thread) {
  EXPECT_EQ(site.block, block);
  EXPECT_EQ(site.thread, thread);
  if (mark == nullptr) return;
  EXPECT_EQ(file_name(site.file), file_name(kPlantedFile));
  EXPECT_EQ(site.line, line_of(mark));
}

inline void expect_fault(const Status& status, FaultKind kind, const char* mark, Triple block,
                         Triple thread) {
  const Fault& fault = emulator::last_fault();
  EXPECT_EQ(status.code(), Code::cuda);
  ASSERT_EQ(fault.kind, kind) << emulator::name(fault.kind) << ": " << status.message();
  expect_site(fault.here, mark, block, thread);
  EXPECT_NE(status.message().find(fault.text), std::string::npos)
      << "the status lacks the fault: " << status.message();
  if (mark != nullptr) {
    const std::string place = file_name(kPlantedFile) + ":" + std::to_string(line_of(mark));
    EXPECT_NE(status.message().find(place), std::string::npos) << status.message();
  }
}

inline void expect_right(const Status& status) {
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(emulator::last_fault().kind, FaultKind::none);
}

}  // namespace
}  // namespace scantape
