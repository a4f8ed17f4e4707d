#include "instance.h"

#include <algorithm>

#include "scantape/counters.h"

namespace scantape::cases {
namespace {

template <class Argument>
DType type_of(const Argument& argument, DType dtype) {
  return cases::type_of(argument.type, dtype);
}

template <class Argument>
Layout layout_of(const Argument& argument, Layout layout) {
  return layout == Layout::strided && !argument.strided ? Layout::dense : layout;
}

Values round_all(Values values, DType dtype) {
  for (double& value : values) value = rounded(value, dtype);
  return values;
}

const Shape kNothing{0};

/// `values` of shape [items, ...]: those of the items begin .. end - 1.
Values item_values(const Values& values, const Shape& shape, std::int64_t begin, std::int64_t end) {
  const std::int64_t size = shape[0] == 0 ? 0 : shape.elements() / shape[0];
  return Values(values.begin() + begin * size, values.begin() + end * size);
}

Values twice(const Values& values) {
  Values result = values;
  result.insert(result.end(), values.begin(), values.end());
  return result;
}

/// A copy of the case with `items` items, and a copy of the data made by `pick` where an argument has items.
Case with_item_count(const Case& c, std::int64_t items) {
  Case result = c;
  for (Input& input : result.inputs)
    if (input.items) input.shape[0] = items;
  for (Output& output : result.outputs)
    if (output.items) output.shape[0] = items;
  return result;
}

template <class Pick>
Data with_items(const Case& c, const Data& data, Pick pick) {
  Data result = data;
  for (std::size_t i = 0; i < c.inputs.size(); ++i)
    if (c.inputs[i].items) {
      result.inputs[i] = pick(data.inputs[i], c.inputs[i].shape);
      result.old[i] = pick(data.old[i], c.inputs[i].shape);
    }
  for (std::size_t i = 0; i < c.outputs.size(); ++i)
    if (c.outputs[i].items) {
      result.cotangents[i] = pick(data.cotangents[i], c.outputs[i].shape);
      if (c.outputs[i].initial) result.initial[i] = pick(data.initial[i], c.outputs[i].shape);
    }
  return result;
}

}  // namespace

Data make_data(const Case& c, DType dtype, std::uint64_t seed) {
  Data data;
  // A stream an argument: adding one to a case leaves the others' numbers alone.
  const auto stream = [&](const std::string& argument) {
    return Rng(hash(c.name + "/" + argument) + seed * 0x9e3779b97f4a7c15u);
  };
  const Fill random = uniform(-2, 2);
  for (const Input& input : c.inputs) {
    Rng rng = stream(input.name), old_rng = stream("old " + input.name);
    data.inputs.push_back(input.present ? round_all(input.fill(rng, input.shape), type_of(input, dtype))
                                        : Values(static_cast<std::size_t>(input.shape.elements()), 0.0));
    data.old.push_back(
        round_all(random(old_rng, input.shape), cases::type_of(input.type_of_gradient(), dtype)));
  }
  for (const Output& output : c.outputs) {
    Rng rng = stream("initial " + output.name), cotangent_rng = stream("cotangent " + output.name);
    data.initial.push_back(
        output.initial ? round_all(output.initial(rng, output.shape), type_of(output, dtype)) : Values());
    data.cotangents.push_back(round_all(random(cotangent_rng, output.shape), type_of(output, dtype)));
  }
  return data;
}

std::int64_t item_count(const Case& c) {
  for (const Input& input : c.inputs)
    if (input.items) return input.shape[0];
  return 0;
}
bool has_items(const Case& c) {
  return item_count(c) > 0;
}

Case take_items(const Case& c, std::int64_t begin, std::int64_t end) {
  return with_item_count(c, end - begin);
}
Data take_items(const Case& c, const Data& data, std::int64_t begin, std::int64_t end) {
  return with_items(c, data, [&](const Values& values, const Shape& shape) {
    return item_values(values, shape, begin, end);
  });
}
Case doubled(const Case& c) {
  return with_item_count(c, 2 * item_count(c));
}
Data doubled(const Case& c, const Data& data) {
  return with_items(c, data, [](const Values& values, const Shape&) { return twice(values); });
}

Instance::Instance(const Case& c, const Data& data, Place place)
    : case_(c), data_(data), place_(place), asks_(c.inputs.size(), Ask::absent) {
  call_.implementation = place.implementation;
  call_.device = place.device;
  call_.workspace = [this](std::int64_t bytes) { return workspace(bytes); };
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    const Input& input = c.inputs[i];
    const DType type = type_of(input, place.dtype);
    const Layout layout = layout_of(input, c.layout);
    inputs_.emplace_back(input.shape, type, place.device, layout, input.row_axes);
    inputs_.back().write(data.inputs[i]);
    call_.inputs.emplace_back(input.name, input.present ? ConstView(inputs_.back().view()) : ConstView());
    gradients_.emplace_back(input.gradient ? input.shape : kNothing,
                            cases::type_of(input.type_of_gradient(), place.dtype), place.device, layout,
                            input.row_axes);
    call_.gradients.emplace_back(input.name, Gradient());
  }
  for (std::size_t i = 0; i < c.outputs.size(); ++i) {
    const Output& output = c.outputs[i];
    const DType type = type_of(output, place.dtype);
    const Layout layout = layout_of(output, c.layout);
    outputs_.emplace_back(output.present ? output.shape : kNothing, type, place.device, layout,
                          output.row_axes);
    call_.outputs.emplace_back(output.name, output.present ? outputs_.back().view() : View());
    const bool given = output.present && output.cotangent && c.backward;
    cotangents_.emplace_back(given ? output.shape : kNothing, type, place.device, layout, output.row_axes);
    if (given) cotangents_.back().write(data.cotangents[i]);
    call_.cotangents.emplace_back(output.name, given ? ConstView(cotangents_.back().view()) : ConstView());
  }
}

