// Every argument of every op, wrong in every way: the answer is invalid_argument, in a sentence that names
// the op and the argument, and nothing is written. Then the mistakes that a team once made, by their numbers.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "scantape/adamw.h"
#include "scantape/causal_conv1d.h"
#include "scantape/causal_conv1d_step.h"
#include "scantape/copy.h"
#include "scantape/counters.h"
#include "scantape/cross_entropy.h"
#include "scantape/discretize.h"
#include "scantape/discretized_scan.h"
#include "scantape/embedding.h"
#include "scantape/gated_rms_norm.h"
#include "scantape/grad_norm.h"
#include "scantape/huber.h"
#include "scantape/layer_norm.h"
#include "scantape/mse.h"
#include "scantape/neg_exp.h"
#include "scantape/projection.h"
#include "scantape/projection_layer_norm.h"
#include "scantape/quantile.h"
#include "scantape/rms_norm.h"
#include "scantape/scan.h"
#include "scantape/selective_scan.h"
#include "scantape/selective_scan_step.h"
#include "scantape/silu.h"
#include "scantape/softplus.h"
#include "scantape/spectral_radius.h"
#include "scantape/ssd.h"
#include "scantape/ssd_step.h"
#include "scantape/state_output.h"

namespace scantape {
namespace {

// ---- One valid call, and what may be done to it
// -----------------------------------------------------------------

struct Slot {
  std::string name;
  ConstView* view;
  bool written;
  bool optional;
  bool strided;                   // rows may lie apart
  WriteMode* mode;                // of a gradient
  bool independent;               // its size and dtype are right whatever they are
  const char* without = nullptr;  // what is said where it is left out, if not that it is missing
  int row_axes = 1;               // of which dimensions, from the last on, a row is made
  int free_axis = -1;             // whose size no other argument knows
  bool any_narrow = false;        // beside f32, or instead of it, any type of 16 bits is right
};

/// A call whose arguments all fit. Slots point into `args`, so it stays where it was made.
template <class Args>
class Call {
 public:
  Call(const char* op, Status (*function)(const Args&, Stream) noexcept, DType dtype)
      : op_(op), function_(function), dtype_(dtype) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Args args;

  Slot& input(const char* name, ConstView& view, const Shape& shape) { return add(name, view, shape, false); }
  Slot& output(const char* name, View& view, const Shape& shape) { return add(name, view, shape, true); }
  Slot& gradient(const char* name, Gradient& gradient, const Shape& shape) {
    gradient.mode = WriteMode::overwrite;
    Slot& slot = add(name, gradient.view, shape, true);
    slot.mode = &gradient.mode;
    return slot;
  }
  void may_be(const char* output, const char* other) { pairs_.emplace_back(output, other); }
  /// f32 where the others have 16 bits.
  static Slot& widened(Slot& slot) {
    slot.view->dtype = at_least_f32(slot.view->dtype);
    return slot;
  }
  void takes_16_bits() { takes_16_bits_ = true; }

  void check_everything() {
    ASSERT_TRUE(run().ok()) << run().message();
    for (Slot& slot : slots_) {
      SCOPED_TRACE(op_ + ", " + slot.name + " " + name(dtype_));
      const ConstView good = *slot.view;
      check_rank_and_sizes(slot);
      check_dtype(slot);
      check_device(slot);
      check_presence(slot);
      check_memory(slot);
      check_overlap(slot);
      check_mode(slot);
      *slot.view = good;
      ASSERT_TRUE(run().ok()) << "the test did not put back what it changed: " << run().message();
    }
  }

  Slot& slot(const std::string& name) {
    return *std::find_if(slots_.begin(), slots_.end(), [&](const Slot& slot) { return slot.name == name; });
  }

 private:
  static constexpr std::size_t kBytes = 4096;

  Slot& add(const char* name, ConstView& view, const Shape& shape, bool written) {
    memory_.push_back(std::make_unique<Block>());
    if (dtype_ == DType::f64) {
      std::fill_n(reinterpret_cast<double*>(memory_.back()->bytes), kBytes / 8, 0.5);
    } else {
      std::fill_n(reinterpret_cast<float*>(memory_.back()->bytes), kBytes / 4, 0.5F);  // or 16 bits of it
    }
    view = ConstView(memory_.back()->bytes, dtype_, kCpu, shape);
    slots_.push_back(Slot{name, &view, written, false, false, nullptr, false});
    return slots_.back();
  }

  Status run() { return function_(args, {}); }

  static bool has_word(const std::string& text, const std::string& word) {
    const auto is_part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
      const std::size_t end = at + word.size();
      if ((at == 0 || !is_part(text[at - 1])) && (end == text.size() || !is_part(text[end]))) return true;
    }
    return false;
  }

  /// The call as it stands now must be refused, naming `slot` and every text of `wants`, with all memory left
  /// alone.
  void expect_refusal(const Slot& slot, const std::vector<std::string>& wants) {
    std::vector<std::vector<char>> before;
    for (const auto& block : memory_) before.emplace_back(block->bytes, block->bytes + kBytes);
    const std::int64_t ops = counters().cpu_ops;
    const Status status = run();
    EXPECT_EQ(status.code(), Code::invalid_argument) << name(status.code()) << ": " << status.message();
    EXPECT_EQ(status.message().rfind(op_ + ": ", 0), 0U) << status.message();
    EXPECT_TRUE(has_word(status.message(), slot.name)) << status.message();
    for (const std::string& want : wants)
      EXPECT_NE(status.message().find(want), std::string::npos) << status.message();
    EXPECT_EQ(counters().cpu_ops, ops);
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      EXPECT_EQ(std::memcmp(memory_[i]->bytes, before[i].data(), kBytes), 0)
          << slots_[i].name << " was written to";
    }
  }

  template <class Change>
  void refuse(const Slot& slot, const Change& change, const std::vector<std::string>& wants) {
    const ConstView good = *slot.view;
    change(*slot.view);
    expect_refusal(slot, wants);
    *slot.view = good;
  }

  void refuse_shape(const Slot& slot, const Shape& shape) {
    SCOPED_TRACE("shape " + name(shape));
    const auto change = [&](ConstView& view) { view = ConstView(view.data, view.dtype, view.device, shape); };
    refuse(slot, change, {name(shape), "has shape ", ", wants ["});
  }

  void check_rank_and_sizes(const Slot& slot) {
    const Shape good = slot.view->shape;
    Shape longer{1};
    for (int axis = 0; axis < good.rank(); ++axis) longer.append(good[axis]);
    refuse_shape(slot, longer);
    refuse_shape(slot, Shape{1, 1, 1, 1, 1, 1});
    if (slot.independent) return;
    for (int axis = 0; axis < good.rank(); ++axis) {
      if (axis == slot.free_axis) continue;
      for (std::int64_t size : {good[axis] + 1, good[axis] - 1}) {
        Shape bad = good;
        bad[axis] = size;
        refuse_shape(slot, bad);
      }
    }
    if (good.rank() > 0) {
      refuse_shape(slot, Shape{});
      Shape negative = good;
      negative[0] = -1;
      refuse_shape(slot, negative);
    }
    const auto too_many = [&](ConstView& view) {
      view = ConstView(view.data, view.dtype, view.device, Shape{1, 1, 1, 1, 1, 1, 1});
    };
    refuse(slot, too_many, {"more than 6 dimensions"});
  }

  void check_dtype(const Slot& slot) {
    const DType good = slot.view->dtype;
    const DType other = good == DType::f32 ? DType::f64 : DType::f32;
    if (!slot.independent) {
      const auto is_not = [](DType is, DType wanted) {
        return std::vector<std::string>{std::string(" is ") + name(is), std::string("wants ") + name(wanted)};
      };
      const auto fits = [&](DType dtype) {
        return dtype == good || (slot.any_narrow && at_least_f32(dtype) == at_least_f32(good));
      };
      const DType wide = fits(other) ? DType::f64 : other;
      refuse(
          slot, [&](ConstView& view) { view.dtype = wide; }, is_not(wide, good),
          is_not(slot.any_narrow ? at_least_f32(good) : good, wide));
      for (const DType narrow : {DType::bf16, DType::f16}) {
        if (fits(narrow)) continue;
        const std::string is = std::string(" is ") + name(narrow);
        refuse(slot, [&](ConstView& view) { view.dtype = narrow; },
               takes_16_bits_ ? is_not(narrow, good) : std::vector<std::string>{is, "wants f"},
               {std::string(" is ") + name(good), "wants "});
      }
    }
    std::string op = op_;
    std::replace(op.begin(), op.end(), '_', ' ');
    refuse(slot, [](ConstView& view) { view.dtype = static_cast<DType>(9); },
           {"Unsupported dtype for " + op, "dtype code 9",
            good == DType::i32 ? "wants i32"
            : takes_16_bits_   ? "wants f32, f64, bf16 or f16"
                               : "wants f32 or f64"});
    // Indices are taken where they are asked for, and nowhere else.
    if (good == DType::i32) return;
    const std::vector<std::string> is = {" is i32", "wants "};
    refuse(slot, [](ConstView& view) { view.dtype = DType::i32; }, is,
           {std::string(" is ") + name(good), "wants i32"});
  }

  template <class Change>
  void refuse(const Slot& slot, const Change& change, const std::vector<std::string>& either,
              const std::vector<std::string>& or_else) {
    const ConstView good = *slot.view;
    change(*slot.view);
    const std::string message = run().message();
    expect_refusal(slot, message.find(either[0]) != std::string::npos ? either : or_else);
    *slot.view = good;
  }

  void check_device(const Slot& slot) {
    refuse(slot, [](ConstView& view) { view.device = kCuda; }, {" is on cpu", "wants cuda:0"},
           {" is on cuda:0", "wants cpu"});
    refuse(slot, [](ConstView& view) { view.device.kind = static_cast<Device::Kind>(7); },
           {"unknown device", "kind 7"});
    refuse(slot,
           [](ConstView& view) {
             view.device = Device{Device::Kind::cpu, 1};
           },
           {"unknown device", "index 1"});
    refuse(slot,
           [](ConstView& view) {
             view.device = Device{Device::Kind::cuda, -1};
           },
           {"unknown device", "index -1"});
  }

  void check_presence(const Slot& slot) {
    const auto leave_out = [](ConstView& view) { view = ConstView(); };
    if (!slot.optional) {
      refuse(slot, leave_out, {slot.without != nullptr ? slot.without : slot.name + " is missing, wants ["});
      return;
    }
    const ConstView good = *slot.view;
    leave_out(*slot.view);
    EXPECT_TRUE(run().ok()) << run().message();
    *slot.view = good;
  }

  void check_memory(const Slot& slot) {
    refuse(slot, [](ConstView& view) { view.data = nullptr; }, {"null"});
    refuse(slot, [](ConstView& view) { view.data = static_cast<const char*>(view.data) + 1; },
           {"not aligned"});
    const int rank = slot.view->rank();
    if (rank == 0) return;
    if (slot.view->shape.back() > 1)  // else its stride is not looked at
      refuse(slot, [&](ConstView& view) { view.strides[rank - 1] = 2; },
             {name(slot.view->shape), "strides ["});
    if (rank == 1) return;

    // Rows two elements further apart than they are long, the leading dimensions still in one stride.
    const ConstView good = *slot.view;
    const auto spread = [&](ConstView& view) {
      std::int64_t stride = 1;
      for (int axis = rank - slot.row_axes; axis < rank; ++axis) stride *= good.shape[axis];
      stride += 2;
      for (int axis = rank - slot.row_axes - 1; axis >= 0; --axis) {
        view.strides[axis] = stride;
        stride *= good.shape[axis];
      }
    };
    if (slot.strided) {
      spread(*slot.view);
      EXPECT_TRUE(run().ok()) << run().message();
      *slot.view = good;
    } else {
      refuse(slot, spread, {"strides [", "contiguous"});
    }
    refuse(slot, [&](ConstView& view) { view.strides[rank - 2] = view.shape.back() - 1; }, {"strides ["});
    if (rank > 1 + slot.row_axes) refuse(slot, [](ConstView& view) { view.strides[0] += 1; }, {"strides ["});
  }

