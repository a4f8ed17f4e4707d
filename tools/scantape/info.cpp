#include <fmt/format.h>
#include <omp.h>

#include <nlohmann/json.hpp>

#include "commands.h"
#include "scantape/device.h"
#include "scantape/version.h"

namespace scantape::cli {
namespace {

using nlohmann::ordered_json;

ordered_json describe(const DeviceInfo& device) {
  ordered_json json = {{"device", name(device.device)}, {"name", device.description}};
  if (!device.device.is_cpu()) {
    json["memory_bytes"] = device.memory_bytes;
    json["compute_capability"] = fmt::format("{}.{}", device.compute_major, device.compute_minor);
  }
  return json;
}

ordered_json info() {
  ordered_json json = {{"format_version", 1},
                       {"version", version()},
                       {"git_hash", git_hash()},
                       {"build_type", SCANTAPE_BUILD_TYPE},
                       {"cuda", cuda_backend()},
                       {"cpu_instruction_set", cpu_instruction_set()},
                       {"matrix_product", {{"cpu", "scantape"}, {"batch_invariant", true}}},
                       {"threads", omp_get_max_threads()},
                       {"devices", ordered_json::array()}};
  for (const DeviceInfo& device : devices()) json["devices"].push_back(describe(device));
  return json;
}

void print(const ordered_json& json) {
  const auto text = [&](const char* key) { return json[key].get<std::string>(); };
  fmt::print("scantape {} ({}, {} build)\n", text("version"), text("git_hash"), text("build_type"));
  fmt::print("cuda is {}\n", text("cuda"));
  fmt::print(
      "matrix products on the cpu: scantape's own, {}, the same bits for every batch and number of threads\n",
      text("cpu_instruction_set"));
  fmt::print("threads {}\n", json["threads"].get<int>());
  for (const ordered_json& device : json["devices"])
    fmt::print("device {}: {}\n", device["device"].get<std::string>(), device["name"].get<std::string>());
}

}  // namespace

void register_info(CLI::App& app) {
  CLI::App* command = app.add_subcommand("info", "Version, build, devices, matrix product, threads");
  command->footer("Example: scantape info --json");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print one JSON document and nothing else");
  command->callback([json] {
    if (*json)
      fmt::print("{}\n", info().dump(2));
    else
      print(info());
  });
}

}  // namespace scantape::cli
