#include "in_f32.h"

#include <cstddef>

namespace scantape {

namespace {

/// Calls f(element of a view, its place in row-major order) for all elements; rows may be strided.
template <class T, class F>
void for_each_element(const ConstView& view, const F& f) {
  Rows rows;
  if (!as_rows(view, &rows)) as_rows(view, 2, &rows);
  T* const data = const_cast<T*>(view.as<T>());
  for (std::int64_t row = 0; row < rows.count; ++row)
    for (std::int64_t i = 0; i < rows.length; ++i) f(data[row * rows.stride + i], row * rows.length + i);
}

/// The same for a view of bf16 or f16.
template <class F>
void for_each_of_16_bits(const ConstView& view, const F& f) {
  if (view.dtype == DType::bf16)
    for_each_element<BFloat16>(view, f);
  else
    for_each_element<Float16>(view, f);
}

float rounded(float value, DType dtype) noexcept {
  return dtype == DType::bf16 ? static_cast<float>(BFloat16(value)) : static_cast<float>(Float16(value));
}

}  // namespace

ConstView InF32::converted(const ConstView& view, bool with_values) {
  const auto count = static_cast<std::size_t>(view.elements());
  std::unique_ptr<float[]> values(new float[count + 1]);  // an address even where there is nothing
  if (with_values)
    for_each_of_16_bits(view, [&](auto& element, std::int64_t i) {
      values[static_cast<std::size_t>(i)] = static_cast<float>(element);
    });
  copies_.push_back({std::move(values), view});
  return ConstView(copies_.back().values.get(), DType::f32, view.device, view.shape);
}

void InF32::read(ConstView& view) {
  if (view.present && is_16_bit(view.dtype)) view = converted(view, true);
}

void InF32::write(View& view) {
  if (!view.present || !is_16_bit(view.dtype)) return;
  const View target = view;
  static_cast<ConstView&>(view) = converted(target, false);
  results_.emplace_back(target, view.as<float>());
}

void InF32::write(Gradient& gradient) {
  if (!gradient.wanted() || !is_16_bit(gradient.view.dtype)) return;
  const View target = gradient.view;
  static_cast<ConstView&>(gradient.view) = converted(target, gradient.mode == WriteMode::accumulate);
  results_.emplace_back(target, gradient.view.as<float>());
}

void InF32::add(const ConstView& x, const ConstView& more) {
  for (const Copy& copy : copies_) {
    if (copy.values.get() != x.data) continue;
    const std::int64_t count = x.elements();
    for (std::int64_t i = 0; i < count; ++i) {
      float& value = copy.values[static_cast<std::size_t>(i)];
      value = rounded(value + more.as<float>()[i], copy.original.dtype);
    }
  }
}

void InF32::finish() const {
  for (const auto& [target, values] : results_)
    for_each_of_16_bits(target, [from = values](auto& element, std::int64_t i) {
      element = std::remove_reference_t<decltype(element)>(from[i]);
    });
}

void convert(InF32& f32, CopyForward& args) {
  f32.read(args.x);
  f32.write(args.y);
}

void convert(InF32& f32, CopyBackward& args) {
  f32.read(args.x);
  f32.read(args.d_y);
  f32.write(args.d_x);
}

void convert(InF32& f32, NegExpForward& args) {
  f32.read(args.x);
  f32.write(args.y);
}

void convert(InF32& f32, NegExpBackward& args) {
  f32.read(args.x);
  f32.read(args.d_y);
  f32.write(args.d_x);
}

void convert(InF32& f32, SiluForward& args) {
  f32.read(args.x);
  f32.write(args.y);
}

void convert(InF32& f32, SiluBackward& args) {
  f32.read(args.x);
  f32.read(args.d_y);
  f32.write(args.d_x);
}

void convert(InF32& f32, SoftplusForward& args) {
  f32.read(args.x);
  f32.write(args.y);
}

void convert(InF32& f32, SoftplusBackward& args) {
  f32.read(args.x);
  f32.read(args.d_y);
  f32.write(args.d_x);
}

void convert(InF32& f32, NormForward& args) {
  f32.read(args.x);
  f32.read(args.weight);
  f32.read(args.bias);
  f32.write(args.y);
  f32.write(args.r);
  if (!args.residual.present) return;
  // Rounded before anything else is made of it; the form then finds r where x was.
  f32.read(args.residual);
  f32.add(args.x, args.residual);
  args.residual = ConstView();
}

void convert(InF32& f32, NormBackward& args) {
  if (args.residual.present) {
    f32.read(args.r);
  } else {
    f32.read(args.x);
  }
  f32.read(args.weight);
  f32.read(args.d_y);
  f32.read(args.d_r);
  f32.write(args.d_x);
  f32.write(args.d_residual);
  f32.write(args.d_weight);
  f32.write(args.d_bias);
}

void convert(InF32& f32, ProjectionForward& args) {
  f32.read(args.x);
  f32.read(args.weight);
  f32.read(args.bias);
  f32.write(args.y);
}

void convert(InF32& f32, ProjectionBackward& args) {
  f32.read(args.x);
  f32.read(args.weight);
  f32.read(args.d_y);
  f32.write(args.d_x);
  f32.write(args.d_weight);
  f32.write(args.d_bias);
}

void convert(InF32& f32, ScanForward& args) {
  f32.read(args.b);
  f32.read(args.start);
  f32.write(args.h);
}

void convert(InF32& f32, ScanBackward& args) {
  f32.read(args.h);
  f32.read(args.start);
  f32.read(args.d_h);
  f32.write(args.d_b);
}

namespace {

/// What both directions of ssd and of its step read.
template <class Args>
void convert_ssd_inputs(InF32& f32, Args& args) {
  for (ConstView* view : {&args.x, &args.dt, &args.B, &args.C, &args.z}) f32.read(*view);
}

template <class Args>
void convert_ssd_gradients(InF32& f32, Args& args) {
  convert_ssd_inputs(f32, args);
  f32.read(args.d_out);
  for (Gradient* gradient : {&args.d_x, &args.d_dt, &args.d_B, &args.d_C, &args.d_z}) f32.write(*gradient);
}

void read_inputs(InF32& f32, SelectiveScanForward& args) {
  for (ConstView* view : {&args.u, &args.dt, &args.B, &args.C, &args.z, &args.start}) f32.read(*view);
}

void read_inputs(InF32& f32, CausalConv1dForward& args) {
  f32.read(args.x);
  f32.read(args.weight);
  f32.read(args.bias);
  f32.read(args.initial_state);
  f32.read(args.start);
}

}  // namespace

void convert(InF32& f32, SsdForward& args) {
  convert_ssd_inputs(f32, args);
  f32.read(args.start);
  f32.write(args.out);
}

void convert(InF32& f32, SsdBackward& args) {
  convert_ssd_gradients(f32, args);
  f32.read(args.start);
}

void convert(InF32& f32, SsdStepForward& args) {
  convert_ssd_inputs(f32, args);
  f32.write(args.out);
}

void convert(InF32& f32, SsdStepBackward& args) {
  convert_ssd_gradients(f32, args);
}

void convert(InF32& f32, SelectiveScanForward& args) {
  read_inputs(f32, args);
  f32.write(args.out);
}

void convert(InF32& f32, SelectiveScanBackward& args) {
  read_inputs(f32, args);
  f32.read(args.d_out);
  for (Gradient* gradient : {&args.d_u, &args.d_dt, &args.d_B, &args.d_C, &args.d_z}) f32.write(*gradient);
}

void convert(InF32& f32, CausalConv1dForward& args) {
  read_inputs(f32, args);
  f32.write(args.y);
  f32.write(args.final_state);
}

void convert(InF32& f32, CausalConv1dBackward& args) {
  read_inputs(f32, args);
  f32.read(args.d_y);
  f32.read(args.d_final_state);
  f32.write(args.d_x);
  f32.write(args.d_weight);
  f32.write(args.d_bias);
  f32.write(args.d_initial_state);
}

void convert(InF32& f32, GatedRmsNormForward& args) {
  f32.read(args.x);
  f32.read(args.z);
  f32.read(args.weight);
  f32.write(args.y);
}

void convert(InF32& f32, GatedRmsNormBackward& args) {
  f32.read(args.x);
  f32.read(args.z);
  f32.read(args.weight);
  f32.read(args.d_y);
  f32.write(args.d_x);
  f32.write(args.d_z);
  f32.write(args.d_weight);
}

void convert(InF32& f32, EmbeddingBackward& args) {
  f32.read(args.d_y);
}

void convert(InF32& f32, CrossEntropyForward& args) {
  f32.read(args.logits);
}

void convert(InF32& f32, CrossEntropyBackward& args) {
  f32.read(args.logits);
  f32.write(args.d_logits);
}

}  // namespace scantape
