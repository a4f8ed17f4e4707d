#include "report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace scantape::bench {
namespace {

std::string format(const char* pattern, double value) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), pattern, value);
  return text.data();
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return format("%.1f us", seconds * 1e6);
  if (seconds < 1) return format("%.2f ms", seconds * 1e3);
  return format("%.3f s", seconds);
}

/// Rates of a row, and their share of the device's roofs.
struct Rates {
  double bytes_per_s = 0, copy_share = 0, operations_per_s = 0, multiply_add_share = 0;
};

Rates rates_of(const Row& row, const Report& report) {
  const Roofs& roofs = report.roofs.at(row.device);
  const double seconds = row.median_seconds();
  Rates rates;
  rates.bytes_per_s = row.bytes / seconds;
  rates.copy_share = rates.bytes_per_s / roofs.copy_bytes_per_s;
  rates.operations_per_s = row.operations / seconds;
  rates.multiply_add_share =
      rates.operations_per_s / roofs.operations_per_s(row.dtype == "f32" ? DType::f32 : DType::f64);
  return rates;
}

/// In MB, and how many times the inputs and outputs of forward that is.
std::string memory_text(const Row& row) {
  if (!row.memory) return "";
  const auto bytes = static_cast<double>(*row.memory);
  return format("%.1f MB", bytes / 1e6) + format(" = %.2f x", bytes / row.tensor_bytes);
}

using Line = std::vector<std::string>;

Line table_line(const Row& row, const Report& report) {
  const std::string shape = row.variant.empty() ? row.shape : row.shape + " " + row.variant;
  Line line = {row.op, row.direction, row.dtype, row.device, shape};
  if (!row.failure.empty()) {
    line.insert(line.end(), {"WRONG", "", "", "", "", "", ""});
    return line;
  }
  const Rates rates = rates_of(row, report);
  line.insert(line.end(), {time_text(row.median_seconds()), format("%.1f %%", 100 * row.spread()),
                           format("%.2f", rates.bytes_per_s / 1e9), format("%.1f %%", 100 * rates.copy_share),
                           format("%.2f", rates.operations_per_s / 1e9),
                           format("%.2f %%", 100 * rates.multiply_add_share), memory_text(row)});
  return line;
}

void print_lines(const std::vector<Line>& lines, std::size_t text_columns, std::ostream& out) {
  std::vector<std::size_t> widths(lines.front().size(), 0);
  for (const Line& line : lines)
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  for (std::size_t n = 0; n < lines.size(); ++n) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::string padding(widths[i] - lines[n][i].size(), ' ');
      out << "| " << (i < text_columns ? lines[n][i] + padding : padding + lines[n][i]) << ' ';
    }
    out << "|\n";
    if (n > 0) continue;
    for (std::size_t i = 0; i < widths.size(); ++i)
      out << '|' << std::string(widths[i] + 1, '-') << (i < text_columns ? '-' : ':');
    out << "|\n";
  }
}

nlohmann::json json_of(const Roofs& roofs) {
  return {{"copy_bytes_per_s", roofs.copy_bytes_per_s},
          {"copy_size", roofs.copy_size},
          {"multiply_add_operations_per_s",
           {{"f32", roofs.multiply_adds_f32_per_s}, {"f64", roofs.multiply_adds_f64_per_s}}},
          {"instructions", roofs.instructions}};
}

nlohmann::json json_of(const Row& row, const Report& report) {
  nlohmann::json json = {{"op", row.op},
                         {"direction", row.direction},
                         {"dtype", row.dtype},
                         {"device", row.device},
                         {"backend", row.device == "cpu" ? "cpu" : report.backend},
                         {"case", row.case_name},
                         {"variant", row.variant},
                         {"shape", row.shape},
                         {"bytes", row.bytes},
                         {"operations", row.operations},
                         {"pass", row.failure.empty()}};
  if (!row.failure.empty()) {
    json["failure"] = row.failure;
    return json;
  }
  const Rates rates = rates_of(row, report);
  if (row.memory) json["memory_bytes"] = *row.memory, json["tensor_bytes"] = row.tensor_bytes;
  json["seconds"] = row.median_seconds();
  json["spread"] = row.spread();
  json["repetitions"] = row.seconds;
  json["bytes_per_s"] = rates.bytes_per_s;
  json["copy_roof_share"] = rates.copy_share;
  json["operations_per_s"] = rates.operations_per_s;
  json["multiply_add_roof_share"] = rates.multiply_add_share;
  return json;
}

}  // namespace

double Row::median_seconds() const {
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double Row::spread() const {
  const auto [low, high] = std::minmax_element(seconds.begin(), seconds.end());
  return (*high - *low) / 2 / median_seconds();
}

void print_table(const Report& report, std::ostream& out) {
  out << "scantape " << report.git << ", " << report.build_type << ", " << report.compiler << ", "
      << report.date << "\n";
  for (const auto& [device, roofs] : report.roofs) {
    out << device << ": " << report.descriptions.at(device);
    if (device == "cpu") out << ", " << report.threads << " threads";
    out << "; roofs of this run: copy of " << roofs.copy_size
        << format(" %.1f GB/s", roofs.copy_bytes_per_s / 1e9)
        << format(" (read + write), multiply-add f32 %.1f", roofs.multiply_adds_f32_per_s / 1e9)
        << format(", f64 %.1f GFLOP/s (", roofs.multiply_adds_f64_per_s / 1e9) << roofs.instructions << ")\n";
  }
  out << "Each op was compared with the reference before it was timed. Bytes count each tensor once. The "
         "same buffers are\n"
         "used by every call: what fits into a cache stays there and may pass the copy roof. Memory is what "
         "forward and\n"
         "backward together hold at most, and how many times the inputs and outputs of forward that is.\n\n";
  std::vector<Line> lines = {{"op", "direction", "dtype", "device", "shape", "time", "+-", "GB/s", "of copy",
                              "GFLOP/s", "of multiply-add", "memory"}};
  for (const Row& row : report.rows) lines.push_back(table_line(row, report));
  print_lines(lines, 5, out);
  for (const Row& row : report.rows)
    if (!row.failure.empty())
      out << "WRONG " << row.case_name << ' ' << row.direction << ' ' << row.dtype << ' ' << row.device
          << ": " << row.failure << "\n";
}

void write_json(const Report& report, std::ostream& out) {
  nlohmann::json json = {{"format_version", 1},
                         {"program", "bench_ops"},
                         {"git", report.git},
                         {"build_type", report.build_type},
                         {"compiler", report.compiler},
                         {"date", report.date},
                         {"threads", report.threads},
                         {"backend", report.backend},
                         {"devices", nlohmann::json::object()},
                         {"rows", nlohmann::json::array()}};
  for (const auto& [device, roofs] : report.roofs)
    json["devices"][device] = {{"description", report.descriptions.at(device)}, {"roofs", json_of(roofs)}};
  for (const Row& row : report.rows) json["rows"].push_back(json_of(row, report));
  out << json.dump(1) << '\n';
}

}  // namespace scantape::bench
