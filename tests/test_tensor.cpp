// Tensors and shapes at their limits: sizes that nobody can hold, more dimensions than a shape has, tensors that are
// absent or were moved away. Each is refused in words; nothing is allocated, read or written.

#include "scantape/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "scantape/silu.h"

namespace scantape {
namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();

std::vector<Device> devices_here() {
  std::vector<Device> list{kCpu};
  if (is_available(kCuda)) list.push_back(kCuda);
  return list;
}

void expect_refused(const std::string& what, const std::vector<std::string>& says,
                    const std::function<void()>& call) {
  SCOPED_TRACE(what);
  try {
    call();
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument) << error.what();
    for (const std::string& text : says)
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

// ---- Sizes

TEST(TensorSizes, WhatIsNoShapeIsRefused) {
  const std::int64_t root = std::int64_t{1} << 32;  // squared it wraps to 0
  const Shape bad[] = {{-1},
                       {3, -2},
                       {-2, -3},  // six, were it a product
                       {0, -1},
                       {root, root},
                       {root, root, 4},
                       {root * 2 + 1, root * 4},  // wraps to a small number
                       {kLargest},
                       {kLargest / 4 + 1},  // elements fit, bytes do not
                       {2, kLargest / 8 + 1, 3},
                       {1, 1, 1, 1, 1, 1, 1}};
  for (const Device device : devices_here()) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      for (const Shape& shape : bad) {
        const std::string what = name(shape) + " " + name(dtype) + " on " + name(device);
        const std::vector<std::string> says = {"tensor: ", name(shape)};
        expect_refused("empty " + what, says, [&] { Tensor::empty(shape, dtype, device); });
        expect_refused("zeros " + what, says, [&] { Tensor::zeros(shape, dtype, device); });
        expect_refused("full " + what, says, [&] { Tensor::full(shape, 1, dtype, device); });
        expect_refused("from " + what, says, [&] { Tensor::from(shape, std::vector<float>(), device); });
      }
    }
  }
}

TEST(TensorSizes, BytesAreCountedInTheType) {
  // As f32 its bytes can be counted, though nobody has them; as f64 not even that.
  const Shape shape{kLargest / 8, 2};
  expect_refused("f64", {"more than memory can hold"}, [&] { Tensor::empty(shape, DType::f64); });
  if (is_available(kCuda)) {
    try {
      Tensor::empty({std::int64_t{1} << 58}, DType::f32, kCuda);
      ADD_FAILURE() << "no device has as much";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::out_of_memory) << error.what();
    }
  }
}

TEST(TensorSizes, NothingIsASize) {
  for (const Device device : devices_here()) {
    for (const Shape& shape : {Shape{0}, Shape{3, 0}, Shape{0, 5, 2}}) {
      Tensor tensor = Tensor::zeros(shape, DType::f32, device);
      EXPECT_TRUE(tensor.present());
      EXPECT_EQ(tensor.elements(), 0);
      EXPECT_EQ(tensor.shape(), shape);
      EXPECT_TRUE(tensor.values<float>().empty());
      EXPECT_TRUE(tensor.clone().present());
      tensor.fill_zero();
      // The same number of elements, and yet no shape.
      expect_refused("reshape", {"[-1]"}, [&] { tensor.reshape({-1}); });
      expect_refused("reshape", {"more than 6 dimensions"}, [&] { tensor.reshape({0, 1, 1, 1, 1, 1, 1}); });
    }
  }
  EXPECT_EQ(Tensor::full({}, 2.5, DType::f64).values<double>(), std::vector<double>{2.5});
}

// ---- More dimensions than there are

