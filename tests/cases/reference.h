#pragma once

#include "instance.h"

namespace scantape::cases {

/// The f64 reference of a case on plain vectors: what everything else is compared with.
class Reference {
 public:
  Reference(const Case& c, const Data& data);
  /// That of a run in `dtype`.
  Reference(const Case& c, const Data& data, DType dtype);

  /// An input of numbers to be changed before the next forward. An absent one counts as given from here on.
  Values& input(std::size_t index);

  void forward();
  /// Needs a forward before it. All gradients of the case.
  void backward();
  /// What backward is to find as this saved output.
  void give_output(std::size_t index, const Values& values);

  const Values& output(std::size_t index) const { return outputs_[index]; }
  const Values& gradient(std::size_t index) const { return gradients_[index]; }

 private:
  const Case& case_;
  Data data_;
  std::vector<Values> outputs_, gradients_;
  std::vector<std::vector<std::int32_t>> indices_;  ///< inputs that are i32; empty for the others
  Call call_;
};

}  // namespace scantape::cases