  void check_overlap(const Slot& slot) {
    if (!slot.written) return;
    for (const Slot& other : slots_) {
      if (&other == &slot) continue;
      SCOPED_TRACE("over " + other.name);
      const ConstView good = *slot.view;
      slot.view->data = other.view->data;
      const bool allowed =
          std::find(pairs_.begin(), pairs_.end(), std::pair(slot.name, other.name)) != pairs_.end();
      if (allowed) {
        EXPECT_TRUE(run().ok()) << run().message();
        slot.view->data = other.view->as<char>() + size_of(slot.view->dtype);
      }
      expect_refusal(slot, {"overlaps", other.name});
      // The last byte of one on the first of the other.
      slot.view->data = other.view->as<char>() + (other.view->elements() - 1) * size_of(other.view->dtype);
      if (slot.view->dtype == other.view->dtype) expect_refusal(slot, {"overlaps", other.name});
      *slot.view = good;
    }
  }

  void check_mode(const Slot& slot) {
    if (slot.mode == nullptr) return;
    *slot.mode = static_cast<WriteMode>(3);
    expect_refusal(slot, {"write mode 3", "skip, overwrite or accumulate"});
    // Skipped: not looked at, and left alone.
    *slot.mode = WriteMode::skip;
    const ConstView good = *slot.view;
    const auto* bytes = good.as<char>();
    const std::vector<char> before(bytes, bytes + kBytes);
    EXPECT_TRUE(run().ok()) << run().message();
    EXPECT_EQ(std::memcmp(bytes, before.data(), kBytes), 0);
    *slot.view = ConstView();
    EXPECT_TRUE(run().ok()) << run().message();
    *slot.view = good;
    *slot.mode = WriteMode::overwrite;
  }

  struct Block {
    alignas(64) char bytes[kBytes];
  };

  const std::string op_;
  Status (*const function_)(const Args&, Stream) noexcept;
  const DType dtype_;
  bool takes_16_bits_ = false;
  std::vector<std::unique_ptr<Block>> memory_;
  std::vector<Slot> slots_;
  std::vector<std::pair<std::string, std::string>> pairs_;
};

// A scalar or the step controls: f64 whatever the data are.
void make_f64(Slot& slot) {
  slot.view->dtype = DType::f64;
  std::fill_n(static_cast<double*>(const_cast<void*>(slot.view->data)), slot.view->elements(), 0.5);
}

class Arguments : public testing::TestWithParam<DType> {};

std::string dtype_name(const testing::TestParamInfo<DType>& info) {
  return name(info.param);
}

INSTANTIATE_TEST_SUITE_P(AllDtypes, Arguments, testing::Values(DType::f32, DType::f64), dtype_name);

/// Of ops that also take 16 bits.
class Arguments16 : public Arguments {};

INSTANTIATE_TEST_SUITE_P(AllDtypes, Arguments16,
                         testing::Values(DType::f32, DType::f64, DType::bf16, DType::f16), dtype_name);

template <class Args>
void add_projection(Call<Args>& call) {
  call.input("x", call.args.x, {2, 3, 4}).strided = true;
  call.input("weight", call.args.weight, {5, 4});
}

TEST_P(Arguments16, ProjectionForward) {
  Call<ProjectionForward> call("projection", projection_forward, GetParam());
  call.takes_16_bits();
  add_projection(call);
  call.input("bias", call.args.bias, {5}).optional = true;
  call.output("y", call.args.y, {2, 3, 5}).strided = true;
  call.check_everything();
}

TEST_P(Arguments16, ProjectionBackward) {
  Call<ProjectionBackward> call("projection_backward", projection_backward, GetParam());
  call.takes_16_bits();
  add_projection(call);
  call.input("d_y", call.args.d_y, {2, 3, 5}).strided = true;
  call.gradient("d_x", call.args.d_x, {2, 3, 4}).strided = true;
  call.widened(call.gradient("d_weight", call.args.d_weight, {5, 4}));
  call.widened(call.gradient("d_bias", call.args.d_bias, {5}));
  EXPECT_EQ(projection_backward(call.args).message(),
            "projection_backward: d_bias is wanted, but there is no bias");
  call.args.bias = ConstView(call.args.x.data, GetParam(), kCpu, {5});
  call.check_everything();
}

/// A norm that saves `numbers` a row.
struct NormOp {
  const char* name;
  std::int64_t numbers;
  Status (*forward)(const NormForward&, Stream) noexcept;
  Status (*backward)(const NormBackward&, Stream) noexcept;
};
const NormOp kNorms[] = {{"layer_norm", 3, layer_norm_forward, layer_norm_backward},
                         {"rms_norm", 1, rms_norm_forward, rms_norm_backward}};

TEST_P(Arguments16, NormForward) {
  for (const NormOp& op : kNorms)
    for (const bool sum_wanted : {false, true}) {
      Call<NormForward> call(op.name, op.forward, GetParam());
      call.takes_16_bits();
      call.input("x", call.args.x, {2, 3, 4}).strided = true;
      Slot& residual = call.input("residual", call.args.residual, {2, 3, 4});
      residual.strided = true;
      residual.optional = !sum_wanted;
      residual.without = "r is wanted, but there is no residual";
      call.input("weight", call.args.weight, {4});
      call.input("bias", call.args.bias, {4}).optional = true;
      call.output("y", call.args.y, {2, 3, 4}).strided = true;
      if (sum_wanted) {
        Slot& r = call.output("r", call.args.r, {2, 3, 4});
        r.strided = r.optional = true;
      }
      call.widened(call.output("statistics", call.args.statistics, {2, 3, op.numbers}));
      for (const char* over : {"x", "residual"}) {
        call.may_be("y", over);
        call.may_be("r", over);
      }
      call.check_everything();
      for (double eps : {0.0, -1e-5, HUGE_VAL, std::nan("")}) {
        call.args.eps = eps;
        const Status status = op.forward(call.args, {});
        EXPECT_EQ(status.code(), Code::invalid_argument);
        EXPECT_NE(status.message().find(std::string(op.name) + ": eps is "), std::string::npos)
            << status.message();
      }
    }
}

TEST_P(Arguments16, NormBackward) {
  for (const NormOp& op : kNorms)
    for (const bool summed : {false, true}) {
      const std::string name = std::string(op.name) + "_backward";
      Call<NormBackward> call(name.c_str(), op.backward, GetParam());
      call.takes_16_bits();
      if (summed) {
        Slot& r = call.output("r", call.args.r, {2, 3, 4});
        r.written = false;
        r.strided = true;
        call.args.residual = call.args.r;  // not looked into
      } else {
        call.input("x", call.args.x, {2, 3, 4}).strided = true;
      }
      call.input("weight", call.args.weight, {4});
      call.widened(call.output("statistics", call.args.statistics, {2, 3, op.numbers})).written = false;
      Slot& d_y = call.input("d_y", call.args.d_y, {2, 3, 4});
      d_y.strided = d_y.optional = true;
      if (summed) {
        Slot& d_r = call.input("d_r", call.args.d_r, {2, 3, 4});
        d_r.strided = d_r.optional = true;
      }
      call.gradient("d_x", call.args.d_x, {2, 3, 4}).strided = true;
      if (summed) call.gradient("d_residual", call.args.d_residual, {2, 3, 4}).strided = true;
      call.widened(call.gradient("d_weight", call.args.d_weight, {4}));
      call.widened(call.gradient("d_bias", call.args.d_bias, {4}));
      call.may_be("d_x", "d_y");
      call.may_be("d_residual", "d_r");
      EXPECT_EQ(op.backward(call.args, {}).message(), name + ": d_bias is wanted, but there is no bias");
      call.args.bias = call.args.weight;
      call.check_everything();
      if (summed) continue;
      call.args.d_r = call.args.d_y;
      EXPECT_EQ(op.backward(call.args, {}).message(), name + ": d_r is given, but there is no residual");
      call.args.d_r = ConstView();
      call.args.d_residual = call.args.d_x;
      EXPECT_EQ(op.backward(call.args, {}).message(),
                name + ": d_residual is wanted, but there is no residual");
    }
}

template <class Args>
void add_projection_layer_norm(Call<Args>& call) {
  call.input("x", call.args.x, {2, 3, 4}).strided = true;
  call.input("weight", call.args.weight, {5, 4});
  call.input("norm_weight", call.args.norm_weight, {5});
}

TEST_P(Arguments, ProjectionLayerNormForward) {
  Call<ProjectionLayerNormForward> call("projection_layer_norm", projection_layer_norm_forward, GetParam());
  add_projection_layer_norm(call);
  call.input("bias", call.args.bias, {5}).optional = true;
  call.input("norm_bias", call.args.norm_bias, {5}).optional = true;
  call.output("y", call.args.y, {2, 3, 5}).strided = true;
  call.output("statistics", call.args.statistics, {2, 3, 3});
  call.check_everything();
  call.args.eps = 0;
  EXPECT_EQ(projection_layer_norm_forward(call.args).message(),
            "projection_layer_norm: eps is 0, wants a finite number above 0");
}

TEST_P(Arguments, ProjectionLayerNormBackward) {
  Call<ProjectionLayerNormBackward> call("projection_layer_norm_backward", projection_layer_norm_backward,
                                         GetParam());
  add_projection_layer_norm(call);
  call.input("bias", call.args.bias, {5}).optional = true;
  call.output("statistics", call.args.statistics, {2, 3, 3}).written = false;
  call.input("d_y", call.args.d_y, {2, 3, 5}).strided = true;
  call.gradient("d_x", call.args.d_x, {2, 3, 4}).strided = true;
  call.gradient("d_weight", call.args.d_weight, {5, 4});
  call.gradient("d_norm_weight", call.args.d_norm_weight, {5});
  call.check_everything();
  const ConstView vector = call.args.bias;
  call.gradient("d_bias", call.args.d_bias, {5});
  call.args.bias = ConstView();
  EXPECT_EQ(projection_layer_norm_backward(call.args).message(),
            "projection_layer_norm_backward: d_bias is wanted, but there is no bias");
  call.args.bias = vector;
  call.gradient("d_norm_bias", call.args.d_norm_bias, {5});
  EXPECT_EQ(projection_layer_norm_backward(call.args).message(),
            "projection_layer_norm_backward: d_norm_bias is wanted, but there is no norm_bias");
  call.args.norm_bias = vector;
  call.slot("bias").without = "d_bias is wanted, but there is no bias";
  call.slot("bias").optional = false;
  call.check_everything();
}

