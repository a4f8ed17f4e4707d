// Indices: tensors of i32, what they may not be, and what becomes of those outside a table.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "scantape/cross_entropy.h"
#include "scantape/device.h"
#include "scantape/embedding.h"
#include "scantape/error.h"
#include "scantape/tensor.h"

namespace scantape {
namespace {

using Ids = std::vector<std::int32_t>;
constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
constexpr std::int32_t kLeast = std::numeric_limits<std::int32_t>::min();

template <class Args>
Status call(Status (*function)(const Args&, Stream) noexcept, std::int64_t (*size)(const Args&) noexcept,
            Args args, Device device) {
  const std::int64_t bytes = size(args);
  const Tensor room = Tensor::empty({bytes / 8 + 1}, DType::f64, device);
  args.workspace = {const_cast<void*>(room.view().data), bytes};
  const Status status = function(args, Stream{});
  return status.ok() ? synchronize(device) : status;
}

std::vector<Device> devices() {
  return is_available(kCuda) ? std::vector<Device>{kCpu, kCuda} : std::vector<Device>{kCpu};
}

TEST(Indices, AreExactTensors) {
  const Tensor ids = Tensor::from({4}, Ids{0, -1, kMost, kLeast});
  EXPECT_EQ(ids.dtype(), DType::i32);
  EXPECT_STREQ(name(ids.dtype()), "i32");
  EXPECT_EQ(size_of(DType::i32), 4);
  EXPECT_EQ(ids.to(DType::f64).values<double>(), (std::vector<double>{0, -1, 2147483647.0, -2147483648.0}));
  EXPECT_EQ(ids.to(DType::f64).to(DType::i32).values<std::int32_t>(), ids.values<std::int32_t>());
  // Rounded once, from all its digits: by way of f32 this would be a tie, and go to the even one below.
  EXPECT_EQ(static_cast<float>(
                Tensor::from({1}, Ids{(1 << 30) + (1 << 22) + 1}).to(DType::bf16).values<BFloat16>()[0]),
            static_cast<float>((1 << 30) + (1 << 23)));
  EXPECT_EQ(Tensor::full({2}, 7, DType::i32).values<std::int32_t>(), (Ids{7, 7}));
  EXPECT_EQ(Tensor::zeros({2}, DType::i32).values<std::int32_t>(), (Ids{0, 0}));
  for (const double wrong : {0.5, 2147483648.0, -2147483649.0, std::nan(""), HUGE_VAL}) {
    EXPECT_THROW((void)Tensor::full({1}, wrong, DType::i32), Error) << wrong;
    EXPECT_THROW((void)Tensor::from({1}, std::vector<double>{wrong}).to(DType::i32), Error) << wrong;
  }
  EXPECT_THROW((void)ids.values<float>(), Error);
}

TEST(Indices, TensorsLieOverMemoryOfOthers) {
  const auto memory = std::make_shared<std::vector<double>>(std::vector<double>{1, 2, 3, 4, 5, 6});
  const std::weak_ptr<std::vector<double>> watched = memory;
  {
    Tensor tensor = Tensor::over(View(memory->data(), DType::f64, kCpu, {2, 3}), memory);
    EXPECT_EQ(tensor.data<double>(), memory->data());
    const Tensor row = tensor.slice(0, 1, 2);
    tensor.mutable_data<double>()[5] = 60;
    EXPECT_EQ((*memory)[5], 60);
    EXPECT_EQ(row.values<double>(), (std::vector<double>{4, 5, 60}));
    EXPECT_EQ(watched.use_count(), 2);  // all tensors over it are one owner
  }
  EXPECT_EQ(watched.use_count(), 1);
  View strided(memory->data(), DType::f64, kCpu, {2, 2});
  strided.strides[0] = 3;
  EXPECT_THROW((void)Tensor::over(strided, memory), Error);
  EXPECT_THROW((void)Tensor::over(View(memory->data(), DType::f64, kCpu, {2, 3}), nullptr), Error);
  EXPECT_THROW((void)Tensor::over(View(), memory), Error);
  char* const odd = reinterpret_cast<char*>(memory->data()) + 1;
  EXPECT_THROW((void)Tensor::over(View(odd, DType::f32, kCpu, {2}), memory), Error);
}

/// A row outside the table at place 2 of 4.
struct Outside {
  std::int32_t id;
  Device device;
  Tensor ids, weight, y, d_y, d_weight;

  Outside(std::int32_t wrong, DType dtype, Device where)
      : id(wrong),
        device(where),
        ids(Tensor::from({4}, Ids{1, 2, wrong, 1}, where)),
        weight(Tensor::from({3, 2}, std::vector<double>{1, 2, 3, 4, 5, 6}).to(dtype).to(where)),
        y(Tensor::full({4, 2}, -8, dtype, where)),
        d_y(Tensor::from({4, 2}, std::vector<double>{1, 2, 4, 8, 16, 32, 64, 128}).to(dtype).to(where)),
        d_weight(Tensor::full({3, 2}, -8, at_least_f32(dtype), where)) {}

