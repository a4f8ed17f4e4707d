#pragma once

namespace scantape {

/// Which norm: `layer` takes the mean off, `rms` does not.
enum class Norm { layer, rms };

/// Numbers that forward saves for a row.
template <Norm kNorm>
inline constexpr int kNormStatistics = kNorm == Norm::layer ? 3 : 1;

/// What the norms do near the ends of a type's range. The same on every device: it is part of what the saved
/// statistics mean.
///
/// Squares of values above kHuge may overflow: a row that holds one is normalised as x * kShrink, without eps.
/// Squares of deviations in a row below kTiny may vanish where eps, below kTinyEps, does not hide it: they are
/// lifted by kLift before they are squared, and eps with them. The statistics that are saved do not show that.
/// An eps, lifted or not, that is below the type's smallest normal number counts as that number.
template <class T>
struct NormRange;
template <>
struct NormRange<float> {
  static constexpr float kHuge = 0x1p60f, kShrink = 0x1p-100f, kUnshrink = 0x1p100f;
  static constexpr float kTiny = 0x1p-30f, kLift = 0x1p60f;
  static constexpr double kTinyEps = 0x1p-80;
};
template <>
struct NormRange<double> {
  static constexpr double kHuge = 0x1p500, kShrink = 0x1p-600, kUnshrink = 0x1p600;
  static constexpr double kTiny = 0x1p-300, kLift = 0x1p500;
  static constexpr double kTinyEps = 0x1p-700;
};

}  // namespace scantape