TEST_P(Arguments, NormOfNothing) {
  double memory[16] = {};
  LayerNormForward args;
  args.x = ConstView(memory, GetParam(), kCpu, {3, 0});
  args.weight = args.bias = ConstView(memory, GetParam(), kCpu, {0});
  args.y = View(memory + 4, GetParam(), kCpu, {3, 0});
  args.statistics = View(memory + 4, GetParam(), kCpu, {3, 3});
  EXPECT_EQ(layer_norm_forward(args).message(),
            "layer_norm: x has shape [3, 0], wants [..., E] with E above 0");
  args.statistics = View(memory + 4, GetParam(), kCpu, {3, 1});
  EXPECT_EQ(rms_norm_forward(args).message(), "rms_norm: x has shape [3, 0], wants [..., E] with E above 0");
}

template <class Args>
void add_elementwise(Call<Args>& call) {
  call.input("x", call.args.x, {2, 3, 4}).strided = true;
}

template <class Forward>
void check_elementwise_forward(const char* op, Status (*function)(const Forward&, Stream) noexcept,
                               DType dtype) {
  Call<Forward> call(op, function, dtype);
  call.takes_16_bits();
  add_elementwise(call);
  call.output("y", call.args.y, {2, 3, 4}).strided = true;
  call.may_be("y", "x");
  call.check_everything();
}

template <class Backward>
void check_elementwise_backward(const char* op, Status (*function)(const Backward&, Stream) noexcept,
                                DType dtype) {
  Call<Backward> call(op, function, dtype);
  call.takes_16_bits();
  add_elementwise(call);
  call.input("d_y", call.args.d_y, {2, 3, 4}).strided = true;
  call.gradient("d_x", call.args.d_x, {2, 3, 4}).strided = true;
  call.may_be("d_x", "d_y");
  call.check_everything();
}

TEST_P(Arguments16, SoftplusForward) {
  check_elementwise_forward("softplus", softplus_forward, GetParam());
}
TEST_P(Arguments16, SoftplusBackward) {
  check_elementwise_backward("softplus_backward", softplus_backward, GetParam());
}
TEST_P(Arguments16, SiluForward) {
  check_elementwise_forward("silu", silu_forward, GetParam());
}
TEST_P(Arguments16, SiluBackward) {
  check_elementwise_backward("silu_backward", silu_backward, GetParam());
}
TEST_P(Arguments16, NegExpForward) {
  check_elementwise_forward("neg_exp", neg_exp_forward, GetParam());
}
TEST_P(Arguments16, NegExpBackward) {
  check_elementwise_backward("neg_exp_backward", neg_exp_backward, GetParam());
}
TEST_P(Arguments16, CopyForward) {
  check_elementwise_forward("copy", copy_forward, GetParam());
}
TEST_P(Arguments16, CopyBackward) {
  check_elementwise_backward("copy_backward", copy_backward, GetParam());
}

/// The three forms of discretize; {2, 3, 4} is [B, L, H], {3, 4} [N, E].
class DiscretizeArguments : public testing::TestWithParam<std::tuple<DType, DiscretizeForm>> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  DiscretizeForm form() const { return std::get<1>(GetParam()); }
  bool per_head() const { return form() == DiscretizeForm::per_head; }
  Shape A() const { return per_head() ? Shape{4} : form() == DiscretizeForm::dense ? Shape{3, 3} : Shape{3}; }
  Shape dt() const {
    return per_head() ? Shape{2, 3, 4} : form() == DiscretizeForm::dense ? Shape{} : Shape{3};
  }
  Shape A_bar() const { return per_head() ? dt() : A(); }

  template <class Args>
  void add_model(Call<Args>& call) const {
    call.input("dt", call.args.dt, dt()).strided = per_head();
    call.input("A", call.args.A, A());
    if (!per_head()) call.input("B", call.args.B, {3, 4}).strided = true;
  }
};

INSTANTIATE_TEST_SUITE_P(AllDtypesAndForms, DiscretizeArguments,
                         testing::Combine(testing::Values(DType::f32, DType::f64),
                                          testing::Values(DiscretizeForm::diagonal, DiscretizeForm::per_head,
                                                          DiscretizeForm::dense)),
                         [](const testing::TestParamInfo<std::tuple<DType, DiscretizeForm>>& info) {
                           return std::string(name(std::get<0>(info.param))) + "_" +
                                  name(std::get<1>(info.param));
                         });

/// Refused with these words in the place of what `change` did.
template <class Args, class Change>
void expect_words(const Args& good, Status (*function)(const Args&, Stream) noexcept,
                  const std::string& words, const Change& change) {
  Args args = good;
  change(args);
  const Status status = function(args, {});
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(status.message(), words);
}

TEST_P(DiscretizeArguments, Forward) {
  Call<DiscretizeForward> call("discretize", discretize_forward, dtype());
  add_model(call);
  call.output("A_bar", call.args.A_bar, A_bar()).strided = per_head();
  Slot& F = call.output("F", call.args.F, A_bar());
  F.optional = true;
  F.strided = per_head();
  if (per_head())
    call.output("s", call.args.s, A_bar()).strided = true;
  else
    call.output("B_bar", call.args.B_bar, {3, 4}).strided = true;
  call.check_everything();

  expect_words(call.args, discretize_forward,
               "discretize: method is 4, wants zoh, exp_euler, bilinear or euler",
               [](DiscretizeForward& args) { args.method = static_cast<DiscretizeMethod>(4); });
  if (per_head()) {
    expect_words(call.args, discretize_forward,
                 "discretize: B has no place where dt is [B, L, H]: s is the factor of whatever comes in",
                 [](DiscretizeForward& args) { args.B = args.A; });
    expect_words(call.args, discretize_forward,
                 "discretize: B_bar has no place where dt is [B, L, H]: s takes it",
                 [](DiscretizeForward& args) { args.B_bar = args.A_bar; });
  } else {
    expect_words(call.args, discretize_forward,
                 "discretize: s has no place where dt is not [B, L, H]: it is in B_bar",
                 [](DiscretizeForward& args) { args.s = args.A_bar; });
  }
}

TEST_P(DiscretizeArguments, Backward) {
  Call<DiscretizeBackward> call("discretize_backward", discretize_backward, dtype());
  add_model(call);
  for (const auto& [name, view] :
       {std::pair("d_A_bar", &call.args.d_A_bar), std::pair("d_F", &call.args.d_F)}) {
    Slot& slot = call.input(name, *view, A_bar());
    slot.optional = true;
    slot.strided = per_head();
  }
  Slot& input = per_head() ? call.input("d_s", call.args.d_s, A_bar())
                           : call.input("d_B_bar", call.args.d_B_bar, {3, 4});
  input.optional = input.strided = true;
  call.gradient("d_dt", call.args.d_dt, dt()).strided = per_head();
  call.gradient("d_A", call.args.d_A, A());
  if (!per_head()) call.gradient("d_B", call.args.d_B, {3, 4}).strided = true;
  call.check_everything();

  expect_words(call.args, discretize_backward,
               "discretize_backward: method is 4, wants zoh, exp_euler, bilinear or euler",
               [](DiscretizeBackward& args) { args.method = static_cast<DiscretizeMethod>(4); });
  if (per_head()) {
    expect_words(call.args, discretize_backward,
                 "discretize_backward: d_B_bar has no place where dt is [B, L, H]: d_s takes it",
                 [](DiscretizeBackward& args) { args.d_B_bar = args.d_A_bar; });
    expect_words(call.args, discretize_backward,
                 "discretize_backward: d_B is wanted, but where dt is [B, L, H] there is no B",
                 [](DiscretizeBackward& args) { args.d_B = args.d_A; });
  } else {
    expect_words(call.args, discretize_backward,
                 "discretize_backward: d_s has no place where dt is not [B, L, H]",
                 [](DiscretizeBackward& args) { args.d_s = args.d_A_bar; });
  }
}

/// One block of threads holds a dense A on cuda: more states than fit are refused, in words, before anything runs.
TEST(DenseLimits, DiscretizeOnCuda) {
  constexpr std::int64_t n = kMostDenseStatesOnCuda + 1;
  static double memory[2 * n * n] = {};  // never looked at
  const auto view = [](const Shape& shape) { return View(memory, DType::f64, kCuda, shape); };
  DiscretizeBackward args;
  args.A = view({n, n});
  args.dt = view({});
  args.B = view({n, 0});
  DiscretizeForward forward = args;
  forward.A_bar = View(memory + n * n, DType::f64, kCuda, {n, n});
  forward.B_bar = view({n, 0});
  const std::string words = ": A has shape [65, 65], on cuda a dense one has at most 64 states";
  EXPECT_EQ(discretize_forward(forward).code(), Code::unsupported);
  EXPECT_EQ(discretize_forward(forward).message(), "discretize" + words);
  EXPECT_EQ(discretize_forward_workspace(forward), 0);
  EXPECT_EQ(discretize_backward(args).code(), Code::unsupported);
  EXPECT_EQ(discretize_backward(args).message(), "discretize_backward" + words);
  EXPECT_EQ(discretize_backward_workspace(args), 0);
}

TEST_P(Arguments, SpectralRadius) {
  Call<SpectralRadius> call("spectral_radius", spectral_radius, GetParam());
  call.input("A_bar", call.args.A_bar, {3, 3});
  call.output("radius", call.args.radius, {});
  call.check_everything();
}

TEST(DenseLimits, SpectralRadiusOnCuda) {
  constexpr std::int64_t n = kMostSpectralRowsOnCuda + 1;
  static double memory[n * n + 1] = {};  // never looked at
  SpectralRadius args;
  args.A_bar = ConstView(memory, DType::f64, kCuda, {n, n});
  args.radius = View(memory + n * n, DType::f64, kCuda, {});
  EXPECT_EQ(spectral_radius(args).code(), Code::unsupported);
  EXPECT_EQ(spectral_radius(args).message(),
            "spectral_radius: A_bar has shape [65, 65], on cuda a dense one has at most 64 states");
  EXPECT_EQ(spectral_radius_workspace(args), 0);
}

class ScanArguments : public testing::TestWithParam<std::tuple<DType, const char*>> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  bool is(const char* form) const { return std::string(std::get<1>(GetParam())) == form; }
  Shape decay() const { return is("varying") ? Shape{2, 3, 4} : is("dense") ? Shape{4, 4} : Shape{4}; }
  bool rows() const { return !is("dense"); }
};

std::string scan_form_name(const testing::TestParamInfo<std::tuple<DType, const char*>>& info) {
  return std::string(name(std::get<0>(info.param))) + "_" + std::get<1>(info.param);
}

INSTANTIATE_TEST_SUITE_P(AllDtypesAndForms, ScanArguments,
                         testing::Combine(testing::Values(DType::f32, DType::f64, DType::bf16, DType::f16),
                                          testing::Values("constant", "varying", "dense")),
                         scan_form_name);

TEST_P(ScanArguments, Forward) {
  Call<ScanForward> call("scan", scan_forward, dtype());
  call.takes_16_bits();
  call.widened(call.input("a", call.args.a, decay())).strided = rows();
  call.input("b", call.args.b, {2, 3, 4}).strided = true;
  call.widened(call.input("h0", call.args.h0, {2, 4})).optional = true;
  call.input("start", call.args.start, {2, 3}).optional = true;
  call.output("h", call.args.h, {2, 3, 4}).strided = true;
  call.widened(call.output("final_state", call.args.final_state, {2, 4})).optional = true;
  call.check_everything();
  call.args.direction = static_cast<ScanDirection>(2);
  EXPECT_EQ(scan_forward(call.args).message(), "scan: direction is 2, wants forward or reversed");
}

