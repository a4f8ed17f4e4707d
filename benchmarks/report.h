#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "roofs.h"

/// What bench_ops found out, as a table for people and as JSON for programs.
namespace scantape::bench {

/// One op, direction, type, device and case.
struct Row {
  std::string op, direction, dtype, device, case_name, variant, shape;
  double bytes = 0;         ///< to be moved at least: each tensor once
  double operations = 0;    ///< additions and multiplications
  double tensor_bytes = 0;  ///< inputs and outputs of forward
  /// Bytes that forward and backward hold at most, all tensors included; none where the system does not say.
  std::optional<std::int64_t> memory;
  std::string failure;          ///< what the check found; such a row has no times
  std::vector<double> seconds;  ///< of one call, one value a repetition

  double median_seconds() const;
  /// Half the distance between the fastest and the slowest repetition, over the median.
  double spread() const;
};

struct Report {
  std::string backend;  ///< what `cuda` is: native, emulated, none
  std::string git, compiler, build_type;
  std::string date;  ///< UTC
  int threads = 0;
  std::map<std::string, std::string> descriptions;  ///< of the devices in use
  std::map<std::string, Roofs> roofs;               ///< by device
  std::vector<Row> rows;
};

void print_table(const Report& report, std::ostream& out);
void write_json(const Report& report, std::ostream& out);

}  // namespace scantape::bench