void Instance::alias(const std::string& upper, const std::string& lower) {
  View below;
  for (std::size_t i = 0; i < case_.inputs.size(); ++i)
    if (case_.inputs[i].name == lower) below = inputs_[i].view();
  for (std::size_t i = 0; i < case_.outputs.size(); ++i)
    if ("d_" + case_.outputs[i].name == lower) below = cotangents_[i].view();
  bool found = false;
  for (std::size_t i = 0; i < case_.outputs.size(); ++i)
    if (case_.outputs[i].name == upper) {
      call_.outputs[i].second = below;
      found = true;
    }
  for (std::size_t i = 0; i < case_.inputs.size(); ++i)
    if ("d_" + case_.inputs[i].name == upper) {
      call_.gradients[i].second = Gradient(below, WriteMode::overwrite);
      found = true;
    }
  if (!found || !below.present)
    throw Error(Code::invalid_argument, "case " + case_.name + " cannot lay " + upper + " over " + lower);
  overlaid_.push_back(lower);
}

Workspace Instance::workspace(std::int64_t bytes) {
  if (bytes == 0) return {};
  const std::int64_t elements = (bytes + 7) / 8;
  for (const auto& image : workspaces_)
    if (image->view().elements() == elements) return {const_cast<void*>(image->view().data), bytes};
  workspaces_.push_back(std::make_unique<Image>(Shape{elements}, DType::f64, place_.device, Layout::dense));
  return {const_cast<void*>(workspaces_.back()->view().data), bytes};
}

void Instance::run(const std::function<Status(const Call&)>& function) {
  for (const auto& image : workspaces_) image->write_nan();
  const Counters before = counters();
  require(function(call_));
  const Counters after = counters();
  launches_ = after.kernel_launches - before.kernel_launches;
  cpu_ops_ = after.cpu_ops - before.cpu_ops;
  require(synchronize(place_.device));
  fetch();
}

void Instance::fetch() {
  for (auto* images : {&inputs_, &outputs_, &cotangents_, &gradients_})
    for (Image& image : *images) image.fetch();
  for (const auto& image : workspaces_) image->fetch();
}