TEST_P(ScanArguments, Backward) {
  Call<ScanBackward> call("scan_backward", scan_backward, dtype());
  call.takes_16_bits();
  call.widened(call.input("a", call.args.a, decay())).strided = rows();
  call.output("h", call.args.h, {2, 3, 4}).strided = true;
  call.slot("h").written = false;
  call.widened(call.input("h0", call.args.h0, {2, 4})).optional = true;
  call.input("start", call.args.start, {2, 3}).optional = true;
  Slot& d_h = call.input("d_h", call.args.d_h, {2, 3, 4});
  d_h.optional = d_h.strided = true;
  call.widened(call.input("d_final_state", call.args.d_final_state, {2, 4})).optional = true;
  call.widened(call.gradient("d_a", call.args.d_a, decay())).strided = rows();
  call.gradient("d_b", call.args.d_b, {2, 3, 4}).strided = true;
  call.widened(call.gradient("d_h0", call.args.d_h0, {2, 4}));
  call.check_everything();
}

template <class Args>
void add_heads(Call<Args>& call) {
  call.widened(call.input("a", call.args.a, {2, 3, 4})).strided = true;
  call.widened(call.input("h0", call.args.h0, {2, 4, 5})).optional = true;
  call.input("start", call.args.start, {2, 3}).optional = true;
}

TEST_P(Arguments16, ScanPerHeadForward) {
  Call<ScanForward> call("scan", scan_forward, GetParam());
  call.takes_16_bits();
  call.input("b", call.args.b, {2, 3, 4, 5}).strided = true;
  add_heads(call);
  call.output("h", call.args.h, {2, 3, 4, 5}).strided = true;
  call.widened(call.output("final_state", call.args.final_state, {2, 4, 5})).optional = true;
  call.check_everything();
}

TEST_P(Arguments16, ScanPerHeadBackward) {
  Call<ScanBackward> call("scan_backward", scan_backward, GetParam());
  call.takes_16_bits();
  call.output("h", call.args.h, {2, 3, 4, 5}).strided = true;
  call.slot("h").written = false;
  add_heads(call);
  call.widened(call.gradient("d_a", call.args.d_a, {2, 3, 4})).strided = true;
  call.gradient("d_b", call.args.d_b, {2, 3, 4, 5}).strided = true;
  call.widened(call.gradient("d_h0", call.args.d_h0, {2, 4, 5}));
  call.check_everything();
}

TEST_P(ScanArguments, NoSteps) {
  double memory[16] = {};
  ScanForward args;
  args.a = ConstView(memory, dtype(), kCpu, {4});
  args.b = ConstView(memory, dtype(), kCpu, {2, 0, 4});
  args.h = View(memory, dtype(), kCpu, {2, 0, 4});
  EXPECT_EQ(scan_forward(args).message(), "scan: b has shape [2, 0, 4], wants [B, L, C] with L above 0");
}

TEST(DenseLimits, ScanOnCuda) {
  constexpr std::int64_t n = kMostDenseStatesOnCuda + 1;
  static double memory[n * n + 2 * n] = {};  // never looked at
  const auto row = [](double* data) { return View(data, DType::f64, kCuda, {1, 1, n}); };
  ScanBackward args;
  args.a = ConstView(memory, DType::f64, kCuda, {n, n});
  args.b = row(memory + n * n);
  args.h = row(memory + n * n + n);
  const std::string words = ": a has shape [65, 65], on cuda a dense one has at most 64 states";
  EXPECT_EQ(scan_forward(args).code(), Code::unsupported);
  EXPECT_EQ(scan_forward(args).message(), "scan" + words);
  EXPECT_EQ(scan_forward_workspace(args), 0);
  EXPECT_EQ(scan_backward(args).code(), Code::unsupported);
  EXPECT_EQ(scan_backward(args).message(), "scan_backward" + words);
  EXPECT_EQ(scan_backward_workspace(args), 0);
}

template <class Args>
void add_state_model(Call<Args>& call, bool varying) {
  call.input("u", call.args.u, {2, 3, 4}).strided = true;
  call.input("dt", call.args.dt, varying ? Shape{2, 3, 4} : Shape{4}).strided = varying;
  call.input("A", call.args.A, {4});
  call.input("h0", call.args.h0, {2, 4}).optional = true;
  call.input("start", call.args.start, {2, 3}).optional = true;
}

void check_discretized_forward(DType dtype, bool varying) {
  Call<DiscretizedScanForward> call("discretized_scan", discretized_scan_forward, dtype);
  add_state_model(call, varying);
  call.output("h", call.args.h, {2, 3, 4}).strided = true;
  call.output("final_state", call.args.final_state, {2, 4}).optional = true;
  call.check_everything();
  expect_words(call.args, discretized_scan_forward,
               "discretized_scan: method is 4, wants zoh, exp_euler, bilinear or euler",
               [](DiscretizedScanForward& args) { args.method = static_cast<DiscretizeMethod>(4); });
  expect_words(call.args, discretized_scan_forward,
               "discretized_scan: direction is 2, wants forward or reversed",
               [](DiscretizedScanForward& args) { args.direction = static_cast<ScanDirection>(2); });
  const auto no_steps = [](const ConstView& view) {
    return View(const_cast<void*>(view.data), view.dtype, kCpu, {2, 0, 4});
  };
  expect_words(call.args, discretized_scan_forward,
               "discretized_scan: u has shape [2, 0, 4], wants [B, L, N] with L above 0",
               [&](DiscretizedScanForward& args) {
                 args.u = no_steps(args.u);
                 args.h = no_steps(args.h);
               });
}

void check_discretized_backward(DType dtype, bool varying) {
  Call<DiscretizedScanBackward> call("discretized_scan_backward", discretized_scan_backward, dtype);
  add_state_model(call, varying);
  call.output("h", call.args.h, {2, 3, 4}).strided = true;
  call.slot("h").written = false;
  Slot& d_h = call.input("d_h", call.args.d_h, {2, 3, 4});
  d_h.optional = d_h.strided = true;
  call.input("d_final_state", call.args.d_final_state, {2, 4}).optional = true;
  call.gradient("d_dt", call.args.d_dt, varying ? Shape{2, 3, 4} : Shape{4}).strided = varying;
  call.gradient("d_A", call.args.d_A, {4});
  call.gradient("d_u", call.args.d_u, {2, 3, 4}).strided = true;
  call.gradient("d_h0", call.args.d_h0, {2, 4});
  call.check_everything();
}

TEST_P(Arguments, DiscretizedScan) {
  for (const bool varying : {false, true}) {
    SCOPED_TRACE(varying ? "varying" : "constant");
    check_discretized_forward(GetParam(), varying);
    check_discretized_backward(GetParam(), varying);
  }
}

/// Of ssd (rows [2, 3]) and its step (rows [2]): 4 heads of 2 channels, 2 groups of 3 states.
template <class Args>
class SsdArguments {
 public:
  SsdArguments(const char* op, Status (*function)(const Args&, Stream) noexcept, DType dtype,
               const Shape& rows, bool wide_skip, bool backward)
      : call_(op, function, dtype), rows_(rows), skip_(wide_skip ? Shape{4, 2} : Shape{4}) {
    call_.takes_16_bits();
    data(call_.input("x", call_.args.x, shaped({4, 2})));
    call_.input("dt", call_.args.dt, shaped({4})).strided = true;
    call_.widened(call_.input("A", call_.args.A, {4}));
    data(call_.input("B", call_.args.B, shaped({2, 3})));
    data(call_.input("C", call_.args.C, shaped({2, 3})));
    optional(call_.widened(call_.input("D", call_.args.D, skip_)), backward,
             "d_D is wanted, but there is no D");
    optional(data(call_.input("z", call_.args.z, shaped({4, 2}))), backward,
             "d_z is wanted, but there is no z");
    optional(call_.widened(call_.input("dt_bias", call_.args.dt_bias, {4})), backward,
             "d_dt_bias is wanted, but there is no dt_bias");
  }
  Call<Args>& call() { return call_; }
  Shape shaped(std::initializer_list<std::int64_t> sizes) const {
    Shape shape = rows_;
    for (const std::int64_t size : sizes) shape.append(size);
    return shape;
  }
  /// Rows of two dimensions.
  static Slot& data(Slot& slot) {
    slot.strided = true;
    slot.row_axes = 2;
    return slot;
  }
  void add_gradients() {
    data(call_.input("d_out", call_.args.d_out, shaped({4, 2}))).optional = true;
    data(call_.gradient("d_x", call_.args.d_x, shaped({4, 2})));
    call_.gradient("d_dt", call_.args.d_dt, shaped({4})).strided = true;
    call_.widened(call_.gradient("d_A", call_.args.d_A, {4}));
    data(call_.gradient("d_B", call_.args.d_B, shaped({2, 3})));
    data(call_.gradient("d_C", call_.args.d_C, shaped({2, 3})));
    call_.widened(call_.gradient("d_D", call_.args.d_D, skip_));
    data(call_.gradient("d_z", call_.args.d_z, shaped({4, 2})));
    call_.widened(call_.gradient("d_dt_bias", call_.args.d_dt_bias, {4}));
  }

 private:
  static void optional(Slot& slot, bool backward, const char* without) {
    slot.optional = !backward;
    if (backward) slot.without = without;
  }

  Call<Args> call_;
  Shape rows_, skip_;
};

TEST_P(Arguments16, SsdForward) {
  for (const bool wide_skip : {false, true}) {
    SsdArguments<SsdForward> made("ssd", ssd_forward, GetParam(), {2, 3}, wide_skip, false);
    auto& call = made.call();
    call.args.chunk_length = 2;
    call.widened(call.input("initial_state", call.args.initial_state, {2, 4, 2, 3})).optional = true;
    call.input("start", call.args.start, {2, 3}).optional = true;
    made.data(call.output("out", call.args.out, {2, 3, 4, 2}));
    call.widened(call.output("final_state", call.args.final_state, {2, 4, 2, 3})).optional = true;
    call.widened(call.output("states", call.args.states, {2, 1, 4, 2, 3})).optional = true;
    call.check_everything();
    const auto expect = [&](const std::string& words, const auto& change) {
      expect_words(call.args, ssd_forward, "ssd: " + words, change);
    };
    expect("chunk_length is -1, wants 0 for the sequential form, or a number up to 1024",
           [](SsdForward& args) { args.chunk_length = -1; });
    expect("chunk_length is 1025, wants 0 for the sequential form, or a number up to 1024",
           [](SsdForward& args) { args.chunk_length = 1025; });
    expect("dt_min is -0.5, wants a number of at least 0", [](SsdForward& args) { args.dt_min = -0.5; });
    expect("dt_min is nan, wants a number of at least 0",
           [](SsdForward& args) { args.dt_min = std::nan(""); });
    expect("dt_max is 0.25, wants a number of at least dt_min", [](SsdForward& args) {
      args.dt_min = 0.5;
      args.dt_max = 0.25;
    });
    expect("B has groups that the heads of x cannot be dealt out to evenly, wants H divisible by G",
           [](SsdForward& args) {
             args.B.shape[2] = args.C.shape[2] = 3;
             args.B.strides = args.C.strides = ConstView(nullptr, DType::f32, kCpu, args.B.shape).strides;
           });
    expect("x has shape [2, 0, 4, 2], wants [B, L, H, P] with L above 0",
           [](SsdForward& args) { args.x.shape[1] = 0; });
    expect("B has shape [2, 3, 2, 0], wants [B, L, G, N] with N above 0",
           [](SsdForward& args) { args.B.shape[3] = 0; });
  }
}