  Status forward() {
    EmbeddingForward args;
    args.ids = ids;
    args.weight = weight;
    args.y = y.writable();
    return call(embedding_forward, embedding_forward_workspace, args, device);
  }
  Status backward(WriteMode mode) {
    EmbeddingBackward args;
    args.ids = ids;
    args.d_y = d_y;
    args.d_weight = {d_weight.writable(), mode};
    return call(embedding_backward, embedding_backward_workspace, args, device);
  }
};

std::vector<double> numbers(const Tensor& tensor) {
  return tensor.to(DType::f64).values<double>();
}

const DType kTypes[] = {DType::f32, DType::f64, DType::bf16, DType::f16};

TEST(Indices, OutsideATableAreAnErrorOnTheCpu) {
  for (const std::int32_t wrong : {-1, 3, kMost, kLeast})
    for (const DType dtype : kTypes) {
      Outside o(wrong, dtype, kCpu);
      Status status = o.forward();
      EXPECT_EQ(status.code(), Code::invalid_argument);
      EXPECT_EQ(status.message(), "embedding: ids [4] holds " + std::to_string(wrong) +
                                      " at element 2, wants at least 0 and below 3");
      EXPECT_EQ(numbers(o.y), std::vector<double>(8, -8.0)) << "was written to";
      for (const WriteMode mode : {WriteMode::overwrite, WriteMode::accumulate}) {
        status = o.backward(mode);
        EXPECT_EQ(status.code(), Code::invalid_argument);
        EXPECT_EQ(status.message().rfind("embedding_backward: ids [4] holds ", 0), 0U) << status.message();
        EXPECT_EQ(numbers(o.d_weight), std::vector<double>(6, -8.0)) << "was written to";
      }
    }
}

TEST(Indices, OutsideATableAreSeenInTheResultOnCuda) {
  if (!is_available(kCuda)) GTEST_SKIP() << "no cuda";
  for (const std::int32_t wrong : {-1, 3, kMost, kLeast})
    for (const DType dtype : kTypes) {
      Outside o(wrong, dtype, kCuda);
      ASSERT_TRUE(o.forward().ok());
      const std::vector<double> y = numbers(o.y);
      EXPECT_TRUE(std::isnan(y[4]) && std::isnan(y[5]));
      EXPECT_EQ((std::vector<double>{y[0], y[1], y[2], y[3], y[6], y[7]}),
                (std::vector<double>{3, 4, 5, 6, 3, 4}));
      ASSERT_TRUE(o.backward(WriteMode::overwrite).ok());
      EXPECT_EQ(numbers(o.d_weight), (std::vector<double>{0, 0, 65, 130, 4, 8}));
      ASSERT_TRUE(o.backward(WriteMode::accumulate).ok());
      EXPECT_EQ(numbers(o.d_weight), (std::vector<double>{0, 0, 130, 260, 8, 16}));
    }
}

TEST(Indices, ATableOfNoRowsHasNoPlaceForAnyId) {
  const Tensor ids = Tensor::from({2}, Ids{0, 0}), weight = Tensor::empty({0, 2}, DType::f64);
  Tensor y = Tensor::full({2, 2}, -8, DType::f64);
  EmbeddingForward args;
  args.ids = ids;
  args.weight = weight;
  args.y = y.writable();
  EXPECT_EQ(embedding_forward(args).code(), Code::invalid_argument);
  EXPECT_EQ(numbers(y), std::vector<double>(4, -8.0));
}

// Looked at before anything else is: no memory is behind this many.
TEST(Indices, MoreThanCudaSortsAreRefusedThere) {
  const void* const nowhere = reinterpret_cast<const void*>(std::uintptr_t{256});
  EmbeddingBackward args;
  args.ids = ConstView(nowhere, DType::i32, kCuda, {kMostIdsOnCuda + 1});
  args.d_y = ConstView(nowhere, DType::f32, kCuda, {kMostIdsOnCuda + 1, 1});
  const Status status = embedding_backward(args);
  EXPECT_EQ(status.code(), Code::unsupported) << status.message();
  EXPECT_NE(status.message().find("2^32"), std::string::npos) << status.message();
}

struct Loss {
  Tensor logits, target, loss, statistics, d_loss, d_logits;
  std::int32_t ignored = -100;

  Loss(const Tensor& x, const Ids& ids, Device device, double d = 1)
      : logits(x.to(device)),
        target(Tensor::from({x.shape()[0]}, ids, device)),
        loss(Tensor::full({}, -8, DType::f64, device)),
        statistics(Tensor::full({x.shape()[0], 2}, -8, at_least_f32(x.dtype()), device)),
        d_loss(Tensor::full({}, d, DType::f64, device)),
        d_logits(Tensor::full(x.shape(), -8, x.dtype(), device)) {}