void Instance::forward() {
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    if (!case_.outputs[i].present) continue;
    if (case_.outputs[i].initial)
      outputs_[i].write(data_.initial[i]);
    else
      outputs_[i].write_nan();
  }
  backward_ran_ = false;
  run(case_.forward);
}

void Instance::prepare_backward(const std::vector<Ask>& asks) {
  asks_ = asks;
  for (std::size_t i = 0; i < asks.size(); ++i) {
    if (!case_.inputs[i].gradient) asks_[i] = Ask::absent;
    Gradient& gradient = call_.gradients[i].second;
    if (gradient.view.present && gradient.view.data != gradients_[i].view().data)
      continue;  // laid over another
    switch (asks_[i]) {
      case Ask::absent:
        gradient = Gradient();
        break;
      case Ask::skip:
        gradient = Gradient(gradients_[i].view(), WriteMode::skip);
        break;
      case Ask::overwrite:
        gradient = Gradient(gradients_[i].view(), WriteMode::overwrite);
        break;
      case Ask::accumulate:
        gradient = Gradient(gradients_[i].view(), WriteMode::accumulate);
        break;
    }
    if (!case_.inputs[i].gradient) continue;
    if (asks_[i] == Ask::overwrite)
      gradients_[i].write_nan();
    else
      gradients_[i].write(data_.old[i]);
  }
}

void Instance::backward(const std::vector<Ask>& asks) {
  prepare_backward(asks);
  backward_ran_ = true;
  run(case_.backward);
}

void Instance::zero_cotangents() {
  for (Image& image : cotangents_)
    image.write(Values(static_cast<std::size_t>(image.view().elements()), 0.0));
}

std::vector<std::byte> Instance::bits_of(const std::string& name) const {
  for (std::size_t i = 0; i < case_.inputs.size(); ++i)
    if (case_.inputs[i].name == name) return inputs_[i].bits();
  for (std::size_t i = 0; i < case_.outputs.size(); ++i) {
    if (case_.outputs[i].name == name) return outputs_[i].bits();
    if ("d_" + case_.outputs[i].name == name) return cotangents_[i].bits();
  }
  throw Error(Code::invalid_argument, "case " + case_.name + " has no " + name);
}

std::vector<std::byte> Instance::all_bits() const {
  std::vector<std::byte> all;
  const auto append = [&all](const Image& image) {
    const std::vector<std::byte> bits = image.bits();
    all.insert(all.end(), bits.begin(), bits.end());
  };
  for (const Image& image : outputs_) append(image);
  if (backward_ran_)
    for (const Image& image : gradients_) append(image);
  return all;
}

std::string Instance::damage() const {
  const auto laid_over = [this](const std::string& name) {
    return std::find(overlaid_.begin(), overlaid_.end(), name) != overlaid_.end();
  };
  std::string text;
  const auto look = [&text](const std::string& name, const std::string& damage) {
    if (text.empty() && !damage.empty()) text = name + ": " + damage;
  };
  for (std::size_t i = 0; i < case_.inputs.size(); ++i) {
    const std::string& name = case_.inputs[i].name;
    look(name, inputs_[i].guard_damage());
    if (!laid_over(name)) look(name, inputs_[i].element_damage());
    look("d_" + name, gradients_[i].guard_damage());
    if (backward_ran_ && (asks_[i] == Ask::skip || asks_[i] == Ask::absent))
      look("d_" + name + " (skipped)", gradients_[i].element_damage());
  }
  for (std::size_t i = 0; i < case_.outputs.size(); ++i) {
    const std::string& name = case_.outputs[i].name;
    look(name, outputs_[i].guard_damage());
    look("d_" + name, cotangents_[i].guard_damage());
    if (!laid_over("d_" + name)) look("d_" + name, cotangents_[i].element_damage());
  }
  for (const auto& image : workspaces_) look("workspace", image->guard_damage());
  return text;
}

}  // namespace scantape::cases