TEST_P(Arguments16, SsdBackward) {
  for (const bool wide_skip : {false, true}) {
    SsdArguments<SsdBackward> made("ssd_backward", ssd_backward, GetParam(), {2, 3}, wide_skip, true);
    auto& call = made.call();
    call.args.chunk_length = 1;
    call.widened(call.input("initial_state", call.args.initial_state, {2, 4, 2, 3})).optional = true;
    call.input("start", call.args.start, {2, 3}).optional = true;
    call.widened(call.output("states", call.args.states, {2, 2, 4, 2, 3})).written = false;
    made.add_gradients();
    call.widened(call.input("d_final_state", call.args.d_final_state, {2, 4, 2, 3})).optional = true;
    call.widened(call.gradient("d_initial_state", call.args.d_initial_state, {2, 4, 2, 3}));
    call.check_everything();
  }
}

TEST_P(Arguments16, SsdStep) {
  for (const bool wide_skip : {false, true}) {
    SsdArguments<SsdStepForward> made("ssd_step", ssd_step_forward, GetParam(), {2}, wide_skip, false);
    auto& call = made.call();
    call.widened(call.input("state", call.args.state, {2, 4, 2, 3}));
    made.data(call.output("out", call.args.out, {2, 4, 2}));
    call.widened(call.output("next_state", call.args.next_state, {2, 4, 2, 3}));
    call.may_be("next_state", "state");
    call.check_everything();
    expect_words(call.args, ssd_step_forward, "ssd_step: dt_min is -1, wants a number of at least 0",
                 [](SsdStepForward& args) { args.dt_min = -1; });

    SsdArguments<SsdStepBackward> backward("ssd_step_backward", ssd_step_backward, GetParam(), {2}, wide_skip,
                                           true);
    auto& second = backward.call();
    second.widened(second.input("state", second.args.state, {2, 4, 2, 3}));
    backward.add_gradients();
    second.widened(second.input("d_next_state", second.args.d_next_state, {2, 4, 2, 3})).optional = true;
    second.widened(second.gradient("d_state", second.args.d_state, {2, 4, 2, 3}));
    second.check_everything();
  }
}

/// Of selective_scan (rows [2, 5]) and its step (rows [2]): 4 channels, 2 groups of 3 states.
template <class Args>
class SelectiveScanArguments {
 public:
  SelectiveScanArguments(const char* op, Status (*function)(const Args&, Stream) noexcept, DType dtype,
                         const Shape& rows, bool backward)
      : call_(op, function, dtype), rows_(rows) {
    call_.takes_16_bits();
    call_.input("u", call_.args.u, shaped({4})).strided = true;
    call_.input("dt", call_.args.dt, shaped({4})).strided = true;
    call_.widened(call_.input("A", call_.args.A, {4, 3}));
    pairs(call_.input("B", call_.args.B, shaped({2, 3})));
    pairs(call_.input("C", call_.args.C, shaped({2, 3})));
    optional(call_.widened(call_.input("D", call_.args.D, {4})), backward,
             "d_D is wanted, but there is no D");
    Slot& z = call_.input("z", call_.args.z, shaped({4}));
    z.strided = true;
    optional(z, backward, "d_z is wanted, but there is no z");
    optional(call_.widened(call_.input("dt_bias", call_.args.dt_bias, {4})), backward,
             "d_dt_bias is wanted, but there is no dt_bias");
  }
  Call<Args>& call() { return call_; }
  void add_gradients() {
    Slot& d_out = call_.input("d_out", call_.args.d_out, shaped({4}));
    d_out.optional = d_out.strided = true;
    call_.gradient("d_u", call_.args.d_u, shaped({4})).strided = true;
    call_.gradient("d_dt", call_.args.d_dt, shaped({4})).strided = true;
    call_.widened(call_.gradient("d_A", call_.args.d_A, {4, 3}));
    pairs(call_.gradient("d_B", call_.args.d_B, shaped({2, 3})));
    pairs(call_.gradient("d_C", call_.args.d_C, shaped({2, 3})));
    call_.widened(call_.gradient("d_D", call_.args.d_D, {4}));
    call_.gradient("d_z", call_.args.d_z, shaped({4})).strided = true;
    call_.widened(call_.gradient("d_dt_bias", call_.args.d_dt_bias, {4}));
  }

 private:
  Shape shaped(std::initializer_list<std::int64_t> sizes) const {
    Shape shape = rows_;
    for (const std::int64_t size : sizes) shape.append(size);
    return shape;
  }
  static void pairs(Slot& slot) {
    slot.strided = true;
    slot.row_axes = 2;
  }
  static void optional(Slot& slot, bool backward, const char* without) {
    slot.optional = !backward;
    if (backward) slot.without = without;
  }

  Call<Args> call_;
  Shape rows_;
};

TEST_P(Arguments16, SelectiveScanForward) {
  SelectiveScanArguments<SelectiveScanForward> made("selective_scan", selective_scan_forward, GetParam(),
                                                    {2, 5}, false);
  auto& call = made.call();
  call.widened(call.input("initial_state", call.args.initial_state, {2, 4, 3})).optional = true;
  call.input("start", call.args.start, {2, 5}).optional = true;
  call.output("out", call.args.out, {2, 5, 4}).strided = true;
  call.widened(call.output("final_state", call.args.final_state, {2, 4, 3})).optional = true;
  call.widened(call.output("states", call.args.states, {2, 1, 4, 3})).optional = true;
  call.check_everything();
  const auto expect = [&](const std::string& words, const auto& change) {
    expect_words(call.args, selective_scan_forward, "selective_scan: " + words, change);
  };
  expect("B has groups that the channels of u cannot be dealt out to evenly, wants E divisible by G",
         [](SelectiveScanForward& args) {
           args.B.shape[2] = args.C.shape[2] = 3;
           args.B.strides = args.C.strides = ConstView(nullptr, DType::f32, kCpu, args.B.shape).strides;
         });
  expect("u has shape [2, 0, 4], wants [B, L, E] with L above 0",
         [](SelectiveScanForward& args) { args.u.shape[1] = 0; });
  expect("A has shape [4, 0], wants [E, N] with N above 0",
         [](SelectiveScanForward& args) { args.A.shape[1] = 0; });
}

TEST_P(Arguments16, SelectiveScanBackward) {
  SelectiveScanArguments<SelectiveScanBackward> made("selective_scan_backward", selective_scan_backward,
                                                     GetParam(), {2, 5}, true);
  auto& call = made.call();
  call.widened(call.input("initial_state", call.args.initial_state, {2, 4, 3})).optional = true;
  call.input("start", call.args.start, {2, 5}).optional = true;
  call.widened(call.output("states", call.args.states, {2, 1, 4, 3})).written = false;
  made.add_gradients();
  call.widened(call.input("d_final_state", call.args.d_final_state, {2, 4, 3})).optional = true;
  call.widened(call.gradient("d_initial_state", call.args.d_initial_state, {2, 4, 3}));
  call.check_everything();
}

TEST_P(Arguments16, SelectiveScanStep) {
  SelectiveScanArguments<SelectiveScanStepForward> made("selective_scan_step", selective_scan_step_forward,
                                                        GetParam(), {2}, false);
  auto& call = made.call();
  call.widened(call.input("state", call.args.state, {2, 4, 3}));
  call.output("out", call.args.out, {2, 4}).strided = true;
  call.widened(call.output("next_state", call.args.next_state, {2, 4, 3}));
  call.may_be("next_state", "state");
  call.check_everything();

  SelectiveScanArguments<SelectiveScanStepBackward> backward(
      "selective_scan_step_backward", selective_scan_step_backward, GetParam(), {2}, true);
  auto& second = backward.call();
  second.widened(second.input("state", second.args.state, {2, 4, 3}));
  backward.add_gradients();
  second.widened(second.input("d_next_state", second.args.d_next_state, {2, 4, 3})).optional = true;
  second.widened(second.gradient("d_state", second.args.d_state, {2, 4, 3}));
  second.check_everything();
}

template <class Args>
void add_conv(Call<Args>& call) {
  call.takes_16_bits();
  call.input("x", call.args.x, {2, 3, 4}).strided = true;
  call.input("weight", call.args.weight, {4, 6});
  call.input("bias", call.args.bias, {4}).optional = true;
  call.input("initial_state", call.args.initial_state, {2, 5, 4}).optional = true;
  call.input("start", call.args.start, {2, 3}).optional = true;
}

TEST_P(Arguments16, CausalConv1dForward) {
  Call<CausalConv1dForward> call("causal_conv1d", causal_conv1d_forward, GetParam());
  add_conv(call);
  call.output("y", call.args.y, {2, 3, 4}).strided = true;
  call.output("final_state", call.args.final_state, {2, 5, 4}).optional = true;
  call.check_everything();
  expect_words(call.args, causal_conv1d_forward, "causal_conv1d: activation is 2, wants silu or none",
               [](CausalConv1dForward& args) { args.activation = static_cast<Activation>(2); });
  const auto reshaped = [](ConstView& view, const Shape& shape) {
    view = ConstView(view.data, view.dtype, kCpu, shape);
  };
  expect_words(call.args, causal_conv1d_forward,
               "causal_conv1d: weight has shape [4, 17], wants [C, K] with K from 1 to 16",
               [&](CausalConv1dForward& args) {
                 reshaped(args.weight, {4, 17});
               });
  expect_words(call.args, causal_conv1d_forward,
               "causal_conv1d: weight has shape [4, 0], wants [C, K] with K from 1 to 16",
               [&](CausalConv1dForward& args) {
                 reshaped(args.weight, {4, 0});
               });
  expect_words(call.args, causal_conv1d_forward,
               "causal_conv1d: initial_state has shape [2, 6, 4], wants [2, 5, 4] = [B, S, C], B the first "
               "dimension of x [2, 3, 4], S one less than the last dimension of weight [4, 6], C the last "
               "dimension of x [2, 3, 4]",
               [&](CausalConv1dForward& args) {
                 reshaped(args.initial_state, {2, 6, 4});
               });
  expect_words(call.args, causal_conv1d_forward,
               "causal_conv1d: x has shape [2, 0, 4], wants [B, L, C] with L above 0",
               [&](CausalConv1dForward& args) {
                 reshaped(args.x, {2, 0, 4});
               });
}

TEST_P(Arguments16, CausalConv1dBackward) {
  Call<CausalConv1dBackward> call("causal_conv1d_backward", causal_conv1d_backward, GetParam());
  add_conv(call);
  Slot& bias = call.slot("bias");
  bias.optional = false;
  bias.without = "d_bias is wanted, but there is no bias";
  Slot& d_y = call.input("d_y", call.args.d_y, {2, 3, 4});
  d_y.optional = d_y.strided = true;
  call.input("d_final_state", call.args.d_final_state, {2, 5, 4}).optional = true;
  call.gradient("d_x", call.args.d_x, {2, 3, 4}).strided = true;
  call.widened(call.gradient("d_weight", call.args.d_weight, {4, 6}));
  call.widened(call.gradient("d_bias", call.args.d_bias, {4}));
  call.gradient("d_initial_state", call.args.d_initial_state, {2, 5, 4});
  call.check_everything();
}

template <class Args>
void add_conv_step(Call<Args>& call) {
  call.takes_16_bits();
  call.input("x", call.args.x, {2, 4}).strided = true;
  call.input("weight", call.args.weight, {4, 3});
  call.input("state", call.args.state, {2, 2, 4}).optional = true;
  call.input("bias", call.args.bias, {4}).optional = true;
}