  Status forward() {
    CrossEntropyForward args;
    args.logits = logits;
    args.target = target;
    args.ignore_index = ignored;
    args.loss = loss.writable();
    args.statistics = statistics.writable();
    return call(cross_entropy_forward, cross_entropy_forward_workspace, args, logits.device());
  }
  Status backward() {
    CrossEntropyBackward args;
    args.logits = logits;
    args.target = target;
    args.ignore_index = ignored;
    static_cast<ConstView&>(args.statistics) = statistics;
    args.d_loss = d_loss;
    args.d_logits = {d_logits.writable(), WriteMode::overwrite};
    return call(cross_entropy_backward, cross_entropy_backward_workspace, args, logits.device());
  }
};

TEST(Targets, OutsideTheLogitsAreAnErrorOnTheCpu) {
  const Tensor x = Tensor::from({3, 2}, std::vector<double>{1, 2, 3, 4, 5, 6});
  for (const std::int32_t wrong : {-1, 2, kMost, kLeast})
    for (const DType dtype : kTypes) {
      Loss l(x.to(dtype), {0, wrong, 1}, kCpu);
      EXPECT_EQ(l.forward().message(),
                "cross_entropy: target [3] holds " + std::to_string(wrong) +
                    " at element 1, wants at least 0 and below 2, or the ignored -100");
      EXPECT_EQ(l.backward().code(), Code::invalid_argument);
      EXPECT_EQ(numbers(l.loss)[0], -8);
      EXPECT_EQ(numbers(l.statistics), std::vector<double>(6, -8.0));
      EXPECT_EQ(numbers(l.d_logits), std::vector<double>(6, -8.0));
      l.ignored = wrong;
      EXPECT_TRUE(l.forward().ok());
    }
}

TEST(Targets, OutsideTheLogitsMakeTheLossNaNOnCuda) {
  if (!is_available(kCuda)) GTEST_SKIP() << "no cuda";
  const Tensor x = Tensor::from({3, 2}, std::vector<double>{1, 2, 3, 4, 5, 6});
  for (const std::int32_t wrong : {-1, 2, kMost, kLeast})
    for (const DType dtype : kTypes) {
      Loss l(x.to(dtype), {0, wrong, 1}, kCuda);
      ASSERT_TRUE(l.forward().ok());
      EXPECT_TRUE(std::isnan(numbers(l.loss)[0]));
      ASSERT_TRUE(l.backward().ok());
      const std::vector<double> d = numbers(l.d_logits);
      for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(std::isnan(d[i]), i / 2 == 1) << i;
    }
}

// exp(-30) is far below the rounding of 1 in f32: a softmax of 1 would have no loss, and no gradient.
TEST(Targets, ACertainRowKeepsALossAndAGradient) {
  const double rest = 2 * std::exp(-30.0);
  for (const Device device : devices())
    for (const DType dtype : {DType::f32, DType::f64}) {
      Loss l(Tensor::from({1, 3}, std::vector<double>{0, 30, 0}).to(dtype), {1}, device);
      ASSERT_TRUE(l.forward().ok());
      ASSERT_TRUE(l.backward().ok());
      EXPECT_NEAR(numbers(l.loss)[0], rest, 1e-5 * rest) << name(device);
      EXPECT_NEAR(numbers(l.d_logits)[1], -rest, 1e-5 * rest) << name(device);
      EXPECT_NEAR(numbers(l.d_logits)[0], rest / 2, 1e-5 * rest) << name(device);
    }
}

TEST(Targets, LogitsOfInfinityAreWhatTheyMean) {
  const double inf = HUGE_VAL;
  for (const Device device : devices())
    for (const DType dtype : {DType::f32, DType::f64}) {
      // No probability: as if it were not there, first or last.
      for (const auto& x : {std::vector<double>{-inf, 1, 2}, std::vector<double>{1, 2, -inf}}) {
        const std::int32_t at = x[0] == -inf ? 1 : 0;
        Loss l(Tensor::from({1, 3}, x).to(dtype), {at}, device),
            plain(Tensor::from({1, 2}, std::vector<double>{1, 2}).to(dtype), {0}, device);
        ASSERT_TRUE(l.forward().ok() && l.backward().ok() && plain.forward().ok());
        EXPECT_EQ(numbers(l.loss), numbers(plain.loss));
        EXPECT_EQ(numbers(l.d_logits)[at == 1 ? 0 : 2], 0);
      }
      // A target without probability costs infinitely much; NaN, and rows without any number, are NaN.
      Loss never(Tensor::from({1, 2}, std::vector<double>{-inf, 0}).to(dtype), {0}, device);
      ASSERT_TRUE(never.forward().ok());
      EXPECT_EQ(numbers(never.loss)[0], inf);
      for (const auto& x : {std::vector<double>{std::nan(""), 0, 1}, std::vector<double>{0, 1, std::nan("")},
                            std::vector<double>{-inf, -inf, -inf}, std::vector<double>{inf, 0, inf}}) {
        Loss l(Tensor::from({1, 3}, x).to(dtype), {0}, device);
        ASSERT_TRUE(l.forward().ok());
        EXPECT_TRUE(std::isnan(numbers(l.loss)[0])) << x[0] << " " << x[1] << " on " << name(device);
      }
    }
}

}  // namespace
}  // namespace scantape
