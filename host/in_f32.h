#pragma once

#include <memory>
#include <vector>

#include "scantape/causal_conv1d.h"
#include "scantape/copy.h"
#include "scantape/cross_entropy.h"
#include "scantape/embedding.h"
#include "scantape/gated_rms_norm.h"
#include "scantape/layer_norm.h"
#include "scantape/neg_exp.h"
#include "scantape/projection.h"
#include "scantape/rms_norm.h"
#include "scantape/scan.h"
#include "scantape/selective_scan.h"
#include "scantape/silu.h"
#include "scantape/softplus.h"
#include "scantape/ssd.h"
#include "scantape/ssd_step.h"

/// Ops on tensors of 16 bits on the CPU: their f32 form between two conversions. Inputs are converted, which is
/// exact; what the op writes is rounded once, at the end. Tensors that are f32 already stay what they are.
namespace scantape {

/// f32 in place of the 16-bit tensors of one call.
class InF32 {
 public:
  void read(ConstView& view);
  void write(View& view);
  /// An accumulating gradient starts from what is there: f32 adds, and the sum is rounded once.
  void write(Gradient& gradient);
  /// x becomes x + more, rounded to the type that x had.
  void add(const ConstView& x, const ConstView& more);

  /// Rounds what was written into the caller's tensors.
  void finish() const;

 private:
  struct Copy {
    std::unique_ptr<float[]> values;
    ConstView original;
  };
  ConstView converted(const ConstView& view, bool with_values);

  std::vector<Copy> copies_;
  std::vector<std::pair<View, const float*>> results_;
};

/// Puts f32 in place of what the op reads and writes.
void convert(InF32& f32, CopyForward& args);
void convert(InF32& f32, CopyBackward& args);
void convert(InF32& f32, NegExpForward& args);
void convert(InF32& f32, NegExpBackward& args);
void convert(InF32& f32, SiluForward& args);
void convert(InF32& f32, SiluBackward& args);
void convert(InF32& f32, SoftplusForward& args);
void convert(InF32& f32, SoftplusBackward& args);
void convert(InF32& f32, NormForward& args);
void convert(InF32& f32, NormBackward& args);
void convert(InF32& f32, ProjectionForward& args);
void convert(InF32& f32, ProjectionBackward& args);
void convert(InF32& f32, ScanForward& args);
void convert(InF32& f32, ScanBackward& args);
void convert(InF32& f32, SsdForward& args);
void convert(InF32& f32, SsdBackward& args);
void convert(InF32& f32, SsdStepForward& args);
void convert(InF32& f32, SsdStepBackward& args);
void convert(InF32& f32, SelectiveScanForward& args);
void convert(InF32& f32, SelectiveScanBackward& args);
void convert(InF32& f32, CausalConv1dForward& args);
void convert(InF32& f32, CausalConv1dBackward& args);
void convert(InF32& f32, GatedRmsNormForward& args);
void convert(InF32& f32, GatedRmsNormBackward& args);
void convert(InF32& f32, EmbeddingBackward& args);
void convert(InF32& f32, CrossEntropyForward& args);
void convert(InF32& f32, CrossEntropyBackward& args);

/// Runs `form`, which takes f32, on arguments of 16 bits.
template <class Args>
Status in_f32(const char* op, const Args& args, Status (*form)(const Args&) noexcept) noexcept {
  try {
    InF32 f32;
    Args converted = args;
    convert(f32, converted);
    SCANTAPE_TRY(form(converted));
    f32.finish();
    return {};
  } catch (const std::bad_alloc&) {
    return Status::fail(Code::out_of_memory, op);
  } catch (const std::exception& error) {
    return Status::fail(Code::out_of_memory, error.what());
  }
}

}  // namespace scantape