TEST_P(Arguments16, CausalConv1dStepForward) {
  Call<CausalConv1dStepForward> call("causal_conv1d_step", causal_conv1d_step_forward, GetParam());
  add_conv_step(call);
  call.output("y", call.args.y, {2, 4}).strided = true;
  call.output("new_state", call.args.new_state, {2, 2, 4}).optional = true;
  call.may_be("new_state", "state");
  call.check_everything();
  expect_words(call.args, causal_conv1d_step_forward,
               "causal_conv1d_step: activation is 2, wants silu or none",
               [](CausalConv1dStepForward& args) { args.activation = static_cast<Activation>(2); });
}

TEST_P(Arguments16, CausalConv1dStepBackward) {
  Call<CausalConv1dStepBackward> call("causal_conv1d_step_backward", causal_conv1d_step_backward, GetParam());
  add_conv_step(call);
  Slot& bias = call.slot("bias");
  bias.optional = false;
  bias.without = "d_bias is wanted, but there is no bias";
  Slot& d_y = call.input("d_y", call.args.d_y, {2, 4});
  d_y.optional = d_y.strided = true;
  call.input("d_new_state", call.args.d_new_state, {2, 2, 4}).optional = true;
  call.gradient("d_x", call.args.d_x, {2, 4}).strided = true;
  call.gradient("d_state", call.args.d_state, {2, 2, 4});
  call.widened(call.gradient("d_weight", call.args.d_weight, {4, 3}));
  call.widened(call.gradient("d_bias", call.args.d_bias, {4}));
  call.check_everything();
}

template <class Args>
void add_gated_norm(Call<Args>& call) {
  call.takes_16_bits();
  call.args.groups = 1;
  call.input("x", call.args.x, {2, 3, 4}).strided = true;
  Slot& z = call.input("z", call.args.z, {2, 3, 4});
  z.strided = z.optional = true;
  call.input("weight", call.args.weight, {4});
}

template <class Args>
void check_gated_numbers(const Args& args, Status (*function)(const Args&, Stream) noexcept,
                         const std::string& op) {
  for (const std::int64_t groups : {0, -1, 3, 8})
    expect_words(
        args, function,
        (op + ": groups is " + std::to_string(groups) + ", wants a divisor of S, the last dimension of x")
            .c_str(),
        [&](Args& changed) { changed.groups = groups; });
  expect_words(args, function,
               (op + ": statistics has shape [2, 3, 1], wants [2, 3, 2] = [..., G], the leading dimensions "
                     "of x [2, 3, 4], G the number of groups")
                   .c_str(),
               [](Args& changed) { changed.groups = 2; });
  for (const double eps : {0.0, -1e-5, HUGE_VAL, std::nan("")}) {
    Args changed = args;
    changed.eps = eps;
    const Status status = function(changed, {});
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_EQ(status.message().rfind(op + ": eps is ", 0), 0U) << status.message();
  }
}

TEST_P(Arguments16, GatedRmsNormForward) {
  Call<GatedRmsNormForward> call("gated_rms_norm", gated_rms_norm_forward, GetParam());
  add_gated_norm(call);
  call.output("y", call.args.y, {2, 3, 4}).strided = true;
  call.widened(call.output("statistics", call.args.statistics, {2, 3, 1}));
  call.may_be("y", "x");
  call.may_be("y", "z");
  call.check_everything();
  check_gated_numbers(call.args, gated_rms_norm_forward, "gated_rms_norm");
}

TEST_P(Arguments16, GatedRmsNormBackward) {
  Call<GatedRmsNormBackward> call("gated_rms_norm_backward", gated_rms_norm_backward, GetParam());
  add_gated_norm(call);
  Slot& z = call.slot("z");
  z.optional = false;
  z.without = "d_z is wanted, but there is no z";
  call.widened(call.output("statistics", call.args.statistics, {2, 3, 1}));
  call.slot("statistics").written = false;
  call.input("d_y", call.args.d_y, {2, 3, 4}).strided = true;
  call.gradient("d_x", call.args.d_x, {2, 3, 4}).strided = true;
  call.gradient("d_z", call.args.d_z, {2, 3, 4}).strided = true;
  call.widened(call.gradient("d_weight", call.args.d_weight, {4}));
  call.may_be("d_x", "d_y");
  call.may_be("d_z", "d_y");
  call.check_everything();
  check_gated_numbers(call.args, gated_rms_norm_backward, "gated_rms_norm_backward");
}

template <class Args>
void add_state_output(Call<Args>& call) {
  call.input("z", call.args.z, {2, 3, 4}).strided = true;
  call.input("u", call.args.u, {2, 3, 4}).strided = true;
  call.input("D", call.args.D, {4});
}

template <class Args>
void check_activation(Call<Args>& call, const char* op, Status (*function)(const Args&, Stream) noexcept) {
  call.args.activation = static_cast<Activation>(2);
  const Status status = function(call.args, {});
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(status.message(), std::string(op) + ": activation is 2, wants silu or none");
}

TEST_P(Arguments, StateOutputForward) {
  Call<StateOutputForward> call("state_output", state_output_forward, GetParam());
  add_state_output(call);
  call.input("residual", call.args.residual, {2, 3, 4}).strided = true;
  call.output("out", call.args.out, {2, 3, 4}).strided = true;
  call.may_be("out", "z");
  call.may_be("out", "residual");
  call.check_everything();
  check_activation(call, "state_output", state_output_forward);
}

TEST_P(Arguments, StateOutputBackward) {
  Call<StateOutputBackward> call("state_output_backward", state_output_backward, GetParam());
  add_state_output(call);
  call.input("d_out", call.args.d_out, {2, 3, 4}).strided = true;
  call.gradient("d_z", call.args.d_z, {2, 3, 4}).strided = true;
  call.gradient("d_u", call.args.d_u, {2, 3, 4}).strided = true;
  call.gradient("d_D", call.args.d_D, {4});
  call.gradient("d_residual", call.args.d_residual, {2, 3, 4}).strided = true;
  call.check_everything();
  check_activation(call, "state_output_backward", state_output_backward);
}

template <class Args>
void add_loss(Call<Args>& call) {
  call.input("prediction", call.args.prediction, {2, 3, 4});
  call.input("target", call.args.target, {2, 3, 4});
  call.input("mask", call.args.mask, {2, 3, 4}).optional = true;
}

/// Every argument of a loss, then its number: `set` puts one in, `wrong` are refused with `words`.
template <class Forward, class Set>
void check_loss_forward(const std::string& op, Status (*function)(const Forward&, Stream) noexcept,
                        DType dtype, const std::vector<double>& wrong, const std::string& words,
                        const Set& set) {
  Call<Forward> call(op.c_str(), function, dtype);
  add_loss(call);
  make_f64(call.output("loss", call.args.loss, {}));
  call.check_everything();
  for (const double number : wrong) {
    set(call.args, number);
    const Status status = function(call.args, {});
    EXPECT_EQ(status.code(), Code::invalid_argument) << number;
    EXPECT_EQ(status.message().rfind(op + ": " + words, 0), 0U) << status.message();
  }
}

template <class Backward, class Set>
void check_loss_backward(const std::string& op, Status (*function)(const Backward&, Stream) noexcept,
                         DType dtype, const std::vector<double>& wrong, const std::string& words,
                         const Set& set) {
  Call<Backward> call(op.c_str(), function, dtype);
  add_loss(call);
  make_f64(call.input("d_loss", call.args.d_loss, {}));
  call.gradient("d_prediction", call.args.d_prediction, {2, 3, 4});
  call.check_everything();
  for (const double number : wrong) {
    set(call.args, number);
    const Status status = function(call.args, {});
    EXPECT_EQ(status.code(), Code::invalid_argument) << number;
    EXPECT_EQ(status.message().rfind(op + ": " + words, 0), 0U) << status.message();
  }
}

TEST_P(Arguments, Mse) {
  const auto none = [](MseForward&, double) {};
  check_loss_forward("mse", mse_forward, GetParam(), {}, "", none);
  check_loss_backward("mse_backward", mse_backward, GetParam(), {}, "", none);
}

TEST_P(Arguments, Huber) {
  const auto set = [](HuberForward& args, double k) { args.k = k; };
  const std::vector<double> wrong = {0, -1, HUGE_VAL, std::nan("")};
  check_loss_forward("huber", huber_forward, GetParam(), wrong, "k is ", set);
  check_loss_backward("huber_backward", huber_backward, GetParam(), wrong, "k is ", set);
}

TEST_P(Arguments, Quantile) {
  const auto set = [](QuantileForward& args, double q) { args.q = q; };
  const std::vector<double> wrong = {0, 1, -0.5, 1.5, HUGE_VAL, std::nan("")};
  check_loss_forward("quantile", quantile_forward, GetParam(), wrong, "q is ", set);
  check_loss_backward("quantile_backward", quantile_backward, GetParam(), wrong, "q is ", set);
}

// Indices, all of them 1.
void make_i32(Slot& slot) {
  slot.view->dtype = DType::i32;
  std::fill_n(static_cast<std::int32_t*>(const_cast<void*>(slot.view->data)), slot.view->elements(), 1);
}

TEST_P(Arguments16, Embedding) {
  Call<EmbeddingForward> call("embedding", embedding_forward, GetParam());
  call.takes_16_bits();
  make_i32(call.input("ids", call.args.ids, {2, 3}));
  call.input("weight", call.args.weight, {5, 4}).strided = true;
  call.output("y", call.args.y, {2, 3, 4}).strided = true;
  call.slot("weight").independent = true;  // a table may have any number of rows
  call.check_everything();
  const ConstView weight = call.args.weight;
  call.args.weight = ConstView(weight.data, weight.dtype, kCpu, {5, 3});
  EXPECT_EQ(
      embedding_forward(call.args).message(),
      "embedding: y has shape [2, 3, 4], wants [2, 3, 3] = [..., D], the leading dimensions of ids [2, 3], D "
      "the last dimension of weight [5, 3]");
  const DType other = GetParam() == DType::f64 ? DType::f32 : DType::f64;
  call.args.weight = ConstView(weight.data, other, kCpu, {5, 4});
  EXPECT_EQ(embedding_forward(call.args).message(),
            std::string("embedding: y is ") + name(GetParam()) + ", wants " + name(other) + " as weight");

  Call<EmbeddingBackward> back("embedding_backward", embedding_backward, GetParam());
  back.takes_16_bits();
  make_i32(back.input("ids", back.args.ids, {2, 3}));
  Slot& d_y = back.input("d_y", back.args.d_y, {2, 3, 4});
  d_y.strided = d_y.any_narrow = true;  // the table's own type is not known in backward
  Slot& d_weight = back.widened(back.gradient("d_weight", back.args.d_weight, {5, 4}));
  d_weight.strided = true;
  d_weight.independent = true;
  back.check_everything();
  back.args.d_weight.view = View(back.args.d_weight.view.as<void>(), at_least_f32(GetParam()), kCpu, {5, 3});
  EXPECT_EQ(embedding_backward(back.args).message(),
            "embedding_backward: d_weight has shape [5, 3], wants [V, 4] = [V, D], D the last dimension of "
            "d_y [2, 3, 4]");
  back.args.d_weight.view = View(back.args.d_weight.view.as<void>(), DType::bf16, kCpu, {5, 4});
  EXPECT_EQ(embedding_backward(back.args).code(), Code::invalid_argument);
}

