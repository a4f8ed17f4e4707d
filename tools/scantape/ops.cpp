#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "commands.h"
#include "scantape/device.h"
#include "scantape/registry.h"

namespace scantape::cli {
namespace {

using nlohmann::ordered_json;

ordered_json describe(const OpArgument& argument) {
  ordered_json json = {{"name", argument.name},
                       {"shape", argument.shape},
                       {"optional", argument.optional},
                       {"gradient", argument.gradient},
                       {"dtype", argument.f64    ? "f64"
                                 : argument.i32  ? "i32"
                                 : argument.wide ? "at least f32"
                                                 : "data"}};
  if (argument.gradient)
    json["gradient_dtype"] = argument.wide || argument.wide_gradient ? "at least f32" : json["dtype"];
  if (!argument.only_with.empty()) json["only_with"] = argument.only_with;
  return json;
}

ordered_json list(const std::vector<OpArgument>& arguments) {
  ordered_json json = ordered_json::array();
  for (const OpArgument& argument : arguments) json.push_back(describe(argument));
  return json;
}

ordered_json describe(const OpInfo& op) {
  ordered_json options = ordered_json::object(), numbers = ordered_json::object(),
               dtypes = ordered_json::array();
  for (const OpOption& option : op.options) options[option.name] = option.values;
  for (const OpNumber& number : op.numbers)
    numbers[number.name] = {{"wants", number.wanted}, {"default", number.standard}};
  for (const DType dtype : op.dtypes) dtypes.push_back(name(dtype));
  ordered_json devices = {"cpu"};
  if (std::string(cuda_backend()) != "none") devices.push_back("cuda");
  return {{"op", op.name},      {"kind", name(op.kind)},     {"backward", op.has_backward()},
          {"devices", devices}, {"dtypes", dtypes},          {"options", options},
          {"numbers", numbers}, {"inputs", list(op.inputs)}, {"outputs", list(op.outputs)},
          {"limits", op.limits}};
}

void print(const OpInfo& op) {
  fmt::print("{} ({})\n", op.name, name(op.kind));
  const auto arguments = [](const char* title, const std::vector<OpArgument>& all) {
    for (const OpArgument& argument : all)
      fmt::print("  {:<8} {:<14} {}{}{}{}\n", title, argument.name, argument.shape,
                 argument.only_with.empty() ? (argument.optional ? ", optional" : "") : ", only ",
                 argument.only_with, argument.gradient ? ", gradient" : "");
  };
  arguments("input", op.inputs);
  arguments("output", op.outputs);
  for (const OpOption& option : op.options)
    fmt::print("  {:<8} {:<14} {}\n", "option", option.name, fmt::join(option.values, ", "));
  for (const OpNumber& number : op.numbers)
    fmt::print("  {:<8} {:<14} {} (default {})\n", "number", number.name, number.wanted, number.standard);
  for (const std::string& limit : op.limits) fmt::print("  {:<8} {}\n", "limit", limit);
}

void run(bool json) {
  if (!json) {
    for (const OpInfo& op : registry()) print(op);
    return;
  }
  ordered_json ops = ordered_json::array();
  for (const OpInfo& op : registry()) ops.push_back(describe(op));
  fmt::print("{}\n", ordered_json{{"format_version", 1}, {"ops", ops}}.dump(2));
}

}  // namespace

void register_ops(CLI::App& app) {
  CLI::App* command = app.add_subcommand("ops", "Every op: arguments, gradients, options, types, limits");
  command->footer("Example: scantape ops --json");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print one JSON document and nothing else");
  command->callback([json] { run(*json); });
}

}  // namespace scantape::cli