TEST(ShapeRank, MoreThanSixAreNoShape) {
  const Shape whole{1, 2, 1, 2, 1, 2};
  EXPECT_EQ(whole.rank(), kMaxRank);
  EXPECT_EQ(whole.elements(), 8);
  Shape grown = whole;
  for (int again = 0; again < 3; ++again) {
    grown.append(7);
    EXPECT_EQ(grown.rank(), -1);
  }
  const Shape listed{1, 2, 1, 2, 1, 2, 1};
  EXPECT_EQ(listed.rank(), -1);
  for (const Shape& shape : {grown, listed}) {
    EXPECT_EQ(shape.elements(), 0);
    EXPECT_EQ(shape.back(), 1);
    EXPECT_EQ(name(shape), "[more than 6 dimensions]");
    EXPECT_NE(shape, whole);
    EXPECT_EQ(shape, shape);
    float memory[8] = {};
    const ConstView view(memory, DType::f32, kCpu, shape);
    Rows rows;
    EXPECT_FALSE(as_rows(view, &rows));
    EXPECT_FALSE(is_contiguous(view));
    SiluForward args;
    args.x = view;
    args.y = View(memory, DType::f32, kCpu, shape);
    EXPECT_EQ(silu_forward(args).message(),
              "silu: x has shape [more than 6 dimensions], wants " + std::string("[...]"));
    expect_refused("reshape", {"[1, 2, 1, 2, 1, 2] cannot be seen as [more than 6 dimensions]"},
                   [&] { Tensor::zeros(whole, DType::f32).reshape(shape); });
  }
}

TEST(ShapeRank, AScalarHasABack) {
  EXPECT_EQ(Shape().back(), 1);
  EXPECT_EQ(Shape().elements(), 1);
}

// ---- Absent tensors

/// Everything that can be asked of a tensor that is not there.
void expect_absent(Tensor& tensor) {
  EXPECT_FALSE(tensor.present());
  EXPECT_FALSE(tensor.view().present);
  EXPECT_EQ(tensor.view().data, nullptr);
  EXPECT_FALSE(static_cast<ConstView>(tensor).present);
  EXPECT_FALSE(tensor.writable().present);
  EXPECT_EQ(tensor.writable().data, nullptr);
  EXPECT_EQ(tensor.version(), 0U);
  const std::vector<std::string> says = {"tensor: ", "absent"};
  Tensor other = Tensor::zeros({2, 3}, DType::f32);
  expect_refused("clone", says, [&] { tensor.clone(); });
  for (const Device device : devices_here()) expect_refused("to", says, [&] { tensor.to(device); });
  for (const DType dtype : {DType::f32, DType::f64}) expect_refused("to", says, [&] { tensor.to(dtype); });
  expect_refused("values", says, [&] { tensor.values<float>(); });
  expect_refused("values", says, [&] { tensor.values<double>(); });
  expect_refused("data", says, [&] { tensor.data<float>(); });
  expect_refused("mutable_data", says, [&] { tensor.mutable_data<float>(); });
  expect_refused("copy_from", says, [&] { tensor.copy_from(other); });
  expect_refused("copy_from", says, [&] { other.copy_from(tensor); });
  expect_refused("copy_from itself", says, [&] { tensor.copy_from(tensor); });
  expect_refused("fill_zero", says, [&] { tensor.fill_zero(); });
  expect_refused("reshape", says, [&] { tensor.reshape({2, 3}); });
  expect_refused("reshape to nothing", says, [&] { tensor.reshape({0}); });
  expect_refused("slice", says, [&] { tensor.slice(0, 0, 1); });
  SiluForward args;
  args.x = tensor;
  args.y = other.writable();
  EXPECT_EQ(silu_forward(args).message().rfind("silu: x is missing", 0), 0U) << silu_forward(args).message();
}

TEST(AbsentTensor, IsRefusedInWords) {
  Tensor never;
  expect_absent(never);
}

TEST(AbsentTensor, AfterAMoveAsWell) {
  for (const Device device : devices_here()) {
    Tensor tensor = Tensor::full({2, 3}, 1.5, DType::f32, device);
    Tensor taken = std::move(tensor);
    expect_absent(tensor);  // NOLINT: what is left is looked at on purpose
    Tensor assigned;
    assigned = std::move(taken);
    expect_absent(taken);  // NOLINT
    EXPECT_EQ(assigned.values<float>(), std::vector<float>(6, 1.5F));
    tensor = assigned;
    EXPECT_EQ(tensor.values<float>(), std::vector<float>(6, 1.5F));
  }
}

}  // namespace
}  // namespace scantape