TEST_P(Arguments16, CrossEntropy) {
  Call<CrossEntropyForward> call("cross_entropy", cross_entropy_forward, GetParam());
  call.takes_16_bits();
  Slot& logits = call.input("logits", call.args.logits, {2, 3, 4});
  logits.strided = logits.any_narrow = true;  // the only one of this type
  logits.free_axis = 2;
  make_i32(call.input("target", call.args.target, {2, 3}));
  make_f64(call.output("loss", call.args.loss, {}));
  call.widened(call.output("statistics", call.args.statistics, {2, 3, 2}));
  call.check_everything();

  Call<CrossEntropyBackward> back("cross_entropy_backward", cross_entropy_backward, GetParam());
  back.takes_16_bits();
  back.input("logits", back.args.logits, {2, 3, 4}).strided = true;
  make_i32(back.input("target", back.args.target, {2, 3}));
  back.widened(back.input("statistics", back.args.statistics, {2, 3, 2}));
  make_f64(back.input("d_loss", back.args.d_loss, {}));
  back.gradient("d_logits", back.args.d_logits, {2, 3, 4}).strided = true;
  back.may_be("d_logits", "logits");
  back.check_everything();

  // Without a logit there is nothing to choose from.
  call.args.logits.shape = Shape{2, 3, 0};
  EXPECT_EQ(cross_entropy_forward(call.args).message(),
            "cross_entropy: logits has shape [2, 3, 0], wants [..., V] with V above 0");
}

TEST_P(Arguments, GradNorm) {
  Call<GradNorm> call("grad_norm", grad_norm, GetParam());
  call.input("gradient", call.args.gradient, {7}).independent = true;
  Slot& loss = call.input("loss", call.args.loss, {});
  loss.optional = true;
  make_f64(loss);
  make_f64(call.output("control", call.args.control, {kStepControls}));
  call.check_everything();
}

TEST_P(Arguments, AdamW) {
  Call<AdamW> call("adamw", adamw, GetParam());
  call.output("parameter", call.args.parameter, {7});
  call.input("gradient", call.args.gradient, {7});
  call.output("first_moment", call.args.first_moment, {7});
  call.output("second_moment", call.args.second_moment, {7});
  make_f64(call.input("control", call.args.control, {kStepControls}));
  auto* control = static_cast<double*>(const_cast<void*>(call.args.control.data));
  control[kSteps] = 1;
  control[kSkip] = 0;
  call.args.decayed_elements = 5;
  call.check_everything();

  const auto refused = [&](auto set, const std::string& words) {
    AdamW args = call.args;
    set(args);
    const Status status = adamw(args);
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_EQ(status.message().rfind("adamw: " + words, 0), 0U) << status.message();
  };
  for (double beta : {-0.1, 1.0, std::nan("")}) {
    refused([&](AdamW& args) { args.beta1 = beta; }, "beta1 is ");
    refused([&](AdamW& args) { args.beta2 = beta; }, "beta2 is ");
  }
  refused([](AdamW& args) { args.beta2 = 1; }, "beta2 is 1, wants 0 or above and below 1");
  for (double eps : {0.0, -1.0, HUGE_VAL, std::nan("")}) {
    refused([&](AdamW& args) { args.eps = eps; }, "eps is ");
  }
  for (double decay : {-0.1, HUGE_VAL, std::nan("")}) {
    refused([&](AdamW& args) { args.weight_decay = decay; }, "weight_decay is ");
  }
  refused([](AdamW& args) { args.decayed_elements = -1; }, "decayed_elements is -1, wants ");
  refused([](AdamW& args) { args.decayed_elements = 8; }, "decayed_elements is 8, wants ");
}

// ---- Layout and routing
// ------------------------------------------------------------------------------------------

TEST(Routing, CountsOneOpOnTheCpu) {
  float memory[8] = {};
  SiluForward args;
  args.x = ConstView(memory, DType::f32, kCpu, {4});
  args.y = View(memory + 4, DType::f32, kCpu, {4});
  const Counters before = counters();
  ASSERT_TRUE(silu_forward(args).ok());
  EXPECT_EQ(counters().cpu_ops, before.cpu_ops + 1);
  EXPECT_EQ(counters().kernel_launches, before.kernel_launches);
  EXPECT_EQ(silu_forward_workspace(args), 0);
}

TEST(Routing, WorkspaceOnCudaMustHoldWhatIsAsked) {
  // Never looked into: the call is refused before anything runs.
  alignas(256) static float memory[4096] = {};
  const auto view = [](int index, const Shape& shape) {
    return View(memory + 256 * index, DType::f32, kCuda, shape);
  };
  LayerNormBackward args;
  args.x = view(0, {4, 8});
  args.weight = view(1, {8});
  args.statistics = view(2, {4, 3});
  args.d_y = view(3, {4, 8});
  args.d_weight = Gradient(view(4, {8}), WriteMode::overwrite);
  const std::int64_t wanted = layer_norm_backward_workspace(args);
  Status status = layer_norm_backward(args);
  if (status.code() == Code::unsupported) {
    EXPECT_EQ(status.message(), "layer_norm_backward: this build of scantape has no CUDA");
    EXPECT_EQ(wanted, 0);
    return;
  }
  ASSERT_GT(wanted, 0);
  const std::string wants = " bytes, wants " + std::to_string(wanted);
  EXPECT_EQ(status.message(), "layer_norm_backward: workspace has 0" + wants);
  args.workspace = Workspace{memory + 2048, wanted - 1};
  EXPECT_EQ(layer_norm_backward(args).message(),
            "layer_norm_backward: workspace has " + std::to_string(wanted - 1) + wants);
  args.workspace = Workspace{memory + 2049, wanted};
  EXPECT_EQ(layer_norm_backward(args).message(),
            "layer_norm_backward: workspace is not aligned to 256 bytes");
}

TEST(Routing, BlocksOfColumnsOfOneMatrixDoNotOverlap) {
  float memory[4 * 10] = {};
  SiluForward args;
  args.x = ConstView(memory, DType::f32, kCpu, {4, 5});
  args.y = View(memory + 5, DType::f32, kCpu, {4, 5});
  args.x.strides[0] = args.y.strides[0] = 10;
  EXPECT_TRUE(silu_forward(args).ok());
  args.y.data = memory + 4;
  EXPECT_EQ(silu_forward(args).message(), "silu: y [4, 5] overlaps x [4, 5], wants memory of its own");
  args.y.data = memory + 5;
  args.x.strides[0] = 9;  // rows drift into those of the other
  EXPECT_EQ(silu_forward(args).message(), "silu: y [4, 5] overlaps x [4, 5], wants memory of its own");
}

// One row has no stride, whatever its view says: in the gap between the rows of another tensor it touches nothing.
TEST(Routing, OneRowMayLieInTheGapsOfOthers) {
  std::vector<float> memory(1 + 4 * 10 + 10, 0.5F);
  float weight[5] = {1, 1, 1, 1, 1}, statistics[12] = {}, y[20] = {}, d_y[20] = {}, d_x[20] = {};
  LayerNormBackward args;
  const auto set = [&](std::int64_t stride) {
    args.x = ConstView(memory.data() + 1, DType::f32, kCpu, {4, 5});
    args.x.strides[0] = stride;
  };
  args.weight = ConstView(weight, DType::f32, kCpu, {5});
  args.y = View(y, DType::f32, kCpu, {4, 5});
  args.statistics = View(statistics, DType::f32, kCpu, {4, 3});
  args.d_y = ConstView(d_y, DType::f32, kCpu, {4, 5});
  args.d_x = Gradient(View(d_x, DType::f32, kCpu, {4, 5}), WriteMode::overwrite);
  const auto touches = [](std::int64_t at) {
    bool any = false;
    for (std::int64_t row = 0; row < 4; ++row) any = any || (at < 1 + 10 * row + 5 && 1 + 10 * row < at + 5);
    return any;
  };
  const auto accepts = [&](std::int64_t at) {
    args.d_weight = Gradient(View(memory.data() + at, DType::f32, kCpu, {5}), WriteMode::overwrite);
    const Status status = layer_norm_backward(args);
    if (!status.ok()) {
      EXPECT_EQ(status.message(),
                "layer_norm_backward: d_weight [5] overlaps x [4, 5], wants memory of its own");
    }
    return status.ok();
  };
  set(10);  // rows at 1 .. 5, 11 .. 15, 21 .. 25, 31 .. 35
  for (std::int64_t at = 0; at <= 45; ++at) EXPECT_EQ(accepts(at), !touches(at)) << at;
  set(9);  // the gaps are one element too small
  EXPECT_FALSE(accepts(6));
  EXPECT_TRUE(accepts(33)) << "behind the last row";
  // The other way round: rows are written, and one row between them is read.
  args.d_weight = Gradient();
  args.x = ConstView(y, DType::f32, kCpu, {4, 5});
  args.d_x.view = View(memory.data() + 1, DType::f32, kCpu, {4, 5});
  args.d_x.view.strides[0] = 10;
  for (std::int64_t at = 0; at <= 45; ++at) {
    args.weight = ConstView(memory.data() + at, DType::f32, kCpu, {5});
    const Status status = layer_norm_backward(args);
    EXPECT_EQ(status.ok(), !touches(at)) << at << ": " << status.message();
  }
  // Two rows of one each: where they lie decides.
  SiluForward silu;
  silu.x = ConstView(memory.data(), DType::f32, kCpu, {1, 5});
  silu.y = View(memory.data() + 5, DType::f32, kCpu, {1, 5});
  silu.x.strides[0] = silu.y.strides[0] = 10;
  EXPECT_TRUE(silu_forward(silu).ok());
  silu.x.strides[0] = 3;
  EXPECT_TRUE(silu_forward(silu).ok());
  silu.y.data = memory.data() + 4;
  EXPECT_EQ(silu_forward(silu).message(), "silu: y [1, 5] overlaps x [1, 5], wants memory of its own");
}

TEST(Views, SeenAsRows) {
  const auto rows = [](const Shape& shape, std::vector<std::int64_t> strides) {
    float unused = 0;
    ConstView view(&unused, DType::f32, kCpu, shape);
    std::copy(strides.begin(), strides.end(), view.strides.begin());
    Rows found;
    if (!as_rows(view, &found)) return std::vector<std::int64_t>();
    return std::vector<std::int64_t>{found.count, found.length, found.stride};
  };
  using V = std::vector<std::int64_t>;
  EXPECT_EQ(rows({}, {}), (V{1, 1, 1}));
  EXPECT_EQ(rows({5}, {1}), (V{1, 5, 5}));
  EXPECT_EQ(rows({5}, {2}), V());
  EXPECT_EQ(rows({1}, {7}), (V{1, 1, 1}));
  EXPECT_EQ(rows({2, 3, 4}, {12, 4, 1}), (V{6, 4, 4}));
  EXPECT_EQ(rows({2, 3, 4}, {30, 10, 1}), (V{6, 4, 10}));
  EXPECT_EQ(rows({2, 3, 4}, {40, 10, 1}), V());
  EXPECT_EQ(rows({2, 1, 4}, {9, 77, 1}), (V{2, 4, 9}));
  EXPECT_EQ(rows({1, 3, 4}, {77, 9, 1}), (V{3, 4, 9}));
  EXPECT_EQ(rows({2, 3, 1}, {9, 3, 5}), (V{6, 1, 3}));
  EXPECT_EQ(rows({2, 0, 4}, {1, 1, 1}), (V{0, 4, 4}));
  EXPECT_EQ(rows({2, 3, 0}, {1, 1, 1}), (V{6, 0, 0}));
  EXPECT_EQ(rows({3, 4}, {0, 1}), V()) << "rows over each other";
  EXPECT_EQ(rows({3, 4}, {-4, 1}), V());
}

