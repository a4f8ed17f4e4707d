#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "case.h"
#include "instance.h"

/// Turns cases into verdicts. Test programs, `scantape gradcheck` and whoever adds an op use the same
/// functions. Nothing here throws for a wrong result or for a refused call: it becomes a row that did not
/// pass.
namespace scantape::cases {

struct Row {
  std::string op, case_name, variant;
  std::string device, backend, dtype;  ///< "cpu", "cuda:0"; "reference", "cpu", "emulated", "native"; "f32"
  std::string argument;                ///< an output, or the input whose gradient this is
  double max_rel_err = 0, tolerance = 0;
  std::int64_t launches = 0;  ///< of kernels, by the call behind this row
  bool pass = false;
  std::string message;  ///< what is wrong; empty where it passed
};

using Rows = std::vector<Row>;

bool all_pass(const Rows& rows) noexcept;  // and there is at least one
/// The failures, each with what is needed to run it again.
std::string failures(const Rows& rows, std::uint64_t seed);

/// Gradients of the reference in f64 against central differences: every element of small cases, a sample of
/// large ones, with random cotangents. Empty for cases that are not smooth or have no backward. Tolerance
/// 1e-6.
Rows finite_differences(const Case& c, std::uint64_t seed);

/// Outputs and gradients at a place against the f64 reference on the same rounded inputs, within the case's
/// budgets; guard bands; the counters that say where the work ran; the case's exact conditions. Gradients
/// overwrite NaN.
Rows compare(const Case& c, Place place, std::uint64_t seed);

/// Each gradient overwritten, accumulated and skipped, alone and beside the others.
Rows write_modes(const Case& c, Place place, std::uint64_t seed);
/// How many runs repetitions() compares: twenty; under the sanitizers and of a benchmark's size four.
int repetitions_of(const Case& c) noexcept;
/// That many runs, by turns with one and with two threads, give the same bytes.
Rows repetitions(const Case& c, Place place, std::uint64_t seed);
/// An item's bytes, outputs and gradients, are those it has alone and in a batch twice as large, at any
/// place.
Rows item_independence(const Case& c, Place place, std::uint64_t seed);
/// A zero cotangent gives exactly zero.
Rows zero_cotangents(const Case& c, Place place, std::uint64_t seed);
/// Where an output may lie over an input, it gives the same bytes there.
Rows in_place(const Case& c, Place place, std::uint64_t seed);

struct Selection {
  std::string op{};                ///< empty: every op
  std::string case_name{};         ///< part of the name; empty: every case
  std::optional<Device> device{};  ///< neither: the cpu and, where there is one, cuda
  std::uint64_t seed = 1;
};

std::vector<const Case*> selected(const Selection& selection);

/// The gradient checks: finite differences of the reference, then each device in f64 and f32 against it.
/// Throws Error(invalid_argument) for an unknown op or a selection without cases, Error(unsupported) for a
/// device that is not there.
Rows gradcheck(const Selection& selection, const std::function<void(const Row&)>& on_row = {});

}  // namespace scantape::cases
