#pragma once

#include <memory>

#include "case.h"
#include "image.h"

namespace scantape::cases {

/// The numbers of one case, rounded to the type of the run, each list in the order of the case's arguments.
struct Data {
  std::vector<Values> inputs;      ///< zeros where absent
  std::vector<Values> initial;     ///< of outputs that are updated in place
  std::vector<Values> cotangents;  ///< of the outputs: random, never ones
  std::vector<Values> old;         ///< what the gradients' targets hold before an accumulating backward
};

Data make_data(const Case& c, DType dtype, std::uint64_t seed);

/// The case for the items begin .. end - 1 alone, and their data. Cases without an items axis are refused.
bool has_items(const Case& c);
std::int64_t item_count(const Case& c);
Case take_items(const Case& c, std::int64_t begin, std::int64_t end);
Data take_items(const Case& c, const Data& data, std::int64_t begin, std::int64_t end);
/// The case for all items twice, one set after the other.
Case doubled(const Case& c);
Data doubled(const Case& c, const Data& data);

struct Place {
  Device device;
  DType dtype = DType::f64;
  Call::Implementation implementation = Call::Implementation::routed;
};

/// How each gradient of the case is asked for. `absent` skips it and hands no tensor over.
enum class Ask { absent, skip, overwrite, accumulate };

/// One case in the memory of one device, ready to run. Throws Error for what the device or the op refuses.
class Instance {
 public:
  Instance(const Case& c, const Data& data, Place place);

  /// Lays output or "d_" gradient `upper` over input or "d_" cotangent `lower`.
  void alias(const std::string& upper, const std::string& lower);

  /// Writes NaN (or the initial values) into the outputs, runs, waits, and copies everything back.
  void forward();
  /// The same for gradients: NaN where overwritten, the old values where accumulated or skipped.
  void backward(const std::vector<Ask>& asks);
  void backward(Ask ask) { backward(std::vector<Ask>(case_.inputs.size(), ask)); }
  /// Cotangents of zero from now on.
  void zero_cotangents();

  Values output(std::size_t index) const { return outputs_[index].values(); }
  Values gradient(std::size_t index) const { return gradients_[index].values(); }
  std::vector<std::byte> output_bits(std::size_t index) const { return outputs_[index].bits(); }
  std::vector<std::byte> gradient_bits(std::size_t index) const { return gradients_[index].bits(); }
  /// Of the memory of an input, an output, or a cotangent ("d_y").
  std::vector<std::byte> bits_of(const std::string& name) const;
  /// Every output's and, after a backward, every overwritten gradient's bytes.
  std::vector<std::byte> all_bits() const;

  /// What the last run changed that it must not: guard bands, inputs, cotangents, skipped targets, saved
  /// outputs.
  std::string damage() const;

  std::int64_t launches() const noexcept { return launches_; }  ///< of the last run
  std::int64_t cpu_ops() const noexcept { return cpu_ops_; }

  /// For timing: the bare calls; nothing is reset, fetched or waited for.
  Status launch_forward() { return case_.forward(call_); }
  Status launch_backward() { return case_.backward(call_); }
  void prepare_backward(const std::vector<Ask>& asks);

 private:
  Workspace workspace(std::int64_t bytes);
  void run(const std::function<Status(const Call&)>& function);
  void fetch();

  Case case_;
  Data data_;
  Place place_;
  std::vector<Image> inputs_, outputs_, cotangents_, gradients_;
  std::vector<Ask> asks_;
  bool backward_ran_ = false;
  std::vector<std::string> overlaid_;  // lower names whose contents may change
  Call call_;
  std::vector<std::unique_ptr<Image>> workspaces_;
  std::int64_t launches_ = 0, cpu_ops_ = 0;
};

}  // namespace scantape::cases