// ---- The mistakes by their numbers
// ------------------------------------------------------------------------------

/// Tensors of small whole numbers.
struct Tensor {
  std::vector<float> values;
  Shape shape;

  explicit Tensor(const Shape& sizes) : values(static_cast<std::size_t>(sizes.elements())), shape(sizes) {}
  View view() { return View(values.data(), DType::f32, kCpu, shape); }
};

// An eps in the wrong precision once made the norm of f64 data fail.
TEST(R1, LayerNormWorksInBothDtypesAndRefusesOthers) {
  const auto normalise = [](auto zero) {
    using T = decltype(zero);
    std::vector<T> x{1, 2, 3, 4}, weight(4, T(1)), bias(4, T(0)), y(4), statistics(3);
    LayerNormForward args;
    args.x = ConstView(x.data(), dtype_of<T>, kCpu, {1, 4});
    args.weight = ConstView(weight.data(), dtype_of<T>, kCpu, {4});
    args.bias = ConstView(bias.data(), dtype_of<T>, kCpu, {4});
    args.y = View(y.data(), dtype_of<T>, kCpu, {1, 4});
    args.statistics = View(statistics.data(), dtype_of<T>, kCpu, {1, 3});
    args.eps = 0.75;  // var 1.25 + 0.75 = 2
    EXPECT_TRUE(layer_norm_forward(args).ok());
    EXPECT_NEAR(static_cast<double>(y[3]), 1.5 / std::sqrt(2.0), sizeof(T) == 4 ? 1e-7 : 1e-15);

    args.x.dtype = static_cast<DType>(9);
    const Status unknown = layer_norm_forward(args);
    EXPECT_EQ(unknown.code(), Code::invalid_argument);
    EXPECT_EQ(
        unknown.message(),
        "layer_norm: Unsupported dtype for layer norm: x has dtype code 9, wants f32, f64, bf16 or f16");
    args.x.dtype = sizeof(T) == 4 ? DType::f64 : DType::f32;
    EXPECT_EQ(layer_norm_forward(args).message(), std::string("layer_norm: weight is ") + name(dtype_of<T>) +
                                                      ", wants " + name(args.x.dtype) + " as x");
  };
  normalise(float{});
  normalise(double{});
}

std::string projection_message(const Shape& x, const Shape& weight, const Shape& y) {
  Tensor a(x), b(weight), c(y);
  ProjectionForward args;
  args.x = a.view();
  args.weight = b.view();
  args.y = c.view();
  return projection_forward(args).message();
}

// The maps into and out of the state were once as wide as the model, not as the layer.
TEST(R2, MapsOfTheStateAreAsWideAsTheLayer) {
  const std::int64_t model = 256, state = 16;
  for (std::int64_t expand : {1, 2, 4}) {
    const std::int64_t inner = expand * model;
    EXPECT_EQ(projection_message({8, 60, inner}, {state, inner}, {8, 60, state}), "");
    EXPECT_EQ(projection_message({8, 60, state}, {inner, state}, {8, 60, inner}), "");
    if (expand == 1) continue;
    const std::string sizes = std::to_string(inner);
    EXPECT_EQ(projection_message({8, 60, inner}, {state, model}, {8, 60, state}),
              "projection: weight has shape [16, 256], wants [O, " + sizes +
                  "] = [O, I], I the last dimension of x [8, 60, " + sizes + "]");
  }
}

// A weight the wrong way round.
TEST(R3, TransposedWeightIsRefusedAndTheRightOneGivesKnownNumbers) {
  EXPECT_EQ(projection_message({8, 60, 1024}, {1024, 16}, {8, 60, 16}),
            "projection: weight has shape [1024, 16], wants [O, 1024] = [O, I], I the last dimension of x "
            "[8, 60, 1024]");
  Tensor x({1, 2, 3}), weight({2, 3}), y({1, 2, 2});
  x.values = {1, 2, 3, 4, 5, 6};
  weight.values = {1, 0, -1, 2, 1, 0};
  ProjectionForward args;
  args.x = x.view();
  args.weight = weight.view();
  args.y = y.view();
  ASSERT_TRUE(projection_forward(args).ok());
  EXPECT_EQ(y.values, (std::vector<float>{-2, 4, -2, 13}));
}

/// Whole numbers small enough for f32 to sum them without rounding.
float small_number(std::int64_t seed) {
  return static_cast<float>(seed % 7 - 3);
}

void fill_small(Tensor& tensor, std::int64_t step) {
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    tensor.values[i] = small_number(static_cast<std::int64_t>(i) * step + static_cast<std::int64_t>(i) / 11);
  }
}

/// y[row, o] = sum over i of x[row, i] weight[o, i], in whole numbers.
std::vector<float> whole_product(const Tensor& x, const Tensor& weight) {
  const auto width = static_cast<std::size_t>(x.shape.back());
  std::vector<float> y;
  for (std::size_t row = 0; row < x.values.size(); row += width) {
    for (std::size_t o = 0; o < weight.values.size(); o += width) {
      std::int64_t sum = 0;
      for (std::size_t i = 0; i < width; ++i) {
        sum += static_cast<std::int64_t>(x.values[row + i]) * static_cast<std::int64_t>(weight.values[o + i]);
      }
      y.push_back(static_cast<float>(sum));
    }
  }
  return y;
}

void expect_flattened_product(const Shape& x_shape, const Shape& weight_shape) {
  Tensor x(x_shape), weight(weight_shape);
  fill_small(x, 3);
  fill_small(weight, 5);
  Shape y_shape = x_shape;
  y_shape[x_shape.rank() - 1] = weight_shape[0];
  Tensor y(y_shape);
  ProjectionForward args;
  args.x = x.view();
  args.weight = weight.view();
  args.y = y.view();
  ASSERT_TRUE(projection_forward(args).ok());
  EXPECT_EQ(y.values, whole_product(x, weight));
}

// A product of a rank 3 and a rank 2 tensor: the leading dimensions are flattened.
TEST(R4, LeadingDimensionsAreFlattened) {
  expect_flattened_product({8, 60, 1024}, {16, 1024});
  expect_flattened_product({8, 60, 16}, {1024, 16});
}

// [32, 60, 512] x [512, 16] on the training path: one path, any batch.
TEST(R5, EveryBatchTakesTheSamePath) {
  for (std::int64_t batch = 1; batch <= 32; ++batch) expect_flattened_product({batch, 60, 512}, {16, 512});
  Tensor x({32, 60, 512}), weight({16, 512}), d_y({32, 60, 16}), d_x({32, 60, 512}), d_weight({16, 512});
  fill_small(x, 3);
  fill_small(d_y, 2);
  fill_small(weight, 5);
  ProjectionBackward args;
  args.x = x.view();
  args.weight = weight.view();
  args.d_y = d_y.view();
  args.d_x = Gradient(d_x.view(), WriteMode::overwrite);
  args.d_weight = Gradient(d_weight.view(), WriteMode::overwrite);
  ASSERT_TRUE(projection_backward(args).ok());
  double largest = 0;
  for (std::size_t row = 0; row < 32 * 60; ++row) {
    for (std::size_t i = 0; i < 512; ++i) {
      double sum = 0;
      for (std::size_t o = 0; o < 16; ++o)
        sum += double(d_y.values[row * 16 + o]) * double(weight.values[o * 512 + i]);
      ASSERT_EQ(double(d_x.values[row * 512 + i]), sum) << row << ", " << i;
      largest = std::max(largest, std::abs(sum));
    }
  }
  for (std::size_t o = 0; o < 16; ++o) {
    for (std::size_t i = 0; i < 512; ++i) {
      double sum = 0;
      for (std::size_t row = 0; row < 32 * 60; ++row)
        sum += double(d_y.values[row * 16 + o]) * double(x.values[row * 512 + i]);
      ASSERT_EQ(double(d_weight.values[o * 512 + i]), sum) << o << ", " << i;
    }
  }
  EXPECT_GT(largest, 0);
}

LayerNormForward layer_norm_args(Tensor& x, Tensor& weight, Tensor& bias, Tensor& y, Tensor& statistics) {
  LayerNormForward args;
  args.x = x.view();
  args.weight = weight.view();
  args.bias = bias.view();
  args.y = y.view();
  args.statistics = statistics.view();
  return args;
}

// A norm as wide as the model in a layer twice as wide.
TEST(R7, LayerNormWeightOfDModelIsRefused) {
  Tensor x({32, 60, 512}), weight({256}), bias({256}), y({32, 60, 512}), statistics({32, 60, 3});
  LayerNormForward args = layer_norm_args(x, weight, bias, y, statistics);
  const Status status = layer_norm_forward(args);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_EQ(status.message(),
            "layer_norm: weight has shape [256], wants [512] = [E], the last dimension of x [32, 60, 512]");

  // Without a batch dimension [60, 512] is as good an input as any.
  Tensor full_weight({512}), full_bias({512}), one({60, 512}), one_y({60, 512}), one_statistics({60, 3});
  EXPECT_TRUE(layer_norm_forward(layer_norm_args(one, full_weight, full_bias, one_y, one_statistics)).ok());
}

// A step size per feature of the model against one state matrix.
TEST(R9, StepsThatAreNotOneAStateAreRefused) {
  Tensor dt({256}), A({16}), B({16, 512}), A_bar({16}), B_bar({16, 512});
  DiscretizeForward args;
  args.dt = dt.view();
  args.A = A.view();
  args.B = B.view();
  args.A_bar = A_bar.view();
  args.B_bar = B_bar.view();
  EXPECT_EQ(
      discretize_forward(args).message(),
      "discretize: dt has shape [256], wants [16] = [N], the first dimension of A [16], or [B, L, 16] = "
      "[B, L, N], N the first dimension of A [16]");
  Tensor row({1, 256}), square({16, 16}), oblong({16, 8});
  args.dt = row.view();
  EXPECT_EQ(
      discretize_forward(args).message().rfind("discretize: dt has shape [1, 256], wants [16] = [N], ", 0),
      0U);
  args.A = square.view();
  EXPECT_EQ(discretize_forward(args).message(), "discretize: dt has shape [1, 256], wants []");
  args.A = oblong.view();
  EXPECT_EQ(discretize_forward(args).message(), "discretize: A has shape [16, 8], wants [N, N]");
}

// A loss between tensors of different shapes would broadcast without a word.
TEST(R12, LossOfUnequalShapesIsRefused) {
  Tensor prediction({32, 60, 1}), target({32, 1, 256}), same_count({60, 32, 1});
  double loss = 0;
  MseForward args;
  args.prediction = prediction.view();
  args.target = target.view();
  args.loss = View(&loss, DType::f64, kCpu, {});
  EXPECT_EQ(mse_forward(args).message(),
            "mse: target has shape [32, 1, 256], wants [32, 60, 1] as prediction");
  args.target = same_count.view();
  EXPECT_EQ(mse_forward(args).message(),
            "mse: target has shape [60, 32, 1], wants [32, 60, 1] as prediction");
}

}  // namespace
}  // namespace scantape
